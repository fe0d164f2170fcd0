/*
 * agreement.h - ranks exchange their status before they go on, so that all go on or all fail. Layer: comm.
 *
 * Every function is called by all ranks of the group in the same order. A group NULL is this process alone: then
 * nothing is sent. An error of the group itself (a rank that died) is an error on every rank that still lives.
 */
#ifndef YOKE_COMM_AGREEMENT_H
#define YOKE_COMM_AGREEMENT_H

#include <yoke/comm.h>

#include "base/core.h"

enum { YK__STATUS_VALUES = 4 }; /* making a manager of checkpoints compares four numbers of all ranks */

/* The status of one rank, as each rank sends it to all others. */
typedef struct yk__rank_status {
    int64_t code; /* yk_status */
    int64_t values[YK__STATUS_VALUES];
    char host[64], message[sizeof((yk_error){0}.message)];
} yk__rank_status;

/* Collectives that `call` makes may be of tensors on the CPU in a group of a backend for GPUs alone (nccl), which
 * refuses those of programs: they go by its control group. For what the library itself has to say to other ranks.
 * (collectives.c) */
#define YK__HOST_TENSORS(call)                                                                                         \
    ({                                                                                                                 \
        yk__host_tensors_begin();                                                                                      \
        __typeof__(call) yk__of_host = (call);                                                                         \
        yk__host_tensors_end();                                                                                        \
        yk__of_host;                                                                                                   \
    })
void yk__host_tensors_begin(void);
void yk__host_tensors_end(void);

/* Has collectives and messages of this thread fail with the sentence `why`, while its rank does what the others do not
 * do at the same time; NULL: they are made again. (collectives.c) */
void yk__collectives_refuse(const char *why);

/* 0 and 1 without a group. */
int yk__own_rank(yk_process_group *group);
int yk__rank_count(yk_process_group *group);

/* Takes the thread's record, and up to YK__STATUS_VALUES values (NULL: zeros), as this rank's status, and gives those
 * of all ranks, which the caller frees. Fails only where they cannot be exchanged; this rank's own error is then set.
 */
yk_status yk__ranks_gather_status(yk_process_group *group, const int64_t *values, yk__rank_status **all);
/* Sets the record to the first rank's error: "rank 1 (host a): ..."; plain where all ranks have the same. */
yk_status yk__ranks_first_error(const yk__rank_status *all, int count);
/* Both: fails on all ranks where it failed on one. */
yk_status yk__ranks_agree(yk_process_group *group);
/* Likewise, and where the ranks read files of different checksums under the name `dir`. */
yk_status yk__ranks_agree_checksum(yk_process_group *group, const char *dir, int64_t digest);

/* Every rank's `bytes` bytes at `own`, by rank, into `all`. As in the public functions a group of NULL is the default
 * one. */
yk_status yk__gather_bytes(const void *own, void *all, size_t bytes, yk_process_group *group);
/* Every rank's text: `texts` has as many as ranks, ended by zeros, in one block that the caller frees. */
yk_status yk__ranks_gather_text(yk_process_group *group, const char *text, char ***texts);
/* Rank 0's bytes to all: elsewhere *data is allocated, one byte longer and ended by a zero. */
yk_status yk__ranks_broadcast(yk_process_group *group, char **data, size_t *size);

#endif
