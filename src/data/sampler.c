/*
 * sampler.c - how the ranks take an epoch apart. Layer: data.
 *
 * Note [Places of an epoch]
 * The order has positions 0 to length - 1. With `start` = s, rank r of W takes positions s + r, s + r + W, s + r + 2W,
 * ... and puts B of them into each batch, so batch b of all ranks together is the B * W positions from s + b * B * W
 * on: what was taken is always the front of the order. That is why an epoch can be gone on with in any other layout:
 * the new ranks start at the first position that was not taken, whatever W and B were before.
 *
 *   8 ranks, batches of 2, one step         | 3 ranks, batches of 2
 *   0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15   | 16 17 18 19 20 21   22 23 (22) ...
 *   r0's: 0 8   r1's: 1 9   ...             | r0's: 16 19   r1's: 17 20   r2's: 18 21
 *
 * Where W does not divide what is left, the last round of positions passes the end of the order: some ranks have
 * nothing to take. They repeat a sample from the order's beginning (padding), so that all ranks make equally many steps
 * of equally many samples. With no_padding they take nothing, and with drop_last nobody takes a position of that round.
 * A rank has one padding at most, its last sample.
 */
#include "data/sampler.h"

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

int64_t yk__sampler_samples(const yk__sampler *s)
{
    int64_t left = s->length - s->start;
    if (s->drop_last)
        return left / s->world;
    if (s->no_padding)
        return left > s->rank ? divide_up(left - s->rank, s->world) : 0;
    return divide_up(left, s->world);
}

int64_t yk__sampler_batches(const yk__sampler *s)
{
    int64_t samples = yk__sampler_samples(s);
    return s->drop_last ? samples / s->batch_size : divide_up(samples, s->batch_size);
}

int64_t yk__sampler_index(const yk__sampler *s, int64_t i)
{
    int64_t index = s->start + s->rank + i * s->world;
    return index < s->length ? index : (index - s->length) % s->length;
}

int64_t yk__sampler_padding(const yk__sampler *s, int64_t batch)
{
    int64_t last = yk__sampler_samples(s) - 1;
    return batch == last / s->batch_size && s->start + s->rank + last * s->world >= s->length;
}

int64_t yk__turns_count(const yk__turns *t)
{
    return (t->batches - t->origin) * t->ranks;
}

yk__turn yk__turns_at(const yk__turns *t, int64_t i)
{
    int64_t round = t->accumulate * t->ranks, step = i / round, at = i % round;
    yk__turn turn = {.begin = t->origin + step * t->accumulate};
    int64_t left = t->batches - turn.begin;
    turn.parts = left < t->accumulate ? left : t->accumulate;
    turn.rank = (int)(at / turn.parts);
    turn.part = at % turn.parts;
    turn.batch = turn.begin + turn.part;
    return turn;
}

int64_t yk__sampler_taken(const yk__sampler *s, int64_t batches)
{
    int64_t left = s->length - s->start, round = s->batch_size * s->world; /* 2^32 * 2^31 at most */
    return batches <= left / round ? s->start + batches * round : s->length;
}
