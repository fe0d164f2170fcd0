/*
 * rpc_publish.h - published state dicts, from the inside. Layer: rpc.
 */
#ifndef YOKE_RPC_RPC_PUBLISH_H
#define YOKE_RPC_RPC_PUBLISH_H

#include <yoke/rpc.h>

/* The function of a name of the library's own calls for published state dicts, or NULL. */
yk_rpc_fn yk__publish_function(const char *name);
/* This worker publishes nothing more, but (unless `all`) what functions that others call here have published: who waits
 * for a later version gets an error. What there is can be fetched. */
void yk__publications_close(bool all);
/* The worker has ended; no thread of its own runs any more. */
void yk__publications_clear(void);

#endif
