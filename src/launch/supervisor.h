/*
 * supervisor.h - a group of processes: started together, watched, stopped together, and never left behind. Layer:
 * launch.
 */
#ifndef YOKE_LAUNCH_SUPERVISOR_H
#define YOKE_LAUNCH_SUPERVISOR_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "launch/relay.h"
#include "launch/roles.h"

/* The descriptor with the job's secret in every worker: beyond those that shell scripts use. */
enum { SECRET_FD = 60 };

/* The words that a function leaves in shared memory before its process ends. */
enum { WORKER_RUNS, WORKER_DONE, WORKER_FAILED };

enum { WORKER_WHY = 600 };
typedef struct worker {
    int rank, local_rank;
    char **argv, **envp;
    bool input;                /* gets the launcher's stdin; the others get /dev/null */
    bool joins_others;         /* it is started to join others, which train */
    bool spare;                /* when these survive the end of one, whose place it then takes */
    int listener;              /* of a program: the socket that it gets as LISTENER_FD (listeners.h); 0: none */
    relay_stream out, err;     /* set up by the caller but for the pipes; of a function: descriptors -1 */
    const atomic_int *said;    /* of a function: one of the above; NULL for a program */
    const char *path;          /* of a program; NULL: the group's */
    const yk__role_rule *rule; /* what follows when it fails; NULL: the group ends. `role` says it in reports */
    const char *role;          /* NULL: the job has one role */
    int role_rank, role_world; /* its number among the role's processes, and how many they are, on all nodes */

    /* From here on set by the supervisor. */
    pid_t pid; /* 0: not started */
    int pidfd; /* of a function: can be read when it has ended; -1: the system has no such thing */
    bool running;
    bool asked, killed; /* got a signal to stop, got SIGKILL, while it ran */
    int status;         /* as of waitpid, once it has ended; WORKER_STATUS_UNKNOWN: SIGCHLD is ignored here */
    double began, ended;
    int incarnation; /* how often it was started again after a failure of its own */
    double remains;  /* since when it has ended, and what is left of it is killed: it is not gone before; 0: it is */
    double again_at; /* when it is started again; 0: it is not to be */
    double joins;    /* since when it is to join the others that survived; 0: it has, or is not to */
    bool waits;      /* as a spare, which was said */
    bool lost;       /* it has failed for good, and the others go on */
    bool untold;     /* it was lost or started again, and the other nodes do not know */
    int failures;    /* in a row */
    bool hung;       /* got SIGKILL because it did not get on, while the others go on */
    char why[WORKER_WHY]; /* then: how it was found; "": it was not */
} worker;
enum { WORKER_STATUS_UNKNOWN = -1 }; /* neither an exit nor a signal for the macros of <sys/wait.h> */

struct group;
struct yk__hang_watch;
/* The launchers of the other nodes, who also decide when a group has to stop, and when all is over. */
typedef struct group_link {
    int fd; /* can be read when step has something to do */
    /*
     * Called at every turn, `ended` once none of the group's processes is left. Returns the signal to stop the group
     * with, or 0; *again is the time (yk__now) by which it wants to be called, unchanged if that does not matter.
     */
    int (*step)(struct group_link *link, const struct group *g, bool ended, double *again);
    bool hung;      /* set by step: the stop is for a process of another node that is stuck */
    bool kill;      /* set by step: SIGKILL, at once: this node is cut off, and others are about to go on without it */
    bool may_live;  /* processes may go on without those of other nodes that end */
    bool lives;     /* set by step: those of this job do (yk__alone_all_survive) */
    double changed; /* set by step: when a node was found lost, 0: none was; the supervisor clears it */
    bool done;      /* set by step: yk__supervisor_run need not wait for the others any more */
} group_link;

/*
 * Either programs, under a launcher (guard.h), or calls of a function in forks of a program that has other things to
 * do: there signals, other children and the process group are the program's own and are left alone, output is not
 * relayed, and secret, out, err and link are not used.
 */
typedef struct group {
    worker *workers;
    int count;
    const char *path;                           /* the program's file */
    int (*function)(void *argument, int index); /* instead of it: called in each process, returns its exit code */
    void *argument;
    double grace; /* seconds from SIGTERM to SIGKILL */
    int secret;   /* a memory file that every worker gets as SECRET_FD, opened anew; -1: none */
    relay_sink *out, *err;
    group_link *link;            /* NULL: this is the only node */
    struct yk__hang_watch *hang; /* what the processes write; NULL: nothing */
    struct yk__job_store *store; /* in which the ranks meet, as long as none has come; NULL: none */
    const char *job, *host;      /* as reports call them */
    bool json;                   /* what happens during the job is said as JSON */
    /* Before a process is started again: its variables are those of the next incarnation. False: it cannot be. */
    bool (*renew)(void *argument, worker *w);
    /* Nothing is left of a process of a program whose others go on by themselves: they are told. NULL: they cannot be,
     * and the job ends. */
    void (*gone)(void *argument, const worker *w);
    /* A process of a program has ended, and what it wrote is read. NULL: nobody wants to know. */
    void (*ended)(void *argument, const worker *w);
    int64_t again; /* how often such processes are started again, in all */
    struct {
        double since;   /* when the last of them ended; 0: the others have gone on since, or none has */
        int64_t view;   /* of the others then */
        uint64_t steps; /* that they had made */
    } change;
    void (*started)(void *argument); /* called once, when all processes of programs run; NULL: nothing is */
    void (*hung)(void *argument);    /* likewise when the group is to end since some do not get on, before it does */

    /* From here on set by the supervisor. */
    struct yk__watch *watch; /* of a group that was started and not finished */
    worker *failed;          /* the first to fail, or NULL */
    int interrupted;         /* the signal that ended the run, or came after it had failed, or 0 */
    int start_error;         /* errno of a process that could not be started, or 0 */
    bool start_exec;         /* it was the program that could not be executed */
    const char *start_path;  /* that program */
    char stuck[WORKER_WHY];  /* why it was stopped, where its processes did not get on (hang.h) */
    int left;                /* processes that did not die of SIGKILL (waiting for a disk or a network file system) */
} group;

/*
 * Starts the group, relays its output, and returns once every process has ended, their children and daemons too. The
 * first process that fails (an exit code that is not 0, or a signal) has the others stopped: SIGTERM, then SIGKILL
 * after the grace. SIGTERM, SIGINT, SIGHUP and SIGQUIT to the launcher are passed on, with the same grace; SIGUSR1 and
 * SIGUSR2 are passed on and change nothing else. With a link it also waits until that is done, or, when the group has
 * ended, for a second signal. Programs only inside yk__supervise().
 */
void yk__supervisor_run(group *g);

/*
 * The same in steps, for a group of functions; the same thread calls them all. start: false where not all could be
 * started (g->start_error); then, too, wait until it is over. wait: until all have ended, which is true, or the time
 * (yk__now) has come. kill: SIGKILL to all that run. finish: after the end; frees what start has made.
 */
bool yk__supervisor_start(group *g);
bool yk__supervisor_wait(group *g, double until);
void yk__supervisor_kill(group *g);
void yk__supervisor_finish(group *g);

/* For a link that was told of a failure elsewhere: whether this group knows by now which of its own processes had
 * failed first, if any had. Where one is just about to end that takes a moment. */
bool yk__supervisor_knows_first(const group *g);
/* When the process that failed first saw a process group of its fail, which then is the effect of something else; 0
 * where it did not. */
double yk__supervisor_saw_failure(const group *g);

/* The last list of members (elastic_view) in which a process of the group was; 0: none. Also of those that ended. */
int64_t yk__alone_view(const group *g);
/* The last views in which one of the processes has ended well, and one was lost; 0: none has, none was. */
void yk__alone_ends(const group *g, int64_t *done, int64_t *lost);
/* True if a process of the group knows that all of the job survive the end of others. */
bool yk__alone_all_survive(const group *g);

/* The fault of a group between two turns of the supervisor (base/invariant.h). */
const char *yk__group_check(const group *g);

#endif
