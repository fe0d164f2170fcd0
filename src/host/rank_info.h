/*
 * rank_info.h - which rank a process is, from the variables of whatever launched it. Layer: host.
 *
 * One table for all that ask: yk_init_process_group, loaders, yk_device_local, `yoke train` and `yoke doctor`.
 */
#ifndef YOKE_HOST_RANK_INFO_H
#define YOKE_HOST_RANK_INFO_H

#include "host/node_list.h"

/* Any numbers beyond the machines there are: a variable or an option beyond them is taken for a mistake. MOST_LOCAL:
 * processes of one launcher, or of one yk_spawn. */
enum { YK__MOST_RANKS = 1 << 20, YK__MOST_VIRTUAL_RANKS = 1 << 16, YK__MOST_LOCAL = 4096 };

typedef struct yk__rank_info {
    const char *launcher; /* "Slurm": for messages; NULL: nothing launched this process, which is rank 0 of 1 */
    int rank, world_size;
    int local_rank;  /* among those of its host; 0 where it is not known */
    int local_size;  /* ranks of its host; 0 where it is not known */
    int node;        /* of the launcher's nodes; 0 where it is not known */
    bool one_host;   /* all ranks are known to be on this host */
    bool names_job;  /* the launcher has a name for the job, so ranks agree on a port without being given one */
    const char *job; /* that name, or NULL */
    /* The number of the step in the job, of which several may run at a time, each with a port of its own; NULL: it has
     * none. */
    const char *step;
    bool shares_home; /* the launcher's nodes are a cluster's, where a user's files are usually the same on all */
} yk__rank_info;

/*
 * The first launcher of the table that has set its variables: RANK and WORLD_SIZE (`yoke run`, torchrun, and whoever
 * sets them by hand), Open MPI, MPICH (Hydra), Slurm. One of RANK and WORLD_SIZE without the other is an error, as is a
 * rank outside its world; a number of tasks that Slurm gives to an interactive shell, which is no rank, is passed over.
 */
yk_status yk__rank_info_read(yk__rank_info *info) YK_MUST_CHECK;

/* The node of rank 0, which is the first one of the launcher's list (Slurm's SLURM_STEP_NODELIST, or
 * SLURM_JOB_NODELIST); "" where the launcher gives none. An error for a list that is none, and on rank 0 where it is
 * not on the first node, as with srun --distribution=arbitrary. */
yk_status yk__rank_master(const yk__rank_info *info, char host[YK__NODE_NAME]) YK_MUST_CHECK;

/* The number of virtual ranks that the job was started with, YOKE_VIRTUAL_RANKS; 0: it is not set. */
yk_status yk__virtual_ranks_read(int *count) YK_MUST_CHECK;

/* The variables that `yoke run` and yk_spawn put into the environment of a process that they start. */
typedef struct yk__rank_variables {
    int rank, world_size, local_rank, local_world_size, node, nodes, port;
    const char *address, *job, *role; /* role NULL: not said */
    int role_rank, role_world_size;   /* role_world_size 0: rank and world_size */
} yk__rank_variables;
/* Calls `put` for each of the variables, which are those that torchrun sets, and YOKE_JOB_ID. */
typedef void (*yk__variable_fn)(void *arg, const char *name, const char *value);
void yk__rank_variables_put(const yk__rank_variables *variables, yk__variable_fn put, void *arg);

#endif
