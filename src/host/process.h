/*
 * process.h - other processes of this machine: whether they run, memory files that they hold open, the children of
 * this one; with /proc, and in a chroot that has none. Layer: host.
 */
#ifndef YOKE_HOST_PROCESS_H
#define YOKE_HOST_PROCESS_H

#include <sys/stat.h>

#include "base/core.h"

/* The state letter of a process, 'Z' for one that has ended, and its start time in clock ticks since boot, 0 where that
 * is not known (without /proc, where a stopped process is 'R' too). False where it is not there (errno ENOENT or ESRCH)
 * or cannot be looked at (another errno). */
bool yk__process_state(int pid, char *state, uint64_t *start);
/* True if all threads of a process are about to end, or have: its descriptors may be closed already, and
 * yk__process_state may say 'Z', but its parent cannot wait for it before the last thread is through. False without
 * /proc, and for a process that is not there. */
bool yk__process_is_ending(int pid);
/* True if a process has ended with all its threads, though its parent may not have waited for it yet, or cannot because
 * a third one traces it. False also where the system does not tell. */
bool yk__process_has_ended(int pid);
/* The same of all processes of a group. */
bool yk__process_group_has_ended(int group);
/* True if it is a child of this process, or a child's, and so on. Without /proc: a child. */
bool yk__process_descends(int pid);
/* SIGKILL, if yk__process_descends: a number that has come to another process since is not hit. */
void yk__process_kill(int pid);
/* The file behind a descriptor of another process, opened to read and write and closed on exec; -1 and errno, of which
 * ENOENT and ESRCH say that the process or its descriptor is gone. Meant for memory files: without /proc the
 * descriptor shares the other's file position. */
int yk__process_open(int pid, int fd);
/* The result of fstat for descriptor `fd` of a process; false and errno likewise. */
bool yk__process_stat(int pid, int fd, struct stat *about);
/* A word without spaces: processes of one machine with the same word may open one another's descriptors so. It tells of
 * the user namespace, users, groups and capabilities; a process that none may open so has a word of its own. */
enum { YK__RIGHTS_SIZE = 24 };
void yk__process_rights(char text[YK__RIGHTS_SIZE]);
/* A name, without spaces, that tells this machine's processes from those of others; false where none is known. */
bool yk__machine_name(char *name, size_t size);
/* Sends a signal to every child of this process, orphans that came to it included. */
void yk__signal_children(int number);

#endif
