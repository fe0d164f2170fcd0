/*
 * rpc_agent.h - the types and functions that the files of rpc/ share: the agent of this process, its connections,
 * calls, futures and objects. Layer: rpc.
 *
 * One lock, agent.lock, guards everything below but what a comment excepts. It is never held while user code runs,
 * while values are encoded or decoded, or while the store is asked.
 *
 * Note [Messages]
 * Worker A opens one connection to worker B for the calls of A to B; the answers come back over it, and the calls of B
 * to A have another connection. It is a channel (net/channel.h) of the service "rpc". Its messages:
 *
 *   HELLO    A: u32 index of A, u32 index that A takes B for, text8 name of A, and A's map of devices for B: u8 count,
 *            and of each way two devices, of A and of B (u8 type, u16 index); u64 bytes of the largest message it takes
 *   WELCOME  B: u32 index of B, text8 name of B, u64 bytes of the largest message it takes; the first message of B
 *   CALL     A: u64 call, u8 kind, u64 object (0: none), u32 milliseconds left, u8 sync, text8 name, text8 shared name,
 *            u8 count, and u64 and text8 each: the objects whose methods wait for this call; a head; then a list of
 *            arguments, or of kind ADD u64, a number of A's
 *   REPLY    B: u64 call, u8 1, a head, a value; or u64 call, u8 0, u32 code, u8 may have run, u32 line, text8 file,
 *            text
 *   A head is u64 first and u32 number of the references in it that are pinned, u64 context and u64 message of
 *   distributed autograd (dist_autograd.h)
 *   CANCEL   A: u64 call
 *   DROP     A: u64 object: A has no reference any more
 *   TAKEN    either: u64 first and u32 number of references that a CALL or REPLY had (rpc_ref.h)
 *   PART     either: u64 parcel, u64 bytes of the whole, u8 type of the whole, and the next bytes of it
 *   SHARE    A, before its first call: two files (u32 descriptor, u64 inode, u64 bytes), the memory for both and the
 *            bell of A; 16 bytes that stand in the memory: Note [Memory of two workers]
 *   SHARED   B: u8 1, the file of its bell, 16 bytes that it wrote into the memory; or u8 0
 *   PING     A: u64 number, which B answers at once, whatever it runs, by
 *   PONG     B: u64 the same
 *   RETURN   either: u64 call, whose message lent files that this side does not use any more: Note [Loans]
 *   FORGET   either: u64 inode of a file that was lent and is gone
 *
 * A CALL or REPLY above PART_SIZE is cut into parts, between which other messages pass; those for the same object wait
 * until it is sent, so that the order of one caller's calls to an object is the order in which they were sent. An index
 * is the number that the store gave a worker when it joined: a worker that comes back has another.
 */
#ifndef YOKE_RPC_RPC_AGENT_H
#define YOKE_RPC_RPC_AGENT_H

#include <pthread.h>

#include <yoke/rpc.h>

#include "host/progress.h"
#include "net/channel.h"
#include "rpc/rpc_bell.h"
#include "rpc/rpc_loan.h"
#include "rpc/rpc_ref.h"
#include "rpc/rpc_ring.h"
#include "rpc/rpc_shared.h"

enum {
    YK__RPC_NAME = 128,             /* of workers, functions, classes and methods, with the final zero */
    YK__RPC_PART = 128 << 10,       /* the largest payload of a message */
    YK__RPC_MOST_CALLS = 256,       /* of one caller to one worker that are not answered */
    YK__RPC_MOST_BYTES = 256 << 20, /* of their arguments together, unless it is one call alone, or small */
    YK__RPC_SMALL = 32 << 10,       /* a call that no large one keeps waiting */
    YK__RPC_MOST_CHAIN = 64,        /* objects that wait for one another */
    YK__RPC_MOST_WAYS = 32          /* devices of a worker in device_maps */
};

typedef enum yk__rpc_message {
    YK__RPC_HELLO = 1,
    YK__RPC_WELCOME,
    YK__RPC_CALL,
    YK__RPC_REPLY,
    YK__RPC_CANCEL,
    YK__RPC_DROP,
    YK__RPC_PART_OF,
    YK__RPC_TAKEN,
    YK__RPC_SHARE = 32,
    YK__RPC_SHARED,
    YK__RPC_RETURN,
    YK__RPC_FORGET,
    YK__RPC_PING,
    YK__RPC_PONG,
    YK__RPC_LENT = 128 /* a bit of CALL and REPLY: Note [Loans] */
} yk__rpc_message;

/* Three more are never sent: DESTROY follows an object's last call in the object's queue, TELL runs the function of a
 * watch (rpc_watch.c), THEN one that follows a future (rpc_then.c). */
typedef enum yk__rpc_kind {
    YK__RPC_FUNCTION = 1,
    YK__RPC_CREATE,
    YK__RPC_METHOD,
    YK__RPC_FETCH,
    YK__RPC_ADD,    /* a further reference to an object that the caller got a reference to from another worker */
    YK__RPC_BACK,   /* the same by its shared name, to an object that was lost with an earlier worker of this name */
    YK__RPC_SAVE,   /* a snapshot of the object */
    YK__RPC_ATTACH, /* not sent: CREATE or BACK of a shared object that is there */
    YK__RPC_DESTROY,
    YK__RPC_TELL,
    YK__RPC_THEN
} yk__rpc_kind;

/* A worker of the job, as the store has it (rpc_members.c). */
typedef struct yk__rpc_member {
    char name[YK__RPC_NAME], host[64];
    int pid;
    uint32_t index;
    yk__address address;
    bool gone; /* its process was seen to have ended, or has left */
} yk__rpc_member;

/* A message that is cut into parts: one that is sent, or one that arrives. */
typedef struct yk__rpc_parcel {
    uint64_t id, target; /* the object that it is for, 0: none */
    unsigned type;
    unsigned char *data; /* owned */
    size_t size, done, capacity;
    struct yk__rpc_parcel *next;
} yk__rpc_parcel;

/* The memory that two workers of a host share: a page, and a page and a ring in each direction (rpc_host.c). */
enum { YK__RPC_PAGE = 4096, YK__RPC_PAIR_BYTES = YK__RPC_PAGE + 2 * (YK__RPC_PAGE + YK__RING_BYTES) };

/* The memory that this worker has with one of its host. */
typedef struct yk__rpc_pair {
    unsigned char *memory;
    yk__ring in, out;
    yk__bell *bell;   /* the other worker's */
    bool open;        /* messages go through the rings, not over the socket */
    yk__wire message; /* the one that was taken last */
} yk__rpc_pair;

/* The files that a message of this process lends. */
typedef struct yk__rpc_lease {
    uint64_t number;
    yk__lender lender;
    struct yk__rpc_lease *next;
} yk__rpc_lease;

/* A connection to another worker, in either direction. */
typedef struct yk__rpc_link {
    int references;
    int fd;               /* -1: it has ended */
    bool accepted, ready; /* the other side connected; HELLO and WELCOME are through */
    bool used;            /* a message of other kinds has come */
    yk__channel channel;
    yk__rpc_pair *pair;  /* NULL: of another host */
    yk__rpc_loan *loans; /* to this process: rpc_loan.c */
    yk__rpc_lease *leases;
    double pinged, heard; /* when the last PING was sent, and the last PONG came; 0: none */
    uint32_t events;      /* that are waited for */
    double deadline;      /* until it has to be ready */
    uint32_t index;       /* of the worker at the other end */
    char name[YK__RPC_NAME], host[64];
    int pid;
    struct yk__rpc_way *ways; /* of an accepted one: the other side's map of devices for this worker, owned */
    int way_count;
    size_t takes; /* bytes of the largest message that the other side takes; 0: not known */
    yk__rpc_parcel *sending, *arriving;
    uint64_t parcels, numbers; /* given to parcels and calls so far */
    yk_future *futures,
        *last_future;           /* own calls without an answer, the oldest first; the last of them, NULL: unknown */
    yk_call *calls, *last_call; /* the other side's, likewise */
    int call_count;             /* of futures, or of calls */
    size_t call_bytes;
    char why[YK__WHY_SIZE]; /* it has ended: the reason */
    struct yk__rpc_link *next;
} yk__rpc_link;

/* An object that lives here. */
typedef struct yk__rpc_object {
    const yk_rpc_class *cls;   /* NULL: a result of a function */
    char name[YK__RPC_NAME];   /* of the class or the function */
    char shared[YK__RPC_NAME]; /* under which workers share it; "": it is its maker's */
    int references;            /* of yk__rpc_held; 0: DESTROY follows its calls, or it is gone */
    bool kept;                 /* has snapshots (rpc_keep.c) */
    bool back;                 /* came from one: it stays until the worker's end, as not all who refer to it may know */
    bool released;             /* the last reference was let go of, and did not end with its process */
    bool changed;              /* a method has run since the last snapshot */
    bool saving;               /* a SAVE of the worker's own is queued */
    double saved;              /* when the last snapshot was written, or the object made */
    void *data;
    yk_value *value;
    yk_error error; /* why it could not be made; code YK_OK: it could, or is not yet */
    bool made, busy;
    bool refused; /* it was never to be made, by `error`; with the lock */
    bool left;    /* methods run after the worker's end; the last of them frees it */
    int running;
    uint32_t serial;       /* of this process's objects */
    yk_call *first, *last; /* calls that wait for their turn */
    struct yk__rpc_object *next;
} yk__rpc_object;

/* A thread that runs calls; on its stack, in the agent's list. */
typedef struct yk__rpc_server {
    yk_call *call; /* that it runs, or NULL */
    double since;
    bool left; /* the worker has ended meanwhile: nothing of the agent is this thread's any more */
    struct yk__rpc_server *next;
} yk__rpc_server;

/* The reference of a worker to an object that lives here, under the number that the worker gave it. */
typedef struct yk__rpc_held {
    uint64_t id;
    uint32_t holder;
    yk__rpc_object *object;
    struct yk__rpc_held *next;
} yk__rpc_held;

/* A method that waits for the call of another: the object, and "WORKER.CLASS.METHOD" for errors. */
typedef struct yk__rpc_waiting {
    uint64_t object; /* a number of this run of its worker: see yk__rpc_object_number */
    char label[YK__RPC_NAME];
} yk__rpc_waiting;

struct yk_call {
    yk__rpc_kind kind;
    yk__rpc_link *link; /* the connection over which the answer goes; NULL: it goes to `local` */
    yk_future *local;   /* retained */
    uint64_t number;
    uint32_t caller;
    char caller_name[YK__RPC_NAME], name[YK__RPC_NAME], shared[YK__RPC_NAME];
    yk_rpc_fn fn;
    yk_error refusal; /* code other than YK_OK: there is nothing to run, and this is the answer */
    yk__rpc_object *object;
    unsigned char *bytes; /* the arguments as they came, owned */
    yk__rpc_loan *loan;   /* of tensors among them */
    size_t begin, size;   /* where they are in it, and how many there were: of the credit */
    yk__rpc_head head;
    struct yk_dist_context *context; /* held by yk__dist_enter; NULL: none */
    yk_value *args, *result;
    double deadline;
    yk__rpc_waiting *chain; /* owned: `chain_count` methods that wait for this call, the first caller's first */
    int chain_count;
    bool sync, cancelled, later, answered;
    int references;              /* of who runs it, and of who answers it later */
    void *new_object;            /* of yk_call_set_object */
    struct yk__rpc_watch *watch; /* of TELL, owned */
    yk_future *after;            /* of THEN, retained: the function follows it, and gives the result of `local` */
    yk_future_fn then;
    void *then_ctx;
    yk_call *next_ready, *next_of_link;
};

typedef enum yk__rpc_progress { YK__RPC_UNSENT, YK__RPC_SENT, YK__RPC_ANSWERED } yk__rpc_progress;

struct yk_future {
    yk__object object;
    pthread_cond_t answered;
    yk__rpc_progress progress;
    yk__rpc_link *link; /* retained; NULL: of this process, or done */
    yk_call *call;      /* of this process, until it is answered */
    uint64_t number;
    char what[3 * YK__RPC_NAME]; /* "worker 'ps0' (host h, process 12): 'add'" */
    double deadline;
    double sent;                     /* yk__now */
    size_t size;                     /* of the arguments: credit that comes back */
    unsigned char *bytes;            /* the result as it came */
    yk__rpc_loan *loan;              /* of tensors in it */
    size_t bytes_begin, bytes_size;  /* where it is in them */
    yk__rpc_pins pinned;             /* references in the arguments, which are pinned here */
    yk__rpc_head head;               /* of the result */
    struct yk_dist_context *context; /* of the call, held */
    uint32_t peer;                   /* the worker that is called */
    bool kept;                       /* its answer was a whole number: the object has snapshots */
    bool derived;                    /* of rpc_then.c: there is no call of its own */
    bool decoding;                   /* a thread makes the value; with the lock */
    yk_value *value;                 /* decoded; with the lock */
    yk_error error;
    yk_call *thens;             /* of kind THEN, through next_ready, until it is done */
    struct yk__rpc_part *parts; /* futures of yk_future_all that wait for it */
    yk_future **all;            /* of yk_future_all: its futures, retained */
    int all_count, missing;     /* missing: those of them that are not done */
    bool all_calls;             /* they are calls of its own, which end with it when it is cancelled */
    struct yk_future *next;
};

struct yk_ref {
    yk__object object;
    yk__rpc_member owner;
    uint64_t id;
    char shared[YK__RPC_NAME]; /* the object has snapshots under this name, and may come back; "": it does not */
    char wished[YK__RPC_NAME]; /* the shared name with which it was made */
    uint32_t maker;            /* own index when it was made: a reference does not outlive yk_rpc_shutdown */
    char name[YK__RPC_NAME];
    yk_future *created; /* the call that makes the object; NULL: it is there */
    yk_error broken;    /* the owner did not register it: the reason */
};

/* A watch of this process (rpc_watch.c). */
typedef struct yk__rpc_watch {
    int64_t id;
    yk__rpc_member member;
    yk_ref *ref; /* retained; NULL: of a worker */
    double silence;
    double since; /* it could not be connected to; 0: it could, or nobody has tried */
    yk_rpc_end_fn fn;
    void *ctx;
    bool connected; /* there was a connection */
    bool busy;      /* the thread of watches looks at it, without the lock */
    bool telling;   /* it has ended, and a call of kind TELL has it */
    bool running;   /* fn runs, in this thread */
    pthread_t thread;
    bool unwanted; /* it was ended before fn was called */
    yk_rpc_end_kind kind;
    int exit_code, signal, successor;
    char why[500], text[900];
    char *last_lines; /* owned; NULL: none */
    struct yk__rpc_watch *next;
} yk__rpc_watch;

/* Counters of this process's page (host/progress.h), which yoke ps and yoke monitor show: of calls that this process
 * makes, and has no answer to yet; of those that it answers, and of those that wait here for their object or a thread;
 * of payload bytes of messages; of the nanoseconds between a call and its answer, or its failure. */
typedef struct yk__rpc_counters {
    int calls, failed, outstanding, served, queued, sent, received, took;
} yk__rpc_counters;

typedef struct yk__rpc_agent {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a connection is there, a credit came back, a future of several is done, calls are done */
    pthread_cond_t ready;   /* of threads that wait for calls */
    bool running, stopping, forked; /* forked: this process is a child of the worker */
    int pid;
    uint32_t index;
    char name[YK__RPC_NAME];
    double timeout;
    size_t max_message, most_bytes; /* most_bytes: YK__RPC_MOST_BYTES, less in tests */
    int threads_limit;
    yk_store *store; /* owned */
    yk__identity identity;
    yk__address address;
    int listen_fd, epoll, wake;
    bool ticking; /* the I/O thread looks from time to time, for calls whose time is over and for snapshots */
    pthread_t io;
    yk__rpc_link *links;
    yk__rpc_member *members;
    int member_count;
    uint64_t references_made; /* for numbers of references to objects of others */
    uint32_t objects_made;    /* for serials of own ones */
    yk__rpc_object *objects;  /* that are not gone */
    yk__rpc_held *held[1024]; /* by id */
    yk_call *ready_first, *ready_last;
    yk_future *futures; /* of this process's calls to itself */
    yk__rpc_counters counters;
    const yk__rpc_link *quiet; /* the other side is not woken for what is written: more follows at once */
    atomic_int queuing;        /* threads that wait for the lock: yk__rpc_lock */
    int thens;                 /* functions that follow futures and have not ended */
    int threads, idle, executing;
    yk__rpc_server *servers; /* the threads, but those that have not begun */
    int waking, starting;    /* threads that were woken or made for a call and have not begun to look for it */
    uint64_t begun;          /* calls that a thread has begun to run */
    bool server_takes;       /* the thread that takes messages runs the first call itself */
    bool shares;             /* memory with workers of this host */
    yk__bell *bell;          /* of this process, when it has shared memory once; kept */
    yk__shared_file bell_file;
    int bell_pid;       /* that made it */
    unsigned listening; /* kinds of listeners that this process has: Note [Who listens] */
    pthread_t helper;
    bool helper_runs;
    uint32_t *connecting; /* indices of workers to which a thread makes a connection */
    int connecting_count;
    yk__rpc_watch *watches; /* rpc_watch.c */
    int64_t watches_made;
    pthread_cond_t watching; /* of the thread that looks after them */
    pthread_t watcher;
    bool watcher_runs;
    char *snapshots;                /* the folder, owned; NULL: none */
    yk_rpc_device_map *device_maps; /* owned; NULL: none (rpc_devices.c) */
    int changed_count;              /* objects that are to be saved some time (rpc_keep.c) */
    bool has_launcher;              /* which notes in the store how workers ended */
} yk__rpc_agent;
extern yk__rpc_agent yk__rpc;

/* Takes the lock. The thread that moves large messages takes it again and again, and lets those that wait here go
 * first: else the system would give it the lock nearly every time. */
static inline void yk__rpc_lock(void)
{
    if (pthread_mutex_trylock(&yk__rpc.lock) == 0)
        return;
    atomic_fetch_add(&yk__rpc.queuing, 1);
    pthread_mutex_lock(&yk__rpc.lock);
    atomic_fetch_sub(&yk__rpc.queuing, 1);
}

/* ---- rpc_agent.c ---- */
/* With the lock held on success: this process is a worker. An error in the name of `what`, without the lock. */
yk_status yk__rpc_enter(const char *what) YK_MUST_CHECK;
void yk__rpc_leave(void);
/* Takes the lock unless this thread has it, for what is let go of at either time; false where it had it. */
bool yk__rpc_lock_if_free(void);
/* Waits for the condition with the lock held; false when the deadline (0: none) has come. */
bool yk__rpc_wait(pthread_cond_t *condition, double deadline);
/* A name of 1 to 127 bytes; an error in the name of `what`. */
yk_status yk__rpc_name_check(const char *what, const char *kind, const char *name) YK_MUST_CHECK;

/* ---- rpc_members.c: workers and their names, in the store. Without the lock. ---- */
/* Takes the name and waits until `world_size` workers are there. */
yk_status yk__rpc_join(int world_size, double deadline) YK_MUST_CHECK;
/* Copies the youngest worker of this name; `deadline` above 0: waits for one that is not known to have ended.
 * YK_ERR_NOT_FOUND names the nearest. */
yk_status yk__rpc_member_find(const char *what, const char *name, double deadline,
                              yk__rpc_member *member) YK_MUST_CHECK;
/* Copies the worker of this number. */
yk_status yk__rpc_member_at(uint32_t index, yk__rpc_member *member) YK_MUST_CHECK;
/* True if nobody listens where the worker did; looks for a second. Inside YK__QUESTION. */
bool yk__rpc_member_has_ended(const yk__rpc_member *m);
/* True if it has come to its shutdown. Inside YK__QUESTION. */
bool yk__rpc_member_has_left(uint32_t index);
/* The index of the youngest worker of a name, as the store has it; 0: none. Inside YK__QUESTION. */
uint32_t yk__rpc_member_youngest(const char *name);
/* A text of the store, which the caller frees; NULL when it did not come in time. */
char *yk__rpc_store_text(const char *key, double deadline);
/* Connects to the member for up to a second: true if nobody listens where it did, whatever was thought of it before.
 * Inside YK__QUESTION. */
bool yk__rpc_member_probe(const yk__rpc_member *m);
/* Nobody listens where it did. */
void yk__rpc_member_gone(uint32_t index);
/* Says that this worker is done, and waits for the others that live. */
yk_status yk__rpc_leave_together(double deadline) YK_MUST_CHECK;
/* The same without waiting. */
void yk__rpc_left(void);

/* ---- rpc_link.c: connections. With the lock. ---- */
/* The open connection to a worker, made where there is none; releases the lock meanwhile. NULL and an error. */
yk__rpc_link *yk__rpc_link_to(const char *what, const yk__rpc_member *member, double deadline);
void yk__rpc_link_release(yk__rpc_link *link);
/* True for a message of so many bytes that the other side, which takes `takes`, would not take. */
static inline bool yk__rpc_is_too_large(size_t size, size_t takes)
{
    return takes && size > takes && size > YK__RING_MOST;
}
/* Sends a message, or queues it as a parcel; takes over `data`. False when the connection has ended. */
bool yk__rpc_link_send(yk__rpc_link *link, unsigned type, uint64_t target, unsigned char *data, size_t size);
/* Ends the connection: its calls are cancelled, its futures fail, its objects are dropped. */
void yk__rpc_link_end(yk__rpc_link *link, const char *why);
/* The I/O thread; arg is not used. */
void *yk__rpc_io_run(void *arg);
/* True while that call has not left this process. */
bool yk__rpc_link_unsent(const yk__rpc_link *link, uint64_t number);
/* Takes a message back; true if nothing of it was sent yet. */
bool yk__rpc_link_withdraw(yk__rpc_link *link, uint64_t number);
/* Sends what waits, as far as there is room. */
void yk__rpc_link_pump(yk__rpc_link *link);
/* Takes a message that came; false: it is none that may come. */
bool yk__rpc_link_take(yk__rpc_link *link, unsigned type, const unsigned char *data, size_t size);

/* ---- rpc_host.c: memory that is shared with workers of this host. With the lock, but the first. ---- */
/* On a new connection to a worker of this host: agrees on memory, or leaves link->pair NULL. An answer that did not
 * come is the reason, with its text in the channel: the connection is of no use then, as it may still come. Without the
 * lock.
 */
yk__reason yk__rpc_pair_offer(yk__rpc_link *link, double deadline);
/* A SHARE that came; false: it may not. */
bool yk__rpc_pair_take_offer(yk__rpc_link *link, yk__reader *payload);
void yk__rpc_pair_clear(yk__rpc_link *link);
/* Writes a message of two pieces and wakes its reader; false where there is no room. */
bool yk__rpc_pair_put(yk__rpc_link *link, unsigned type, const void *head, size_t head_size, const void *data,
                      size_t size);
/* True if a ring has messages, or room that was waited for; takes them, of one and of all: how many there were. */
bool yk__rpc_pairs_ready(void);
int yk__rpc_pair_take(yk__rpc_link *link);
int yk__rpc_pairs_take(void);
/* True if this process shares memory and has no listener of the kind: then one may wait by yk__rpc_listen, which
 * returns after messages were taken, after yk__rpc_listeners_wake, or at the deadline (0: none). */
bool yk__rpc_may_listen(unsigned kind);
void yk__rpc_listen(unsigned kind, double deadline);
/* Wakes those of this process. */
void yk__rpc_listeners_wake(unsigned kinds);
/* The bell of this process; the thread that takes messages when no other does. */
bool yk__rpc_bell_make(void);
bool yk__rpc_helper_start(void);

/* The files that the message of this number lends; takes over what is in *lender. */
void yk__rpc_lease_add(yk__rpc_link *link, uint64_t number, yk__lender *lender);
/* The message does not lend any more; number 0: all, whose receiver may still have the files. */
void yk__rpc_lease_end(yk__rpc_link *link, uint64_t number);
/* Sends RETURN and FORGET for what was released since. */
void yk__rpc_loans_send(void);
/* True if tensors may be lent over it. */
bool yk__rpc_link_lends(const yk__rpc_link *link);

/* ---- rpc_serve.c: calls of others, and the threads that run them. With the lock. ---- */
/* A CALL's payload, from a link or (link NULL) from this process itself. Takes over `data`. False: malformed. */
bool yk__rpc_serve(yk__rpc_link *link, yk_future *local, unsigned char *data, size_t size, bool lent);
void yk__rpc_serve_cancel(yk_call *call);
/* The references of a worker to an object, or to all that it holds (id 0), are gone. */
void yk__rpc_serve_drop(uint32_t holder, uint64_t id);
/* One more reference of a worker, under this number, to the object of the reference `parent`, whoever has that. */
yk_status yk__rpc_serve_add(uint32_t holder, uint64_t parent, uint64_t id) YK_MUST_CHECK;
/* A reference of this process to a value, which it retains, as a result that stays here. */
yk_status yk__rpc_serve_value(uint64_t id, yk_value *value) YK_MUST_CHECK;
/* The object of a reference; NULL and an error where there is none. */
yk__rpc_object *yk__rpc_serve_object(uint64_t id);
/* A thread that waits in a handler does not count among those that run. Gives what end takes. */
bool yk__rpc_blocked_begin(void);
void yk__rpc_blocked_end(bool counted);
/* A thread more for a call that waits, where there may be one. */
void yk__rpc_serve_hurry(void);
/* Waits up to so many seconds (INFINITY: without limit) for the threads to end and destroys what is left. Functions
 * that still run then go on without the worker, and keep their objects; the text names them, or is "". Without the
 * lock. */
void yk__rpc_serve_stop(double seconds, char text[400]);
/* True in a thread whose function runs after its worker's end. */
bool yk__rpc_is_left(void);
/* "'notes.append' for 'w0'": the call, and whose it is. */
void yk__rpc_call_describe(const yk_call *call, char *text, size_t room);
/* A number that no other object of the job has. */
uint64_t yk__rpc_object_number(const yk__rpc_object *object);
/* Fails where the call would wait for a method that waits for it, naming both. */
yk_status yk__rpc_cycle_check(const yk_call *call) YK_MUST_CHECK;
/* The call that this thread runs, or NULL. */
yk_call *yk__rpc_current(void);

/* Queues a call that runs the function of a watch, and takes that over; false without memory. */
bool yk__rpc_serve_tell(yk__rpc_watch *watch, const char *worker);

/* Queues a THEN, and takes over the reference. */
void yk__rpc_serve_then(yk_call *call);

/* Queues a SAVE that nobody waits for. */
void yk__rpc_serve_save(yk__rpc_object *object);

/* ---- rpc_keep.c: objects that outlive their worker ---- */
/* Makes the folder of snapshots. Without the lock. */
yk_status yk__keep_open(const char *folder) YK_MUST_CHECK;
/* True if an object of the class under that shared name has snapshots here; an error for a name that is no file's. */
yk_status yk__keep_wanted(const yk_rpc_class *cls, const char *shared, bool *kept) YK_MUST_CHECK;
/* True if there is a snapshot of it. */
bool yk__keep_is_there(const char *shared);
/* Makes the object of a CREATE from its snapshot: the function of such a call. */
yk_status yk__keep_load(yk_call *call);
/* Writes a snapshot, or removes it. Without the lock, while no method runs. */
yk_status yk__keep_save(yk__rpc_object *object) YK_MUST_CHECK;
void yk__keep_remove(const yk__rpc_object *object);
/* A method has run: with a save_every of 0 the snapshot is written, and an error of that is the call's. Without the
 * lock. */
yk_status yk__keep_after(yk__rpc_object *object) YK_MUST_CHECK;
/* Queues what is due; true while there is something to be saved later. With the lock. */
bool yk__keep_tick(double now);

/* ---- rpc_watch.c ---- */
/* Runs the function of a watch. Without the lock. */
void yk__rpc_watch_run(yk__rpc_watch *watch);
void yk__rpc_watch_free(yk__rpc_watch *watch);
/* Before the threads of calls end: nobody is told anything any more. And the end of its thread. Without the lock. */
void yk__rpc_watches_stop(void);

/* ---- rpc_registry.c ---- */
yk_rpc_fn yk__rpc_function(const char *name);
const yk_rpc_class *yk__rpc_class_of(const char *name);
yk_rpc_fn yk__rpc_method_of(const yk_rpc_class *cls, const char *name);
/* Fills the text: "; did you mean 'add'?", or a list of what there is; of a class (NULL: functions and classes). */
const char *yk__rpc_suggest(const yk_rpc_class *cls, const char *name, char text[400]);

/* ---- rpc_debug.c. With the lock. ---- */
/* Logs, at most once a second, what this worker waits for and what waits in it, at an event. */
void yk__rpc_debug_log(const char *what);

/* ---- rpc_future.c. With the lock. ---- */
yk_future *yk__rpc_future_new(void);
void yk__rpc_future_finish(yk_future *future, unsigned char *bytes, size_t size, const yk_error *error);
/* Fails it: takes no error of the thread's. */
void yk__rpc_future_fail(yk_future *future, yk_status code, const char *format, ...) YK_PRINTF(3, 4);
/* Futures whose time is over fail; gives the next deadline, 0: none. */
double yk__rpc_futures_expire(double now);
/* Waits as yk__rpc_wait does, or takes messages of shared memory itself meanwhile. */
bool yk__rpc_wait_for_answers(pthread_cond_t *condition, double deadline);
/* The result as a value, decoded once: one reference, or NULL and an error. Without the lock, of one that is done. */
yk_value *yk__rpc_future_value(yk_future *future);
/* All that are left fail. */
void yk__rpc_futures_abandon(const char *why);
/* A REPLY that came, and one to a call of this process itself. `owned`: memory that the payload is in, which is taken
 * over; NULL: it is copied. False: malformed. */
bool yk__rpc_reply(yk__rpc_link *link, yk__reader *payload, bool lent, unsigned char *owned);
bool yk__rpc_reply_local(yk_future *future, yk__rpc_link *link, yk__reader *payload, unsigned char *owned);

/* ---- rpc_then.c ---- */
/* The future is done: what waits for it goes on. With the lock. */
void yk__rpc_then_done(yk_future *future);
/* Runs a call of kind THEN. Without the lock. */
void yk__rpc_then_run(yk_call *call);
/* The list of results of a yk_future_all that is done: one reference, or NULL and an error. Without the lock. */
yk_value *yk__rpc_all_value(yk_future *future);

#endif
