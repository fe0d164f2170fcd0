/*
 * run_job.h - a launcher's job: what the command line says, and running it. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_RUN_JOB_H
#define YOKE_CLI_RUN_RUN_JOB_H

#include "host/rank_info.h"
#include "launch/rendezvous.h"
#include "net/etcd.h"

/* Any number beyond the machines there are; a larger one is taken for a mistake. */
enum { MOST_NODES = 4096 };

/* One of the programs that are the job. */
typedef struct run_role {
    const char *name, *per_node, *on_failure; /* as given */
    char **program;                           /* its argv */
    int *counts, listed;                      /* of processes: one for this node, or one for each */
    yk__role_rule rule;
    yk__role_part part; /* on this node */
    int cannot;         /* the exit code where it may not run here; it is sent to the other nodes */
    char path[4096];
} run_role;

typedef struct job {
    /* as given */
    const char *per_node, *nodes, *master, *log_dir, *redirects, *tee, *error_file, *id, *secret_file, *role;
    const char *on_failure, *mapping_dir, *trace; /* mapping_dir: job_mapping.h; trace: run_trace.h; NULL: none */
    const char *backend, *endpoint, *ignored;
    const char *rdzv, *conf, *local_address; /* NULL: not given */
    yk__etcd_options etcd;                   /* of --rdzv; its members NULL: there is none */
    const char *etcd_prefix;
    int64_t started_again;                       /* processes of programs that survive, of the restarts */
    int64_t node, port, restarts, virtual_ranks; /* virtual_ranks 0: not given */
    int64_t spares;                              /* processes here beyond those of the world */
    int64_t beyond;                              /* of these, processes beyond the virtual ranks */
    double grace, join_timeout, node_timeout, hang_timeout, evict, last_call;
    int64_t spare_nodes;          /* --spares of a job whose nodes come and go */
    const char *cooldown;         /* --fail-cooldown; NULL: none */
    const char *witness;          /* --witness; NULL: none */
    double fail_first, fail_most; /* seconds of it */
    bool hang_stacks, standalone, encrypt, pass_local_rank, no_prefix, json, module, run_path, ignored_flag;
    /* what follows from it */
    run_role *roles;                     /* YK__MOST_ROLES, of which those that are not used are not touched */
    int role_count;                      /* 1: the job has no parts, and no role is named in messages */
    int least;                           /* of the nodes: node_count, or fewer where they come and go */
    int node_count, local, first, world; /* processes here, the rank of the first of them, of all nodes */
    bool is_witness;                     /* this is the host of --witness, so it has none */
    int counts[MOST_NODES], listed;      /* of processes: one for this node, or one for each */
    char change[700];                    /* why the next attempt is one of other nodes; "": it is not */
    double changed;                      /* since when */
    double earlier;                      /* seconds of the attempts before this one */
    int hidden;                          /* 1: stdout, 2: stderr goes to files alone */
    int secret, port_held;               /* descriptors */
    struct yk__job_store *store;         /* of a job of one node; NULL: the launchers\' own, or none could be opened */
    char host[YK__HOST_SIZE], id_text[40];
    relay_sink out, err;
} job;

/* In the supervisor: meets the other nodes, runs the group, again after a failure while restarts are left; returns
 * the exit code. `arg` is the job. */
int run_job(void *arg);

#endif
