/*
 * leftovers.h - what runs have left behind on this machine: ranks whose launcher is gone, and shared memory. Layer:
 * observe.
 */
#ifndef YOKE_OBSERVE_LEFTOVERS_H
#define YOKE_OBSERVE_LEFTOVERS_H

#include "base/core.h"

/* A process of this user that a launcher has started and that is not below it any more. */
typedef struct yk__orphan {
    int pid, launcher; /* the supervisor's pid, as it was */
    char job[128], rank[16], name[32];
} yk__orphan;

/* A file in /dev/shm whose name begins with "yoke". yoke itself makes none: its memory files have no names, and go with
 * the last process that has them open. */
typedef struct yk__segment {
    char path[300], user[64]; /* user: the owner's name, or number */
    double bytes;
    bool own;
    int n_holders, holders[16]; /* pids that have it mapped or open, as far as this user may look */
} yk__segment;

typedef struct yk__leftovers {
    int n_orphans, n_segments;
    yk__orphan *orphans;
    yk__segment *segments;
} yk__leftovers;

/* The name, or number, of the user whose process this is; false where it is not seen here. */
bool yk__process_user(int pid, char *user, size_t size);
/* True for a process of this user. */
bool yk__process_is_own(int pid);
/* The supervisor, as it was, of the launcher that has started a process of this user, as a rank or below one; 0: none.
 */
int yk__process_supervisor(int pid);
/* The parent of a process; 0 where it is not there. */
int yk__process_parent(int pid);
/* True for the ancestor itself, and for what it has started and that has, and so on. */
bool yk__process_is_below(int pid, int ancestor);
void yk__leftovers_read(yk__leftovers *leftovers);
void yk__leftovers_clear(yk__leftovers *leftovers);

#endif
