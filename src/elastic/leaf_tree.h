/*
 * leaf_tree.h - which parts of a sum over virtual ranks may be added before others. Layer: elastic.
 *
 * The gradients of the virtual ranks are the leaves of the tree of Note [The order of a reduction] in
 * comm/native/combine.c: with 7 of them ((0 + 1) + (2 + 3)) + ((4 + 5) + 6). A process computes leaves that stand side
 * by side, and may add two neighbours only where they are the two children of one node.
 */
#ifndef YOKE_ELASTIC_LEAF_TREE_H
#define YOKE_ELASTIC_LEAF_TREE_H

#include <stdbool.h>

/* Nodes that a range of leaves falls into at most: two of each size, for 2^16 leaves. */
enum { YK__MOST_NODES = 2 * 17 };

/* Leaves [begin, end): those of a process, or of a node of the tree. */
typedef struct yk__leaves {
    int begin, end;
} yk__leaves;

/* The leaves of one of `parts` processes: as many as each other one has, or one less, the larger parts first. */
yk__leaves yk__leaves_of(int leaves, int parts, int part);
/* Divides the leaves by the seconds that each process takes for one, so that the slowest is done as early as can be;
 * each has one at least. Process p has [begin[p], begin[p + 1]); returns the seconds until all are done. */
double yk__leaves_divide(int leaves, int parts, const double *seconds, int *begin);
/* True for two nodes of the tree over `leaves` that are the children of one node, left and right. */
bool yk__leaves_join(int leaves, yk__leaves left, yk__leaves right);
/* The nodes that a range falls into, as few as there can be, from the left; returns how many. */
int yk__leaves_nodes(int leaves, yk__leaves range, yk__leaves nodes[YK__MOST_NODES]);
/* True where each part is one node, and the tree over the parts is the upper end of the tree over all leaves: a
 * reduction over the processes then adds the right neighbours. */
bool yk__leaves_even(int leaves, int parts, const int *begin);
/* The sum of numbers in the tree's order; they are written over. */
double yk__leaves_sum(double *values, int leaves);

#endif
