/*
 * param_server.h - parameter servers, from the inside: what a trainer and a server tell one another. Layer: rpc.
 *
 * Note [Shards and sessions]
 * A server keeps one *shard* of the parameters: pieces of the dense ones, which are cut as if they stood in one row,
 * and of each table the rows r with r mod servers = its number. The shard is made by trainer 0, or
 * read from its snapshot, and stays until the worker's shutdown. Each trainer has an object of the class "yoke.server"
 * at each server, its *session*: it ends with the trainer's process, and the trainer is then out of the barrier.
 *
 *   create     a dict: see session_create
 *   push       int number of the push, bool whether the values are wanted; a list of gradients of the pieces, each a
 *              tensor or none; a list of [int table, tensor of rows here, tensor of their gradients]: gives an answer
 *   pull       gives an answer: [int updates, list of the pieces' values, or none]
 *   rows       int table, tensor of rows here: gives a tensor of them
 *   set_lr     real
 *   save       writes the snapshot
 *   missing    gives a text: the trainers for which a push waits
 *
 * A push has a number of its trainer's, which is sent again where the server has come back meanwhile. The snapshot has
 * the number of the last one in it, so that none is in the parameters twice.
 */
#ifndef YOKE_RPC_PARAM_SERVER_H
#define YOKE_RPC_PARAM_SERVER_H

#include <yoke/rpc.h>

enum {
    YK__SERVER_MOST = 256,      /* servers of one handle */
    YK__SERVER_TRAINERS = 4096, /* and trainers */
    YK__SERVER_TABLES = 256
};

extern const yk_rpc_class yk__server_class; /* param_shard.c */
/* This worker is at its shutdown: it has left all parameter servers. */
void yk__servers_leave(void); /* param_server.c */
/* The worker has ended: its shards are gone. */
void yk__shards_clear(void);

#endif
