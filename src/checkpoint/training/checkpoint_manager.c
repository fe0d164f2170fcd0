/*
 * checkpoint_manager.c - a folder of checkpoints that is saved to: the last k, a thread that writes, ranks that save
 * together. Layer: checkpoint.
 *
 * Invariant: `writing` is the snapshot that the thread has, from save until the thread is done with it; nobody else
 * touches it meanwhile. Its memory is kept for the next copy. Before the first one it is room for that copy, which
 * `fresh` has too until the thread has had its pages provided: Note [Fresh memory] in snapshot_copy.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/events.h"
#include "base/log.h"
#include "base/thread.h"
#include "checkpoint/shards/shards.h"
#include "checkpoint/training/training.h"
#include "comm/agreement.h"
#include "host/file.h"
#include "host/progress.h"
#include "nn/module.h"

/* True for "step-N.<bits>.tmp", and for "step-N.tmp", as yoke 0.1 had it. */
static bool is_leftover(const char *name)
{
    char stem[64];
    size_t length = strcspn(name, ".");
    if (length >= sizeof(stem))
        return false;
    snprintf(stem, sizeof(stem), "%.*s", (int)length, name);
    return yk__step_of(stem) >= 0 && (strcmp(name + length, ".tmp") == 0 || yk__temporary_of(name, stem, length));
}

/* Removes what killed saves left. */
static void remove_leftovers(const char *root)
{
    DIR *folder = opendir(root);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (is_leftover(entry->d_name) && !yk__folder_remove_leftover(dirfd(folder), entry->d_name))
            yk__log(YK_LOG_WARN, "%s/%s: what a killed save left cannot be removed", root, entry->d_name);
    }
    if (folder)
        closedir(folder);
}

/* One to which somebody has added a file stays. */
static void remove_checkpoint(const char *root, const char *path)
{
    int parent = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || yk__folder_remove_checkpoint(parent, strrchr(path, '/') + 1, path)) {
        yk__log(yk__error_code() == YK_ERR_ARGUMENT ? YK_LOG_INFO : YK_LOG_WARN, "an old checkpoint is not removed: %s",
                parent < 0 ? path : yk_last_error()->message);
        yk_clear_error();
    }
    if (parent >= 0)
        close(parent);
}

/* Broken ones do not count as kept; they go when enough newer or good ones are there. */
static void remove_old(const char *root, int keep)
{
    int64_t *steps;
    size_t count;
    if (yk__steps_list(root, &steps, &count)) {
        yk_clear_error();
        return;
    }
    int kept = 0;
    for (size_t i = 0; i < count; i++) {
        char *path = yk__step_path(root, steps[i]);
        if (path && kept >= keep)
            remove_checkpoint(root, path);
        else if (path)
            kept += yk__checkpoint_plausible(path);
        free(path);
    }
    free(steps);
}

/* ---- the manager ------------------------------------------------------------------------------------------------- */

struct yk_checkpoint_manager {
    yk__object object;
    char *root;
    int lock; /* an open file of the root; -1 on ranks that do not hold it */
    int keep;
    bool async, sharded, started;
    yk_process_group *group; /* NULL: this process alone */
    int rank, ranks;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool busy, stopping;
    atomic_bool hurry; /* the thread is wanted for something else than pages */
    yk__snapshot fresh;
    yk__save writing;
    yk_error error; /* of the last asynchronous save, until a call reports it */
};

/* Writes this rank's part of the save; a sharded save is agreed upon when it returns. */
static yk_status write_step(const yk_checkpoint_manager *m, yk__save *s)
{
    if (m->rank && !m->sharded)
        return YK_OK;
    if (m->rank == 0)
        remove_leftovers(m->root);
    char *path = yk__step_path(m->root, s->step);
    yk_status status = yk__save_write(s, path, m->sharded ? m->group : NULL);
    free(path);
    if (!status && m->rank == 0)
        remove_old(m->root, m->keep);
    return status;
}

static void *writer_main(void *argument)
{
    yk_checkpoint_manager *m = argument;
    /* Waking this thread must not take the core from the one that trains; a system that refuses does without. */
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0});
    pthread_mutex_lock(&m->mutex);
    for (;;) {
        while (!m->busy && !m->stopping && !m->fresh.model)
            pthread_cond_wait(&m->changed, &m->mutex);
        if (!m->busy && m->stopping)
            break;
        if (m->fresh.model) {
            yk__snapshot fresh = m->fresh;
            m->fresh = (yk__snapshot){0};
            pthread_mutex_unlock(&m->mutex);
            yk__snapshot_populate(&fresh, &m->hurry);
            yk__snapshot_clear(&fresh);
            pthread_mutex_lock(&m->mutex);
            continue;
        }
        pthread_mutex_unlock(&m->mutex);
        yk_error error = {0};
        if (write_step(m, &m->writing))
            yk__error_take(&error);
        pthread_mutex_lock(&m->mutex);
        m->error = error;
        m->busy = false;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

static yk_status start_thread(yk_checkpoint_manager *m)
{
    int code = yk__thread_create(&m->thread, writer_main, m);
    if (code)
        return yk__fail(YK_ERR_IO, "checkpoint: the thread that writes cannot be started: %s", strerror(code));
    m->started = true;
    return YK_OK;
}

/* The thread provides the pages of the room that the first copy will be made in. */
static void use_room(yk_checkpoint_manager *m, yk__snapshot room)
{
    m->writing.snapshot = room;
    pthread_mutex_lock(&m->mutex);
    m->fresh =
        (yk__snapshot){.model = yk_state_dict_retain(room.model), .optimizer = yk_state_dict_retain(room.optimizer)};
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
}

static void manager_destroy(void *object)
{
    yk_checkpoint_manager *m = object;
    if (m->started) {
        pthread_mutex_lock(&m->mutex);
        m->stopping = true;
        atomic_store(&m->hurry, true);
        pthread_cond_broadcast(&m->changed);
        pthread_mutex_unlock(&m->mutex);
        pthread_join(m->thread, NULL);
    }
    if (m->error.code)
        yk__log(YK_LOG_ERROR, "a checkpoint was not saved: %s", m->error.message);
    if (m->lock >= 0)
        close(m->lock);
    yk__save_clear(&m->writing);
    yk__snapshot_clear(&m->fresh);
    yk_process_group_release(m->group);
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->changed);
    free(m->root);
    yk__object_free(m);
}

static const yk__type manager_type = {"checkpoint_manager", manager_destroy};

/* Two seconds of patience: a killed process holds its lock until it is gone. */
static yk_status lock_root(yk_checkpoint_manager *m)
{
    m->lock = open(m->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (m->lock < 0 || access(m->root, W_OK | X_OK) < 0)
        return yk__fail_errno("%s", m->root);
    for (int tries = 0; flock(m->lock, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (errno != EWOULDBLOCK)
            return YK_OK; /* a file system without locks */
        if (tries == 100)
            return yk__fail(YK_ERR_STATE, "%s: another process saves its checkpoints here", m->root);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    return YK_OK;
}

static yk_status open_root(yk_checkpoint_manager *m)
{
    bool made = mkdir(m->root, 0777) == 0;
    if (!made && errno != EEXIST)
        return yk__fail_errno("%s", m->root);
    if (yk__root_check(m->root))
        return yk__error_code();
    char *around = made ? yk__format("%s/..", m->root) : NULL;
    yk_status status = !made ? YK_OK : around ? yk__directory_sync(around) : YK_ERR_MEMORY;
    free(around);
    return status ? status : lock_root(m);
}

/* A manager that nobody else knows of; NULL and an error on failure. */
static yk_checkpoint_manager *manager_new(const char *root, const yk_checkpoint_manager_options *o)
{
    if (!root || !*root || o->keep < 1) {
        if (root && *root)
            yk__fail(YK_ERR_ARGUMENT, "checkpoint_manager: keep is %d, expected at least 1", o->keep);
        else
            yk__fail(YK_ERR_ARGUMENT, "checkpoint_manager: no path");
        return NULL;
    }
    yk_checkpoint_manager *m =
        yk__scope_check("checkpoint_manager_create") ? yk__object_new(&manager_type, sizeof(*m)) : NULL;
    if (!m)
        return NULL;
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->changed, NULL);
    m->lock = -1;
    m->keep = o->keep;
    m->async = o->async;
    m->sharded = o->sharded;
    m->rank = yk__own_rank(o->group);
    m->ranks = yk__rank_count(o->group);
    m->root = yk__strdup(root);
    if (m->root && (m->rank || !open_root(m)))
        return m;
    yk_object_release(m);
    return NULL;
}

/* All ranks must ask for the same. */
static yk_status agree_options(const yk_checkpoint_manager_options *o)
{
    if (!o->group)
        return yk__error_code();
    const int64_t values[YK__STATUS_VALUES] = {o->keep, o->async, o->sharded, o->async && o->sharded && o->state};
    yk__rank_status *all;
    yk_status status = yk__ranks_gather_status(o->group, values, &all);
    int count = yk__rank_count(o->group);
    if (!status)
        status = yk__ranks_first_error(all, count);
    for (int r = 1; r < count && !status; r++) {
        if (memcmp(all[r].values, all[0].values, 3 * sizeof(*all[0].values)) != 0)
            status = yk__fail(YK_ERR_MISMATCH,
                              "checkpoint_manager: rank %d (host %s) has keep %d, async %d, sharded %d, but rank 0 has "
                              "%d, %d, %d",
                              r, all[r].host, (int)all[r].values[0], (int)all[r].values[1], (int)all[r].values[2],
                              (int)all[0].values[0], (int)all[0].values[1], (int)all[0].values[2]);
        else if (all[r].values[3] != all[0].values[3])
            status = yk__fail(YK_ERR_MISMATCH,
                              "checkpoint_manager: rank %d (host %s) has %s state, but rank 0 has %s: all of a sharded "
                              "one give theirs, or none",
                              r, all[r].host, all[r].values[3] ? "a" : "no", all[0].values[3] ? "one" : "none");
    }
    free(all);
    return status;
}

/* Threads that write together must not come in between the program's own calls: they get a group of their own. */
static yk_process_group *writers_group(const yk_checkpoint_manager *m, yk_process_group *group)
{
    if (!m->async || !m->sharded)
        return yk_process_group_retain(group);
    int *ranks = yk__calloc((size_t)m->ranks, sizeof(*ranks));
    if (!ranks)
        return NULL;
    for (int r = 0; r < m->ranks; r++)
        ranks[r] = r;
    yk_scope scope = yk_scope_begin();
    group = yk_process_group_retain(yk_new_group(group, m->ranks, ranks));
    yk_scope_end(scope);
    free(ranks);
    return group;
}

/* The tensors of a dict that this rank holds as all others do: with `only` those in it, on rank 0 all. */
static yk_status share_dict(const yk_checkpoint_manager *m, yk__save *s, const char *stem, const yk_state_dict *dict,
                            const yk_state_dict *only)
{
    int64_t count = 0;
    yk_shard *shards = yk__calloc((size_t)yk__state_dict_count(dict) + 1, sizeof(*shards));
    for (int64_t i = 0; shards && i < yk__state_dict_count(dict); i++) {
        const char *name = yk__state_dict_name(dict, i);
        if (m->rank == 0 || !only || yk_state_dict_find(only, name) >= 0)
            shards[count++] = (yk_shard){.name = name, .part = yk__state_dict_at(dict, i)};
    }
    yk_status status = yk__ranks_agree(m->group); /* an error record here says that there is no memory */
    if (!status)
        status = yk__share_plan(&s->shares[s->share_count], stem, shards, count, m->group);
    s->share_count += !status;
    free(shards);
    return status;
}

/* Decides which rank writes which part of a snapshot or an outline. Buffers are written by rank 0, which is where
 * DistributedDataParallel has them from. A rank need not keep the parts that it does not write. Agreed upon when it
 * returns. */
static yk_status plan_shares(const yk_checkpoint_manager *m, const yk_checkpoint_state *state, yk__save *s)
{
    yk__snapshot *snapshot = &s->snapshot;
    yk_scope scope = yk_scope_begin();
    yk_status status =
        share_dict(m, s, "model", snapshot->model, yk__parameters_list(yk_module_parameters(state->model)));
    yk_scope_end(scope);
    if (!status && snapshot->optimizer)
        status = share_dict(m, s, "optimizer", snapshot->optimizer, NULL);
    if (status)
        return status;
    yk_state_dict_release(snapshot->model);
    yk_state_dict_release(snapshot->optimizer);
    snapshot->model = yk_state_dict_retain(s->shares[YK__SHARE_MODEL].own);
    snapshot->optimizer =
        s->share_count > YK__SHARE_OPTIMIZER ? yk_state_dict_retain(s->shares[YK__SHARE_OPTIMIZER].own) : NULL;
    return YK_OK;
}

/* An outline of the tensors that asynchronous saves of the state will copy, if this rank writes any of it. */
static yk_status outline(const yk_checkpoint_manager *m, const yk_checkpoint_state *state, yk__save *s)
{
    if (!state || !m->async || (m->rank && !m->sharded))
        return YK_OK;
    if (!state->model)
        return yk__fail(YK_ERR_ARGUMENT, "checkpoint_manager: the state's model is NULL");
    return yk__snapshot_outline(state, &s->snapshot);
}

/* Takes memory for copies of what is outlined, of shares for this rank's. Agreed upon when it returns. */
static yk_status make_room(yk_checkpoint_manager *m, const yk_checkpoint_state *state, yk__save *s)
{
    if (m->sharded && s->snapshot.model && plan_shares(m, state, s))
        return yk__error_code();
    yk__snapshot room;
    if (s->snapshot.model && !yk__snapshot_room_like(&s->snapshot, &room)) {
        use_room(m, room);
        (void)!start_thread(m); /* the error record goes to the other ranks */
    }
    return yk__ranks_agree(m->group);
}

yk_checkpoint_manager *yk_checkpoint_manager_create(const char *root, const yk_checkpoint_manager_options *options)
{
    YK__OWN_RECORD;
    yk_checkpoint_manager_options o;
    if (YK__OPTIONS_TAKE("checkpoint_manager", yk_checkpoint_manager_options, options, &o))
        return NULL;
    if (yk__is_freed(o.group)) {
        yk__fail_freed(__func__, o.group);
        return NULL;
    }
    yk_checkpoint_manager *m = manager_new(root, &o);
    yk__save planned = {.step = 0};
    if (m)
        (void)!outline(m, o.state, &planned); /* the error record goes to the other ranks */
    yk_status status = agree_options(&o);
    if (!status && o.group) {
        m->group = writers_group(m, o.group);
        status = yk__error_code();
    }
    if (!status && o.async)
        status = make_room(m, o.state, &planned);
    yk__save_clear(&planned);
    if (!status)
        return yk__scope_own(m);
    yk_object_release(m);
    return NULL;
}

/* ---- saving ----------------------------------------------------------------------------------------------------- */

static yk_status fail_no_manager(void)
{
    return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "checkpoint: the manager is NULL");
}

/* Waits for this rank's thread; its error goes to the record. */
static yk_status wait_here(yk_checkpoint_manager *m)
{
    pthread_mutex_lock(&m->mutex);
    while (m->busy)
        pthread_cond_wait(&m->changed, &m->mutex);
    yk_error error = m->error;
    m->error.code = YK_OK;
    pthread_mutex_unlock(&m->mutex);
    if (error.code)
        yk__error_put(&error);
    return error.code;
}

yk_status yk_checkpoint_manager_wait(yk_checkpoint_manager *m)
{
    YK__OWN_RECORD;
    YK__LIVE(m);
    if (!m)
        return fail_no_manager();
    (void)!wait_here(m); /* the others learn of its error */
    return yk__ranks_agree(m->group);
}

/* All ranks are here, with the same step; `random` gets their generators. */
static yk_status begin_save(yk_checkpoint_manager *m, const yk_checkpoint_state *state, yk_random_state *random)
{
    if (!wait_here(m) && state && (state->step < 0 || state->step >= (int64_t)1e18))
        yk__fail(YK_ERR_ARGUMENT, "checkpoint: step %" PRId64 " is outside [0, 1e18)", state->step);
    if (!m->group)
        return yk__error_code();
    yk_random_state mine = yk_random_get_state();
    const int64_t values[YK__STATUS_VALUES] = {state ? state->step : 0, (int64_t)mine.seed, mine.calls};
    yk__rank_status *all;
    yk_status status = yk__ranks_gather_status(m->group, values, &all);
    if (!status)
        status = yk__ranks_first_error(all, m->ranks);
    for (int r = 0; r < m->ranks && !status; r++) {
        random[r] = (yk_random_state){(uint64_t)all[r].values[1], (uint32_t)all[r].values[2]};
        if (all[r].values[0] != all[0].values[0])
            status = yk__fail(YK_ERR_MISMATCH,
                              "checkpoint: rank %d (host %s) saves step %" PRId64 ", but rank 0 step %" PRId64, r,
                              all[r].host, all[r].values[0], all[0].values[0]);
    }
    free(all);
    return status;
}

/* The state as it is now, sharing memory with the objects. Agreed upon when it returns. */
static yk_status snapshot_begin(const yk_checkpoint_manager *m, const yk_checkpoint_state *state,
                                const yk_random_state *random, yk__save *s)
{
    if (m->rank && !m->sharded) {
        if (!state)
            yk__fail(YK_ERR_ARGUMENT, "checkpoint: the state is NULL");
        return yk__ranks_agree(m->group);
    }
    yk_status status = yk__snapshot_take(state, &s->snapshot);
    if (!status) {
        s->step = state->step;
        if (m->group && !state->n_generators)
            status = yk__snapshot_note_random(&s->snapshot, random, m->ranks);
    }
    status = yk__ranks_agree(m->group);
    if (status)
        return status;
    if (!m->sharded) {
        yk__save_whole(s);
        return YK_OK;
    }
    json_object_set_new(s->snapshot.state, "sharded", json_integer(m->ranks));
    return plan_shares(m, state, s);
}

/* Copies what this rank writes and hands it to the thread. Agreed upon when it returns. */
static yk_status start_writing(yk_checkpoint_manager *m, yk__save *s)
{
    bool writes = m->rank == 0 || m->sharded;
    yk_status status = writes && !m->started ? start_thread(m) : YK_OK;
    yk__snapshot room;
    if (!status && writes && !m->writing.snapshot.model && !yk__snapshot_room_like(&s->snapshot, &room))
        use_room(m, room);
    if (!status && writes && !yk__snapshot_copy(&s->snapshot, &m->writing.snapshot)) {
        for (int i = 0; i < s->share_count; i++) {
            yk_state_dict_release(s->shares[i].own);
            s->shares[i].own = yk_state_dict_retain(i == YK__SHARE_MODEL ? s->snapshot.model : s->snapshot.optimizer);
        }
    }
    status = yk__ranks_agree(m->group);
    if (status || !writes) {
        yk__save_clear(s);
        return status;
    }
    yk__save_clear(&m->writing);
    pthread_mutex_lock(&m->mutex);
    m->writing = *s;
    m->busy = true;
    atomic_store(&m->hurry, true);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    return YK_OK;
}

yk_status yk_checkpoint_manager_save(yk_checkpoint_manager *m, const yk_checkpoint_state *state)
{
    YK__EVENT(YK__EVENT_SAVE, "checkpoint_manager_save");
    YK__IN_PHASE(YK__PHASE_SAVING);
    YK__OWN_RECORD;
    YK__LIVE(m);
    if (!m)
        return fail_no_manager();
    yk_random_state *random = yk__calloc((size_t)m->ranks, sizeof(*random));
    yk_status status = begin_save(m, state, random);
    yk__save s = {.step = 0};
    if (!status)
        status = snapshot_begin(m, state, random, &s);
    free(random);
    if (status) {
        yk__save_clear(&s);
        return status;
    }
    if (m->async)
        return start_writing(m, &s);
    status = write_step(m, &s);
    yk__save_clear(&s);
    return m->sharded ? status : yk__ranks_agree(m->group);
}

yk_checkpoint_manager *yk_checkpoint_manager_retain(yk_checkpoint_manager *m)
{
    return yk_object_retain(m);
}

void yk_checkpoint_manager_release(yk_checkpoint_manager *m)
{
    yk_object_release(m);
}
