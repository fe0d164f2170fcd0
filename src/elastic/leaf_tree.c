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

/* The node of the tree over parts that stands for [first, end), and all below it, are nodes of the tree over leaves. */
static bool even_between(int leaves, const int *begin, int first, int end)
{
    if (end - first == 1) {
        yk__leaves nodes[YK__MOST_NODES];
        return yk__leaves_nodes(leaves, (yk__leaves){begin[first], begin[end]}, nodes) == 1;
    }
    int size = 1; /* of the left child */
    while (2 * size < end - first)
        size *= 2;
    int middle = first + size;
    return yk__leaves_join(leaves, (yk__leaves){begin[first], begin[middle]},
                           (yk__leaves){begin[middle], begin[end]}) &&
           even_between(leaves, begin, first, middle) && even_between(leaves, begin, middle, end);
}

bool yk__leaves_even(int leaves, int parts, const int *begin)
{
    return even_between(leaves, begin, 0, parts);
}

/* Each leaf that is left goes where it is done first. begin[p + 1] is the number of p's until all are given out. */
double yk__leaves_divide(int leaves, int parts, const double *seconds, int *begin)
{
    double last = 0;
    for (int p = 0; p < parts; p++)
        begin[p + 1] = 1;
    for (int leaf = parts; leaf < leaves; leaf++) {
        int best = 0;
        for (int p = 1; p < parts; p++)
            if ((begin[p + 1] + 1) * seconds[p] < (begin[best + 1] + 1) * seconds[best])
                best = p;
        begin[best + 1]++;
    }
    begin[0] = 0;
    for (int p = 0; p < parts; p++) {
        last = begin[p + 1] * seconds[p] > last ? begin[p + 1] * seconds[p] : last;
        begin[p + 1] += begin[p];
    }
    return last;
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
