/*
 * job_store.h - the store in which the ranks of a job meet, served by the launcher of node 0, so that it outlives each
 * of them. Layer: launch.
 *
 * Of one node it is a store of its own, on loopback; of several it is that in which the launchers meet (rendezvous.h),
 * whose address all know and every firewall lets through. Ranks find it by YOKE_STORE, "HOST:PORT/ATTEMPT.MASTER_PORT",
 * as long as MASTER_PORT is what the launcher set: another launcher inside the job, or a program that sets these
 * variables itself, means another store. Their keys are behind "ranks.ATTEMPT/", so that attempts do not meet.
 */
#ifndef YOKE_LAUNCH_JOB_STORE_H
#define YOKE_LAUNCH_JOB_STORE_H

#include "net/socket.h"

/* The service for which its clients identify themselves (net/handshake.h). */
#define YK__JOB_STORE_SERVICE "launch"

typedef struct yk__job_store yk__job_store;

/* Listens for the ranks of a job of one node; `secret` is a memory file with the job's secret, -1: that of the
 * environment. NULL and an error on failure. */
yk__job_store *yk__job_store_open(const char *job, int secret);
void yk__job_store_close(yk__job_store *store); /* NULL is allowed */
int yk__job_store_port(const yk__job_store *store);
/* Until the first rank has come: the descriptor that can be read then; -1 afterwards. */
int yk__job_store_waits_for(const yk__job_store *store);
/* Begins to serve. A job whose programs do not use yoke has no thread for it. An error closes the store. */
yk_status yk__job_store_serve(yk__job_store *store) YK_MUST_CHECK;

/* Sets a key of the ranks of an attempt, and waits for the answer, 2 s at most: of what a launcher alone knows. */
yk_status yk__job_store_put(yk__job_store *store, int64_t attempt, const char *key, const char *value) YK_MUST_CHECK;

/* YOKE_STORE. */
enum { YK__JOB_STORE_VARIABLE = YK__HOST_SIZE + 64 };
void yk__job_store_format(char text[YK__JOB_STORE_VARIABLE], const char *host, int port, int64_t attempt,
                          int master_port);
/* True if this process has a launcher that serves the store of ranks with this MASTER_PORT, 0: with any; then where,
 * and the prefix of the keys. */
bool yk__job_store_find(int master_port, char host[YK__HOST_SIZE], int *port, char prefix[40]);
/* YOKE_STORE_GUIDE, "HOST:PORT": where this node's launcher says where that store is, which may move, by the key
 * YK__GUIDE_KEY; false: it does not move, or dies with this process. */
bool yk__job_store_guide(char host[YK__HOST_SIZE], int *port);

#endif
