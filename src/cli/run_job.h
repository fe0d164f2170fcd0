/*
 * run_job.h - a launcher's job: what the command line says, and running it. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_JOB_H
#define YOKE_CLI_RUN_JOB_H

#include "launch/relay.h"
#include "net/socket.h"

/* Any numbers beyond the machines there are; larger ones are taken for mistakes. */
enum { MOST_LOCAL = 4096, MOST_NODES = 4096 };

typedef struct job {
    /* as given */
    const char *per_node, *nodes, *master, *log_dir, *redirects, *tee, *error_file, *id, *secret_file, *role;
    const char *backend, *endpoint, *ignored;
    int64_t node, port, restarts;
    double grace, join_timeout, node_timeout, hang_timeout;
    bool hang_stacks, standalone, encrypt, pass_local_rank, no_prefix, json, module, run_path, ignored_flag;
    char **program; /* argv of the program */
    /* what follows from it */
    int node_count, local, first, world; /* processes here, the rank of the first of them, of all nodes */
    int counts[MOST_NODES], listed;      /* of processes: one for this node, or one for each */
    int hidden;                          /* 1: stdout, 2: stderr goes to files alone */
    int cannot;            /* the exit code where the program may not run here; it is sent to the other nodes */
    int secret, port_held; /* descriptors */
    char host[YK__HOST_SIZE], id_text[40], path[4096];
    relay_sink out, err;
} job;

/* In the supervisor: meets the other nodes, runs the group, again after a failure while restarts are left; returns
 * the exit code. `arg` is the job. */
int run_job(void *arg);

#endif
