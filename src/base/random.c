/*
 * random.c - the process's generator. Layer: base.
 *
 * It holds a seed and a number of calls, nothing else: each call that draws gets a Philox stream of its own, so what
 * it draws does not depend on how many threads share the work.
 */
#include "base/philox_words.h"
#include "base/random_branch.h"

static _Atomic uint64_t seed;
static atomic_uint calls;

/* The generator of a thread that has one of its own: a seed, and a number of calls. */
static _Thread_local struct {
    bool used;
    uint64_t key;
    uint32_t calls;
} branch;

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

void yk__random_branch_begin(yk_random_state from, uint32_t number)
{
    yk__stream s = {.key = from.seed, .purpose = YK__RANDOM_BRANCH, .epoch = from.calls};
    uint32_t words[4];
    yk__philox(s, number, words);
    branch.used = true;
    branch.key = (uint64_t)words[1] << 32 | words[0];
    branch.calls = 0;
}

bool yk__random_branch_end(void)
{
    branch.used = false;
    return branch.calls > 0;
}

bool yk__random_branch_used(void)
{
    return branch.used;
}

void yk__random_skip(uint32_t more)
{
    atomic_fetch_add(&calls, more);
}

void yk__random_follow(yk_random_state *generators, int64_t count)
{
    yk_random_state before = generators[0], now = yk_random_get_state();
    for (int64_t i = 0; i < count; i++) {
        generators[i].calls = now.seed == before.seed ? generators[i].calls + (now.calls - before.calls) : now.calls;
        generators[i].seed += now.seed - before.seed;
    }
}

yk__stream yk__random_next(void)
{
    if (branch.used)
        return (yk__stream){.key = branch.key, .purpose = YK__RANDOM_USER, .epoch = branch.calls++};
    return (yk__stream){.key = atomic_load(&seed), .purpose = YK__RANDOM_USER, .epoch = atomic_fetch_add(&calls, 1)};
}

/* Draws made at a time: what they exchange is fetched before it is its turn. */
enum { DRAWS = 256 };

void yk__random_permutation(yk__stream s, int64_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    int64_t picked[DRAWS];
    uint32_t words[2 * DRAWS];
    for (int64_t i = n - 1, drawn = 0; i > 0; i -= DRAWS, drawn += DRAWS) {
        int64_t m = i < DRAWS ? i : DRAWS;
        yk__philox_words(s, (uint64_t)drawn / 2, (m + 1) / 2, words);
        for (int64_t k = 0; k < m; k++) {
            picked[k] = (int64_t)yk__below(words[2 * k], words[2 * k + 1], (uint64_t)(i - k) + 1);
            __builtin_prefetch(&order[picked[k]], 1);
        }
        for (int64_t k = 0; k < m; k++) {
            int64_t kept = order[i - k];
            order[i - k] = order[picked[k]];
            order[picked[k]] = kept;
        }
    }
}
