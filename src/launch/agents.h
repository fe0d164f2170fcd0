/*
 * agents.h - what the files of nodes.h share. Layer: launch.
 */
#ifndef YOKE_LAUNCH_AGENTS_H
#define YOKE_LAUNCH_AGENTS_H

#include "launch/rendezvous.h"
#include "net/handshake.h"

/* ---- discovery.c: finding node 0, in a thread, because it keeps one waiting ------------------------------------ */
typedef struct yk__discovery {
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
} yk__discovery;
/* False without a thread. The discovery is left alone until it is ready; it may never be freed before. */
bool yk__discovery_start(yk__discovery *discovery);

/* ---- agent_peer.c: one connection between launchers ------------------------------------------------------------- */
typedef struct yk__agent_peer {
    int fd;
    bool accepted; /* the handshake is done */
    bool finished; /* no more bytes come */
    bool gone;     /* no more frames either: `why` says how */
    bool reported; /* that it is gone was dealt with */
    double came, heard;
    yk__handshake handshake;
    yk__wire in, out;
    unsigned char *frame; /* the payload that was taken last */
    size_t sent;
    yk__peer who;
    char why[YK__WHY_SIZE];
    /* node 0's notes of a node */
    bool joined, ended, stopping;
    int node, wanted, listed, *counts;
    double timeout; /* its --node-timeout */
    int first, local;
} yk__agent_peer;

enum {
    AGENT_JOIN = 1, /* to node 0: u32 nodes, u32 its timeout in ms, u32 node + 1 (0: any), u32 listed, u32 counts... */
    AGENT_REFUSED,  /* from node 0: text. The end. */
    AGENT_PLAN,     /* from node 0: see put_plan */
    AGENT_CAUSE,    /* to node 0: u64 microseconds ago, an end */
    AGENT_STOP,     /* from node 0: u32 signal */
    AGENT_ENDED,    /* to node 0: u8 processes are left that cannot be killed, u8 all saved their state */
    AGENT_VERDICT,  /* from node 0: u8 again, an end */
    AGENT_BEAT,
    AGENT_STOPPING /* to node 0, after a stop: what had failed here by then was said before */
};
enum { AGENT_FRAME_LIMIT = 128 << 10 };

/* With an accepted socket, or one whose handshake is done. Registers it with the epoll descriptor. NULL on failure. */
yk__agent_peer *yk__agent_peer_create(int fd, int epoll, const yk__identity *identity, bool accepted);
void yk__agent_peer_free(yk__agent_peer *peer); /* NULL is allowed */
/* Receives what is there and sends what waits; a peer that broke off is `gone`. */
void yk__agent_peer_move(yk__agent_peer *peer, int epoll);
/* The next frame: its type, or 0. The reader's bytes are valid until the next call. */
int yk__agent_peer_next(yk__agent_peer *peer, yk__reader *reader);
/* Gives the peer up: it is `gone`, and its socket closed. */
void yk__agent_peer_lose(yk__agent_peer *peer, const char *why);
/* A frame of which the payload was put with `put`. */
void yk__agent_peer_send(yk__agent_peer *peer, int epoll, int type, const yk__wire *payload);

void yk__agent_put_end(yk__wire *wire, const yk__outcome *end);
bool yk__agent_read_end(yk__reader *reader, yk__outcome *end);
void yk__agent_put_plan(yk__wire *wire, const yk__agent_plan *plan);
bool yk__agent_read_plan(yk__reader *reader, yk__agent_plan *plan);
/* Text of a value of at most size - 1 bytes, control characters replaced. */
bool yk__agent_read_text(yk__reader *reader, char *text, size_t size);

/* ---- the state -------------------------------------------------------------------------------------------------- */
enum { AGENT_REASONS = 8 };
struct yk__rendezvous {
    group_link link;
    yk__rendezvous_settings s;
    yk__identity identity;
    relay_sink *err;
    int epoll, listening; /* -1: not node 0 */
    char where[YK__ADDRESS_TEXT + YK__HOST_SIZE];
    double beat; /* when the last one was sent */

    /* node 0 */
    yk__agent_peer **peers; /* those that came, also unauthenticated; NULLs are free */
    int slots, joined;
    char reasons[AGENT_REASONS][YK__WHY_SIZE]; /* why peers were refused */
    int refused;
    int own_local, world;
    int port_held; /* the claim of the ranks' port, where it is not the one behind the launchers'; -1: none */

    /* the others */
    yk__agent_peer *coordinator;
    char coordinator_name[160];
    yk__agent_plan plan;
    bool planned;
    char refusal[1200];

    /* of an attempt */
    int64_t restart;
    int stop;        /* the signal that the group is to get; 0: none yet */
    bool cause_seen; /* this node's failure was taken note of */
    bool asked;      /* so was that its launcher was asked to end */
    bool reported;   /* node 0 knows that this node's group has ended */
    bool stopping;   /* node 0 knows that this node has heard the stop */
    bool have_end, again, any_left, any_lost, any_unsaved, any_asked;
    yk__outcome end;
    double end_at, decide_at;
};

/* coordinator.c */
/* Receives, hears, sends beats, forgets unauthenticated that take too long; never waits. */
void yk__rendezvous_move(yk__rendezvous *n);
int yk__rendezvous_step(group_link *link, const group *g, bool ended, double *again);
void yk__rendezvous_send_all(yk__rendezvous *n, int type, const yk__wire *payload);
void yk__rendezvous_hear_coordinator(yk__rendezvous *n);
/* yk__rendezvous_join.c */
void yk__rendezvous_accept(yk__rendezvous *n);
void yk__rendezvous_take_join(yk__rendezvous *n, yk__agent_peer *peer, yk__reader *reader);
/* Frees a slot; why a stranger was turned away is kept. */
void yk__rendezvous_forget(yk__rendezvous *n, int slot);
/* The peer's text, or with NULL everyone's: the end. */
void yk__rendezvous_refuse(yk__rendezvous *n, yk__agent_peer *peer, const char *text);

#endif
