/*
 * sampler.h - which positions of an epoch's order a rank takes. Layer: data.
 */
#ifndef YOKE_DATA_SAMPLER_H
#define YOKE_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

/* The largest batch size: any number beyond what memory holds, far from where sizes overflow. */
#define YK__MOST_BATCH ((int64_t)1 << 32)

/* The turns of an epoch whose end is not known: any number that is never reached, far from where sums overflow. */
#define YK__MOST_TURNS ((int64_t)1 << 60)

/* See the note in sampler.c. A value, filled in by its holder. */
typedef struct yk__sampler {
    int64_t length; /* of the order */
    int64_t start;  /* positions before it were taken by earlier ranks, in [0, length] */
    int64_t batch_size;
    int rank, world;
    bool drop_last, no_padding;
} yk__sampler;

/* Samples that this rank takes, with padding and before drop_last leaves out a batch. */
int64_t yk__sampler_samples(const yk__sampler *s);
int64_t yk__sampler_batches(const yk__sampler *s);
/* The position in the order of the rank's sample i; one that is padding has that of the sample that it repeats. */
int64_t yk__sampler_index(const yk__sampler *s, int64_t i);
/* The number of samples of the rank's batch that are padding, which are its last ones. */
int64_t yk__sampler_padding(const yk__sampler *s, int64_t batch);
/*
 * The turns of a loader that gives the parts of several ranks: in a step each rank gives `accumulate` batches, or those
 * that are left, before the next rank does.
 */
typedef struct yk__turns {
    int ranks;
    int64_t accumulate;
    int64_t origin, batches; /* of each rank: where the steps begin, and the end of its part */
} yk__turns;

typedef struct yk__turn {
    int rank;            /* from 0, the first of those whose parts are given */
    int64_t batch;       /* of that rank's part */
    int64_t begin;       /* the first batch of the step */
    int64_t part, parts; /* its number among the rank's batches in this step, from 0, and their number */
} yk__turn;

/* Batches that are given in all. */
int64_t yk__turns_count(const yk__turns *t);
/* The i-th of them. */
yk__turn yk__turns_at(const yk__turns *t, int64_t i);

/* Positions that all ranks together have behind them when each has taken so many batches, at most `length`. */
int64_t yk__sampler_taken(const yk__sampler *s, int64_t batches);

#endif
