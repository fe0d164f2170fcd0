/*
 * wakeup.c - the words that sleeping threads sleep on. Layer: base.
 *
 * Invariant: a slot is NULL or the word of a sleeper between begin and end. A handler may read a word whose sleeper has
 * just gone: it gives the address to the system only, which checks it.
 */
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/wakeup.h"

enum { SLOTS = 32 }; /* threads that sleep for ranks at one time: one for each group that waits */

static _Atomic(_Atomic uint32_t *) words[SLOTS];

int yk__wakeup_begin(_Atomic uint32_t *word)
{
    for (int i = 0; i < SLOTS; i++) {
        _Atomic uint32_t *none = NULL;
        if (atomic_compare_exchange_strong(&words[i], &none, word))
            return i;
    }
    return -1;
}

void yk__wakeup_end(int slot)
{
    if (slot >= 0)
        atomic_store(&words[slot], NULL);
}

void yk__wakeup_all(void)
{
    for (int i = 0; i < SLOTS; i++) {
        _Atomic uint32_t *word = atomic_load(&words[i]);
        if (word)
            syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}
