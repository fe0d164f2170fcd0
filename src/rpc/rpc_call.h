/*
 * rpc_call.h - how a call is begun, for the files of rpc/ that make calls. Layer: rpc.
 */
#ifndef YOKE_RPC_RPC_CALL_H
#define YOKE_RPC_RPC_CALL_H

#include "rpc/rpc_agent.h"

/* The function or method to call, its worker, and the kind of the call. */
typedef struct yk__rpc_target {
    const char *what;                   /* "rpc_sync", for errors */
    const char *worker, *name, *shared; /* shared NULL: no name of its own */
    yk__rpc_kind kind;
    uint64_t object, parent; /* parent: of YK__RPC_ADD */
    const yk_ref *ref;       /* NULL: the worker's name says where */
    yk__rpc_member owner;    /* of the reference, as it was when `object` was read; index 0: look there */
    bool sync;
    bool without_context; /* a call of the library's own, outside of distributed autograd */
} yk__rpc_target;

/* Begins a call: a future with one reference, or NULL and an error. *where, which may be NULL, is the worker. */
yk_future *yk__rpc_call_begin(const yk__rpc_target *target, yk_value *args, const yk_rpc_options *options,
                              yk__rpc_member *where);
/* Checks a call: an open scope, a valid name of this kind, arguments that could be made (NULL is none). False with the
 * error set. */
bool yk__rpc_call_is_there(const char *what, const char *kind, const char *name, yk_value *args);
/* The result of the future, which is released. */
yk_value *yk__rpc_call_wait(yk_future *future);
/* Makes an object of a class at this very worker, as yk_rpc_remote does: one reference. */
yk_ref *yk__rpc_remote_at(const yk__rpc_member *member, const char *what, const char *cls, yk_value *args,
                          const char *shared);

#endif
