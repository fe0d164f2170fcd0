/*
 * nodes_inside.h - what the files of nodes.h share. Layer: cli.
 */
#ifndef YOKE_CLI_NODES_INSIDE_H
#define YOKE_CLI_NODES_INSIDE_H

#include "cli/nodes.h"
#include "net/handshake.h"

/* ---- nodes_seek.c: finding node 0, in a thread, because it keeps one waiting ------------------------------------ */
typedef struct node_seek {
    const char *host;
    int port;
    bool may_listen, must_listen; /* this node can be, is, node 0 */
    double deadline;
    const yk__identity *identity;
    int ready; /* can be read when all below is there */
    int fd;    /* -1: failed, `why` says it */
    bool listens;
    yk__address address; /* where, or whose */
    yk__peer peer;       /* node 0, unless this is */
    char why[2 * YK__WHY_SIZE];
} node_seek;
/* False without a thread. The seek is left alone until it is ready; it may never be freed before. */
bool node_seek_start(node_seek *seek);

/* ---- nodes_talk.c: one connection between launchers ------------------------------------------------------------- */
typedef struct node_peer {
    int fd;
    bool accepted; /* the handshake is done */
    bool finished; /* no more bytes come */
    bool gone;     /* no more frames either: `why` says how */
    bool told;     /* that it is gone was dealt with */
    double came, heard;
    yk__handshake handshake;
    yk__wire in, out;
    unsigned char *frame; /* the payload that was taken last */
    size_t sent;
    yk__peer who;
    char why[YK__WHY_SIZE];
    /* node 0's notes of a node */
    bool joined, ended;
    int node, wanted, listed, *counts;
    double timeout; /* its --node-timeout */
    int first, local;
} node_peer;

enum {
    NODE_JOIN = 1, /* to node 0: u32 nodes, u32 its timeout in ms, u32 node + 1 (0: any), u32 listed, u32 counts... */
    NODE_REFUSED,  /* from node 0: text. The end. */
    NODE_PLAN,     /* from node 0: see put_plan */
    NODE_CAUSE,    /* to node 0: u64 microseconds ago, an end */
    NODE_STOP,     /* from node 0: u32 signal */
    NODE_ENDED,    /* to node 0: u8 processes are left that cannot be killed, u8 all saved their state */
    NODE_VERDICT,  /* from node 0: u8 again, an end */
    NODE_BEAT
};
enum { NODE_FRAME_LIMIT = 128 << 10 };

/* With an accepted socket, or one whose handshake is done. Registers it with the epoll descriptor. NULL on failure. */
node_peer *node_peer_create(int fd, int epoll, const yk__identity *identity, bool accepted);
void node_peer_free(node_peer *peer); /* NULL is allowed */
/* Receives what is there and sends what waits; a peer that broke off is `gone`. */
void node_peer_move(node_peer *peer, int epoll);
/* The next frame: its type, or 0. The reader's bytes are valid until the next call. */
int node_peer_next(node_peer *peer, yk__reader *reader);
/* Gives the peer up: it is `gone`, and its socket closed. */
void node_peer_lose(node_peer *peer, const char *why);
/* A frame of which the payload was put with `put`. */
void node_peer_send(node_peer *peer, int epoll, int type, const yk__wire *payload);

void node_put_end(yk__wire *wire, const run_end *end);
bool node_read_end(yk__reader *reader, run_end *end);
void node_put_plan(yk__wire *wire, const node_plan *plan);
bool node_read_plan(yk__reader *reader, node_plan *plan);
/* Text of a value of at most size - 1 bytes, control characters replaced. */
bool node_read_text(yk__reader *reader, char *text, size_t size);

/* ---- the state -------------------------------------------------------------------------------------------------- */
enum { NODE_REASONS = 8 };
struct nodes {
    group_link link;
    node_settings s;
    yk__identity identity;
    relay_sink *err;
    int epoll, listening; /* -1: not node 0 */
    char where[YK__ADDRESS_TEXT + YK__HOST_SIZE];
    double beat; /* when the last one was sent */

    /* node 0 */
    node_peer **peers; /* those that came, also strangers; NULLs are free */
    int slots, joined;
    char reasons[NODE_REASONS][YK__WHY_SIZE]; /* why peers were refused */
    int refused;
    int own_local, world;
    int port_held; /* the claim of the ranks' port, where it is not the one behind the launchers'; -1: none */

    /* the others */
    node_peer *hub;
    char hub_name[160];
    node_plan plan;
    bool planned;
    char refusal[1200];

    /* of an attempt */
    int64_t restart;
    int stop;        /* the signal that the group is to get; 0: none yet */
    bool cause_seen; /* this node's failure was taken note of */
    bool asked;      /* so was that its launcher was asked to end */
    bool told;       /* node 0 knows that this node's group has ended */
    bool have_end, again, any_left, any_lost, any_unsaved, any_asked;
    run_end end;
    double end_at, decide_at;
};

/* nodes.c */
/* Receives, hears, sends beats, forgets strangers that take too long; never waits. */
void nodes_move(nodes *n);
int nodes_step(group_link *link, const group *g, bool ended, double *again);
void nodes_send_all(nodes *n, int type, const yk__wire *payload);
void nodes_hear_hub(nodes *n);
/* nodes_join.c */
void nodes_accept(nodes *n);
void nodes_take_join(nodes *n, node_peer *peer, yk__reader *reader);
/* Frees a slot; why a stranger was turned away is kept. */
void nodes_forget(nodes *n, int slot);
/* The peer's text, or with NULL everyone's: the end. */
void nodes_refuse(nodes *n, node_peer *peer, const char *text);

#endif
