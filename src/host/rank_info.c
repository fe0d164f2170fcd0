/*
 * rank_info.c - the variables by which launchers say which rank a process is. Layer: host.
 *
 * Invariant: nobody else reads these variables to learn a rank, so all parts of a program have the same answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/rank_info.h"

typedef struct launcher {
    const char *name;
    const char *rank, *size, *local_rank, *local_size, *node, *job;
    /* This one tells the launcher from others that set the same variables; a launcher without one is recognised by its
     * rank, and the plain RANK by its world size too. */
    const char *mark;
    const char *step, *lists[2]; /* lists of nodes, the one that counts first */
} launcher;

/* The more special ones first behind RANK: mpirun inside a Slurm job has the variables of both, and srun with PMI-2
 * those of MPICH but for MPI_LOCALRANKID. */
static const launcher launchers[] = {
    {.name = "yoke run or torchrun",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .node = "GROUP_RANK"},
    {.name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .node = "OMPI_COMM_WORLD_NODE_RANK",
     .job = "PMIX_NAMESPACE"},
    {.name = "MPICH",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .mark = "MPI_LOCALRANKID"},
    {.name = "Slurm",
     .rank = "SLURM_PROCID",
     .size = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .local_size = "SLURM_TASKS_PER_NODE",
     .node = "SLURM_NODEID",
     .job = "SLURM_JOB_ID",
     .step = "SLURM_STEP_ID",
     .lists = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}},
};

static const char *value_of(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

static const launcher *find(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
        const launcher *l = &launchers[i];
        if (l->mark ? value_of(l->mark) && value_of(l->rank) : value_of(l->rank) || (i == 0 && value_of(l->size)))
            return l;
    }
    return NULL;
}

static yk_status required(const launcher *l, const char *name, int64_t least, int *value)
{
    int64_t number;
    if (!value_of(name))
        return yk__fail(YK_ERR_ARGUMENT, "%s is not set, though %s is (%s)", name, name == l->rank ? l->size : l->rank,
                        l->name);
    yk_status status = yk__env_int(name, 0, least, YK__MOST_RANKS, &number);
    *value = (int)number;
    return status;
}

static yk_status optional(const char *name, int *value)
{
    int64_t number = 0;
    yk_status status = value_of(name) ? yk__env_int(name, 0, 0, YK__MOST_RANKS, &number) : YK_OK;
    *value = (int)number;
    return status;
}

/* The ranks of node `node` in a list such as "4", "2(x4)" or "4(x2),3"; 0 where it does not say. */
static int local_size(const char *list, int node)
{
    for (const char *at = list; at && *at >= '0' && *at <= '9';) {
        char *end;
        long ranks = strtol(at, &end, 10), nodes = 1;
        if (strncmp(end, "(x", 2) == 0)
            nodes = strtol(end + 2, &end, 10);
        node -= (int)nodes;
        if (node < 0 || strchr(list, '(') == strchr(list, ',')) /* of all nodes alike */
            return ranks >= 1 && ranks <= YK__MOST_RANKS ? (int)ranks : 0;
        at = strchr(end, ',');
        at = at ? at + 1 : NULL;
    }
    return 0;
}

yk_status yk__rank_info_read(yk__rank_info *info)
{
    const launcher *l = find();
    *info = (yk__rank_info){.world_size = 1, .one_host = true, .local_size = 1};
    if (!l) /* a local rank alone still chooses a device */
        return optional(launchers[0].local_rank, &info->local_rank);
    info->launcher = l->name;
    yk_status status = required(l, l->size, 1, &info->world_size);
    if (!status)
        status = required(l, l->rank, 0, &info->rank);
    if (!status && info->rank >= info->world_size)
        status = yk__fail(YK_ERR_ARGUMENT, "%s=%d is outside a world of %s=%d", l->rank, info->rank, l->size,
                          info->world_size);
    if (!status)
        status = optional(l->local_rank, &info->local_rank);
    if (!status)
        status = optional(l->node, &info->node);
    info->local_size = info->world_size == 1 ? 1 : local_size(value_of(l->local_size), info->node);
    const char *local = value_of(l->local_size); /* of Slurm "2" or "2(x4)": then they are on several */
    info->one_host = info->world_size == 1 || (local && !strpbrk(local, "(,") && atoi(local) == info->world_size);
    info->names_job = l->job != NULL;
    info->job = value_of(l->job);
    info->step = value_of(l->step);
    info->shares_home = l->lists[0] != NULL;
    return status;
}

yk_status yk__rank_master(const yk__rank_info *info, char host[YK__NODE_NAME])
{
    const launcher *l = find();
    const char *name = NULL;
    host[0] = '\0';
    for (int i = 0; l && i < 2 && !name; i++)
        name = value_of(l->lists[i]) ? l->lists[i] : NULL;
    if (!name)
        return YK_OK;
    yk_status status = yk__node_list_read(name, value_of(name), host, NULL);
    if (!status && info->rank == 0 && info->node > 0)
        return yk__fail(
            YK_ERR_ARGUMENT,
            "rank 0 is on node %d of %s=%.100s (%s), and not on the first, %s, where the others look for it: "
            "set MASTER_ADDR to its node",
            info->node, name, value_of(name), l->node, host);
    return status;
}

yk_status yk__virtual_ranks_read(int *count)
{
    static const char name[] = "YOKE_VIRTUAL_RANKS";
    int64_t number = 0;
    yk_status status = value_of(name) ? yk__env_int(name, 0, 1, YK__MOST_VIRTUAL_RANKS, &number) : YK_OK;
    *count = (int)number;
    return status;
}

void yk__rank_variables_put(const yk__rank_variables *v, yk__variable_fn put, void *arg)
{
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"RANK", v->rank},
                   {"WORLD_SIZE", v->world_size},
                   {"LOCAL_RANK", v->local_rank},
                   {"LOCAL_WORLD_SIZE", v->local_world_size},
                   {"GROUP_RANK", v->node},
                   {"GROUP_WORLD_SIZE", v->nodes},
                   {"ROLE_RANK", v->role_world_size ? v->role_rank : v->rank},
                   {"ROLE_WORLD_SIZE", v->role_world_size ? v->role_world_size : v->world_size},
                   {"MASTER_PORT", v->port}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", numbers[i].value);
        put(arg, numbers[i].name, text);
    }
    put(arg, "MASTER_ADDR", v->address);
    put(arg, "YOKE_JOB_ID", v->job);
    put(arg, "TORCHELASTIC_USE_AGENT_STORE", "False"); /* rank 0 serves the store itself */
    if (v->role)
        put(arg, "ROLE_NAME", v->role);
}
