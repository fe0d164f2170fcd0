/*
 * group.h - process groups, works and the trace, as the files of comm/ share them. Layer: comm.
 *
 * A yk_process_group is a handle; what it stands for is a yk__group, which works keep alive too. When the handle goes,
 * the group finishes what is outstanding and leaves, so a work that outlives the handle is done.
 */
#ifndef YOKE_COMM_GROUP_H
#define YOKE_COMM_GROUP_H

#include <pthread.h>

#include "comm/backend.h"

enum { YK__TRACE = 64 /* operations that a group remembers */, YK__MESSAGE_COUNTS = 256 };

typedef enum yk__trace_state { YK__TRACE_QUEUED, YK__TRACE_RUNNING, YK__TRACE_DONE, YK__TRACE_FAILED } yk__trace_state;

typedef struct yk__trace_entry {
    yk__comm_op op; /* its pointers are not looked at */
    yk__trace_state state;
    uint64_t queued, began, ended; /* ticks (base/ticks.h); 0: not yet */
    int shown;                     /* its entry for the launcher (host/progress.h), or -1 */
} yk__trace_entry;

typedef struct yk__work yk__work;

/* The messages to, or from, one peer with one tag, which traces of both ranks number alike. */
typedef struct yk__message_count {
    int32_t peer, tag;
    uint32_t count;
    bool receives, shared; /* shared: by several, so that they are not counted */
} yk__message_count;

typedef struct yk__group {
    atomic_int references; /* the handle, and works */
    const yk__comm_backend *backend;
    void *state; /* the backend's; NULL where this rank is not a member */
    yk_store *store;
    char *name, *host_id, host_name[64];
    char shown_name[32];  /* as pages have it (host/rank_page.h) */
    int rank, world_size; /* rank -1: not a member */
    double timeout, join_timeout, born;
    uint64_t born_ticks;            /* at `born` */
    atomic_int children;            /* groups made out of this one, for their names */
    int pid, forks;                 /* of the process that made it: see yk__group_is_parents */
    yk_status (*in_vain)(void *of); /* as in yk__comm_join_args, while it joins; else NULL */
    void *in_vain_of;

    pthread_mutex_t lock;
    pthread_cond_t changed;               /* the queue, `running`, or a work's `done` */
    uint64_t collectives, messages;       /* numbers given so far */
    yk__message_count *message_counts;    /* a table by hash of YK__MESSAGE_COUNTS; NULL before the first message */
    bool running;                         /* a thread is in the backend's collective */
    yk__work *first, *last;               /* collectives that wait for their turn */
    yk__work *pending;                    /* messages that are not done */
    int claimed;                          /* and those on their way from there to the next */
    yk__work *queued_first, *queued_last; /* collectives on a queue of a device, in its order */
    struct yk__recorded *recorded;        /* graphs that this group is a member of */
    bool recording;                       /* a thread records a step with collectives of this group */
    bool has_worker, has_watcher, stop;
    pthread_t worker, watcher;
    bool dumped;
    struct yk__pinned *pinned; /* memory that is kept for tensors of GPUs (staging.c) */

    yk__trace_entry trace[YK__TRACE];
    uint64_t traced; /* entries ever made; the next goes to traced % YK__TRACE */
} yk__group;

struct yk_process_group {
    yk__object object;
    yk__group *group;
};

/* One operation with its tensors. `in` and `out` may be one tensor, and NULL. */
typedef struct yk__call {
    yk__comm_op op;
    yk_tensor *in, *out;
    int64_t *counts;             /* owned: in_counts and out_counts */
    struct yk__staging *staging; /* of tensors that the host cannot touch, else NULL */
    /* Retained: contiguous ones in place of tensors of GPUs that are not, where the backend takes those as they are. */
    yk_tensor *dense_in, *dense_out;
} yk__call;

/* An operation under way, which the lists of its group keep alive beside the handles of the program. */
struct yk__work {
    atomic_int references;
    yk__group *group;
    yk__call call;
    yk_tensor *staged_in, *staged_out;
    void *message; /* the backend's */
    void *queued;  /* the backend's, of a collective on a queue of its device; with the group's lock held */
    uint64_t traced;
    const yk_graph *graph; /* the graph whose function began it, in this call of it; borrowed, and perhaps gone; NULL:
                            * none */
    int64_t graph_call;
    bool done;
    yk_error error; /* code YK_OK: none */
    yk__work *next;
};

/* The program's handle. It has no other references than those of scopes and of the program, so that one that is used
 * after its scope ended is recognised as freed also while the operation is under way. */
struct yk_work {
    yk__object object;
    yk__work *inside;
};

/* ---- group.c ---- */
/* The group of a handle, or the default one; NULL and an error where there is none. */
yk__group *yk__group_of(const char *what, yk_process_group *handle);
/* True if this process is the child of a fork, and the group is its parent's: the child has the memory, but neither
 * threads nor connections, and is no rank. */
bool yk__group_is_parents(const yk__group *g);
/* Fails if it is. */
yk_status yk__group_check_process(const char *what, const yk__group *g);
void yk__group_retain(yk__group *g);
void yk__group_release(yk__group *g);
/* A handle that has not joined yet; all but `host_id`, which it takes over, is copied or retained. And its joining: the
 * handle again, or NULL after it was released. */
yk_process_group *yk__group_handle(const yk__comm_backend *backend, yk_store *store, const char *name, char *host_id,
                                   int rank, int world_size, double timeout, double join_timeout);
yk_process_group *yk__group_join(yk_process_group *handle, uint64_t members, yk__comm_attempt *attempt, void *parent,
                                 const int *ranks);

/* ---- rebuild.c ---- */
/* The store in which a group's ranks have met; NULL: none. Borrowed. */
yk_store *yk__group_store(yk_process_group *handle);
/* False once the group is broken, on any rank as far as this one knows. */
bool yk__group_is_whole(yk_process_group *handle);
/* Fails once the group is broken; looks for that whether ranks of this host have ended. For who waits for nobody. */
yk_status yk__group_look(yk_process_group *handle);
/* yk_process_group_rebuild, which ends early, with the error of `in_vain`, when that fails: asked about once a second
 * while ranks of the view are waited for. */
yk_status yk__group_rebuild(yk_process_group *handle, int rank, int world_size, int64_t view,
                            yk_status (*in_vain)(void *of), void *of);

/* ---- environment.c ---- */
/* The default group's rank, size and address from options and environment (environment.c). `bootstraps`: the ranks need
 * no store to find one another, so the environment's address is not asked for. */
typedef struct yk__joining {
    int rank, world_size;
    yk_store *store; /* retained; NULL in a world of one, unless it waits to join others (alone) */
    bool alone;      /* the run of the other ranks is under way, and this process is no member yet */
} yk__joining;
/* The number of descriptors that a rank needs besides its store's: two connections to each rank of another host, and
 * those of a rank on one host. */
static inline int yk__group_descriptors(int world_size)
{
    return 20 + 2 * world_size;
}
/* Puts $INIT_METHOD, with the environment's rank, into options that say nothing of how the ranks find one another. */
yk_status yk__environment_method(yk_init_options *options);
yk_status yk__environment_join(const yk_init_options *options, bool bootstraps, double join_timeout,
                               yk__joining *joining);
/* Fails where the variables of a launcher say that this process is one of several ranks, and there is no default group:
 * what works together with the other ranks would work alone, and nobody would notice. */
yk_status yk__group_expected(const char *what);
/* The store that the launcher serves, retained; NULL where there is none, which is no error. */
yk_status yk__environment_launchers_store(int world_size, double join_timeout, yk_store **store);
/* Drops the store that is kept for the next group, after this one could not be made. See Note [The store that
 * stays]. */
void yk__environment_failed(void);

/* ---- submit.c ---- */
/* Carries out a checked call, in its turn. Takes over call->counts. */
yk_status yk__comm_run(yk__group *g, yk__call *call);
/* The same without waiting; NULL and an error on failure. */
yk_work *yk__comm_start(yk__group *g, yk__call *call);

/* ---- work.c ---- */
yk__work *yk__work_retain(yk__work *work);
void yk__work_release(yk__work *work); /* NULL is passed over */
/* Returns when nothing is outstanding. */
void yk__comm_drain(yk__group *g);
/* Ends the group's threads, after a drain. */
void yk__comm_stop(yk__group *g);
/* The thread's record, or the status alone, becomes the error of a work; the record is emptied. */
void yk__work_fail(yk__work *work, yk_status status);
/* With the lock held: the work is done, in success or failure. */
void yk__work_finish(yk__group *g, yk__work *work);

/* ---- queued.c ---- */
/* With the lock held: the watcher is there. */
yk_status yk__queued_prepare(yk__group *g);
/* With the lock held: the work's operation is on a queue of its device; takes a reference. */
void yk__queued_add(yk__group *g, yk__work *work);
/* Work that this thread puts on its queue from here on runs after the work's operation, if that is not done. */
yk_status yk__queued_wait(yk__group *g, yk__work *work);
/* This thread has put a replay on its queue: it is watched from here on. */
void yk__queued_replay(yk__group *g, const yk__comm_op *op);

/* ---- recorded.c ---- */
/* With the lock held: the function of the thread's graph calls an operation on the device; the group becomes a member
 * of the graph. Fails where that cannot be recorded, and is. */
yk_status yk__recorded_note(yk__group *g, yk_device device, const yk__comm_op *op);
/* The same for an operation that is carried out by the host. */
yk_status yk__recorded_forbid_host(const yk__group *g, const yk__call *call);
/* Notes where the work begins; and for its wait: the function of the thread's graph waits for a work that it did not
 * begin in this call. It fails where the function is recorded, since nothing in the recording follows that work. */
void yk__recorded_begin(yk__work *work);
yk_status yk__recorded_forbid_earlier(const yk__work *work);
/* The group is left: graphs with its operations run their functions as they are from here on. */
void yk__recorded_leave(yk__group *g);

/* ---- trace.c ---- */
/* The group has its name: the functions below may be called. */
void yk__trace_begin(yk__group *g);
/* With the lock held. Gives the entry's number, for trace_state. */
uint64_t yk__trace_add(yk__group *g, const yk__comm_op *op, yk__trace_state state);
void yk__trace_state_set(yk__group *g, uint64_t entry, yk__trace_state state);
/* Writes the trace to $YOKE_COMM_DUMP, once, where that is set. Without the lock. */
void yk__trace_dump_failure(yk__group *g);
/* Counts the operation of an entry as failed, and dumps that. Without the lock, while the thread has the error. */
void yk__trace_fail(yk__group *g, uint64_t entry);
/* `cause` is NULL for a group that is not broken. */
yk_status yk__trace_write(yk__group *g, const yk_error *cause, FILE *to);

#endif
