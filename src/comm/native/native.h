/*
 * native.h - the types and functions that the files of the native backend share: the segment of one host,
 * synchronisation, memory of peers. Layer: comm/native.
 *
 * Note [The segment]
 * All ranks of a host map one unnamed memory file, made by the lowest of them. It holds a head, a row per rank, the
 * mailboxes of messages, and a staging area of two halves per rank; where there are several hosts, a larger bounce
 * buffer of two halves, too (`board` in names). A rank writes its own row, staging area and bounce buffer alone.
 *
 * Note [Rounds]
 * Ranks run in step: yk__native_sync is a full barrier, counted by a round number that is the same on every rank. A
 * rank passes round k when all have published k; each publishes it in rounds[k % 2] of its row, where k + 2 can come no
 * sooner than all have published k + 1. An operation begins with a round: each rank writes its operation beside the
 * round's number, and compares everybody's after, before it publishes the next. The handles of its memory, which are
 * read until the last round, it writes into headers[number % 2]. Two headers and two staging halves are enough: a rank
 * that writes for operation n + 2 has passed the first round of n + 1, which all publish after they are done with n.
 * For the same reason each use of a staging half must contain at least one round after the writing. A round that fails
 * breaks this: a rank that went on to n + 2 after it would write over what a slower one still reads for n, which can
 * end well there. So a rank that fails breaks the group, and in a broken group no operation begins.
 *
 * Note [Direct sections]
 * Ranks work on each other's buffers in some operations, and none does after the last round of one. In a group that
 * breaks there may be no last round, and the caller of a failed operation frees its buffer. So a rank marks in its row
 * that it enters such a section, and only then looks whether the group is broken; a rank that fails sees the group
 * broken first, and then looks at the rows: one of the two sees the other (direct.c). A rank that fails returns when no
 * thread of its process is inside. Another process has a mapping of its own: it is waited for, but not if it is dead or
 * stopped, nor for long; memory that it may still write to is replaced under the caller's address, so that what it
 * writes goes nowhere. Messages read by reference have the same in their slots (messages.c).
 */
#ifndef YOKE_COMM_NATIVE_H
#define YOKE_COMM_NATIVE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/standstill.h"
#include "comm/backend.h"
#include "comm/region.h"

enum {
    NATIVE_LINE = 128, /* two cache lines: processors fetch them in pairs */
    NATIVE_SLOTS = 16, /* messages under way per pair of ranks */
    NATIVE_INLINE = 824,
    NATIVE_TINY = 24, /* bytes of a payload that go with a round */
    NATIVE_MAX_RANKS = 1024,
};
#define NATIVE_HALF  ((size_t)512 << 10) /* bytes of a staging half */
#define NATIVE_BOARD ((size_t)4 << 20)   /* of half a bounce buffer: see multihost.c */

/* A round that a rank publishes, in one cache line: what a small operation has to say comes with the news that the rank
 * has come. `op`, what it is about to do, and `bytes`, a payload, are those of the round in which an operation begins.
 */
typedef struct yk__native_round {
    _Alignas(64) _Atomic uint32_t number;
    _Atomic int32_t cpu; /* the core on which the rank ran then */
    yk__comm_header op;
    char bytes[NATIVE_TINY];
} yk__native_round;

/* The memory of an operation, by the handles of its regions. */
typedef struct yk__native_header {
    yk__region_handle in, out;
} yk__native_header;

/* Places of yk__native_row.awaits. */
enum { AWAITS_KIND, AWAITS_DTYPE, AWAITS_PEER, AWAITS_TAG, AWAITS_NUMBER, AWAITS_COUNT, AWAITS_SIZE };

typedef struct yk__native_row {
    _Alignas(NATIVE_LINE) yk__native_round rounds[2]; /* the last even and the last odd one */
    /* The rank's doorbell: rung when a message for it arrives or is taken. */
    _Alignas(NATIVE_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t bell_sleepers;
    _Alignas(NATIVE_LINE) yk__native_header headers[2];
    _Alignas(NATIVE_LINE) _Atomic uint64_t done; /* collectives completed */
    _Atomic uint64_t begun;                      /* the last one begun */
    _Atomic int inside;                          /* the rank works on memory of others */
    _Atomic int here, left;                      /* the rest of the row is filled; the rank has left */
    /* The message that the rank sleeps for, which is named in errors of others that wait for this rank. The version is
     * odd while it is written, and the kind is YK__COMM_KINDS where there is none. */
    _Atomic uint32_t awaits_version;
    _Atomic int64_t awaits[AWAITS_SIZE];
    int32_t pid;
    uint64_t start; /* of the process: tells it from a later one of the same pid; 0: not known (host/process.h) */
    char host[64];
    cpu_set_t cores; /* that the rank may run on */
} yk__native_row;

enum { SLOT_FREE, SLOT_POSTED, SLOT_READING, SLOT_TAKEN };

/* One message from rank to rank. The sender fills it and frees it, the receiver takes it. Bytes that are not inline are
 * read under SLOT_READING; a sender whose message fails takes it back. */
typedef struct yk__native_slot {
    _Atomic uint32_t state;
    int32_t tag, dtype;
    int32_t where; /* 0: the bytes are inline; else at `handle` */
    uint64_t number;
    int64_t count;
    yk__region_handle handle;
    char bytes[NATIVE_INLINE];
} yk__native_slot;

typedef struct yk__native_channel {
    _Alignas(NATIVE_LINE) yk__native_slot slots[NATIVE_SLOTS];
} yk__native_channel;

typedef struct yk__native_head {
    _Atomic uint64_t cookie; /* 0: the head is not there yet */
    int32_t local_size;
    _Alignas(NATIVE_LINE) _Atomic uint32_t attached;
    _Alignas(NATIVE_LINE) _Atomic uint32_t sleepers, epoch; /* ranks that sleep until a round is complete */
    _Alignas(NATIVE_LINE) _Atomic uint32_t broken;          /* 0, 1: the cause is being written, 2: it is there */
    int32_t code;
    char cause[960];
} yk__native_head;

/* Memory of another process, mapped here. */
typedef struct yk__native_mapping {
    uint64_t id, inode;
    int32_t fd;
    char *memory;
    size_t bytes;
    struct yk__native_mapping *next;
} yk__native_mapping;

/* Memory that holds messages until their receivers have taken them; reused. */
typedef struct yk__native_buffer {
    char *memory;
    size_t bytes;
    yk__native_slot *slot; /* that holds it; NULL: free */
    struct yk__native_buffer *next;
} yk__native_buffer;

typedef struct yk__native_message {
    yk__comm_op op;
    int local_rank;        /* of the peer; -1 on another host */
    yk__native_slot *slot; /* a send that waits until its bytes are taken */
    bool posted, done;
    uint64_t offer; /* between hosts: a receive that has asked for the bytes of this offer, 0: none */
    size_t arrived; /* of them */
    bool accepted;  /* a send whose offer was accepted */
    yk_status status;
    yk_error error;
    double deadline; /* of the wait for it, 0: nobody waits yet */
    struct yk__native_message *next;
} yk__native_message;

/* A rank of the group, as all know it from the store. */
typedef struct yk__native_member {
    int host, local_rank; /* hosts are numbered in the order of their lowest ranks */
    int global;           /* the rank in the group that this one is a part of, directly or not */
    int32_t pid;
    char host_name[64];
} yk__native_member;

struct native;

/* The operations that differ between a group of one host and a group of several: chosen once, when the group is
 * joined. */
typedef struct yk__native_transport {
    yk_status (*collective)(struct native *g, const yk__comm_op *op);
    /* Returns when all ranks have come to this operation and agree on it; moves no bytes. */
    yk_status (*agree)(struct native *g, const yk__comm_op *op);
    /* Reads what other hosts have sent on the control connections, without waiting. Takes the message lock, which may
     * be held. */
    void (*progress)(struct native *g);
    /* Looks after the other hosts while a rank waits for its own, for `waited` seconds so far. */
    yk_status (*check_hosts)(struct native *g, double waited);
    /* Tells the other hosts that the group is broken on this one. */
    void (*send_broken)(struct native *g, yk_status code, const char *cause);
    /* Before messages of a broken group end: their memory is not looked at any more. With the message lock held. */
    void (*drop_messages)(struct native *g);
    /* Seconds beyond the time-out that ranks waiting for another host are given to name it. */
    double stall_delay;
} yk__native_transport;
extern const yk__native_transport yk__native_one_host, yk__native_multihost;

typedef struct native {
    const yk__native_transport *transport;
    const yk__comm_carrier *carrier; /* of data between hosts, in place of TCP; NULL: TCP */
    int rank, world_size;            /* in the group */
    int local_rank, local_size;      /* among the ranks of this host, in the order of ranks */
    int host, hosts;
    yk__native_member *members; /* by rank */
    int *order, *first;         /* the ranks by host and row; where each host begins, and the end */
    struct yk__native_net *net; /* NULL: one host */
    char *name;
    double timeout;
    bool is_part;     /* of another group, whose ranks errors name as well */
    bool one_process; /* all ranks are threads of this process */
    bool crowded;     /* more ranks than cores */
    int32_t pid;
    yk__native_head *head; /* the segment */
    yk__native_row *rows;
    yk__native_channel *channels; /* from rank i to rank j at i * local_size + j */
    char *staging;
    char *boards; /* there where a host of several has more than one rank */
    bool has_boards;
    size_t segment_bytes;
    int segment_fd; /* while it joins: this rank's memory file, -1: none */
    /* A random number, drawn by the rank that makes the segment: a segment whose head has another one is not ours. */
    uint64_t segment_cookie;

    /* collectives: one thread at a time */
    uint32_t round;
    int half;
    int store_trials; /* Note [Stores past the caches] in one_host.c */
    double store_times[2];
    double op_begin;     /* the time when the wait of this operation became long, 0: not yet; moved on by the time that
                          * the process stood still */
    double op_seen;      /* the last look at the clock in it: base/standstill.h */
    yk__comm_op current; /* for messages */

    pthread_mutex_t map_lock;
    yk__native_mapping **mappings; /* by rank */

    pthread_mutex_t message_lock;
    yk__native_message *messages; /* not done, in the order of the calls */
    _Atomic int pending;          /* their number */
    yk__native_buffer *buffers;
} native;

static inline int yk__native_rank_at(const native *g, int host, int local_rank)
{
    return g->order[g->first[host] + local_rank];
}

static inline int yk__native_host_size(const native *g, int host)
{
    return g->first[host + 1] - g->first[host];
}

static inline char *yk__native_stage(const native *g, int rank, int half)
{
    return g->staging + ((size_t)rank * 2 + (size_t)half) * NATIVE_HALF;
}

static inline char *yk__native_board(const native *g, int local_rank, int half)
{
    return g->boards + ((size_t)local_rank * 2 + (size_t)half) * NATIVE_BOARD;
}

/* ---- native_join.c ---- */
yk_status yk__native_join(const yk__comm_join_args *args, void **state);
void yk__native_leave(void *state);
/* Checks the table of ranks and hosts: a description of what is wrong with it, NULL for nothing; sanitized builds call
 * it when a group is joined. */
const char *yk__native_group_check(const native *g);
/* Fails with what another rank said about its failure to join. */
yk_status yk__native_check_joining(native *g, const yk__comm_join_args *args);

/* ---- segment.c: the memory that the ranks of a host share ---- */
/* Sets the addresses inside the segment, and gives its size. */
size_t yk__native_lay_out(native *g, char *memory);
/* A memory file for the segment, in case this rank is the lowest of its host: g->segment_fd and g->segment_cookie, for
 * its record. */
yk_status yk__native_reserve_segment(native *g);
void yk__native_drop_segment_file(native *g); /* none is allowed */
/* The ranks of this host map one segment, which is g's afterwards: that of the lowest, whose record has `maker_fd` and
 * `cookie`. `start` is this process's. */
yk_status yk__native_map_segment(native *g, const yk__comm_join_args *args, int maker_fd, uint64_t cookie,
                                 uint64_t start, double until);
void yk__native_unmap_segment(native *g);
/* True if a rank of this host has ended, by its process alone: its row need not be there. */
bool yk__native_is_gone(const native *g, int rank);

/* ---- failure.c ---- */
/* Breaks the group with this cause unless it is broken, and fails with the first cause. */
yk_status yk__native_break(native *g, yk_status code, const char *format, ...) YK_PRINTF(3, 4);
yk_status yk__native_check(void *state);
yk_status yk__native_look(void *state);
void yk__native_abort(void *state, yk_status code, const char *cause);
/* Wakes all ranks of this host that sleep. */
void yk__native_wake_all(native *g);
/* "rank 1 (host a, pid 12)", by rank of the group, and by rank of this host. */
const char *yk__native_rank_name(const native *g, int rank, char *buffer, size_t size);
const char *yk__native_local_rank_name(const native *g, int local_rank, char *buffer, size_t size);
/* True if the process of a rank of this host runs no more; `stopped` tells whether it is stopped. */
bool yk__native_is_dead(const native *g, int local_rank, bool *stopped);
/* Appends "rank 1 (host a, pid 12), which is stopped" to a list of ranks that did not come in time; `progress`: with
 * what is known of the collectives that it has done. */
void yk__native_append_late(const native *g, char *list, size_t size, int rank, bool progress);
/* Breaks the group: the time of `op` is over, and `list` did not come. */
yk_status yk__native_break_stalled(native *g, const yk__comm_op *op, const char *list);
/* A rank of this host that ended or left and will not reach this rank's round breaks the group; `thorough`: also asks
 * whether its process runs. */
yk_status yk__native_check_local_peers(native *g, bool thorough);

/* ---- barrier.c ---- */
/* The round that this rank publishes next; until then it is its own. */
static inline yk__native_round *yk__native_next_round(const native *g)
{
    return &g->rows[g->local_rank].rounds[(g->round + 1) & 1];
}
/* The entry that a rank of this host publishes in this rank's round. It is not overwritten until all have published the
 * next. */
static inline yk__native_round *yk__native_round_of(const native *g, int local_rank)
{
    return &g->rows[local_rank].rounds[g->round & 1];
}
/* Publishes the next round and waits until all have. */
yk_status yk__native_sync(native *g);
/* True if a rank of this host has published this rank's round. */
static inline bool yk__native_reached(const native *g, int local_rank)
{
    return atomic_load_explicit(&yk__native_round_of(g, local_rank)->number, memory_order_acquire) == g->round;
}
/* The checks of a rank that waits for other hosts, between looks: has the group broken, did a rank of this host end, is
 * the time over. `rank` is the one that it waits for. */
yk_status yk__native_wait_remote(native *g, int rank, double *looked);
/* The seconds that a wait of the current operation has taken so far, but for those in which the process stood still. */
static inline double yk__native_waited(native *g, double now)
{
    if (g->op_begin == 0)
        g->op_begin = now;
    g->op_begin += yk__standstill(&g->op_seen, now);
    return now - g->op_begin;
}
/* Sleeps while *word is `value`, for `seconds` at most; wakes all that do. Across processes. */
void yk__native_sleep(_Atomic uint32_t *word, uint32_t value, double seconds);
void yk__native_wake(_Atomic uint32_t *word);
static inline void yk__native_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- direct.c: Note [Direct sections] ---- */
/* Begins a section that touches memory of other ranks; fails where the group is broken. */
yk_status yk__native_enter(native *g);
/* Ends the section. */
static inline void yk__native_exit(native *g)
{
    atomic_store_explicit(&g->rows[g->local_rank].inside, 0, memory_order_release);
}
/* Waits, after a failure of `op` in a broken group, until others do not touch its memory any more. */
void yk__native_settle(native *g, const yk__comm_op *op);

/* ---- peer_memory.c ---- */
/* A peer's memory in this address space; NULL and an error, in the name of op, if it cannot be mapped. */
char *yk__native_reach(native *g, int rank, const yk__region_handle *handle, const yk__comm_op *op);
void yk__native_forget_mappings(native *g);

/* ---- combine.c ---- */
/* The ranks [first, first + 2^level) of a group, as far as there are so many: a node of the tree of Note [The order of
 * a reduction]; `first` is a multiple of 2^level. */
typedef struct yk__subtree {
    int first, level;
} yk__subtree;

typedef struct yk__reduction {
    yk_reduce_op reduction;
    yk_dtype dtype;
    int ranks;                   /* of the group: the leaves; what a mean is divided by */
    int inputs;                  /* in the order of ranks */
    const yk__subtree *subtrees; /* the subtree of which each input is the result; above level 0 it is in the wide
                                  * dtype. NULL: the values of all ranks */
    bool partial;                /* the inputs make up a subtree: its result is wide, and not divided */
    bool stream;                 /* the outputs are written past the caches */
} yk__reduction;
/* Combines `count` elements of all inputs by the tree, and writes the result to all outputs. An output may be one of
 * the inputs, but where the dtype of one of both is wide. */
yk_status yk__native_combine(const yk__reduction *r, int outputs, char *const *out, const char *const *in,
                             int64_t count);
static inline yk_dtype yk__native_wide(yk_dtype dtype)
{
    return yk__is_half(dtype) ? YK_F32 : dtype;
}
/* memcpy past the caches; yk__native_stream_end makes the bytes visible before what is written later. */
void yk__native_stream_copy(void *to, const void *from, size_t bytes);
void yk__native_stream_end(void);

/* ---- operation.c: what all collectives begin and end with ---- */
/* The backend's slot of every collective. */
yk_status yk__native_collective(void *state, const yk__comm_op *op);
/* Publishes the operation, waits for the others of this host and compares with theirs. */
yk_status yk__native_begin(native *g, const yk__comm_op *op, const yk__region_handle *in, const yk__region_handle *out);
/* Breaks the group: two ranks, by rank of the group, called different operations. */
yk_status yk__native_mismatch(native *g, int a, const yk__comm_op *of_a, int b, const yk__comm_op *of_b);
/* The elements [*from, *to) of `count` that the r-th of n combines: whole cache lines, as even as these allow. */
void yk__native_share(int64_t count, size_t size, int n, int r, int64_t *from, int64_t *to);
yk__region_handle yk__native_region_handle(const native *g, const void *memory, size_t bytes);
/* True if all ranks of the host named memory (`out` or `in`) that all can reach. */
bool yk__native_all_direct(const native *g, uint64_t number, int root, bool out);
char *yk__native_peer_memory(native *g, uint64_t number, int local_rank, bool out);
/* The other half of the staging areas is used from here on. */
static inline int yk__native_next_half(native *g)
{
    return g->half ^= 1;
}

/* ---- messages.c ---- */
yk_status yk__native_post(void *state, const yk__comm_op *op, void **message);
yk_status yk__native_wait(void *state, void *message, double seconds, bool *done);
void yk__native_forget(void *state, void *message);
/* Breaks the group: this rank's error keeps it from sending or receiving a message, which its peer waits for. */
yk_status yk__native_fail_message(native *g, const yk__comm_op *op);
/* The message for which a rank of this host sleeps: "recv #1 (...)"; false where it waits for none. */
bool yk__native_awaited_message(const native *g, int local_rank, char *text, size_t size);
/* Looks after all messages once. */
void yk__native_progress(native *g);
/* Waits until the peers have taken what is in buffers, or cannot any more; then frees them. */
void yk__native_drain_messages(native *g);

#endif
