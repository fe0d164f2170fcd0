/*
 * guard.h - the two processes of a launcher, its signals, and killing all that was started. Layer: launch.
 */
#ifndef YOKE_LAUNCH_GUARD_H
#define YOKE_LAUNCH_GUARD_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "launch/relay.h"

/* The state that the two processes share; one launcher per program. In any other program the descriptors are -1. */
typedef struct yk__guard {
    int signals;         /* signalfd */
    int front;           /* a pipe that ends when the front does */
    pid_t supervisor;    /* the workers' parent */
    sigset_t mask;       /* of the program as it was started */
    struct rlimit files; /* likewise */
} yk__guard;
extern yk__guard yk__launcher;

/*
 * Calls work(arg) in a second process and returns what it returns, or 128 plus the signal that killed it. The two guard
 * each other: when either is killed, the other kills every process that was started. Signals sent to this process are
 * passed on to the second. To be called before any thread is started.
 */
int yk__supervise(int (*work)(void *arg), void *arg);

/* Kills every child until none is left, for two seconds at most. */
void yk__kill_children(void);

/* The front was killed: this process, the supervisor, kills its children and ends. */
_Noreturn void yk__launcher_end(void);

/* Waits until `fd` can be read, at most until `deadline`. Returns a signal that asks the launcher to end, or 0. Only
 * inside yk__supervise(), while there is no group. */
int yk__supervisor_pause(int fd, double deadline);

/* Writes out what waits in the sinks, for so many seconds at most (0: until the reader takes it); gives up when a
 * signal asks for it. Only inside yk__supervise(). */
void yk__supervisor_drain(relay_sink *out, relay_sink *err, double seconds);

#endif
