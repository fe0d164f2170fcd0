/*
 * rendezvous.h - the launchers of a job's nodes: they meet, agree on ranks, and end together. Layer: launch.
 *
 * Node 0's launcher listens at the job's address; the others keep one connection to it, authenticated as a store's is
 * (net/handshake.h, service "launch"). Node 0 gives out ranks, decides which failure was the first, and says when an
 * attempt is over and whether there is another. Everyone sends a beat now and then, so that a node that falls silent is
 * noticed. docs/launcher.md has the messages.
 */
#ifndef YOKE_LAUNCH_RENDEZVOUS_H
#define YOKE_LAUNCH_RENDEZVOUS_H

#include <stdio.h>

#include "launch/outcome.h"
#include "launch/roles.h"
#include "net/etcd.h"

typedef struct yk__rendezvous_settings {
    const char *host; /* of node 0 */
    int port;
    int node_count, node; /* -1: any */
    int least;            /* node_count, or fewer: with so many the job runs, and nodes may come and go (views.c) */
    double last_call;     /* seconds for which more nodes are waited for when the least have come */
    const int *counts;    /* processes: here, or of every node by number */
    int listed;           /* 1 or node_count */
    int roles;            /* as in yk__agent_facts (agents.h) */
    const yk__role_rule *rules;
    const int *role_counts;
    int64_t restarts;             /* node 0's counts */
    int64_t spares;               /* nodes beyond node_count that may wait for a place, node 0's count */
    double fail_first, fail_most; /* seconds (cooldown.h), node 0's count; fail_first 0: nobody waits */
    const char *witness;          /* the host that has no processes, and a say in who goes on; NULL: none was named */
    double join_timeout, node_timeout, grace;
    const char *job, *name; /* this host's, in messages */
    /* etcd, through which node 0 is found; NULL: `host` is its address. With it host is the address at which this node
     * can be reached (NULL: by which it reaches etcd), and port that of its store (0: a free one). */
    const yk__etcd_options *etcd;
    const char *etcd_prefix;
} yk__rendezvous_settings;

/* Node 0's plan of an attempt, made of the facts that each node brought. */
typedef struct yk__agent_plan {
    int node, local, first, world; /* this node, processes here, the rank of the first of them, of all nodes */
    int port;                      /* MASTER_PORT of the attempt */
    int64_t restart, restarts;     /* done before, and at most */
    int64_t attempt;               /* its number, from 0: restarts and changes of nodes */
    int nodes;                     /* that take part */
    int64_t orders;                /* given before (agents.h) */
    bool joins;                    /* the others train, and go on while these processes join them (survivors.c) */
    int roles;                     /* of a job of several; 0: it has one */
    yk__role_part role[YK__MOST_ROLES];
} yk__agent_plan;

typedef struct yk__rendezvous yk__rendezvous;

/*
 * Meets the other launchers and fills the plan of the first attempt. NULL after a message, with the exit code, when
 * they do not all come in time, do not fit together, or a signal asks to end. Only inside yk__supervise().
 */
yk__rendezvous *yk__rendezvous_join(const yk__rendezvous_settings *settings, relay_sink *err, yk__agent_plan *plan,
                                    int *code);
/* The table of where all ranks let others in (listeners.h), and the socket of the rank with this number on this node;
 * NULL where there is none. */
const char *yk__rendezvous_listeners(const yk__rendezvous *n, int local_rank, int *fd);
/* The address at which this launcher tells its processes where the store of the job is, which may move (YK__GUIDE_KEY);
 * NULL: it does not.
 */
const char *yk__rendezvous_guide(const yk__rendezvous *n);
/* To be given to the group of each attempt. */
group_link *yk__rendezvous_link(yk__rendezvous *n);
/* After yk__supervisor_run: how the attempt ended on all nodes, and whether there is another. Moves the end's text out.
 */
bool yk__rendezvous_ended(yk__rendezvous *n, const group *g, yk__outcome *end);
/* At node 0: the ranks of other nodes that ended or came back in this attempt while the others went on (departures.h).
 */
const struct yk__departure *yk__rendezvous_departed(const yk__rendezvous *n, int *count);
/* Nothing is left of this process of a program whose others go on without it: they are told. */
void yk__rendezvous_gone(yk__rendezvous *n, int rank, int incarnation);
/* Sets a key of the ranks of this attempt, in the store where they are; does not wait. */
void yk__rendezvous_put(yk__rendezvous *n, const char *key, const char *value);
/* This node cannot start its processes: all end with the exit code, and the others say why. */
void yk__rendezvous_give_up(yk__rendezvous *n, int code, const char *why);
/* For a job whose nodes come and go: why the last attempt was ended by that, and is followed by another; NULL: it was
 * not. *since: when this node knew of it. Valid until the next one ends. */
const char *yk__rendezvous_change(const yk__rendezvous *n, double *since);
/* The plan of the next attempt; false after a message, with the exit code. */
bool yk__rendezvous_next(yk__rendezvous *n, yk__agent_plan *plan, int *code);
/* ---- traces.c: when the job is over on all nodes ----------------------------------------------------------------- */
typedef struct yk__trace_file {
    int rank;
    FILE *file;
    /* At node 0: what is to be added to the clock of the rank's host for that of this one, and by how much that may be
     * wrong. */
    bool clock_known;
    int64_t to_node0_ns, error_ns;
} yk__trace_file;
typedef struct yk__trace_taker {
    FILE *(*create)(void *argument, int rank); /* a file for what a rank recorded; NULL: it cannot be made */
    void (*remove)(void *argument, int rank);  /* it is not used */
    void *argument;
} yk__trace_taker;
bool yk__rendezvous_is_first(const yk__rendezvous *n);
/* Gives node 0 the files, which stay open; true if it has them all. Waits for its turn. */
bool yk__rendezvous_traces_give(yk__rendezvous *n, const yk__trace_file *files, int count);
/* At node 0: takes those of the other nodes' ranks, whose files the caller closes; how many. `files` has room for all
 * ranks. A node whose files cannot be had keeps them, and is named on stderr. */
int yk__rendezvous_traces_take(yk__rendezvous *n, const yk__trace_taker *taker, yk__trace_file *files);
/* Node 0's address, as it was found. */
const char *yk__rendezvous_address(const yk__rendezvous *n, int *port);
/* Sends what is left and frees; NULL is allowed. */
void yk__rendezvous_close(yk__rendezvous *n);
#endif
