/*
 * multihost.h - ranks on several hosts: the connections between them and the bytes that go over these.
 * Layer: comm/native.
 *
 * Note [Two connections]
 * Between every two ranks of different hosts there are two connections. `data` carries the collectives: a stream of
 * bytes whose order both sides know from the order of the operations. `control` carries frames: messages, and what a
 * rank has to say at any time (the group is broken, I leave, I wait in this operation). Whoever waits, for whatever,
 * reads all control connections until they are empty; so a cause is known at once everywhere, and no message is in the
 * way of a collective. What became of a peer is decided by its control connection alone: a cause that was sent before
 * the end is read before the end.
 *
 * Note [On the wire]
 * Both are in frames (net/frame.h), which are checked as they arrive; one that is damaged, lost, repeated or reordered
 * breaks the group. Data connections are streams (net/byte_stream.h). On control connections the control_frame is the
 * payload of a control frame, and what belongs to it follows in a frame of its own: a data frame if it is a message's.
 *
 * Note [Lanes]
 * Inside a host ranks work on each other's memory (native.h). As many ranks of each host as the smallest host has carry
 * the bytes between hosts: rank c of a host (its lane c) exchanges with rank c of the others about slice c of the
 * payload.
 */
#ifndef YOKE_COMM_NATIVE_MULTIHOST_H
#define YOKE_COMM_NATIVE_MULTIHOST_H

#include <poll.h>
#include <string.h>

#include "comm/native/native.h"
#include "net/byte_stream.h"
#include "net/channel.h"

enum {
    CONTROL_EAGER = 64 << 10, /* bytes of a message that goes without being asked for */
    CONTROL_QUEUE = 1 << 20,  /* bytes that wait to be sent, from which on messages wait too */
    CONTROL_PIECE = 256 << 10 /* of a larger message: what may delay another frame */
};

/* Seconds for which a link may be silent, though something was sent over it again and again, when this process is asked
 * to end. The system sends again after 0.2, 0.6 and 1.4 s. */
enum { NATIVE_SIGNAL_WAIT = 1 };

enum {
    CONTROL_MESSAGE = 1, /* a message with its bytes */
    CONTROL_OFFER,       /* a message whose bytes are to be asked for; code: so many, where they are not its elements */
    CONTROL_ACCEPT,      /* the bytes of offer `number` are wanted */
    CONTROL_BYTES,       /* some of them, in order */
    CONTROL_BROKEN,      /* the group is broken: code, and the cause as text */
    CONTROL_LEFT,        /* the rank left after `number` collectives */
    CONTROL_BEGUN        /* the rank waits in collective `number`, for rank `code` - 1 or, 0, for its own host */
};

typedef struct control_frame {
    uint32_t type;
    int32_t tag, dtype, code;
    uint64_t number;
    int64_t count;
    uint64_t bytes; /* that follow */
} control_frame;

enum { CONTROL_HEAD = YK__FRAME_HEADER + sizeof(control_frame) };

typedef struct control_out {
    control_frame frame;
    const char *payload; /* of the message, or the same as `owned` */
    char *owned;
    bool begun;                                          /* `head` is made: a number is used up, so it has to be sent */
    unsigned char head[CONTROL_HEAD + YK__FRAME_HEADER]; /* the frame of `frame`, the payload's header */
    size_t head_size, sent;                              /* sent of head and payload together */
    yk__native_message *message;                         /* done when this is sent; may be NULL */
    struct control_out *next;
} control_out;

typedef struct control_arrived {
    control_frame frame;
    struct control_arrived *next;
    char bytes[];
} control_arrived;

/* Memory that it takes. */
static inline size_t yk__native_arrived_size(const control_arrived *arrived)
{
    return sizeof(*arrived) + arrived->frame.bytes + 1;
}

/* The connections between this rank and one of another host. All but `data` and `data_gone` are read and written under
 * the message lock. */
typedef struct yk__native_link {
    char address[YK__ADDRESS_TEXT]; /* the address at which the rank listens while it joins */
    int control, data;              /* sockets; -1: none */
    bool near;                      /* with a carrier: on this machine, as far as is known */
    bool data_gone;                 /* closed or broken: the control connection will say why */
    double gone_at;                 /* since when that is waited for */
    bool left, closed, watched_out;
    int data_error;     /* errno of what ended the data connection, 0: its end */
    char data_why[100]; /* with a carrier: what ended it there */
    double closed_at;
    int error; /* errno of what ended the control connection, 0: its end, -1: `why` says it */
    uint64_t done, begun;
    int waits_for; /* with `begun`: as CONTROL_BEGUN */
    double heard;  /* the time when CONTROL_BEGUN came last */
    char why[YK__WHY_SIZE];

    yk__frame_state *control_send, *control_receive; /* an array of two; NULL: no connections */
    yk__byte_stream *stream;                         /* of the data connection */

    unsigned char in_head[CONTROL_HEAD + YK__FRAME_HEADER]; /* a frame that is arriving, and is checked: as in
                                                             * control_out */
    yk__frame_head in_payload;
    control_frame in;
    size_t in_fill, in_left;
    char *in_begin, *in_to;
    control_arrived *in_node;

    control_out *out, **out_end;
    size_t queued;
    control_arrived *arrived, **arrived_end; /* messages and offers that no receive has taken */
    size_t unclaimed;                        /* their memory */
} yk__native_link;

struct yk__native_net {
    yk__native_link *links; /* by rank of the group */
    int listener, epoll;
    void *carried; /* the carrier's state; NULL: there is none */
    bool dropped;  /* the rest of messages to be sent was dropped: the group is broken */
    char address[YK__ADDRESS_TEXT];
    struct yk__native_joining_links *joining; /* links.h; NULL once they are there */
    yk__identity identity;
    bool flat;             /* every host has one rank */
    int lanes;             /* ranks of each host that carry bytes between hosts */
    int most;              /* ranks of the largest host */
    yk__subtree *subtrees; /* Note [Subtrees of hosts]: the inputs that cross between hosts, in the order of ranks */
    int *subtree_hosts;    /* the host of each */
    int subtree_count;

    /* collectives: one thread at a time */
    char *blocks, *work; /* memory that is kept */
    size_t block_bytes, work_bytes;
    int board_half;
    double moved;       /* the time when bytes last moved on a data connection, as far as looked at */
    uint64_t announced; /* the last CONTROL_BEGUN */
    double announced_at;
};

/* ---- links.c, link_join.c: joining ---- */
/* Listens where peers can connect. Sets g->net, also on failure but for lack of memory. */
yk_status yk__native_net_listen(native *g, const yk__comm_join_args *args);
/* The host that all ranks reach: the store's, or $MASTER_ADDR. False where there is none. */
bool yk__native_master_host(const yk__comm_join_args *args, char host[YK__HOST_SIZE], int *port);
/* Begins to make connections where the launcher has said where all ranks listen; `args` must stay. */
void yk__native_net_early(native *g, const yk__comm_join_args *args);
/* The hosts are known: begins to connect to all lower ranks of others, at their links' addresses. */
yk_status yk__native_net_begin(native *g, const yk__comm_join_args *args);
/* Waits until all connections are there. */
yk_status yk__native_net_connect(native *g, const yk__comm_join_args *args, double until);
/* Breaks the group: what came from `rank` over its control or data connection is not what was sent, and `why`. */
yk_status yk__native_damaged(native *g, int rank, bool data, const char *why);
/* Says goodbye and closes everything. */
void yk__native_net_close(native *g);

/* ---- carried.c: with a carrier ---- */
/* Opens this rank's end and puts its address into the store, and connects with those of all others. */
yk_status yk__native_carrier_open(native *g, const yk__comm_join_args *args);
yk_status yk__native_carrier_connect(native *g, const yk__comm_join_args *args, double until);
/* yk__native_data_send and yk__native_data_receive. */
size_t yk__native_carried_send(native *g, int rank, const char *from, size_t bytes);
size_t yk__native_carried_receive(native *g, int rank, char *to, size_t bytes);
/* Ends an operation that had this status, which it returns. */
yk_status yk__native_carried_end(native *g, yk_status status);

/* ---- control.c ---- */
/* Reads and writes what the control connections take, without waiting. Takes the lock, which may be held. */
void yk__native_control_progress(native *g);
/* Queues a frame and tries to send it. `bytes` are copied, unless they belong to the message. With the lock held. */
bool yk__native_control_enqueue(native *g, yk__native_link *l, const control_frame *frame, const void *bytes,
                                yk__native_message *message);
/* Tells all ranks of other hosts that the group is broken. */
void yk__native_control_send_broken(native *g, yk_status code, const char *cause);
/* Drops what is queued of messages before messages of a broken group end: their memory is not looked at any more. With
 * the lock held. */
void yk__native_control_drop_messages(native *g);
/* Tells them that this rank waits in collective `number`, for a rank of another host or, -1, for its own: once, and
 * again as long as it waits, so that they hear that it runs. */
void yk__native_control_send_begun(native *g, uint64_t number, int waits_for);
/* Move a message to or from another host on, with the lock held. True if it is done; *status is then its status. */
bool yk__native_remote_send(native *g, yk__native_message *m, yk_status *status);
bool yk__native_remote_recv(native *g, yk__native_message *m, yk_status *status);
/* Waits until something arrives, for `seconds` at most. */
void yk__native_control_wait(native *g, double seconds);
/* Sends what is queued, for `seconds` at most; with `whole` (the group is not broken) until the systems of all ranks
 * that have not left acknowledge these bytes, and those that were sent over data connections. */
void yk__native_control_flush(native *g, bool whole, double seconds);
void yk__native_control_clear(yk__native_link *l);
/* "the connection between rank 0 (host a, pid 1) and rank 1 (host b, pid 2)": of this rank and another. */
enum { YK__LINK_TEXT = 300 };
const char *yk__native_link_name(const native *g, int rank, char text[YK__LINK_TEXT]);

/* ---- flow.c: bytes on data connections ---- */
/* Sends the bytes that the system takes at once, or receives those that it has, in whole frames, and returns their
 * number; 0 also where the connection is gone. A call that did not move all `bytes` must be followed by one that names
 * the rest, at the same offset and no fewer: a part of a frame may be there already. Bytes that are received have been
 * checked. A damaged frame breaks the group. */
size_t yk__native_data_send(native *g, int rank, const char *from, size_t bytes);
size_t yk__native_data_receive(native *g, int rank, char *to, size_t bytes);

/* A loop that moves bytes looks again for some rounds in which nothing moves before it waits; zero at first. */
typedef struct yk__native_spin_state {
    bool moved; /* since the last wait */
    int looks;
    double looked;
} yk__native_spin_state;
/* True if the caller is to look again at once. */
bool yk__native_spin(yk__native_spin_state *s, bool moved);
struct pollfd yk__native_poll_entry(const native *g, int rank, short events);
/* Waits for the `count` entries of `wait`, which has room for one more, and for the control connections; fails when
 * the group is broken. `rank` is one that this rank waits for. */
yk_status yk__native_poll(native *g, yk__native_spin_state *s, struct pollfd *wait, int count, int rank);

typedef struct yk__native_flow {
    int rank; /* the other side */
    char *at;
    size_t bytes, done;
} yk__native_flow;

/* Sends and receives all flows at once. A flow in `in` is payload to `check` when its first `head` bytes are there. */
typedef yk_status (*yk__native_flow_check)(native *g, const yk__native_flow *flow);
yk_status yk__native_flow_run(native *g, yk__native_flow *out, int outs, yk__native_flow *in, int ins, size_t head,
                              yk__native_flow_check check);

/* `segments` runs of `width` bytes; run i is at base + index[i] * pitch, or they follow each other (index NULL). */
typedef struct yk__native_chunk {
    char *base;
    const int *index;
    size_t pitch, width, segments;
} yk__native_chunk;

static inline size_t yk__native_chunk_bytes(const yk__native_chunk *c)
{
    return c->width * c->segments;
}

/* A chunk to be received. */
typedef struct yk__native_pipe_in {
    yk__native_chunk chunk;
} yk__native_pipe_in;

/* A chunk to be sent: there at the start (source -1), or the chunk that is taken as number `source`, which goes on as
 * it comes in. */
typedef struct yk__native_pipe_out {
    yk__native_chunk chunk;
    int source;
} yk__native_pipe_out;

/* A rank's part in a ring or a chain: what goes to rank `to` and comes from rank `from`, in this order. */
typedef struct yk__native_pipe {
    int to, from;
    yk__native_pipe_out *out;
    yk__native_pipe_in *in;
    int outs, ins;
} yk__native_pipe;
yk_status yk__native_pipe_run(native *g, const yk__native_pipe *p);

/* ---- multihost.c ---- */
static inline void yk__native_copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

static inline size_t yk__native_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Memory that is kept from call to call, with room for `bytes`; NULL and an error without. */
char *yk__native_keep(char **memory, size_t *have, size_t bytes);
/* Room for a block of `bytes` from every host; the payload of one of them. */
yk_status yk__native_block_room(native *g, size_t bytes);
char *yk__native_block(const native *g, int host, size_t bytes);
/* The leaders of all hosts exchange their blocks; an error if their operations differ. */
yk_status yk__native_gather_blocks(native *g, const yk__comm_op *op, size_t bytes);
/* The host's round and the leaders'. After one more round of the host all its ranks may send. */
yk_status yk__native_begin_large(native *g, const yk__comm_op *op, const yk__region_handle *in);
/* A round of the host, where it has several ranks. */
yk_status yk__native_sync_host(native *g);
/* Switches to the other halves of the bounce buffers. Between two uses of a half there must be a round. */
void yk__native_next_board(native *g);
char *yk__native_board_of(const native *g, int local_rank);

/* ---- remote_wait.c ---- */
/* A rank of another host that ended, or left before the current collective, breaks the group. So does one whose host
 * does not answer when this process was asked to end by a signal, and waits for it. */
yk_status yk__native_control_check_peers(native *g);
/* Seconds for which the other side's system has not acknowledged what was sent to it again; 0: it answers, or nothing
 * is on the way. */
double yk__native_unanswered(const native *g, int rank);
/* The slot check_hosts of the transport. */
yk_status yk__native_check_hosts(native *g, double waited);

/* ---- subtrees.c ---- */
yk_status yk__native_subtrees_init(native *g);
void yk__native_subtrees_clear(native *g);
/* Bytes of an element of subtree i: in the dtype for the value of one rank, else in the wide dtype. */
size_t yk__native_subtree_size(const native *g, int i, yk_dtype dtype);
/* Combines the ranks of subtree i of this host; rows[r] has the values of the rank in row r of the segment. */
yk_status yk__native_subtree_combine(const native *g, int i, const yk__comm_op *op, const char *const *rows, char *out,
                                     int64_t count);

/* ---- pairwise.c ---- */
/* A lane's part in a reduction between hosts. All memory is in the dtype of the operation. */
typedef struct yk__native_pairwise {
    const yk__comm_op *op;
    int lane;
    int64_t count; /* elements of the lane's slice; with `parts` of its slice of each part */
    bool parts;    /* reduce_scatter: a host gets the results of the parts of its ranks, part r at r * pitch */
    int root_host; /* without parts: the host that gets all results, -1: all */
    const char *in[NATIVE_MAX_RANKS]; /* the slice of each rank of this host, by row */
    char *out[NATIVE_MAX_RANKS];      /* results, the same to all; they may be the memory of `in` */
    int outputs;                      /* 0 on hosts that get none and have no memory for their own share of them */
    size_t in_pitch, out_pitch;
} yk__native_pairwise;
yk_status yk__native_pairwise_reduce(native *g, const yk__native_pairwise *x);

/* ---- multihost_reduce.c ---- */
/* all_reduce and reduce. */
yk_status yk__native_multihost_reduce(native *g, const yk__comm_op *op);
yk_status yk__native_multihost_reduce_scatter(native *g, const yk__comm_op *op);

/* ---- ring.c ---- */
yk_status yk__native_ring_all_gather(native *g, const yk__comm_op *op);
yk_status yk__native_chain_broadcast(native *g, const yk__comm_op *op);

/* ---- multihost_scatter.c: gather and scatter; all_to_all ---- */
yk_status yk__native_multihost_scatter(native *g, const yk__comm_op *op);
yk_status yk__native_multihost_all_to_all(native *g, const yk__comm_op *op);

#endif
