/*
 * leaf_tree.c - which parts of a sum over virtual ranks may be added before others. Layer: elastic.
 */
#include "elastic/leaf_tree.h"

yk__leaves yk__leaves_of(int leaves, int parts, int part)
{
    int each = leaves / parts, more = leaves % parts;
    int begin = part * each + (part < more ? part : more);
    return (yk__leaves){begin, begin + each + (part < more)};
}

/* The left child of a node of level l + 1 is whole, 2^l leaves, and begins at a multiple of 2^(l + 1); the right one
 * has as many, or those that are left. */
bool yk__leaves_join(int leaves, yk__leaves left, yk__leaves right)
{
    int size = left.end - left.begin, end = left.begin + 2 * size < leaves ? left.begin + 2 * size : leaves;
    return left.end == right.begin && (size & (size - 1)) == 0 && left.begin % (2 * size) == 0 && right.end == end;
}

int yk__leaves_nodes(int leaves, yk__leaves range, yk__leaves nodes[YK__MOST_NODES])
{
    int count = 0;
    for (int leaf = range.begin; leaf < range.end; leaf++) {
        nodes[count++] = (yk__leaves){leaf, leaf + 1};
        for (; count > 1 && yk__leaves_join(leaves, nodes[count - 2], nodes[count - 1]); count--)
            nodes[count - 2].end = nodes[count - 1].end;
    }
    return count;
}

/* The leaves of parts [first, end). */
static yk__leaves leaves_between(int leaves, int parts, int first, int end)
{
    return (yk__leaves){yk__leaves_of(leaves, parts, first).begin, yk__leaves_of(leaves, parts, end - 1).end};
}

/* The node of the tree over parts that stands for [first, end), and all below it, are nodes of the tree over leaves. */
static bool even_between(int leaves, int parts, int first, int end)
{
    if (end - first == 1) {
        yk__leaves nodes[YK__MOST_NODES];
        return yk__leaves_nodes(leaves, yk__leaves_of(leaves, parts, first), nodes) == 1;
    }
    int size = 1; /* of the left child */
    while (2 * size < end - first)
        size *= 2;
    int middle = first + size;
    return yk__leaves_join(leaves, leaves_between(leaves, parts, first, middle),
                           leaves_between(leaves, parts, middle, end)) &&
           even_between(leaves, parts, first, middle) && even_between(leaves, parts, middle, end);
}

bool yk__leaves_even(int leaves, int parts)
{
    return even_between(leaves, parts, 0, parts);
}

double yk__leaves_sum(double *values, int leaves)
{
    for (int count = leaves; count > 1; count = (count + 1) / 2) {
        for (int i = 0; i < count / 2; i++)
            values[i] = values[2 * i] + values[2 * i + 1];
        if (count & 1)
            values[count / 2] = values[count - 1];
    }
    return values[0];
}
