/*
 * mpi_join.c - making groups of the processes that MPI has started, and leaving them. Layer: comm/mpi.
 *
 * First it must be known which process of MPI each rank is: by the parent group, by the store, or, for the group that
 * mpirun's environment makes, because they have the same numbers. Then each rank presents itself to rank 0 by a notice.
 * When all have come, rank 0 sends the group an id and says so to all; from there on nobody stays away, and MPI makes a
 * communicator. A rank that does not come, or differs, is an error on all within the time to join.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "comm/mpi/mpi_backend.h"

/* The MPI ranks of all members by the store. */
static yk_status read_places(const yk__comm_join_args *args, mpi_group *g, double until)
{
    char key[340], text[64], missing[300] = "";
    int absent = 0, processes = 0;
    size_t used = 0;
    snprintf(key, sizeof(key), "%s/mpi/%d", args->name, args->rank);
    int n = snprintf(text, sizeof(text), "%d %d", mpi_world_rank, mpi_world_size);
    yk_status status = mpi_yoke->store_set(args->store, key, text, (size_t)n);
    for (int r = 0; r < g->world_size && !status; r++) {
        char *value = NULL;
        double left = until - mpi_base->now();
        snprintf(key, sizeof(key), "%s/mpi/%d", args->name, r);
        status = mpi_yoke->store_get(args->store, key, (void **)&value, NULL, left > 0.01 ? left : 0.01);
        if (status == YK_ERR_TIMEOUT) {
            yk_error unused;
            mpi_base->error_take(&unused);
            status = YK_OK;
            absent++;
            if (used < sizeof(missing) - 20)
                used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%d", used ? ", " : "", r);
            continue;
        }
        int mpi_rank = -1;
        if (!status && (sscanf(value, "%d %d", &mpi_rank, &processes) != 2 || processes != mpi_world_size ||
                        mpi_rank < 0 || mpi_rank >= mpi_world_size))
            status = mpi_fail(YK_ERR_MISMATCH,
                              "group '%s': rank %d is of another MPI job than rank %d: MPI has %d processes there, and "
                              "%d here",
                              args->name, r, args->rank, processes, mpi_world_size);
        for (int other = 0; other < r && !status; other++)
            if (g->members[other].who.mpi_rank == mpi_rank)
                status =
                    mpi_fail(YK_ERR_UNSUPPORTED,
                             "group '%s': ranks %d and %d are one process of MPI; the mpi backend takes one rank a "
                             "process",
                             args->name, other, r);
        g->members[r].who.mpi_rank = mpi_rank;
        free(value);
    }
    if (!status && absent)
        status = mpi_fail(YK_ERR_TIMEOUT, "group '%s': rank%s %s of %d did not join within %g s (store %s)", args->name,
                          absent == 1 ? "" : "s", missing, args->world_size, args->join_timeout,
                          mpi_yoke->store_name(args->store));
    return status;
}

static yk_status find_places(const yk__comm_join_args *args, mpi_group *g, double until)
{
    if (g->world_size > mpi_world_size)
        return mpi_fail(YK_ERR_UNSUPPORTED,
                        "group '%s' has %d ranks, but MPI has started %d process%s: its processes must be started by "
                        "mpirun (mpirun -n %d PROGRAM), or by srun with PMIx, and not by yoke run; else choose the "
                        "native backend",
                        args->name, g->world_size, mpi_world_size, mpi_world_size == 1 ? "" : "es", g->world_size);
    const mpi_group *parent = args->parent;
    g->members[g->rank].who.mpi_rank = mpi_world_rank;
    if (parent) {
        for (int r = 0; r < g->world_size; r++)
            g->members[r].who.mpi_rank = parent->members[args->ranks[r]].who.mpi_rank;
        return YK_OK;
    }
    if (g->world_size == 1)
        return YK_OK;
    if (args->store)
        return read_places(args, g, until);
    if (g->world_size != mpi_world_size || g->rank != mpi_world_rank)
        return mpi_fail(YK_ERR_MISMATCH,
                        "group '%s': this process is rank %d of %d by its environment, but rank %d of %d by MPI",
                        args->name, g->rank, g->world_size, mpi_world_rank, mpi_world_size);
    for (int r = 0; r < g->world_size; r++)
        g->members[r].who.mpi_rank = r;
    return YK_OK;
}

/* ---- rank 0 and the others --------------------------------------------------------------------------------------- */
/* Compares what a rank says of itself with what this one knows. */
static yk_status check_record(const yk__comm_join_args *args, const mpi_record *r)
{
    if (r->world_size != args->world_size)
        return mpi_fail(YK_ERR_MISMATCH,
                        "group '%s': rank %d (host %s, pid %d) was given a world size of %d, rank 0 one of %d",
                        args->name, r->rank, r->host, (int)r->pid, r->world_size, args->world_size);
    if (r->members != args->members)
        return mpi_fail(YK_ERR_MISMATCH, "group '%s': rank %d (host %s, pid %d) made it of other ranks than rank 0",
                        args->name, r->rank, r->host, (int)r->pid);
    return YK_OK;
}

/* With the lock held: what has come so far. `came` counts. */
static yk_status receive_joins(const yk__comm_join_args *args, mpi_group *g, uint64_t name, bool *here, int *came)
{
    yk_status status = YK_OK;
    mpi_progress();
    for (mpi_kept_notice *kept; !status && (kept = mpi_pop_early(NOTICE_JOIN, name));) {
        mpi_record record;
        memcpy(&record, kept->notice.text, sizeof(record));
        free(kept);
        status = check_record(args, &record);
        if (record.rank <= 0 || record.rank >= g->world_size)
            continue;
        if (!status && (here[record.rank] || record.mpi_rank != g->members[record.rank].who.mpi_rank))
            status = mpi_fail(YK_ERR_ARGUMENT,
                              "group '%s': two processes have rank %d: one of them is pid %d on host %s, process %d of "
                              "MPI",
                              args->name, record.rank, (int)record.pid, record.host, record.mpi_rank);
        *came += !here[record.rank];
        here[record.rank] = true;
    }
    return status;
}

static yk_status fail_missing(const yk__comm_join_args *args, const bool *here)
{
    char missing[300] = "";
    size_t used = 0;
    int absent = 0;
    for (int r = 1; r < args->world_size; r++) {
        if (here[r])
            continue;
        absent++;
        if (used < sizeof(missing) - 20)
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%d", used ? ", " : "", r);
    }
    return mpi_fail(YK_ERR_TIMEOUT, "group '%s': rank%s %s of %d did not join within %g s", args->name,
                    absent == 1 ? "" : "s", missing, args->world_size, args->join_timeout);
}

static yk_status gather_joins(const yk__comm_join_args *args, mpi_group *g, uint64_t name, double until)
{
    static uint64_t made;
    bool *here = mpi_base->allocate((size_t)g->world_size, sizeof(*here));
    yk_status status = here ? YK_OK : mpi_base->error_code();
    for (int came = 1, looks = 0; !status && came < g->world_size; looks++) {
        pthread_mutex_lock(&mpi_lock);
        status = receive_joins(args, g, name, here, &came);
        pthread_mutex_unlock(&mpi_lock);
        if (!status && came < g->world_size && mpi_base->now() > until)
            status = fail_missing(args, here);
        mpi_pause(g, looks);
    }
    if (!here)
        return status;
    mpi_notice admission = {.kind = NOTICE_ADMISSION, .group = name};
    yk_error error = {0};
    if (status) {
        mpi_base->error_take(&error);
        admission.code = (int32_t)error.code;
        admission.bytes = (int32_t)snprintf(admission.text, sizeof(admission.text), "%s", error.message) + 1;
    }
    pthread_mutex_lock(&mpi_lock);
    admission.number = ((uint64_t)(unsigned)mpi_world_rank << 32) + ++made;
    for (int r = 1; r < g->world_size; r++)
        if (here[r])
            mpi_send_notice(g->members[r].who.mpi_rank, &admission);
    mpi_flush(0.2);
    pthread_mutex_unlock(&mpi_lock);
    free(here);
    g->id = admission.number;
    if (status)
        mpi_base->error_put(&error);
    return status;
}

static yk_status ask_to_join(const yk__comm_join_args *args, mpi_group *g, uint64_t name, double until)
{
    mpi_notice notice = {.kind = NOTICE_JOIN, .group = name, .rank = g->rank, .bytes = (int32_t)sizeof(mpi_record)};
    memcpy(notice.text, &g->members[g->rank].who, sizeof(mpi_record));
    int root = g->members[0].who.mpi_rank;
    yk_status status = YK_OK;
    for (int looks = 0;; looks++) {
        pthread_mutex_lock(&mpi_lock);
        if (looks == 0)
            mpi_send_notice(root, &notice);
        mpi_progress();
        mpi_kept_notice *admission = mpi_pop_early(NOTICE_ADMISSION, name);
        bool late = !admission && mpi_base->now() > until;
        if (late) {
            notice.kind = NOTICE_WITHDRAWN;
            mpi_send_notice(root, &notice);
            mpi_flush(0.2);
        }
        pthread_mutex_unlock(&mpi_lock);
        if (late)
            return mpi_fail(YK_ERR_TIMEOUT,
                            "group '%s': rank %d heard nothing from rank 0 within %g s: it, or others of the %d ranks, "
                            "did not join",
                            args->name, args->rank, args->join_timeout, args->world_size);
        if (!admission) {
            mpi_pause(g, looks);
            continue;
        }
        g->id = admission->notice.number;
        if (admission->notice.code)
            status = mpi_fail((yk_status)admission->notice.code, "%s", admission->notice.text);
        free(admission);
        return status;
    }
}

/* All members are on their way into this. */
static yk_status make_comm(mpi_group *g)
{
    int *ranks = mpi_base->allocate((size_t)g->world_size, sizeof(int));
    mpi_record *records = mpi_base->allocate((size_t)g->world_size, sizeof(mpi_record));
    if (!ranks || !records) {
        free(ranks);
        free(records);
        return mpi_base->error_code();
    }
    for (int r = 0; r < g->world_size; r++)
        ranks[r] = g->members[r].who.mpi_rank;
    MPI_Group all, members;
    pthread_mutex_lock(&mpi_lock);
    MPI_Comm_group(mpi_world, &all);
    int code = MPI_Group_incl(all, g->world_size, ranks, &members);
    if (!code) {
        code = MPI_Comm_create_group(mpi_world, members, 2 + (int)(g->id % 30000), &g->comm);
        MPI_Group_free(&members);
    }
    MPI_Group_free(&all);
    if (!code) {
        MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
        code = MPI_Allgather(&g->members[g->rank].who, (int)sizeof(mpi_record), MPI_BYTE, records,
                             (int)sizeof(mpi_record), MPI_BYTE, g->comm);
    }
    int neighbours = 0;
    for (int r = 0; r < g->world_size && !code; r++) {
        g->members[r].who = records[r];
        neighbours += strcmp(records[r].host, g->members[g->rank].who.host) == 0;
    }
    g->crowded = neighbours > sysconf(_SC_NPROCESSORS_ONLN);
    if (!code)
        mpi_list(g);
    pthread_mutex_unlock(&mpi_lock);
    free(ranks);
    free(records);
    return code ? mpi_failed(g->name, code) : YK_OK;
}

static void destroy(mpi_group *g)
{
    while (g->heads) {
        mpi_kept_notice *kept = g->heads;
        g->heads = kept->next;
        free(kept);
    }
    free(g->members);
    free(g->own);
    free(g->blocks);
    free(g->scratch);
    free(g);
}

yk_status mpi_join(const yk__comm_join_args *args, void **state)
{
    *state = NULL;
    double until = mpi_base->now() + args->join_timeout;
    yk_status status = mpi_start(args->join_timeout);
    if (status)
        return status;
    mpi_group *g = mpi_base->allocate(1, sizeof(*g));
    if (!g)
        return mpi_base->error_code();
    size_t ranks = (size_t)args->world_size;
    g->rank = args->rank;
    g->world_size = args->world_size;
    g->timeout = args->timeout;
    g->comm = MPI_COMM_NULL;
    g->heads_end = &g->heads;
    snprintf(g->name, sizeof(g->name), "%s", args->name);
    g->members = mpi_base->allocate(ranks, sizeof(mpi_member));
    g->own = mpi_base->allocate(1, sizeof(mpi_block));
    g->blocks = mpi_base->allocate(ranks, sizeof(mpi_block));
    status = g->members && g->own && g->blocks ? find_places(args, g, until) : mpi_base->error_code();
    if (!status) {
        mpi_record *own = &g->members[g->rank].who;
        own->world_size = g->world_size;
        own->rank = g->rank;
        own->mpi_rank = mpi_world_rank;
        own->pid = (int32_t)getpid();
        own->members = args->members;
        snprintf(own->host, sizeof(own->host), "%s", args->host_name);
        uint64_t name = yk__hash(YK__HASH_BASIS, args->name, strlen(args->name));
        status = g->rank == 0 ? gather_joins(args, g, name, until) : ask_to_join(args, g, name, until);
    }
    if (!status)
        status = make_comm(g);
    if (status) {
        destroy(g);
        return status;
    }
    *state = g;
    return YK_OK;
}

/* A broken group is not freed: MPI may have a part of it still. */
void mpi_leave(void *state)
{
    mpi_group *g = state;
    pthread_mutex_lock(&mpi_lock);
    bool whole = !atomic_load(&g->broken) && !mpi_is_abandoned();
    if (whole) {
        mpi_send_members(g, &(mpi_notice){.kind = NOTICE_LEFT, .number = atomic_load(&g->done)});
        mpi_flush(1);
        if (!mpi_is_abandoned())
            MPI_Comm_free(&g->comm);
    }
    mpi_unlist(g);
    pthread_mutex_unlock(&mpi_lock);
    if (whole)
        destroy(g);
}
