/*
 * keeper.h - who keeps a store that outlives its keeper: terms, promises, quorums and leases, without any I/O.
 * Layer: net.
 *
 * Several nodes hold a replica of what is in the store. One of them, the *keeper*, has a *term*; it answers a client
 * once a quorum of the nodes has taken all that the answer rests on, and only while a quorum has answered a beat that
 * it *sent* lately. Who hears nothing of the keeper for longer asks the others for their promise of a later term; with
 * those of a quorum it begins with the newest of their replicas, has a quorum take that in the new term, and is the
 * keeper. tests/elastic/keeper.pml is a model of it, docs/elastic.md (*Node 0 that may be lost*) the text.
 *
 * Times are seconds of one clock of this host, which runs on while the machine is suspended (CLOCK_BOOTTIME).
 */
#ifndef YOKE_NET_KEEPER_H
#define YOKE_NET_KEEPER_H

#include "net/wire.h"

/* More nodes than these have no successor for their keeper. */
enum { YK__KEEPER_NODES = 64 };

/* The nodes of a replica, in order, by random numbers; while they change those of before and after, of which each have
 * to agree. */
typedef struct yk__keeper_list {
    int count;
    uint64_t ids[YK__KEEPER_NODES];
} yk__keeper_list;
typedef struct yk__keeper_nodes {
    yk__keeper_list old, now; /* equal, but for a change */
    /* Each node of the lists has to agree, and each of them alone can succeed: a register elsewhere says who does, and
     * has the list (Note [A register that decides] in keeper.c). */
    bool all;
} yk__keeper_nodes;

/* As a value of the store. False where it is malformed. */
void yk__keeper_put_nodes(yk__wire *wire, const yk__keeper_nodes *nodes);
bool yk__keeper_read_nodes(yk__reader *reader, yk__keeper_nodes *nodes);
/* True if those nodes for which `has` are a majority, or half with the first one, or where `all` says so each; of the
 * old and of the new ones. */
bool yk__keeper_quorum(const yk__keeper_nodes *nodes, bool (*has)(const void *argument, uint64_t id),
                       const void *argument);

/* ---- the keeper -------------------------------------------------------------------------------------------------- */
typedef struct yk__keeper_follower {
    uint64_t id;
    uint64_t taken;    /* all changes up to this number */
    double sent;       /* when the last beat was sent that it has answered; 0: none */
    uint64_t promised; /* the latest term for which this keeper would lay down its own */
    bool ended;        /* it cannot have promised anything to another since then, and has ended */
} yk__keeper_follower;
typedef struct yk__keeper_lead {
    uint64_t self, term;
    uint64_t lifts;             /* the term for which it has laid down `term`; 0: none */
    uint64_t number, committed; /* of changes: made, and taken by a quorum */
    double hold;                /* for so long after a beat that was answered it may answer */
    yk__keeper_nodes nodes;
    int count;
    yk__keeper_follower followers[2 * YK__KEEPER_NODES];
} yk__keeper_lead;

/* `silence`: seconds, --node-timeout; the parts of it are in keeper.c. */
void yk__keeper_lead_begin(yk__keeper_lead *lead, uint64_t self, uint64_t term, const yk__keeper_nodes *nodes,
                           double silence);
/* A follower has taken all up to `number`, and answers the beat that was sent at `sent`. */
void yk__keeper_taken(yk__keeper_lead *lead, uint64_t id, uint64_t number, double sent);
/* The host of a follower has closed its connection in order, as it does where a process ends; one that lives resets it
 * (yk__agent_client_lose). It counts as taken by it what it will never refuse, if it can have left for no other keeper
 * by then. */
void yk__keeper_left(yk__keeper_lead *lead, uint64_t id, double now);
/* Lays down the term for this later one, which the followers are to promise: Note [A later term for a keeper that
 * lives] in keeper.c. From now on nothing may be sent to them but that. True if it keeps the new term by now:
 * everything goes to those that have promised it. Never where a register decides. */
bool yk__keeper_lift(yk__keeper_lead *lead, uint64_t term);
/* A node has promised the term, and has a replica of `held_term`: true if this keeps the new term by now, as above. */
bool yk__keeper_lifted(yk__keeper_lead *lead, uint64_t id, uint64_t term, uint64_t held_term);
/* True if what was made is taken, and the lease is not over: answers may go out. */
bool yk__keeper_answers(yk__keeper_lead *lead, double now);
/* The latest time at which a beat was sent that a quorum has answered; `now` where no other node is needed, 0: none. */
double yk__keeper_heard_at(const yk__keeper_lead *lead, double now);

/* ---- the others, and who would be the keeper --------------------------------------------------------------------- */
typedef struct yk__keeper_voter {
    uint64_t self;
    uint64_t promised;     /* the latest term */
    uint64_t term, number; /* of the replica */
    yk__keeper_nodes nodes;
    double silence;
    double heard;  /* when something of the keeper of the promised term last came */
    bool fed;      /* anything of whom has come, in this term or an earlier one */
    bool ended;    /* it has ended for certain */
    uint64_t whom; /* the node that has the promise; 0: it has come otherwise */
    /* The latest term that another has asked for, and who that was; 0: one that cannot be reached. */
    uint64_t wished, wished_by;
    uint64_t highest; /* the latest term that any other is known to have promised */
    bool asks;        /* this node itself would be the keeper of the promised term */
    int votes;
    uint64_t voters[2 * YK__KEEPER_NODES];
} yk__keeper_voter;

void yk__keeper_voter_begin(yk__keeper_voter *voter, uint64_t self, double silence, double now);
/* True if it may promise another term. */
bool yk__keeper_free(const yk__keeper_voter *voter, double now);
/* Something of the keeper of the promised term has come. */
void yk__keeper_hear(yk__keeper_voter *voter, double now);
/* Another has promised this term. */
void yk__keeper_note(yk__keeper_voter *voter, uint64_t term);
/* Asks for a new term, later than any that it has heard of, which it promises itself; to be called only when free. The
 * term. */
uint64_t yk__keeper_ask(yk__keeper_voter *voter, double now);
/* For who keeps the store: the term that it promises itself, later than any that another has promised; the one that it
 * has where there is no such. */
uint64_t yk__keeper_raise(yk__keeper_voter *voter);
/* Another asks: true if it is promised this term. One that has a promise may ask for a later term at any time: it does
 * not keep the store in the earlier one, and never will. `keeps`: it has kept the store already. Where this node asks
 * for the very same term it may give its own promise away: Note [Two that ask for one term] in keeper.c. */
bool yk__keeper_promise(yk__keeper_voter *voter, uint64_t id, uint64_t term, bool keeps, double now);
/* Notes that another asks: true if yk__keeper_promise would promise it. */
bool yk__keeper_may_promise(yk__keeper_voter *voter, uint64_t id, uint64_t term, bool keeps, double now);
/* The keeper of the promised term lifts it (yk__keeper_lift), as it says on the connection on which its changes come:
 * true if it is promised this one. */
bool yk__keeper_promise_lift(yk__keeper_voter *voter, uint64_t term, double now);
/* True if it is free by now, and another has asked in vain before: *id is to be promised *term, before this node asks
 * itself. */
bool yk__keeper_owes(const yk__keeper_voter *voter, double now, uint64_t *id, uint64_t *term);
/* Another has promised, and has this replica: true if that is newer, and is to be taken over now with its nodes. */
bool yk__keeper_promised(yk__keeper_voter *voter, uint64_t id, uint64_t term, uint64_t held_term, uint64_t held_number,
                         const yk__keeper_nodes *nodes);
/* True if the nodes have this one. */
bool yk__keeper_listed(const yk__keeper_nodes *nodes, uint64_t id);
/* True if a quorum has promised this node the term: it begins to keep the store with its replica. Never where a
 * register decides. */
bool yk__keeper_elected(const yk__keeper_voter *voter);
/* True if changes of a keeper of this term may be taken. */
bool yk__keeper_takes(const yk__keeper_voter *voter, uint64_t term);

#endif
