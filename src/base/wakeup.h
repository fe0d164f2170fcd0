/*
 * wakeup.h - threads that sleep on a futex, woken by a signal that another thread of the process took. Layer: base.
 *
 * A signal interrupts the sleep of the thread that takes it, mostly the main one; a thread that sleeps for a rank would
 * see yk__signal_pending only when its nap is over.
 */
#ifndef YOKE_BASE_WAKEUP_H
#define YOKE_BASE_WAKEUP_H

#include "base/core.h"

/* From begin to end, yk__wakeup_all wakes who sleeps on this word. Gives what end takes; -1, which end passes over,
 * where there are too many such sleepers: then the nap lasts. */
int yk__wakeup_begin(_Atomic uint32_t *word);
void yk__wakeup_end(int slot);
/* For handlers of signals, after what yk__signal_pending tells has been set: system calls and atomics only. */
void yk__wakeup_all(void);

#endif
