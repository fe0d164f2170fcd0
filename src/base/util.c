/*
 * util.c - time, environment, names, log. Layer: base.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/core.h"

double yk__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

yk_status yk__env_int(const char *name, int64_t fallback, int64_t least, int64_t most, int64_t *value)
{
    const char *text = getenv(name);
    *value = fallback;
    if (!text || !*text)
        return YK_OK;
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || *end || number < least || number > most)
        return yk__fail(YK_ERR_ARGUMENT, "%s=%s: expected an integer from %lld to %lld", name, text, (long long)least,
                        (long long)most);
    *value = number;
    return YK_OK;
}

static int (*_Atomic caught_signal)(void);

void yk__signals_are_caught(int (*pending)(void))
{
    atomic_store(&caught_signal, pending);
}

int yk__signal_pending(void)
{
    int (*pending)(void) = atomic_load_explicit(&caught_signal, memory_order_relaxed);
    return pending ? pending() : 0;
}

static _Atomic uint64_t job_rank; /* world size above, rank below */

void yk__job_rank_set(int rank, int world_size)
{
    atomic_store(&job_rank, (uint64_t)(uint32_t)world_size << 32 | (uint32_t)rank);
}

bool yk__job_rank_get(int *rank, int *world_size)
{
    uint64_t both = atomic_load(&job_rank);
    if (!both)
        return false;
    *world_size = (int)(both >> 32);
    *rank = (int)(both & UINT32_MAX);
    return true;
}

/* Levenshtein distance of two short names, letters compared without case. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t n = strlen(b);
    size_t row[LONGEST + 1];
    if (n > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            char x[2] = {a[i], 0}, y[2] = {b[j], 0};
            size_t best = diagonal + (strcasecmp(x, y) != 0);
            diagonal = row[j + 1];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j + 1] + 1 < best)
                best = row[j + 1] + 1;
            row[j + 1] = best;
        }
    }
    return row[n];
}

const char *yk__nearest(const char *name, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t least = strlen(name) / 3 + 2; /* farther than that is no likeness */
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(name, names[i]);
        size_t length = strlen(name);
        if (length >= 3 && strncasecmp(name, names[i], length) == 0)
            distance = 1; /* a beginning of the right name */
        if (distance < least) {
            least = distance;
            best = names[i];
        }
    }
    return best;
}
