/*
 * agreement.h - ranks that tell each other how it went, so that all go on or all fail. Layer: checkpoint.
 *
 * Every function is called by all ranks of the group in the same order. A group NULL is this process alone: then
 * nothing is sent. An error of the group itself (a rank that died) is an error on every rank that still lives.
 */
#ifndef YOKE_CHECKPOINT_AGREEMENT_H
#define YOKE_CHECKPOINT_AGREEMENT_H

#include <yoke/checkpoint.h>

#include "base/core.h"

enum { YK__FACTS = 4 };

/* What one rank tells. */
typedef struct yk__verdict {
    int64_t code; /* yk_status */
    int64_t facts[YK__FACTS];
    char host[64], message[sizeof((yk_error){0}.message)];
} yk__verdict;

/* 0 and 1 without a group. */
int yk__ranks_me(yk_process_group *group);
int yk__ranks_count(yk_process_group *group);

/* Takes the thread's record as this rank's verdict, with up to YK__FACTS facts (NULL: zeros), and gives those of all
 * ranks, which the caller frees. Fails only where they cannot be exchanged; this rank's own error is then set. */
yk_status yk__ranks_tell(yk_process_group *group, const int64_t *facts, yk__verdict **all);
/* Sets the record to the first rank's error: "rank 1 (host a): ..."; plain where all ranks have the same. */
yk_status yk__ranks_judge(const yk__verdict *all, int count);
/* Both: fails on all ranks where it failed on one. */
yk_status yk__ranks_agree(yk_process_group *group);
/* Likewise, and where the ranks read files of different checksums under the name `dir`. */
yk_status yk__ranks_same(yk_process_group *group, const char *dir, int64_t digest);

/* Every rank's text: `texts` has as many as ranks, ended by zeros, in one block that the caller frees. */
yk_status yk__ranks_gather_text(yk_process_group *group, const char *text, char ***texts);
/* Rank 0's bytes to all: elsewhere *data is allocated, one byte longer and ended by a zero. */
yk_status yk__ranks_broadcast(yk_process_group *group, char **data, size_t *size);

#endif
