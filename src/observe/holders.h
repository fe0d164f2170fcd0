/*
 * holders.h - what a process holds of this machine, and since when. Layer: observe.
 */
#ifndef YOKE_OBSERVE_HOLDERS_H
#define YOKE_OBSERVE_HOLDERS_H

#include "base/core.h"

enum { YK__HOLDER_PORTS = 16 };

typedef struct yk__holder {
    int pid;
    bool here; /* false: it is in another pid namespace, or has ended, and nothing below is known */
    bool own;  /* of this user: what other users' processes were started with is not read */
    char user[64], name[32];
    char command[1000]; /* its arguments with spaces between them, "" where that is not known */
    double since;       /* seconds since 1970; below 0: not known */
    double resident;    /* bytes; below 0: not known */
    char cores[100];    /* that it may run on, "0-3,8" */
    int supervisor;     /* the pid of the launcher that has started it, as a rank or below one; 0: none, or not known */
    bool launcher_gone; /* it has outlived that */
    int n_ports;
    char ports[YK__HOLDER_PORTS][64]; /* on which it listens by TCP, "127.0.0.1:29500" */
} yk__holder;

void yk__holder_read(int pid, yk__holder *holder);
/* The processes that have a file mapped or open, as far as this user may look: their number, at most `most`. */
int yk__file_holders(const char *path, int *pids, int most);

#endif
