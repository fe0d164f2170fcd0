/*
 * agents.h - what the files of rendezvous.h share. Layer: launch.
 *
 * The keys of the launchers' store; ID is a random number that each launcher takes, 16 hexadecimal digits:
 *
 *   reports   a list: every launcher pushes, node 0 reads it in its order and deletes what it has read
 *   plan/ID   node 0's answer to a report that asks to join; plan/ID/2, ... those that follow where that says to wait
 *   orders/N  N = 1, 2, ...: node 0 sets them one by one, every other launcher reads all of them in their order
 */
#ifndef YOKE_LAUNCH_AGENTS_H
#define YOKE_LAUNCH_AGENTS_H

#include "launch/cooldown.h"
#include "launch/departures.h"
#include "launch/listeners.h"
#include "launch/pages.h"
#include "launch/register.h"
#include "launch/rendezvous.h"
#include "net/store_link.h"
#include "net/store_server.h"

/* ---- agent_client.c: a launcher's connection to the store, which never waits ------------------------------------- */
typedef struct yk__agent_client {
    yk__store_link link; /* to the store, which is at link.far; no descriptor: none, or gone */
    bool gone;           /* no more values come: `why` says how it ended */
    double heard;        /* when something last came */
    int unanswered;      /* requests, but for the value that is awaited */
    int64_t sent;        /* all of those ever; they are answered in their order */
    char list[16];       /* of which values are awaited, one by one; "": none */
    int64_t next;
    bool closed; /* gone, because the other's system has closed the connection in order */
    /* Called by yk__agent_client_next with what a store that is followed sends (net/store_keeping.h). */
    void (*mirrored)(void *argument, yk__reader *message);
    void *argument;
    char why[YK__WHY_SIZE];
} yk__agent_client;

/* Requests are queued, and sent by yk__agent_client_move; before there is a connection, behind the hand-shake. */
void yk__agent_client_set(yk__agent_client *client, const char *key, const yk__wire *value);
void yk__agent_client_set_text(yk__agent_client *client, const char *key, const char *text);
void yk__agent_client_push(yk__agent_client *client, const char *list, const yk__wire *value);
void yk__agent_client_delete(yk__agent_client *client, const char *list, int64_t number);
/* `values`: for the end, silence, and damage (yk__lease_end). */
void yk__agent_client_lease(yk__agent_client *client, const char *list, const yk__wire values[3], double seconds);
/* A request with this payload, which has an answer; or has none. */
void yk__agent_client_plain(yk__agent_client *client, unsigned kind, const yk__wire *payload);
void yk__agent_client_word(yk__agent_client *client, unsigned kind, const yk__wire *payload);
void yk__agent_client_renew(yk__agent_client *client);
/* The value of one key; or from LIST/1 on all values of a list. */
void yk__agent_client_await(yk__agent_client *client, const char *key);
void yk__agent_client_follow(yk__agent_client *client, const char *list);
/* The same from LIST/(after + 1) on. */
void yk__agent_client_follow_after(yk__agent_client *client, const char *list, int64_t after);
/* Receives what is there and sends what waits. */
void yk__agent_client_move(yk__agent_client *client);
/* True if a value that was awaited is there; the reader's bytes are valid until the next call. */
bool yk__agent_client_next(yk__agent_client *client, yk__reader *value);
/* Gives the connection up. */
void yk__agent_client_lose(yk__agent_client *client, const char *why);
/* The same, but that the connection stays open, so that the other side does not hear of it: its descriptor, which is
 * the caller's from now on; -1: there was none. */
int yk__agent_client_park(yk__agent_client *client, const char *why);
void yk__agent_client_clear(yk__agent_client *client);

/* ---- agent_messages.c: the values -------------------------------------------------------------------------------- */
enum {                  /* of reports: u8 kind, u64 id, and */
       REPORT_JOIN = 1, /* see yk__agent_facts */
       REPORT_CAUSE,    /* u64 microseconds since, u8 since the process saw its group fail, u8 the job is to end on all
                         * nodes,    also where they come and go, an end: a failure, a signal */
       REPORT_STOPPING, /* -: a stop was received; what had failed here by then was reported before */
       /* u8 processes are left that cannot be killed, u8 all saved their state, u8 all ended well unasked; of a program
        * that survives u64 each the last view in which one has ended well, and has ended otherwise (0: none has) */
       REPORT_ENDED,
       REPORT_LOST, /* u8 yk__lease_end, u64 the term promised then, and text of damage. From the store: a launcher's
                       lease is over */
       REPORT_DEPARTED, /* see yk__agent_put_departure: a process ended, or came back, while the others go on */
       /* u32 and u64 of the order, u8 state, u32 size and bytes of the file, u64 nanoseconds of this host's clock when
        * the order came, and u64 now (traces.c) */
       REPORT_TRACE,
       REPORT_LIVE,    /* u32 number of order 10, u32 ranks, of each u32 rank, u8 0 it has a trace, or why not */
       REPORT_IN_VAIN, /* text, why: no process of this node, which came to join others, has become a member */
       REPORT_CAME,    /* u64 term: it has come to the launcher that keeps the store in it (succession.c) */
       REPORT_VIEW,    /* u64, the list of members of which processes of this node, which survive others, are now */
       /* u64 term, text "HOST:PORT", text host, u32 pid: the launcher with this id, which is none of this one's, keeps
        * the job there (recall.h) */
       REPORT_RECALL
};
enum {                   /* of plans: u8 kind, and */
       PLAN_REFUSED = 1, /* text */
       PLAN_GIVEN,       /* see yk__agent_put_plan */
       /* u64 microseconds, u8 1 as a spare, text, why ("": as before), and text, where other launchers serve a store of
        * their own, "HOST:PORT HOST:PORT": another answer follows, under the next key */
       PLAN_WAITS,
       PLAN_OVER,     /* u8 the exit code of the job, text: it has come to its end, and has not needed this spare */
       PLAN_ELSEWHERE /* text "HOST:PORT": the job is kept there (recall.c) */
};
enum {                 /* of orders: u8 kind, and */
       ORDER_STOP = 1, /* u32 the signal to stop the processes with, u8 1 where it is because some are stuck */
       ORDER_RESULT,   /* u8 again, an end: the attempt is over on all nodes */
       ORDER_ATTEMPT,  /* u32 MASTER_PORT, u64 restarts done: the next one begins */
       ORDER_LOST,     /* u32 node, text: this node's launcher is lost */
       ORDER_MEMBERS,  /* u8 1 where a node is lost, u32 nodes, u32 ranks, text: nodes come or go, and the others go on
                        */
       ORDER_LEFT,     /* u64 id: the launcher with this id, which leaves, may end */
       ORDER_VIEW,     /* u64 id, then as in a plan: the part of the launcher with this id in the next attempt, of nodes
                        * that come and go; in place of ORDER_ATTEMPT */
       ORDER_KEEPER,   /* u64 term: the store has successors, and this launcher is to follow it (succession.c) */
       ORDER_TRACE,    /* u64 id, u32 rank + 1, u64 offset: a piece of what this rank recorded; rank + 1 = 0: none */
       ORDER_TRACE_END, /* u64 id, u8 node 0 has them all: this launcher's traces are not asked for any more */
       ORDER_LIVE /* u32 number, u32 steps, u64 the step behind which they begin, u64 how far a rank may be from it, u64
                   * milliseconds: all ranks are to record (live_traces.c) */
};

/* The largest signal number of Linux (SIGRTMAX). */
enum { AGENT_MOST_SIGNAL = 64 };

/* The contents of a launcher's request to join. */
typedef struct yk__agent_facts {
    int nodes, least, wanted; /* --nnodes; --node-rank, -1: any */
    double timeout;           /* --node-timeout */
    double grace;             /* --grace */
    int listed, *counts;
    char host[64];
    char machine[sizeof(((yk__failing_host *)0)->name)]; /* by which its failures are counted: YOKE_HOST_ID, or host */
    uint32_t pid;
    char *keeper;    /* "HOST:PORT", where it would serve the launchers' store (succession.c); "": it would not */
    char *listeners; /* where its ranks let others in: a word of the table of listeners.h, or "" */
    /* The number of roles of a job that has several, the same on all nodes, or one whose ranks may end alone; 0: it has
     * one whose failures end it. role_counts are `listed` for each, which together are `counts`. */
    int roles;
    yk__role_rule *rules;
    int *role_counts;
} yk__agent_facts;
void yk__agent_facts_clear(yk__agent_facts *facts);
void yk__agent_put_facts(yk__wire *wire, const yk__agent_facts *facts);
/* False where it is malformed; otherwise the caller clears them. */
bool yk__agent_read_facts(yk__reader *reader, yk__agent_facts *facts);
void yk__agent_put_end(yk__wire *wire, const yk__outcome *end);
bool yk__agent_read_end(yk__reader *reader, yk__outcome *end);
void yk__agent_put_departure(yk__wire *wire, const yk__departure *departure);
bool yk__agent_read_departure(yk__reader *reader, yk__departure *departure);
/* With the table of listeners, which the reader's caller frees. */
void yk__agent_put_plan(yk__wire *wire, const yk__agent_plan *plan, const char *table);
bool yk__agent_read_plan(yk__reader *reader, yk__agent_plan *plan, char **table);
void yk__agent_put_text(yk__wire *wire, const char *text);
/* Text of a value of at most size - 1 bytes, control characters replaced. */
bool yk__agent_read_text(yk__reader *reader, char *text, size_t size);
/* A wire that begins with kind and id. */
yk__wire yk__agent_report(unsigned kind, uint64_t id);
/* The key of the answer that follows so many which said to wait. */
void yk__agent_plan_key(char key[32], uint64_t id, int waits);

/* ---- discovery.c: finding node 0, in a thread, because it keeps one waiting ------------------------------------ */
typedef struct yk__discovery {
    yk__register *reg; /* by which it is found; NULL: its address is known. With it host may be NULL, port 0 */
    uint64_t id;       /* of this launcher */
    yk__view view;     /* with reg: what was found, or made */
    const char *host;
    int port;
    bool may_listen, must_listen; /* this node can be, is, node 0 */
    double deadline;
    const yk__identity *identity;
    const yk__store_server_options *serving;
    bool everywhere; /* the server listens at all addresses of this host */
    /* Queues the first requests; `serves`: of node 0, `everywhere`: which serves at all addresses. */
    void (*greet)(void *arg, yk__agent_client *client, bool serves, bool everywhere);
    void *arg;
    int ready;                /* can be read when all below is there */
    yk__agent_client client;  /* without a connection: failed, `why` says it */
    yk__store_server *server; /* this is node 0 */
    char why[2 * YK__WHY_SIZE];
} yk__discovery;
/* False without a thread. The discovery is left alone until it is ready; it may never be freed before. */
bool yk__discovery_start(yk__discovery *discovery);

/* ---- the state -------------------------------------------------------------------------------------------------- */
/* Another node, as node 0 sees it. */
typedef struct yk__agent_node {
    uint64_t id;
    yk__agent_facts facts;
    int number, first, local; /* the rank of its first process, and how many there are; number -1: not given out yet */
    bool ended, stopping;     /* its group; it has confirmed the stop */
    bool finished;            /* all its processes ended well, before they were asked to */
    bool leaving;             /* its launcher was asked to end, and the others go on */
    bool departs;             /* likewise, with the processes that they have, or it came in vain (survivors.c) */
    bool settled;             /* it is lost, and they go on with those */
    int64_t view;             /* of its processes, which survive others; 0: they do not, as far as it has said */
    int64_t done_view, lost_view; /* as it reports them at its end */
    /* The latest term in which the node has come to this launcher, which keeps the store after another one, 0: it has
     * not; and the latest for which it was asked to. */
    uint64_t came, asked;
    bool following; /* it reads orders: it has been given a plan */
    int waits;      /* times that it was told to wait before it was let in (waiting.c) */
    bool spare;     /* it waits for a place */
    double since;   /* when it was let in */
    bool gone;      /* its launcher ended, or fell silent: `why` */
    bool reported;  /* that it is gone was dealt with */
    bool parted;    /* it ended its connection, */
    double gone_at; /* at this time */
    char why[YK__WHY_SIZE];
} yk__agent_node;

/* The ranks of a node. */
typedef struct yk__slots {
    int first, count;
} yk__slots;

/* Different reasons that are printed and listed; any number, so that a stream of wrong clients cannot fill the output.
 * */
enum { AGENT_REASONS = 8 };
/* The last order to traces.c of a launcher, */
typedef struct yk__trace_order {
    bool pending;
    uint32_t what; /* the rank + 1; 0: the clock alone */
    uint64_t offset;
    int64_t heard; /* ns, when */
} yk__trace_order;
/* The last request to record while the job goes on, which the next turn begins. */
typedef struct yk__live_order {
    bool pending;
    unsigned number, steps;
    uint64_t behind, far;
    double seconds;
} yk__live_order;
typedef struct yk__live_traces yk__live_traces;
typedef struct yk__recall yk__recall;
typedef enum yk__traces_end { YK__TRACES_ASKED, YK__TRACES_LEFT, YK__TRACES_TAKEN } yk__traces_end;
/* and the answer that node 0 waits for. */
typedef struct yk__trace_answer {
    uint64_t id, offset;
    uint32_t what;
    bool come, failed; /* failed: the file cannot be written */
    unsigned state;
    FILE *to;
    int64_t asked, quickest, ahead; /* ns: when; the shortest way there and back, and the other's clock then */
} yk__trace_answer;

struct yk__rendezvous {
    group_link link;
    yk__rendezvous_settings s;
    yk__identity identity;
    relay_sink *err;
    int epoll;
    uint64_t id;
    char where[YK__ADDRESS_TEXT + YK__HOST_SIZE];
    yk__register *reg;                /* of the job in etcd; NULL: there is none */
    char found_host[YK__HOST_SIZE];   /* of node 0, with it */
    bool closing;                     /* only that all arrives is waited for */
    bool sending;                     /* the epoll descriptor reports when more can be sent */
    double beat;                      /* when the lease was last renewed */
    double moved, stood, stood_until; /* the last look at the clock; how long this launcher last stood still, and when
                                       * it went on: 0, never so long that others would give it up */
    yk__agent_client client;
    yk__listeners listeners; /* of this node's ranks, for all attempts */
    char *table;             /* of all ranks' listeners; NULL: none */

    /* node 0 */
    yk__store_server *server;
    yk__store_server_options serving;
    int refusals[2];        /* a pipe: why peers were turned away, from the store's thread */
    yk__agent_node **nodes; /* joined of them, that may join: as they came, and with numbers in the order of those */
    int joined;
    char reasons[AGENT_REASONS][YK__WHY_SIZE]; /* why others were refused */
    int refused;
    int own_local, world;
    int port_held;    /* the claim of the ranks' port, where it is not the one behind the launchers'; -1: none */
    double came;      /* when the last node came */
    bool running;     /* the first attempt has begun */
    int64_t attempt;  /* its number */
    bool changing;    /* the next attempt follows because nodes come and go */
    char change[700]; /* likewise, at all nodes: why */
    yk__trace_answer *trace_answer; /* NULL: none is waited for */
    int slots;                      /* ranks that were ever given out in this attempt */
    char *lost;                     /* those of nodes that were lost, as text; NULL: none were */
    yk__slots *held;                /* of those: of whom it is not said yet that they are gone */
    int held_count;
    yk__cooldown cooldown;    /* on the others as far as they have heard */
    yk__agent_node **waiting; /* launchers that are not let in yet, in the order in which they came */
    int waiting_count;
    double held_until;                      /* then the job ends; 0: there are enough nodes */
    int64_t lost_view;                      /* the last view in which a node was lost */
    int64_t orders, attempt_order, deleted; /* the last one, that of the attempt, the last that was deleted */

    /* the others */
    char coordinator_name[160];
    int64_t renewal; /* the request that renewed the lease, sent at renewal_at, whose answer is awaited; 0: none is */
    double renewal_at, confirmed; /* when the last one was sent that has an answer */
    int64_t view;                 /* of this node's processes, as node 0 knows it */
    yk__agent_plan plan;
    bool planned;
    int waits;          /* times that it was told to wait */
    double waits_until; /* before that it is not let in */
    bool spare, over;   /* it waits for a place; the job has ended meanwhile, with over_code */
    int over_code;
    char waits_why[YK__WHY_SIZE]; /* so far unsaid; "": nothing is */
    struct yk__seeking *seeking;  /* while it waits: where a lost keeper's successor can be asked for (waiting.c) */
    char refusal[1200];
    yk__trace_order trace_order;
    yk__traces_end trace_end;
    yk__live_order live_order;
    struct yk__succession *succession; /* NULL: the nodes are fixed */
    double succeeded;                  /* when this launcher began to keep the store after another; 0: it has not */
    bool retell;                       /* the ranks that ended here are to be reported anew */
    yk__recall *recall;                /* NULL: the nodes are fixed, or meet through etcd */
    yk__live_traces *live; /* of any node: a recording that is under way while the job goes on; NULL: none is */

    /* of an attempt */
    int64_t restart;
    const group *group; /* in the link's step */
    int stop;           /* the signal that the group is to get; 0: none yet */
    bool cause_seen;    /* this node's failure was taken note of */
    bool asked;         /* so was that its launcher was asked to end */
    bool end_all;       /* and with it the job on all nodes (yoke stop), not this node alone */
    bool reported;      /* node 0 knows that this node's group has ended */
    bool stopping;      /* node 0 has this node's confirmation of the stop */
    bool have_end, again, any_left, any_lost, any_unsaved, any_asked;
    yk__outcome end;
    yk__departure *departed; /* node 0: of the others' ranks, in their order */
    int departed_count;
    bool end_saw;                         /* end_at is when its process saw its process group fail, not when it ended */
    double end_at, decide_at, stopped_at; /* the last: when node 0 asked all to stop, or when that was heard */
};

/* The fault of the state (base/invariant.h): who has joined, which ranks they have, how far the end has come. */
const char *yk__rendezvous_check(const yk__rendezvous *n);
/* coordinator.c */
/* Receives, handles what came, renews its lease; never waits. */
void yk__rendezvous_move(yk__rendezvous *n);
int yk__rendezvous_step(group_link *link, const group *g, bool ended, double *again);
/* Node 0 to all others: the next order. Frees the wire. */
void yk__rendezvous_order(yk__rendezvous *n, yk__wire *order);
/* rendezvous.c */
/* The facts that this launcher tells of itself when it asks to join; borrowed. */
void yk__rendezvous_facts(const yk__rendezvous *n, yk__agent_facts *facts);
/* The lease of this launcher at a store. */
void yk__rendezvous_lease(const yk__rendezvous *n, yk__agent_client *client);
/* Asks to join: the first requests to a store that another launcher serves. */
void yk__rendezvous_ask(yk__rendezvous *n, yk__agent_client *client);
void yk__rendezvous_handle_join(yk__rendezvous *n, uint64_t id, yk__reader *reader);
/* Waits at node 0 until enough nodes have come; numbers them, and gives out the ranks. */
bool yk__rendezvous_gather(yk__rendezvous *n, double deadline, int *code);
/* Gives out the numbers that were not asked for in the order in which the nodes came; then the ranks. The nodes are in
 * the order of their numbers from there on. False without memory. */
bool yk__rendezvous_number(yk__rendezvous *n);
/* Node 0's plan of an attempt. False without a port. */
bool yk__rendezvous_make_plan(yk__rendezvous *n, yk__agent_plan *plan);
/* Makes the table of listeners, and sends each node its part of the plan. */
void yk__rendezvous_send_plans(yk__rendezvous *n, const yk__agent_plan *plan);
/* Ends the joining on all nodes with this text; false. */
bool yk__rendezvous_join_failed(yk__rendezvous *n, int *code, const char *text);
/* Turns away a launcher that asked to join, and was told `waits` times to wait. */
void yk__rendezvous_refuse(yk__rendezvous *n, uint64_t id, int waits, const char *text);
/* Lets a launcher in, or turns it away; takes it over. */
void yk__rendezvous_admit(yk__rendezvous *n, yk__agent_node *node);
void yk__agent_node_free(yk__agent_node *node);
/* Node 0's decision that the attempt ends, as yk__outcome says; at that time (yk__now). */
void yk__rendezvous_record(yk__rendezvous *n, yk__outcome *end, double at, bool saw);
/* "node 1 (host a, pid 7, ranks 2-3)" */
void yk__rendezvous_name_node(const yk__agent_node *node, char *text, size_t size);
/* A node that still runs gets the order that it counts as lost. */
void yk__rendezvous_order_lost(yk__rendezvous *n, const yk__agent_node *node, const char *text);

/* ---- traces.c ---------------------------------------------------------------------------------------------------- */
void yk__traces_handle_order(yk__rendezvous *n, unsigned kind, yk__reader *reader);
void yk__traces_handle_report(yk__rendezvous *n, const yk__agent_node *node, yk__reader *reader);
enum yk__trace_piece { /* state of an answer: the rank has no trace; this is not its end; it is */
                       YK__PIECE_NONE,
                       YK__PIECE_MORE,
                       YK__PIECE_LAST,
                       YK__PIECE_STATES
};
/* Answers the order that is pending, with a piece of one of the files. */
void yk__traces_answer(yk__rendezvous *n, const yk__trace_file *files, int count);
/* Node 0: gives the launcher with this id an order for a->what at a->offset, and notes when. */
void yk__traces_order(yk__rendezvous *n, uint64_t id, yk__trace_answer *a);

/* ---- live_traces.c ----------------------------------------------------------------------------------------------- */
void yk__live_traces_handle_order(yk__rendezvous *n, yk__reader *reader);
void yk__live_traces_handle_report(yk__rendezvous *n, const yk__agent_node *node, yk__reader *reader);
/* Ends what is recorded while the job goes on, of which node 0 wants no more; false where that is nothing. */
bool yk__live_traces_stop(yk__rendezvous *n);
/* At each turn of the link; *again as there. */
void yk__live_traces_step(yk__rendezvous *n, const group *g, double *again);
/* The attempt is over, or the launcher ends. */
void yk__live_traces_end(yk__rendezvous *n);

/* ---- views.c: nodes that come and go ----------------------------------------------------------------------------- */
static inline bool yk__views_may(const yk__rendezvous *n)
{
    return n->s.least < n->s.node_count;
}
/* "2:4", "2" */
const char *yk__views_nodes(int least, int most, char text[32]);
/* A node has come while an attempt runs; one leaves, or is lost: the attempt ends. */
void yk__views_came(yk__rendezvous *n, const yk__agent_node *node);
void yk__views_leaves(yk__rendezvous *n, yk__agent_node *node, int signal);
void yk__views_lost(yk__rendezvous *n, yk__agent_node *node, const char *text);
/* True if the attempt that nodes ended by coming or going was over all the same: all processes had ended well. */
bool yk__views_finished(const yk__rendezvous *n, const group *g);
/* No attempt follows: those that wait to take part are told. */
void yk__views_end(yk__rendezvous *n);
/* Node 0: the next attempt, of the nodes that there are by then. */
bool yk__views_next(yk__rendezvous *n, yk__agent_plan *plan, int *code);
/* ---- waiting.c: launchers that are not let in yet ---------------------------------------------------------------- */
/* Node 0: true if the launcher has to wait; then it is taken over, and told. */
bool yk__waiting_keeps(yk__rendezvous *n, yk__agent_node *node);
yk__agent_node *yk__waiting_find(const yk__rendezvous *n, uint64_t id);
/* True if there is a place for one more node; and for one more that waits for a place. */
bool yk__waiting_place(const yk__rendezvous *n);
bool yk__waiting_spare_place(const yk__rendezvous *n);
/* One that waited has ended. */
void yk__waiting_gone(yk__rendezvous *n, uint64_t id);
/* Lets in those whose time is over and who have a place; *again as in the link's step. */
void yk__waiting_step(yk__rendezvous *n, double *again);
/* Nobody is let in any more: those that wait are told; `over`: spares how the job has ended. */
void yk__waiting_end(yk__rendezvous *n, bool over, const char *text);
void yk__waiting_clear(yk__rendezvous *n);
/* A node was lost, or came in vain: its host has failed, unless it was to leave. */
void yk__waiting_failed(yk__rendezvous *n, const yk__agent_node *node);
/* The launcher that waits: what node 0 has told it, false where that is malformed; and is there the time? It is said
 * once, or `text` is why not. */
bool yk__waiting_told(yk__rendezvous *n, bool over, yk__reader *reader);
/* False where the launcher that keeps the list is lost; true also while this one, which waits, looks for its successor,
 * to ask there anew: then it is to be called again at *next. */
bool yk__waiting_seeks(yk__rendezvous *n, double *next);
/* Node 0: the list of launchers has changed, and those that wait are told. */
void yk__waiting_tell(yk__rendezvous *n);
/* The launcher that it has come to says where the job is; false where that is malformed. */
bool yk__waiting_sent_on(yk__rendezvous *n, yk__reader *reader);
bool yk__waiting_fits(yk__rendezvous *n, double deadline, char *text, size_t size);
/* ---- survivors.c: nodes that come and go while processes go on --------------------------------------------------- */
/* True if processes of this node are known to survive others; at node 0, of any node. */
bool yk__survivors_known(const yk__rendezvous *n, const group *g);
/* True at node 0 while the processes of the job go on without those that end. */
bool yk__survivors_may(const yk__rendezvous *n);
/* It is so from now on; it is said what a cut network means, where half of the nodes would do. */
void yk__survivors_begin(yk__rendezvous *n);
/* This launcher has node 0's part after the one whose node that was. */
void yk__survivors_succeed(yk__rendezvous *n, yk__agent_node *before, const char *text);
/* Incarnations of a process of which the replica knows that they are gone. */
int yk__succession_incarnations(const yk__rendezvous *n, int slot);
/* Node 0: a node is lost; one is to leave, has come: false where all processes have to be started again for it. */
void yk__survivors_lost(yk__rendezvous *n, yk__agent_node *node, const char *text);
bool yk__survivors_leave(yk__rendezvous *n, yk__agent_node *node, int signal);
bool yk__survivors_come(yk__rendezvous *n, yk__agent_node *node);
/* Node 0: no process of a node that came has become a member. */
void yk__survivors_in_vain(yk__rendezvous *n, yk__agent_node *node, const char *why);
/* At each turn: those that have left, or were lost, are no nodes any more. */
void yk__survivors_step(yk__rendezvous *n);
/* All processes have ended: that is a failure where some were lost, and nobody has gone on without them. */
void yk__survivors_end(yk__rendezvous *n, const group *g);
/* An attempt is over. */
void yk__survivors_clear(yk__rendezvous *n);
/* A line about the nodes that there are now, after a change whose next step is `awaited`, or not. */
void yk__survivors_say(yk__rendezvous *n, yk__change kind, bool awaited, const char *why, int nodes, int ranks);
/* The others: the lease was renewed; and has it to be taken for over (Note [The side that goes on])? */
void yk__survivors_renewed(yk__rendezvous *n);
void yk__survivors_fence(yk__rendezvous *n);
/* The part of a node whose processes join the others'. */
void yk__rendezvous_send_joining(yk__rendezvous *n, yk__agent_node *node);
/* Node 0: the job ends, with exit code 1. */
void yk__rendezvous_record_broken(yk__rendezvous *n, const char *text);
/* True if a plan for this node is one that node 0 makes of what this launcher has said of itself. */
bool yk__rendezvous_plan_fits(const yk__rendezvous *n, const yk__agent_plan *plan);
/* A launcher that is to join, or had, is gone before the plan was made. */
void yk__rendezvous_forget(yk__rendezvous *n, uint64_t id);
void yk__rendezvous_read_refusals(yk__rendezvous *n);
yk__agent_node *yk__rendezvous_node(const yk__rendezvous *n, uint64_t id);

#endif
