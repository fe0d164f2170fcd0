/*
 * progress.h - what a rank is doing, in memory that its launcher reads. Layer: base.
 *
 * The launcher makes one record per rank and says where by the variable YOKE_PROGRESS,
 * "PID:DESCRIPTOR:INDEX:WATCHED:SIGNAL", of which the first two are the launcher's memory file (base/process.h); a rank
 * maps its record when it joins a group, and writes there when it first saw its group fail, so that the launcher
 * finds the first cause. With WATCHED (`yoke run --hang-timeout`) it also writes which operations are under way and
 * when it last got on; otherwise every such call is a look at a pointer. With SIGNAL, a rank that gets it prints the
 * stack of the thread that took it to stderr.
 */
#ifndef YOKE_BASE_PROGRESS_H
#define YOKE_BASE_PROGRESS_H

#include "base/core.h"

/* Operations under way at once that are recorded; with more, some are not. A page of memory, since a process maps the
 * one that is its own. */
enum { YK__PROGRESS_OPERATIONS = 16, YK__PROGRESS_PAGE = 4096 };

/* One operation of a process group, as the launcher is to name it. Texts are cut. */
typedef struct yk__progress_operation {
    uint64_t number; /* of the group's collectives, or of this rank's messages; 0: the entry is empty */
    int64_t count;
    double began, ended;             /* yk__now; ended 0: it is under way */
    int rank, world_size, peer, tag; /* peer, tag: -1 where there is none */
    char kind[16], dtype[12], reduction[8], group[56];
} yk__progress_operation;

/* A reader sees a whole entry where `version` was even before and is the same after. */
typedef struct yk__progress_record {
    atomic_int pid;            /* of the process that mapped it; 0: none yet */
    atomic_int groups;         /* that it is in */
    atomic_int answers;        /* the signal on which it prints its stack, 0: none */
    _Atomic double progressed; /* when it last began or ended an operation, took a batch or a step */
    _Atomic double failed;     /* when a group of its first failed, or could not be joined, as it saw it; 0: never */
    struct {
        atomic_uint version;
        yk__progress_operation operation;
    } entries[YK__PROGRESS_OPERATIONS];
} yk__progress_record;
_Static_assert(sizeof(yk__progress_record) <= YK__PROGRESS_PAGE, "a record has a page");

extern yk__progress_record *_Atomic yk__progress_own; /* NULL: nobody watches */

/* In a new process: this is its record, whatever its parent and its variables say. */
void yk__progress_adopt(yk__progress_record *record, bool watched);
/* This process is in one more group, or one less (-1). The first time it looks for the record. */
void yk__progress_join(int change);
/* A group has failed, or cannot be joined; to be called before the others can learn of it from this rank. */
void yk__progress_failed(void);
/* An operation begins: gives its entry, -1 where nobody watches or all entries are taken. Any thread. */
int yk__progress_begin(const yk__progress_operation *operation);
void yk__progress_end(int entry); /* -1 is allowed */
void yk__progress_set_time(yk__progress_record *record);
/* The rank gets on in another way: a batch, a step of an optimizer, a file. */
static inline void yk__progress_mark(void)
{
    yk__progress_record *record = atomic_load_explicit(&yk__progress_own, memory_order_acquire);
    if (record)
        yk__progress_set_time(record);
}

#endif
