/*
 * supervisor.h - a group of processes: started together, watched, stopped together, and never left behind. Layer:
 * launch.
 */
#ifndef YOKE_LAUNCH_SUPERVISOR_H
#define YOKE_LAUNCH_SUPERVISOR_H

#include <sys/types.h>

#include "launch/relay.h"

/* The descriptor with the job's secret in every worker: beyond those that shell scripts use. */
enum { SECRET_FD = 60 };

typedef struct worker {
    int rank, local_rank;
    char **argv, **envp;
    bool input;            /* gets the launcher's stdin; the others get /dev/null */
    relay_stream out, err; /* set up by the caller but for the pipes */

    /* From here on set by yk__supervisor_run. */
    pid_t pid; /* 0: not started */
    bool running;
    bool asked, killed; /* got a signal to stop, got SIGKILL, while it ran */
    int status;         /* as of waitpid, once it has ended */
    double began, ended;
} worker;

struct group;
struct yk__hang_watch;
/* What else decides when a group has to stop, and when all is over: the launchers of the other nodes. */
typedef struct group_link {
    int fd; /* can be read when step has something to do */
    /*
     * Called at every turn, `ended` once none of the group's processes is left. Returns the signal to stop the group
     * with, or 0; *again is the time (yk__now) by which it wants to be called, unchanged if that does not matter.
     */
    int (*step)(struct group_link *link, const struct group *g, bool ended, double *again);
    bool hung; /* set by step: the stop is for a process of another node that is stuck */
    bool done; /* set by step: yk__supervisor_run need not wait for the others any more */
} group_link;

typedef struct group {
    worker *workers;
    int count;
    const char *path; /* the program's file */
    double grace;     /* seconds from SIGTERM to SIGKILL */
    int secret;       /* a memory file that every worker gets as SECRET_FD, opened anew; -1: none */
    relay_sink *out, *err;
    group_link *link;            /* NULL: this is the only node */
    struct yk__hang_watch *hang; /* what the processes write; NULL: nothing */

    /* From here on set by yk__supervisor_run. */
    worker *failed;  /* the first to fail, or NULL */
    int interrupted; /* the signal that ended the run, or came after it had failed, or 0 */
    int start_error; /* errno of a process that could not be started, or 0 */
    bool start_exec; /* it was the program that could not be executed */
    char stuck[600]; /* why it was stopped, where its processes did not get on (hang.h) */
    int left;        /* processes that did not die of SIGKILL (waiting for a disk or a network file system) */
} group;

/*
 * Calls work(arg) in a second process and returns what it returns, or 128 plus the signal that killed it. The two guard
 * each other: when either is killed, the other kills every process that was started. Signals sent to this process are
 * passed on to the second. To be called before any thread is started.
 */
int yk__supervise(int (*work)(void *arg), void *arg);

/*
 * Starts the group, relays its output, and returns once every process has ended, their children and daemons too. The
 * first process that fails (an exit code that is not 0, or a signal) has the others stopped: SIGTERM, then SIGKILL
 * after the grace. SIGTERM, SIGINT, SIGHUP and SIGQUIT to the launcher are passed on, with the same grace; SIGUSR1 and
 * SIGUSR2 are passed on and change nothing else. With a link it also waits until that is done, or, when the group has
 * ended, for a second signal. Only inside yk__supervise().
 */
void yk__supervisor_run(group *g);

/* Waits until `fd` can be read, at most until `deadline`. Returns a signal that asks the launcher to end, or 0. Only
 * inside yk__supervise(), while there is no group. */
int yk__supervisor_pause(int fd, double deadline);

/* Writes out what waits in the sinks, for so many seconds at most (0: until the reader takes it); gives up when a
 * signal asks for it. Only inside yk__supervise(). */
void yk__supervisor_drain(relay_sink *out, relay_sink *err, double seconds);

#endif
