/*
 * register.h - the view of a job in etcd: who keeps its store, and who may succeed (--rdzv etcd://...). Layer: launch.
 *
 * One key, PREFIX/JOB/view, has the newest view: its number, the keeper's term, and the nodes that have taken all that
 * the keeper has answered on, of which each can take the keeper's part. A view follows only from the one before it, by
 * a transaction on that one's revision. Beside it PREFIX/JOB/alive lives as long as the keeper renews its lease: a job
 * whose launchers have all ended is found by that, and by its nodes' addresses, at which nobody listens any more.
 *
 * The value is text, and sealed: a keyed hash under the job's secret (BLAKE2b), of the name of the key and of all that
 * is in it, so that nobody without the secret makes one. One that was true once is no other view: it has its number,
 * which is that of the changes of the key, and the revision of the view that it followed.
 */
#ifndef YOKE_LAUNCH_REGISTER_H
#define YOKE_LAUNCH_REGISTER_H

#include "net/etcd.h"
#include "net/handshake.h"
#include "net/keeper.h"

typedef struct yk__view_node {
    uint64_t id;
    char where[YK__ADDRESS_TEXT]; /* "HOST:PORT", its store; "": it serves none */
} yk__view_node;

typedef struct yk__view {
    uint64_t number; /* from 1; 0: there is none */
    uint64_t term, keeper;
    int64_t after;                 /* the revision of the view before; 0: none was there */
    int64_t revision;              /* of this one, as etcd says */
    char where[YK__HOST_SIZE + 8]; /* "HOST:PORT", the keeper's store */
    int count;
    yk__view_node nodes[YK__KEEPER_NODES];
} yk__view;

enum { YK__VIEW_TEXT = 512 + YK__KEEPER_NODES * (YK__ADDRESS_TEXT + 32) };
/* The value of the key; its length, 0 where it is too long. */
size_t yk__view_seal(const yk__view *view, const yk__identity *identity, const char *key, char text[YK__VIEW_TEXT]);
/* The other way; `known` is the newest view that was seen before (number 0: none). False with the reason where the
 * value is not to be believed. */
bool yk__view_open(const yk__etcd_value *value, const yk__identity *identity, const char *key, const yk__view *known,
                   yk__view *view, char why[YK__WHY_SIZE]);
bool yk__view_has(const yk__view *view, uint64_t id);

typedef enum yk__register_result {
    YK__REGISTER_DONE,
    YK__REGISTER_OTHER,  /* another view is there than the one that was to be followed */
    YK__REGISTER_AWAY,   /* etcd does not answer; what was asked for may have been done */
    YK__REGISTER_DENIED, /* etcd does not let this launcher in */
    YK__REGISTER_FALSE   /* the value is not to be believed */
} yk__register_result;

typedef struct yk__register yk__register;
/* `prefix`: "" for none. `seconds`: of the keeper's lease. Takes etcd over, also where it fails: NULL and an error. */
yk__register *yk__register_open(yk__etcd *etcd, const char *prefix, const yk__identity *identity, double seconds);
/* Ends the thread and waits for it. `over`: the job has ended, and this launcher keeps it: view and lease go. */
void yk__register_close(yk__register *reg, bool over);
const char *yk__register_key(const yk__register *reg);
yk__etcd *yk__register_etcd(yk__register *reg);

/* ---- calls that wait, before the thread begins ------------------------------------------------------------------- */
yk__register_result yk__register_look(yk__register *reg, yk__view *view, char why[YK__WHY_SIZE]);
/* Puts the view in the place of the one with the revision view->after; fills its revision. */
yk__register_result yk__register_swap(yk__register *reg, yk__view *view, char why[YK__WHY_SIZE]);
/* True if nobody is left of the job of this view: its keeper's lease is over, and at none of its nodes' addresses
 * anybody listens, as their systems say. */
bool yk__register_is_over(yk__register *reg, const yk__view *view, char why[YK__WHY_SIZE]);

/* ---- the thread -------------------------------------------------------------------------------------------------- */
typedef struct yk__register_answer {
    bool swapped; /* the answer to a swap; to a look otherwise */
    yk__register_result result;
    yk__view view; /* DONE: the view that is there; OTHER likewise, number 0 where there is none */
    char why[YK__WHY_SIZE];
} yk__register_answer;
/* False without a thread. */
bool yk__register_start(yk__register *reg);
/* A descriptor that can be read when there is an answer, or a change of what yk__register_away says. */
int yk__register_descriptor(const yk__register *reg);
/* From now on this launcher keeps the job, and its lease. */
void yk__register_keep(yk__register *reg);
/* Looks, or swaps where `view` is not NULL. One is under way at most: false where another is. */
bool yk__register_ask(yk__register *reg, const yk__view *view);
/* True if the answer has come. */
bool yk__register_take(yk__register *reg, yk__register_answer *answer);
/* Such that it cannot be read until the next. */
void yk__register_drain(yk__register *reg);
/* True if that has changed since the last call: *away, with the reason, or for how many seconds it was so. */
bool yk__register_away(yk__register *reg, bool *away, double *seconds, char why[YK__WHY_SIZE]);

#endif
