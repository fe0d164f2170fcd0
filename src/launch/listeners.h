/*
 * listeners.h - sockets on which the ranks of a job of several nodes let one another in, opened by their launchers.
 * Layer: launch.
 *
 * A launcher opens them before it asks to join, and sends their addresses with the same request; so every rank is given
 * where all others listen when it is started, and connects to them while it still looks for the store. The ranks'
 * records in the store decide (comm/native): an address from here that is another one there is given up.
 *
 * The table, YOKE_RANK_LISTENERS, has a word for each node, with the port of each of its ranks in their order; "-"
 * where there is none:
 *
 *   10.0.0.1:40001,40002 - [fe80::1]:40001
 *
 * The address of all interfaces, [::] or 0.0.0.0, stands for that by which a rank reaches the master: node 0 is known
 * to itself by a name alone (Note [A host's own name] in net/address.c).
 */
#ifndef YOKE_LAUNCH_LISTENERS_H
#define YOKE_LAUNCH_LISTENERS_H

#include "net/socket.h"
#include "net/wire.h"

/* The descriptor of its own socket in every rank. */
enum { LISTENER_FD = 61 };
/* The most ranks of a job; with more no addresses are handed out. */
enum { YK__MOST_LISTENERS = 1024 };

/* Those of one node. Zero memory is none. */
typedef struct yk__listeners {
    int *fds, count;
    char *text; /* its word of the table */
} yk__listeners;

/* Opens `count` at the address from which `connected`, a connected socket, reaches the other nodes, or `everywhere`, at
 * all addresses: the master's, which each rank knows by an address of its own. None at all where that cannot be. */
void yk__listeners_open(yk__listeners *listeners, int connected, bool everywhere, int count);
void yk__listeners_clear(yk__listeners *listeners);

/* Appends a node's word for its first `ranks` ranks; what is no such word (it came from another host), or has too few
 * ports, becomes that of a node without. A node without ranks has no word. */
void yk__listeners_append(yk__wire *table, const char *word, int ranks);

/* The number of ranks in the table; 0 for NULL and for text that is no table. */
int yk__listeners_ranks(const char *table);
/* The address at which a rank of the table listens, "" for none, and its node. */
void yk__listeners_find(const char *table, int rank, int *node, char address[YK__ADDRESS_TEXT]);
/* The socket that this process was given, private, if it listens at this address: once in a process. -1: none. */
int yk__listener_take(const char *address);

#endif
