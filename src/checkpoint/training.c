/*
 * training.c - saving and loading one checkpoint, and a folder of them: the newest valid one, the last k, a thread
 * that writes. Layer: checkpoint.
 *
 * Invariant of the manager: `flying` is the snapshot that the thread has, from save until the thread is done with it;
 * nobody else touches it meanwhile. Its memory is kept for the next copy.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "checkpoint/training.h"
#include "device/table.h"

/* ---- one checkpoint -----------------------------------------------------------------------------------------------
 */

yk_status yk_checkpoint_save(const char *dir, const yk_checkpoint_state *state)
{
    if (!dir || !*dir)
        return yk__fail(YK_ERR_ARGUMENT, "checkpoint_save: no path");
    yk__snapshot snapshot;
    yk_status status = yk__snapshot_take(state, &snapshot);
    if (status)
        return status;
    status = yk__snapshot_write(&snapshot, dir);
    yk__snapshot_clear(&snapshot);
    return status;
}

static yk_status check_load(const yk_checkpoint_state *state)
{
    if (!state)
        return yk__fail(YK_ERR_ARGUMENT, "checkpoint_load: the state is NULL");
    return state->model ? YK_OK : yk__fail(YK_ERR_ARGUMENT, "checkpoint_load: the model is NULL");
}

yk_status yk_checkpoint_load(const char *dir, yk_checkpoint_state *state, const yk_checkpoint_options *options,
                             yk_load_report *report)
{
    if (report)
        *report = (yk_load_report){0};
    yk_status status = check_load(state);
    if (!status && !dir)
        status = yk__fail(YK_ERR_ARGUMENT, "checkpoint_load: no path");
    yk__snapshot snapshot;
    if (!status)
        status = yk__snapshot_read(dir, options && options->weights_only, (yk_device){0}, &snapshot);
    if (status)
        return status;
    status = yk__snapshot_apply(dir, &snapshot, state, options, report);
    yk__snapshot_clear(&snapshot);
    return status;
}

yk_state_dict *yk_checkpoint_load_weights(const char *dir, yk_device map_location)
{
    yk__snapshot snapshot;
    if (!yk__scope_check("checkpoint_load_weights") || yk__device_check(map_location) ||
        yk__snapshot_read(dir, true, map_location, &snapshot))
        return NULL;
    yk_state_dict *model = yk__scope_own(yk_state_dict_retain(snapshot.model));
    yk__snapshot_clear(&snapshot);
    return model;
}

/* ---- a folder of them ---------------------------------------------------------------------------------------------
 */

/* The step of "step-00001234", -1 for any other name. */
static int64_t step_of(const char *name)
{
    static const char prefix[] = "step-";
    const char *digits = name + sizeof(prefix) - 1;
    size_t count = strncmp(name, prefix, sizeof(prefix) - 1) == 0 ? strspn(digits, "0123456789") : 0;
    if (count < 8 || count > 18 || digits[count] || (count > 8 && *digits == '0'))
        return -1;
    return strtoll(digits, NULL, 10);
}

static bool is_leftover(const char *name)
{
    size_t length = strlen(name), end = sizeof(".tmp") - 1;
    char stem[64];
    if (length <= end || length - end >= sizeof(stem) || strcmp(name + length - end, ".tmp") != 0)
        return false;
    snprintf(stem, sizeof(stem), "%.*s", (int)(length - end), name);
    return step_of(stem) >= 0;
}

static char *step_path(const char *root, int64_t step)
{
    return yk__format("%s/step-%08" PRId64, root, step);
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The steps that have a folder, highest first; the caller frees. A root that is not there has none. */
static yk_status list_steps(const char *root, int64_t **steps, size_t *count)
{
    *steps = NULL;
    *count = 0;
    DIR *folder = opendir(root);
    if (!folder)
        return errno == ENOENT ? YK_OK : yk__fail_errno("%s", root);
    yk_status status = YK_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        int64_t step = step_of(entry->d_name);
        if (step < 0)
            continue;
        int64_t *grown = yk__realloc(*steps, (*count + 1) * sizeof(*grown));
        if (!grown) {
            status = YK_ERR_MEMORY;
            break;
        }
        *steps = grown;
        grown[(*count)++] = step;
    }
    closedir(folder);
    if (*count)
        qsort(*steps, *count, sizeof(**steps), descending);
    if (status) {
        free(*steps);
        *steps = NULL;
    }
    return status;
}

/* Notes the record as what is wrong with a checkpoint, and clears it. */
static void pass_over(yk_checkpoint_found *found)
{
    yk_error error;
    yk__error_take(&error);
    yk__log(YK_LOG_WARN, "a broken checkpoint is passed over: %s", error.message);
    if (!found->broken++)
        snprintf(found->message, sizeof(found->message), "%s", error.message);
}

/* Finds the newest for which there is no reason to pass it over; reads it to `snapshot` unless that is NULL. */
static yk_status find(const char *root, bool weights_only, yk__snapshot *snapshot, yk_checkpoint_found *found)
{
    *found = (yk_checkpoint_found){0};
    int64_t *steps;
    size_t count;
    yk_status status = root ? list_steps(root, &steps, &count) : yk__fail(YK_ERR_ARGUMENT, "checkpoint: no path");
    if (status)
        return status;
    status = YK_ERR_NOT_FOUND;
    for (size_t i = 0; i < count; i++) {
        char *path = step_path(root, steps[i]);
        if (!path || strlen(path) >= sizeof(found->path))
            status = path ? yk__fail(YK_ERR_ARGUMENT, "%s: the path is too long", path) : YK_ERR_MEMORY;
        else
            status =
                snapshot ? yk__snapshot_read(path, weights_only, (yk_device){0}, snapshot) : yk_checkpoint_verify(path);
        if (!status) {
            strcpy(found->path, path);
            found->step = steps[i];
        }
        free(path);
        if (!status || status == YK_ERR_MEMORY || status == YK_ERR_ARGUMENT)
            break;
        pass_over(found);
        status = YK_ERR_NOT_FOUND;
    }
    free(steps);
    if (status == YK_ERR_NOT_FOUND)
        yk__fail(status, found->broken ? "%s: no valid checkpoint; %d are broken: %s" : "%s: no checkpoint", root,
                 found->broken, found->message);
    return status;
}

yk_status yk_checkpoint_find_latest(const char *root, yk_checkpoint_found *found)
{
    return find(root, false, NULL, found);
}

yk_status yk_checkpoint_load_latest(const char *root, yk_checkpoint_state *state, const yk_checkpoint_options *options,
                                    yk_checkpoint_found *found)
{
    yk__snapshot snapshot;
    yk_checkpoint_found own;
    found = found ? found : &own;
    yk_status status = check_load(state);
    if (!status)
        status = find(root, options && options->weights_only, &snapshot, found);
    if (status)
        return status;
    status = yk__snapshot_apply(found->path, &snapshot, state, options, NULL);
    yk__snapshot_clear(&snapshot);
    return status;
}

/* Removes what killed saves left. */
static void remove_leftovers(const char *root)
{
    DIR *folder = opendir(root);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char *path = is_leftover(entry->d_name) ? yk__format("%s/%s", root, entry->d_name) : NULL;
        if (path && !yk__folder_remove(path))
            yk__log(YK_LOG_WARN, "%s: what a killed save left cannot be removed", path);
        free(path);
    }
    if (folder)
        closedir(folder);
}

/* Under another name first, so that a crash leaves no half checkpoint under this one. */
static void remove_checkpoint(const char *path)
{
    char *temporary = yk__format("%s.tmp", path);
    if (!temporary || rename(path, temporary) < 0 || !yk__folder_remove(temporary))
        yk__log(YK_LOG_WARN, "%s: an old checkpoint cannot be removed", path);
    free(temporary);
}

/* Broken ones do not count as kept; they go when enough newer or good ones are there. */
static void remove_old(const char *root, int keep)
{
    int64_t *steps;
    size_t count;
    if (list_steps(root, &steps, &count)) {
        yk_clear_error();
        return;
    }
    int kept = 0;
    for (size_t i = 0; i < count; i++) {
        char *path = step_path(root, steps[i]);
        if (path && kept >= keep)
            remove_checkpoint(path);
        else if (path)
            kept += yk__checkpoint_plausible(path);
        free(path);
    }
    free(steps);
}

/* ---- the manager --------------------------------------------------------------------------------------------------
 */

struct yk_checkpoint_manager {
    yk__object object;
    char *root;
    int lock; /* an open file of the root */
    int keep;
    bool async, started;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool busy, stopping;
    yk__snapshot flying;
    int64_t step;   /* of the one in flight */
    yk_error error; /* of the last asynchronous save, until somebody is told */
};

static yk_status write_step(const char *root, int64_t step, int keep, const yk__snapshot *snapshot)
{
    remove_leftovers(root);
    char *path = step_path(root, step);
    yk_status status = path ? yk__snapshot_write(snapshot, path) : YK_ERR_MEMORY;
    free(path);
    if (!status)
        remove_old(root, keep);
    return status;
}

static void *writer_main(void *argument)
{
    yk_checkpoint_manager *m = argument;
    /* Waking this thread must not take the core from the one that trains; a system that refuses does without. */
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0});
    pthread_mutex_lock(&m->mutex);
    for (;;) {
        while (!m->busy && !m->stopping)
            pthread_cond_wait(&m->changed, &m->mutex);
        if (!m->busy)
            break;
        pthread_mutex_unlock(&m->mutex);
        write_step(m->root, m->step, m->keep, &m->flying);
        yk_error error;
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
    sigset_t all, before; /* signals are the program's business, not this thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&m->thread, NULL, writer_main, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code)
        return yk__fail(YK_ERR_IO, "checkpoint: the thread that writes cannot be started: %s", strerror(code));
    m->started = true;
    return YK_OK;
}

static void manager_destroy(void *object)
{
    yk_checkpoint_manager *m = object;
    if (m->started) {
        pthread_mutex_lock(&m->mutex);
        m->stopping = true;
        pthread_cond_broadcast(&m->changed);
        pthread_mutex_unlock(&m->mutex);
        pthread_join(m->thread, NULL);
    }
    if (m->error.code)
        yk__log(YK_LOG_ERROR, "a checkpoint was not saved: %s", m->error.message);
    if (m->lock >= 0)
        close(m->lock);
    yk__snapshot_clear(&m->flying);
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->changed);
    free(m->root);
    free(m);
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
    char *around = made ? yk__format("%s/..", m->root) : NULL;
    yk_status status = !made ? YK_OK : around ? yk__directory_sync(around) : YK_ERR_MEMORY;
    free(around);
    return status ? status : lock_root(m);
}

yk_checkpoint_manager *yk_checkpoint_manager_create(const char *root, const yk_checkpoint_manager_options *options)
{
    yk_checkpoint_manager_options o = options ? *options : (yk_checkpoint_manager_options){0};
    if (!root || !*root || o.keep < 0) {
        if (root && *root)
            yk__fail(YK_ERR_ARGUMENT, "checkpoint_manager: keep is %d, it must not be negative", o.keep);
        else
            yk__fail(YK_ERR_ARGUMENT, "checkpoint_manager: no path");
        return NULL;
    }
    yk_checkpoint_manager *m = yk__scope_check("checkpoint_manager_create") ? yk__calloc(1, sizeof(*m)) : NULL;
    if (!m)
        return NULL;
    yk__object_init(&m->object, &manager_type);
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->changed, NULL);
    m->lock = -1;
    m->keep = o.keep ? o.keep : 3;
    m->async = o.async;
    m->root = yk__strdup(root);
    if (!m->root || open_root(m)) {
        yk_object_release(m);
        return NULL;
    }
    return yk__scope_own(m);
}

yk_status yk_checkpoint_manager_wait(yk_checkpoint_manager *m)
{
    if (!m)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "checkpoint: the manager is NULL");
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

yk_status yk_checkpoint_manager_save(yk_checkpoint_manager *m, const yk_checkpoint_state *state)
{
    yk_status status = yk_checkpoint_manager_wait(m);
    if (!status && state && (state->step < 0 || state->step >= (int64_t)1e18))
        status = yk__fail(YK_ERR_ARGUMENT, "checkpoint: step %" PRId64 " is outside [0, 1e18)", state->step);
    yk__snapshot snapshot;
    if (!status)
        status = yk__snapshot_take(state, &snapshot);
    if (status)
        return status;
    if (!m->async) {
        status = write_step(m->root, state->step, m->keep, &snapshot);
        yk__snapshot_clear(&snapshot);
        return status;
    }
    if (!m->started)
        status = start_thread(m);
    if (!status)
        status = yk__snapshot_copy(&snapshot, &m->flying);
    if (status) {
        yk__snapshot_clear(&snapshot);
        return status;
    }
    pthread_mutex_lock(&m->mutex);
    m->flying = snapshot;
    m->step = state->step;
    m->busy = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    return YK_OK;
}

yk_checkpoint_manager *yk_checkpoint_manager_retain(yk_checkpoint_manager *m)
{
    return yk_object_retain(m);
}

void yk_checkpoint_manager_release(yk_checkpoint_manager *m)
{
    yk_object_release(m);
}
