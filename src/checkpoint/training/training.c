/*
 * training.c - saving and loading one checkpoint, and the newest valid one of a folder of them. Layer: checkpoint.
 *
 * With a group, loading is two steps for all ranks: each reads (or gets rank 0's), and all learn whether everybody has
 * the same; only then does each put it into its objects.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/events.h"
#include "base/log.h"
#include "checkpoint/training/training.h"
#include "comm/agreement.h"
#include "device/table.h"
#include "host/progress.h"

/* ---- one checkpoint ---------------------------------------------------------------------------------------------- */

yk_status yk_checkpoint_save(const char *dir, const yk_checkpoint_state *state)
{
    YK__EVENT(YK__EVENT_SAVE, "checkpoint_save");
    YK__IN_PHASE(YK__PHASE_SAVING);
    YK__OWN_RECORD;
    if (!dir || !*dir)
        return yk__fail(YK_ERR_ARGUMENT, "checkpoint_save: no path");
    yk__save save = {.step = 0};
    yk_status status = yk__snapshot_take(state, &save.snapshot);
    if (status)
        return status;
    yk__save_whole(&save);
    status = yk__save_write(&save, dir, NULL);
    yk__save_clear(&save);
    return status;
}

static const yk_read_options *const mapped = YK_OPTIONS(yk_read_options, .mmap = true);

static yk_status check_load(const yk_checkpoint_state *state)
{
    if (!state)
        return yk__fail(YK_ERR_ARGUMENT, "checkpoint_load: the state is NULL");
    return state->model ? YK_OK : yk__fail(YK_ERR_ARGUMENT, "checkpoint_load: the model is NULL");
}

/* Puts the snapshot, which is cleared, into the objects of every rank. */
static yk_status checkpoint_apply(const char *dir, yk__snapshot *snapshot, yk_checkpoint_state *state,
                                  const yk_checkpoint_options *o, yk_load_report *report)
{
    yk_status status = yk__snapshot_apply(dir, snapshot, state, o, report);
    if (!status && !o->weights_only && state->n_generators)
        yk__snapshot_restore_generators(snapshot, state->generators, state->n_generators);
    else if (!status && !o->weights_only && o->group)
        yk__snapshot_restore_random(snapshot, yk_rank(o->group));
    yk__snapshot_clear(snapshot);
    return yk__ranks_agree(o->group);
}

yk_status yk_checkpoint_load(const char *dir, yk_checkpoint_state *state, const yk_checkpoint_options *options,
                             yk_load_report *report)
{
    YK__OWN_RECORD;
    if (report)
        *report = (yk_load_report){0};
    yk_checkpoint_options o;
    if (YK__OPTIONS_TAKE("checkpoint_load", yk_checkpoint_options, options, &o))
        return YK_ERR_ARGUMENT;
    if (!check_load(state) && !dir)
        yk__fail(YK_ERR_ARGUMENT, "checkpoint_load: no path");
    yk__snapshot snapshot;
    yk_status status = yk__ranks_agree(o.group);
    if (!status && o.group)
        status = yk__snapshot_read_group(dir, &o, state->optimizer, &snapshot);
    else if (!status)
        status = yk__snapshot_read(dir, o.weights_only, o.mmap ? mapped : NULL, state->optimizer, &snapshot);
    return status ? status : checkpoint_apply(dir, &snapshot, state, &o, report);
}

yk_state_dict *yk_checkpoint_load_weights(const char *dir, yk_device map_location)
{
    YK__OWN_RECORD;
    yk__snapshot snapshot;
    if (!yk__scope_check("checkpoint_load_weights") || !yk__is_there("checkpoint_load_weights", "path", dir) ||
        yk__device_check(map_location) ||
        yk__snapshot_read(dir, true, YK_OPTIONS(yk_read_options, .map_location = map_location), NULL, &snapshot))
        return NULL;
    yk_state_dict *model = yk__scope_own(yk_state_dict_retain(snapshot.model));
    yk__snapshot_clear(&snapshot);
    return model;
}

/* ---- a folder of them -------------------------------------------------------------------------------------------- */

int64_t yk__step_of(const char *name)
{
    static const char prefix[] = "step-";
    const char *digits = name + sizeof(prefix) - 1;
    size_t count = strncmp(name, prefix, sizeof(prefix) - 1) == 0 ? strspn(digits, "0123456789") : 0;
    if (count < 8 || count > 18 || digits[count] || (count > 8 && *digits == '0'))
        return -1;
    return strtoll(digits, NULL, 10);
}

char *yk__step_path(const char *root, int64_t step)
{
    return yk__format("%s/step-%08" PRId64, root, step);
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static bool holds(const char *root, const char *name)
{
    char *path = yk__format("%s/%s", root, name);
    bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

yk_status yk__root_check(const char *root)
{
    if (!holds(root, "state.json") || (!holds(root, "model.safetensors") && !holds(root, "model.index.json")))
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: is a checkpoint itself; the folder of checkpoints that it is in is needed",
                    root);
}

yk_status yk__steps_list(const char *root, int64_t **steps, size_t *count)
{
    *steps = NULL;
    *count = 0;
    if (yk__root_check(root))
        return yk__error_code();
    DIR *folder = opendir(root);
    if (!folder)
        return errno == ENOENT ? YK_OK : yk__fail_errno("%s", root);
    yk_status status = YK_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        int64_t step = yk__step_of(entry->d_name);
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

void yk__pass_over(yk_checkpoint_found *found)
{
    yk_error error;
    yk__error_take(&error);
    yk__log(YK_LOG_WARN, "a broken checkpoint is passed over: %s", error.message);
    if (!found->broken++)
        snprintf(found->message, sizeof(found->message), "%s", error.message);
}

/* True if a higher step has come: a run that goes on may have removed those that were listed before. */
static bool has_newer(const char *root, int64_t step)
{
    int64_t *steps;
    size_t count;
    bool newer = !yk__steps_list(root, &steps, &count) && count && steps[0] > step;
    free(steps);
    return newer;
}

/* One round of find. *again (looked for where it is true before): the folder has other checkpoints by now, so find
 * again. */
static yk_status find_once(const char *root, const yk_checkpoint_options *o, const yk_optimizer *optimizer,
                           yk__snapshot *snapshot, yk_checkpoint_found *found, bool *again)
{
    *found = (yk_checkpoint_found){0};
    bool may_again = *again;
    *again = false;
    int64_t *steps;
    size_t count;
    yk_status status = root ? yk__steps_list(root, &steps, &count) : yk__fail(YK_ERR_ARGUMENT, "checkpoint: no path");
    if (status)
        return status;
    status = YK_ERR_NOT_FOUND;
    for (size_t i = 0; i < count; i++) {
        bool whole = false;
        char *path = yk__step_path(root, steps[i]);
        if (!path || strlen(path) >= sizeof(found->path))
            status = path ? yk__fail(YK_ERR_ARGUMENT, "%s: the path is too long", path) : YK_ERR_MEMORY;
        else
            status = snapshot ? yk__snapshot_read(path, o->weights_only, o->mmap ? mapped : NULL, optimizer, snapshot)
                              : yk__checkpoint_verify(path, &whole);
        if (!status) {
            strcpy(found->path, path);
            found->step = steps[i];
        }
        free(path);
        if (!status || whole || status == YK_ERR_MEMORY || status == YK_ERR_ARGUMENT || status == YK_ERR_UNSUPPORTED)
            break; /* whole, but of a newer yoke or edited: an older step must not take its place unnoticed */
        *again = may_again && has_newer(root, steps[0]);
        if (*again) {
            yk_clear_error();
            break;
        }
        yk__pass_over(found);
        status = YK_ERR_NOT_FOUND;
    }
    free(steps);
    return status;
}

/* Finds the newest for which there is no reason to pass it over; reads it to `snapshot` unless that is NULL. */
static yk_status checkpoint_find(const char *root, const yk_checkpoint_options *o, const yk_optimizer *optimizer,
                                 yk__snapshot *snapshot, yk_checkpoint_found *found)
{
    enum { ROUNDS = 20 }; /* a step would have to come in each of them */
    bool again = true;
    yk_status status = YK_OK;
    for (int round = 1; again; round++) {
        again = round < ROUNDS;
        status = find_once(root, o, optimizer, snapshot, found, &again);
    }
    if (status == YK_ERR_NOT_FOUND)
        yk__fail(status,
                 found->broken ? "%s: no valid checkpoint; %d %s broken: %s"
                               : "%s: no checkpoint: there is no folder step-N in it",
                 root, found->broken, found->broken == 1 ? "is" : "are", found->message);
    return status;
}

yk_status yk_checkpoint_find_latest(const char *root, yk_checkpoint_found *found)
{
    YK__OWN_RECORD;
    if (!yk__is_there("checkpoint_find_latest", "result", found))
        return YK_ERR_ARGUMENT;
    return checkpoint_find(root, NULL, NULL, NULL, found);
}

yk_status yk_checkpoint_load_latest(const char *root, yk_checkpoint_state *state, const yk_checkpoint_options *options,
                                    yk_checkpoint_found *found)
{
    YK__OWN_RECORD;
    yk_checkpoint_options o;
    if (YK__OPTIONS_TAKE("checkpoint_load_latest", yk_checkpoint_options, options, &o))
        return YK_ERR_ARGUMENT;
    yk__snapshot snapshot;
    yk_checkpoint_found own;
    found = found ? found : &own;
    *found = (yk_checkpoint_found){0};
    check_load(state);
    yk_status status = yk__ranks_agree(o.group);
    if (!status)
        status = o.group ? yk__snapshot_find_group(root, &o, state->optimizer, &snapshot, found)
                         : checkpoint_find(root, &o, state->optimizer, &snapshot, found);
    return status ? status : checkpoint_apply(found->path, &snapshot, state, &o, NULL);
}
