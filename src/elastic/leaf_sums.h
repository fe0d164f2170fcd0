/*
 * leaf_sums.h - the gradients of a step, added in the order of the tree over all virtual ranks. Layer: elastic.
 * elastic.
 */
#ifndef YOKE_ELASTIC_LEAF_SUMS_H
#define YOKE_ELASTIC_LEAF_SUMS_H

#include "elastic/leaf_tree.h"
#include "parallel/reducer.h"

typedef struct yk__leaf_sum yk__leaf_sum;

typedef struct yk__leaf_sums {
    int leaves, rank, world;
    const int *begin;        /* (world + 1), borrowed: process p has the leaves [begin[p], begin[p + 1]) */
    yk__leaves mine;         /* the leaves of this process */
    bool even;               /* yk__leaves_even: each process ends with one node, and all_reduce adds these */
    yk__leaf_sum *of_bucket; /* as many as the reducer has buckets; made with the first gradients */
    int n_buckets;
} yk__leaf_sums;

void yk__leaf_sums_init(yk__leaf_sums *s, int leaves, int rank, int world, const int *begin);
/* Drops what an unfinished step has added. */
void yk__leaf_sums_reset(yk__leaf_sums *s);
void yk__leaf_sums_clear(yk__leaf_sums *s);
/* Adds the gradients in the buckets, those of a leaf, after a backward that was not synchronised; leaves come in their
 * order. */
yk_status yk__leaf_sums_add(yk__leaf_sums *s, const yk__reducer *r, int leaf);
/* For the last leaf of this process, in its synchronised backward: the two halves of a communication hook, which leave
 * the mean over all leaves in the bucket. */
yk_work *yk__leaf_sums_start(yk__leaf_sums *s, yk_ddp_bucket *bucket);
yk_status yk__leaf_sums_finish(yk__leaf_sums *s, yk_ddp_bucket *bucket);

#endif
