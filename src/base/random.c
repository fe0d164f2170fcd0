/*
 * random.c - the process's generator. Layer: base.
 *
 * It holds a seed and a number of calls, nothing else: each call that draws gets a Philox stream of its own, so what
 * it draws does not depend on how many threads share the work.
 */
#include "base/core.h"

static _Atomic uint64_t seed;
static atomic_uint calls;

void yk_manual_seed(uint64_t value)
{
    atomic_store(&seed, value);
    atomic_store(&calls, 0);
}

yk_random_state yk_random_get_state(void)
{
    return (yk_random_state){atomic_load(&seed), atomic_load(&calls)};
}

void yk_random_set_state(yk_random_state state)
{
    atomic_store(&seed, state.seed);
    atomic_store(&calls, state.calls);
}

yk__stream yk__random_next(void)
{
    return (yk__stream){.key = atomic_load(&seed), .purpose = YK__RANDOM_USER, .epoch = atomic_fetch_add(&calls, 1)};
}

void yk__random_permutation(yk__stream s, int64_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    uint32_t words[4] = {0};
    for (int64_t i = n - 1, drawn = 0; i > 0; i--, drawn++) {
        if (drawn % 2 == 0)
            yk__philox(s, (uint64_t)(drawn / 2), words);
        const uint32_t *pair = words + 2 * (drawn % 2);
        int64_t j = (int64_t)yk__below(pair[0], pair[1], (uint64_t)i + 1);
        int64_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}
