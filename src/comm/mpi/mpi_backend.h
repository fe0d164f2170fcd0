/*
 * mpi_backend.h - the types and functions that the files of the mpi backend share. Layer: comm/mpi.
 *
 * Note [Calls of MPI]
 * Every call of MPI is made under one lock of the process, mpi_lock, and none of them waits: operations are begun in
 * their non-blocking form and tested in a loop that also looks at the clock, at notices, and at the group's failure.
 * (The exceptions are calls that all members are known to be in: those that make a communicator.) So a rank that does
 * not come is an error, and any number of threads may use any number of groups.
 *
 * Note [Notices]
 * Ranks send one another what MPI has no operation for (joining, failures, leaving, heads of messages) by notices:
 * small messages on a communicator of all processes, of which each process always has one receive posted. Whoever tests
 * anything reads them.
 *
 * Note [Memory that MPI still has]
 * A collective of MPI cannot be cancelled. When one that works on the caller's memory has to be given up, this process
 * makes no call of MPI any more (mpi_abandon), because any call could move bytes into memory that is the caller's
 * again; all its groups are broken then. Headers are exchanged in the group's own memory, which is never freed in this
 * case.
 */
#ifndef YOKE_COMM_MPI_BACKEND_H
#define YOKE_COMM_MPI_BACKEND_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/standstill.h"
#include "comm/comm_plugin.h"

/* ---- of yoke ---- */
extern const yk__base_services *mpi_base;
extern const yk__comm_services *mpi_yoke;
#define mpi_fail(code, ...) mpi_base->fail_at((code), __FILE__, __LINE__, __VA_ARGS__)

enum {
    BLOCK_BYTES = 256,  /* of each rank in the exchange that begins a collective */
    NOTICE_TEXT = 1024, /* of a notice */
};

/* The operation that a rank is about to do, and its payload if that is small. */
typedef struct mpi_block {
    yk__comm_header header;
    char payload[BLOCK_BYTES - sizeof(yk__comm_header)];
} mpi_block;

typedef enum mpi_notice_kind {
    NOTICE_JOIN,      /* to rank 0: a mpi_record */
    NOTICE_WITHDRAWN, /* to rank 0: it did not join after all */
    NOTICE_ADMISSION, /* from rank 0: number is the group's id, or code and text say why not */
    NOTICE_BROKEN,    /* code, text */
    NOTICE_LEFT,      /* number: collectives done */
    NOTICE_PROBE,     /* number: of the collective that waits */
    NOTICE_ANSWER,    /* number: collectives begun */
    NOTICE_MESSAGE,   /* number, count, tag, dtype; the bytes, unless they come by themselves */
} mpi_notice_kind;

typedef struct mpi_notice {
    uint64_t group; /* its id; of a group that is being made, a hash of its name */
    int32_t kind, rank;
    uint64_t number;
    int64_t count;
    int32_t tag, dtype, code, bytes;
    char text[NOTICE_TEXT];
} mpi_notice;

/* A rank as it presents itself. */
typedef struct mpi_record {
    int32_t world_size, rank, mpi_rank, pid;
    uint64_t members;
    char host[64];
} mpi_record;

typedef struct mpi_member {
    mpi_record who;
    bool left, answered;
    uint64_t done, begun; /* collectives, when it left, and by its answer */
} mpi_member;

typedef struct mpi_message {
    yk__comm_op op;
    MPI_Request request; /* of the payload, where it does not come in the notice */
    bool under_way, done;
    yk_status status;
    yk_error error;
    double deadline; /* of the wait for it, 0: nobody waits yet */
    struct mpi_message *next;
} mpi_message;

/* A notice in a list: heads of messages that nobody has asked for yet, and notices that came early. */
typedef struct mpi_kept_notice {
    struct mpi_kept_notice *next;
    mpi_notice notice;
} mpi_kept_notice;

typedef struct mpi_group {
    int rank, world_size;
    char name[304];
    double timeout;
    uint64_t id;
    mpi_member *members;
    MPI_Comm comm;
    bool crowded; /* more ranks on this host than cores for them */

    _Atomic int broken; /* the three below are there, and stay */
    yk_status code;
    char cause[960];

    mpi_block *own, *blocks; /* collectives: one thread at a time */
    char *scratch;
    size_t scratch_bytes;
    _Atomic uint64_t begun, done;

    mpi_message *messages; /* not done, in the order of the calls; under mpi_lock, as what follows */
    mpi_kept_notice *heads, **heads_end;
    struct mpi_group *next;
} mpi_group;

/* ---- mpi_engine.c ---- */
extern pthread_mutex_t mpi_lock;
extern MPI_Comm mpi_world; /* notices; ranks as in MPI_COMM_WORLD */
extern int mpi_world_rank, mpi_world_size;
/* Initialises MPI, once in the process, within so many seconds. */
yk_status mpi_start(double seconds);
/* "all_reduce: MPI says: ..." */
yk_status mpi_failed(const char *what, int code);
/* With the lock held: begins to send, from a copy. */
void mpi_send_notice(int mpi_rank, const mpi_notice *notice);
void mpi_send_members(mpi_group *g, mpi_notice *notice);
/* With the lock held: reads notices, and moves messages on. */
void mpi_progress(void);
/* With the lock held: waits until the notices are sent, `seconds` at most. */
void mpi_flush(double seconds);
/* With the lock held: takes the oldest notice of this kind that was kept because its group had not got its id yet. The
 * caller frees it; NULL: there is none. */
mpi_kept_notice *mpi_pop_early(mpi_notice_kind kind, uint64_t group);
void mpi_list(mpi_group *g);
void mpi_unlist(mpi_group *g);
/* With the lock held: no call of MPI from here on; breaks all groups, for which it says why. */
void mpi_abandon(const char *cause);
bool mpi_is_abandoned(void);

/* ---- mpi_failure.c: failures ---- */
const char *mpi_rank_name(const mpi_group *g, int rank, char *buffer, size_t size);
/* With the lock held, and without: breaks the group on all ranks unless it is broken; fails with its cause. */
yk_status mpi_break_locked(mpi_group *g, yk_status code, const char *format, ...) YK_PRINTF(3, 4);
yk_status mpi_break(mpi_group *g, yk_status code, const char *format, ...) YK_PRINTF(3, 4);
/* With the lock held: another rank says so. */
void mpi_broken_by(mpi_group *g, yk_status code, const char *cause);
yk_status mpi_check(void *state);
void mpi_abort_group(void *state, yk_status code, const char *cause);
/* Waits until the requests are done. `callers`: they work on the caller's memory. */
yk_status mpi_finish(mpi_group *g, const yk__comm_op *op, MPI_Request *requests, int count, bool callers);
/* Lets go of the core between two looks, the more the longer it has waited. */
void mpi_pause(const mpi_group *g, int looks);

/* ---- mpi_join.c ---- */
yk_status mpi_join(const yk__comm_join_args *args, void **state);
void mpi_leave(void *state);

/* ---- mpi_exchange.c ---- */
yk_status mpi_collective(void *state, const yk__comm_op *op);

/* ---- mpi_messages.c ---- */
yk_status mpi_post(void *state, const yk__comm_op *op, void **message);
yk_status mpi_wait(void *state, void *message, double seconds, bool *done);
void mpi_forget(void *state, void *message);
/* With the lock held. */
void mpi_move_messages(mpi_group *g);
void mpi_receive_head(mpi_group *g, const mpi_notice *notice);
/* The type of MPI for elements of so many bytes. */
MPI_Datatype mpi_type_of(size_t bytes);

#endif
