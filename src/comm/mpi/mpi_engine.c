/*
 * mpi_engine.c - MPI in this process: its start and end, and the notices between processes. Layer: comm/mpi.
 *
 * See the notes in mpi_backend.h. A process that ends well, and has left its groups, ends MPI; one that fails does not,
 * because MPI_Finalize waits for all processes: mpirun sees that, and ends the job.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/mpi/mpi_backend.h"

/* A notice on its way. */
typedef struct outgoing {
    struct outgoing *next;
    MPI_Request request;
    mpi_notice notice;
} outgoing;

const yk__base_services *mpi_base;
const yk__comm_services *mpi_yoke;
pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;
MPI_Comm mpi_world = MPI_COMM_NULL;
int mpi_world_rank, mpi_world_size;

static enum { NOT_STARTED, STARTING, STARTED, START_FAILED } phase;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t start_changed = PTHREAD_COND_INITIALIZER;
static yk_error start_error;

static bool ours, failed;
static atomic_bool abandoned;
static pid_t process;
static mpi_notice incoming;
static MPI_Request receiving = MPI_REQUEST_NULL;
static outgoing *outbox;
static mpi_group *groups, *lost; /* those that were left broken: MPI may still have memory of theirs */
static mpi_kept_notice *early, **early_end = &early;

/* READ_AT_ONCE: notices that one call takes; the rest stay for the next. */
enum { NOTICE_TAG = 1, READ_AT_ONCE = 32 };

yk_status mpi_failed(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return mpi_fail(YK_ERR_CONNECTION, "%s: MPI says: %s", what, text);
}

static void receive(void)
{
    if (MPI_Irecv(&incoming, (int)sizeof(incoming), MPI_BYTE, MPI_ANY_SOURCE, NOTICE_TAG, mpi_world, &receiving))
        abandoned = true;
}

/* Ends MPI at the end of the process. */
static void end_mpi(int status, void *unused)
{
    (void)unused;
    if (phase != STARTED || getpid() != process || !ours || pthread_mutex_trylock(&mpi_lock))
        return;
    int finalized = 0;
    MPI_Finalized(&finalized);
    bool well = status == 0 && !failed && !abandoned;
    for (mpi_group *g = groups; g; g = g->next)
        well &= !atomic_load(&g->broken);
    if (!finalized && (well || mpi_world_size == 1)) {
        for (mpi_group *g = groups; g; g = g->next)
            mpi_send_members(g, &(mpi_notice){.kind = NOTICE_LEFT, .number = atomic_load(&g->done)});
        mpi_flush(1);
        MPI_Cancel(&receiving);
        MPI_Wait(&receiving, MPI_STATUS_IGNORE);
        MPI_Comm_free(&mpi_world);
        MPI_Finalize();
    }
    abandoned = true;
    pthread_mutex_unlock(&mpi_lock);
}

/* Starts MPI on a thread of its own: MPI_Init waits, without a limit, for all processes of the job. */
static yk_status engine_start(void)
{
    int there = 0, gone = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&gone);
    if (gone)
        return mpi_fail(YK_ERR_STATE, "the mpi backend: the program has called MPI_Finalize already");
    MPI_Initialized(&there);
    int code = there ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code)
        return mpi_failed("the mpi backend", code);
    if (level < (there ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED))
        return mpi_fail(YK_ERR_UNSUPPORTED, "the mpi backend needs MPI_THREAD_%s of MPI_Init_thread, and has level %d",
                        there ? "MULTIPLE where the program calls MPI itself" : "SERIALIZED", level);
    ours = !there;
    process = getpid();
    if (ours && on_exit(end_mpi, NULL))
        return mpi_fail(YK_ERR_MEMORY, "the mpi backend: no function can be called at the end of the process");
    code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi_world);
    if (code)
        return mpi_failed("the mpi backend", code);
    MPI_Comm_set_errhandler(mpi_world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(mpi_world, &mpi_world_rank);
    MPI_Comm_size(mpi_world, &mpi_world_size);
    receive();
    return YK_OK;
}

static void *starter(void *unused)
{
    (void)unused;
    yk_status status = engine_start();
    pthread_mutex_lock(&start_lock);
    phase = status ? START_FAILED : STARTED;
    if (status)
        mpi_base->error_take(&start_error);
    pthread_cond_broadcast(&start_changed);
    pthread_mutex_unlock(&start_lock);
    return NULL;
}

yk_status mpi_start(double seconds)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    double nanoseconds = (double)limit.tv_nsec + (seconds - floor(seconds)) * 1e9;
    limit.tv_sec += (time_t)seconds + (nanoseconds >= 1e9);
    limit.tv_nsec = (long)(nanoseconds >= 1e9 ? nanoseconds - 1e9 : nanoseconds);
    yk_status status = YK_OK;
    pthread_mutex_lock(&start_lock);
    if (phase == NOT_STARTED) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, starter, NULL)) {
            status = mpi_fail(YK_ERR_MEMORY, "the mpi backend: no thread can be started");
        } else {
            pthread_detach(thread);
            phase = STARTING;
        }
    }
    while (phase == STARTING && !status)
        if (pthread_cond_timedwait(&start_changed, &start_lock, &limit) == ETIMEDOUT)
            status = mpi_fail(YK_ERR_TIMEOUT,
                              "the mpi backend: MPI_Init did not end within %g s: it waits for "
                              "processes that have not called it",
                              seconds);
    if (phase == START_FAILED)
        mpi_base->error_put(&start_error);
    if (phase == START_FAILED)
        status = start_error.code;
    if (!status && abandoned)
        status = mpi_fail(YK_ERR_STATE, "the mpi backend: this process has given up MPI, or ends");
    pthread_mutex_unlock(&start_lock);
    return status;
}

void mpi_abandon(const char *cause)
{
    if (abandoned)
        return;
    yk_error before;
    mpi_base->error_take(&before);
    for (mpi_group *g = groups; g; g = g->next) {
        char who[120];
        yk_error unused;
        (void)mpi_break_locked(g, YK_ERR_CONNECTION, "group '%s': %s gave up MPI: %.600s", g->name,
                               mpi_rank_name(g, g->rank, who, sizeof(who)), cause);
        mpi_base->error_take(&unused);
    }
    mpi_flush(0.2);
    abandoned = true;
    mpi_base->error_put(&before);
}

bool mpi_is_abandoned(void)
{
    return abandoned;
}

/* ---- notices ----------------------------------------------------------------------------------------------------- */
static void sweep_outbox(void)
{
    for (outgoing **at = &outbox; *at;) {
        outgoing *o = *at;
        int done = 0;
        if (MPI_Test(&o->request, &done, MPI_STATUS_IGNORE))
            done = 1; /* its receiver cannot be reached: no notice can be sent */
        if (!done) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        free(o);
    }
}

void mpi_send_notice(int mpi_rank, const mpi_notice *notice)
{
    outgoing *o = abandoned ? NULL : malloc(sizeof(*o));
    if (!o)
        return;
    size_t bytes = offsetof(mpi_notice, text) + (size_t)notice->bytes;
    memcpy(&o->notice, notice, bytes);
    if (MPI_Isend(&o->notice, (int)bytes, MPI_BYTE, mpi_rank, NOTICE_TAG, mpi_world, &o->request)) {
        free(o);
        return;
    }
    o->next = outbox;
    outbox = o;
}

void mpi_send_members(mpi_group *g, mpi_notice *notice)
{
    notice->group = g->id;
    notice->rank = g->rank;
    for (int r = 0; r < g->world_size; r++)
        if (r != g->rank && !g->members[r].left)
            mpi_send_notice(g->members[r].who.mpi_rank, notice);
}

void mpi_flush(double seconds)
{
    double until = mpi_base->now() + seconds;
    sweep_outbox();
    while (outbox && !abandoned && mpi_base->now() < until) {
        sched_yield();
        sweep_outbox();
    }
}

static void keep_early(const mpi_notice *notice)
{
    mpi_kept_notice *kept = calloc(1, sizeof(*kept));
    if (!kept)
        return; /* its sender gets no answer, and fails by its time-out */
    memcpy(&kept->notice, notice, offsetof(mpi_notice, text) + (size_t)notice->bytes);
    *early_end = kept;
    early_end = &kept->next;
}

mpi_kept_notice *mpi_pop_early(mpi_notice_kind kind, uint64_t group)
{
    for (mpi_kept_notice **at = &early; *at; at = &(*at)->next) {
        mpi_kept_notice *kept = *at;
        if (kept->notice.kind != (int32_t)kind || kept->notice.group != group)
            continue;
        *at = kept->next;
        if (!*at)
            early_end = at;
        return kept;
    }
    return NULL;
}

/* A rank that has gone back on its word is forgotten with its word. */
static void retreat(const mpi_notice *notice)
{
    for (mpi_kept_notice **at = &early; *at;) {
        mpi_kept_notice *kept = *at;
        if (kept->notice.kind != NOTICE_JOIN || kept->notice.group != notice->group ||
            kept->notice.rank != notice->rank) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        if (!*at)
            early_end = at;
        free(kept);
    }
}

static void read_notice(const mpi_notice *notice)
{
    if (notice->kind == NOTICE_JOIN || notice->kind == NOTICE_ADMISSION) {
        keep_early(notice);
        return;
    }
    if (notice->kind == NOTICE_WITHDRAWN) {
        retreat(notice);
        return;
    }
    mpi_group *g = groups;
    while (g && g->id != notice->group)
        g = g->next;
    if (!g || notice->rank < 0 || notice->rank >= g->world_size)
        return; /* this rank has left the group */
    mpi_member *from = &g->members[notice->rank];
    switch (notice->kind) {
    case NOTICE_BROKEN: mpi_broken_by(g, (yk_status)notice->code, notice->text); break;
    case NOTICE_LEFT:
        from->left = true;
        from->done = notice->number;
        break;
    case NOTICE_PROBE:
        mpi_send_notice(
            from->who.mpi_rank,
            &(mpi_notice){.group = g->id, .kind = NOTICE_ANSWER, .rank = g->rank, .number = atomic_load(&g->begun)});
        break;
    case NOTICE_ANSWER:
        from->answered = true;
        from->begun = notice->number;
        break;
    default: mpi_receive_head(g, notice);
    }
}

void mpi_progress(void)
{
    for (int i = 0; i < READ_AT_ONCE && !abandoned; i++) {
        int came = 0;
        if (MPI_Test(&receiving, &came, MPI_STATUS_IGNORE))
            abandoned = true;
        if (!came || abandoned)
            break;
        mpi_notice notice = incoming;
        receive();
        yk_error before, unused;
        mpi_base->error_take(&before);
        read_notice(&notice);
        mpi_base->error_take(&unused); /* a failure that a notice reports is the group's, not this call's */
        mpi_base->error_put(&before);
    }
    if (outbox && !abandoned)
        sweep_outbox();
    for (mpi_group *g = groups; g; g = g->next)
        if (g->messages)
            mpi_move_messages(g);
}

void mpi_list(mpi_group *g)
{
    g->next = groups;
    groups = g;
}

void mpi_unlist(mpi_group *g)
{
    for (mpi_group **at = &groups; *at; at = &(*at)->next) {
        if (*at != g)
            continue;
        *at = g->next;
        if (atomic_load(&g->broken)) {
            failed = true;
            g->next = lost;
            lost = g;
        }
        return;
    }
}

/* ---- the object's one export ------------------------------------------------------------------------------------- */
static const yk__comm_backend backend = {
    .name = "mpi",
    .bootstraps = true,
    .join = mpi_join,
    .collective =
        {
            [YK__COMM_ALL_REDUCE] = mpi_collective,
            [YK__COMM_REDUCE] = mpi_collective,
            [YK__COMM_BROADCAST] = mpi_collective,
            [YK__COMM_ALL_GATHER] = mpi_collective,
            [YK__COMM_GATHER] = mpi_collective,
            [YK__COMM_SCATTER] = mpi_collective,
            [YK__COMM_REDUCE_SCATTER] = mpi_collective,
            [YK__COMM_ALL_TO_ALL] = mpi_collective,
            [YK__COMM_BARRIER] = mpi_collective,
        },
    .post = mpi_post,
    .wait = mpi_wait,
    .forget = mpi_forget,
    .check = mpi_check,
    .abort_group = mpi_abort_group,
    .leave = mpi_leave,
};

static const void *start_plugin(const yk__base_services *base, const void *services)
{
    mpi_base = base;
    mpi_yoke = services;
    return &backend;
}

#ifdef OMPI_MAJOR_VERSION
#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)
#define LIBRARY                                                                                                        \
    "Open MPI " TEXT_OF(OMPI_MAJOR_VERSION) "." TEXT_OF(OMPI_MINOR_VERSION) "." TEXT_OF(OMPI_RELEASE_VERSION)
#else
#define LIBRARY "MPI"
#endif

const yk__plugin yk__plugin_description = {
    .format = YK__PLUGIN_FORMAT,
    .name = "mpi",
    .version = YK_VERSION,
    .interface = YK__COMM_PLUGIN_INTERFACE,
    .sizes = YK__COMM_PLUGIN_SIZES,
    .built_with = LIBRARY,
    .start = start_plugin,
};
