/*
 * succession.h - the launchers' store, and node 0's part with it, goes to another launcher when node 0's ends or is cut
 * off from a majority (docs/elastic.md). Of jobs whose nodes come and go and whose program survives. Layer: launch.
 */
#ifndef YOKE_LAUNCH_SUCCESSION_H
#define YOKE_LAUNCH_SUCCESSION_H

#include "launch/recall.h"
#include "net/store_keeping.h"

typedef struct yk__asking {
    yk__agent_client client; /* to another launcher's own store; gone: none */
    uint64_t id;
    yk__address address;
    double tried, patience; /* when it was connected to; it is once more where no word has come for so long */
} yk__asking;
/* Connections to keepers that this launcher has left, at most. */
enum { YK__MOST_PARTED = 32 };

/* The request of a job in etcd that is under way there (electing.c). */
typedef enum yk__election {
    YK__ELECTION_NONE,
    YK__ELECTION_PROPOSED, /* the keeper waits until those that it would list have taken everything */
    YK__ELECTION_LOOKS,    /* for the view that is there */
    YK__ELECTION_SWAPS     /* puts `next` in its place */
} yk__election;

typedef struct yk__succession {
    yk__store_server *store; /* this launcher's own, which is that of the job when it succeeds; NULL: none */
    yk__address address;     /* at which the others reach it */
    char where[YK__ADDRESS_TEXT];
    yk__agent_client local; /* to it */
    yk__agent_client line;  /* to the keeper, which says nothing: Note [A keeper that ends] */
    bool on;                /* a keeper has begun to have successors */
    /* a follower */
    yk__keeper_voter voter;
    yk__keyspace replica, incoming;
    bool receives; /* a whole one, into `incoming` */
    bool fed;      /* something of the keeper has come on the present connection */
    double looked; /* when it last was whether a keeper whose connection is closed has ended */
    bool probes;
    int probe;                   /* if it `probes`, the connection that finds it out */
    yk__address towards;         /* the keeper of the promised term that has sent nothing so far, and */
    double tried, patience;      /* as of yk__asking */
    int parted[YK__MOST_PARTED]; /* Note [A keeper that is left] */
    int parted_count;
    uint64_t keeper;                /* of the promised term, as far as that is known; its number */
    char kept_at[YK__ADDRESS_TEXT]; /* by which the last keeper was reached that has sent something; "": none has */
    double ask_at;                  /* when to ask, if nobody else has */
    yk__asking asking[2 * YK__KEEPER_NODES];
    int askings;
    /* the keeper */
    bool keeps, lost_quorum;
    double began, called; /* called: when those that have not come were last */
    yk__calling *calling; /* at the addresses of keepers before this one; NULL: it is the first */
    yk__wire table;       /* as it was last written */
    /* with etcd */
    yk__election election;
    yk__view known, next; /* the keeper's view there; the one that is to follow, of the keeper or of who would be it */
    uint64_t said;        /* NODES that this keeper has sent */
    uint64_t led;         /* the term of the keeper that this launcher follows */
    yk__keeper_voter before; /* as it was before this launcher asked */
    double swap_at;          /* not before; of a swap that had no answer */
} yk__succession;

/* A launcher that joins: its own store, beside the connection `connected` to node 0's. On the thread of discovery. */
void yk__succession_open(yk__rendezvous *n, int connected);
/* Node 0 (or who came after it): the program survives, so there may be successors from now on. */
void yk__succession_begin(yk__rendezvous *n);
/* The keeper's counts of failures have changed: its followers get them. */
void yk__succession_put_cooldown(yk__rendezvous *n);
/* At each turn, before and behind what else there is; *again as in the link's step. */
void yk__succession_step(yk__rendezvous *n, double *again);
/* True if another keeper is looked for, so that the loss of this one is not that of the job. */
bool yk__succession_pending(const yk__rendezvous *n);
/* True if answers of the store that this launcher is connected to are those of a keeper. */
bool yk__succession_feeds(const yk__rendezvous *n);
/* An order says that the keeper has successors, in this term. */
void yk__succession_follow(yk__rendezvous *n, uint64_t term);
/* True if this launcher keeps the store, and too few others answer: it has to end. */
bool yk__succession_cut(const yk__rendezvous *n);
void yk__succession_close(yk__rendezvous *n);
/* Promises this launcher the term, if it may, and connects to the store at this address, which is its. `keeps`: it is
 * known to keep the store. */
void yk__succession_go(yk__rendezvous *n, uint64_t term, uint64_t id, bool keeps, const yk__address *address);
/* Leaves the keeper, while processes may run here: Note [A keeper that is left] in succession.c. */
void yk__succession_part(yk__rendezvous *n, const char *why);
/* True if a node is to be asked: it has a number, and is not gone. */
static inline bool yk__succession_lists(const yk__agent_node *node)
{
    return node->number >= 0 && !node->gone;
}

/* ---- electing.c: the view in etcd decides ------------------------------------------------------------------------ */
/* The keeper at each turn: the list of nodes in etcd follows those that answer. */
void yk__electing_keeper(yk__rendezvous *n);
/* A launcher that may look for another keeper, at this time (yk__keeping_clock): true if etcd has it as the keeper, of
 * the term that it has promised, with its nodes. */
bool yk__electing_follower(yk__rendezvous *n, double now, int before_this);
/* The keeper of the promised term is there. */
void yk__electing_clear(yk__rendezvous *n);
/* Any launcher of a job in etcd: says when etcd does not answer any more, and when it does again. */
void yk__electing_say(yk__rendezvous *n);

#endif
