/*
 * rpc_bell.h - waking the threads of another process that wait for messages in shared memory. Layer: rpc.
 *
 * Note [Who listens]
 * A process has one bell, which all that write to it share. Its threads that have nothing to do sleep on it, at most
 * one of each kind: one that waits for the answer of a call (WAITER), one that is free to run calls (SERVER), and one
 * that does nothing else (HELPER). Whoever wakes takes the messages of all rings. A listener sets its bit in
 * `sleepers`, looks at the rings once more, and sleeps; who has written a message takes one bit away, that of the kind
 * that it is meant for if it is there, and wakes that thread. Without a bit somebody is awake and looks before it
 * sleeps: so a call and its answer cost a wake-up each, and none while both sides have work.
 *
 * The bits above 8 say that the listener still spins: it sees its bit go, and no system call is made.
 */
#ifndef YOKE_RPC_RPC_BELL_H
#define YOKE_RPC_RPC_BELL_H

#include "base/core.h"

enum { YK__BELL_WAITER = 1, YK__BELL_SERVER = 2, YK__BELL_HELPER = 4, YK__BELL_KINDS = 7, YK__BELL_SPINS = 8 };

/* In shared memory: every process that writes to this one has it. */
typedef struct yk__bell {
    _Atomic uint32_t epoch; /* the futex; changes with every wake-up */
    _Atomic uint32_t sleepers;
} yk__bell;

/* Wakes a listener, if there is one: of the kind `first`, or the helper, or another. */
void yk__bell_ring(yk__bell *bell, unsigned first);
/* Wakes the listeners of these kinds, whatever the bits say. */
void yk__bell_wake(yk__bell *bell, unsigned kinds);
/* Before the rings are looked at for the last time: this thread listens, and spins first or not. */
void yk__bell_arm(yk__bell *bell, unsigned kind, bool spins);
/* It does not listen any more. */
void yk__bell_disarm(yk__bell *bell, unsigned kind);
/* Sleeps until woken, or until the deadline (of yk__now; 0: none), and disarms. */
void yk__bell_sleep(yk__bell *bell, unsigned kind, bool spins, double deadline);

#endif
