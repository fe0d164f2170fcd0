/*
 * random_branch.h - a generator of its own for a thread that computes a part of what another thread computes. Layer:
 * base.
 */
#ifndef YOKE_BASE_RANDOM_BRANCH_H
#define YOKE_BASE_RANDOM_BRANCH_H

#include "base/core.h"

/*
 * Until the end, what this thread draws comes from branch `number`, from 1, of the process's generator in the state
 * `from`, not from the generator itself: it depends on these two alone, not on what other threads draw meanwhile. end
 * says whether anything was drawn. Does not nest.
 */
void yk__random_branch_begin(yk_random_state from, uint32_t number);
bool yk__random_branch_end(void);
bool yk__random_branch_used(void);
/* Generators [0, count), of which the first was the process's own, follow what the process has drawn since, or how it
 * was seeded anew: all move as far. The first is then the process's again. */
void yk__random_follow(yk_random_state *generators, int64_t count);
/* The process's generator as after `calls` more calls that draw. */
void yk__random_skip(uint32_t calls);

#endif
