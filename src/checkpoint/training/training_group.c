/*
 * training_group.c - one checkpoint on all ranks of a group: read by each or sent by rank 0, the newest that every rank
 * can read, and a random generator for each. Layer: checkpoint.
 *
 * Note [The newest on all ranks]
 * Each rank proposes the newest step that it sees and that was not passed over; the highest proposal is tried by all,
 * so a rank that does not see it yet (a network file system) makes all pass it over, with that as the reason. Only when
 * every rank has read and verified it, and all have the same state.json, is it taken.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/training/training.h"
#include "comm/agreement.h"
#include "nn/module.h"

/* ---- rank 0's snapshot to all ----------------------------------------------------------------------------------- */

/* [["fc.weight", 2, 8, 4], ...]: name, dtype, shape. */
static json_t *dict_json(const yk_state_dict *dict)
{
    json_t *list = dict ? json_array() : json_null();
    for (int64_t i = 0; i < yk__state_dict_count(dict); i++) {
        yk_tensor *x = yk__state_dict_at(dict, i);
        json_t *entry = json_pack("[s, i]", yk__state_dict_name(dict, i), (int)x->dtype);
        for (int d = 0; d < x->ndim; d++)
            json_array_append_new(entry, json_integer(x->shape[d]));
        json_array_append_new(list, entry);
    }
    return list;
}

/* A dict of new tensors as listed; one reference, or NULL: an error, or JSON's null. */
static yk_state_dict *dict_make(const json_t *list)
{
    yk_state_dict *dict = json_is_array(list) ? yk__state_dict_new() : NULL;
    yk_status status = dict ? YK_OK : YK_ERR_MEMORY;
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *entry = json_array_get(list, i);
        int64_t shape[YK_MAX_DIMS];
        int ndim = (int)json_array_size(entry) - 2;
        for (int d = 0; d < ndim; d++)
            shape[d] = json_integer_value(json_array_get(entry, (size_t)d + 2));
        yk_tensor *x =
            yk__tensor_new(ndim, shape, NULL, (yk_dtype)json_integer_value(json_array_get(entry, 1)), (yk_device){0});
        status = yk_state_dict_add(dict, json_string_value(json_array_get(entry, 0)), x);
        yk_tensor_release(x);
    }
    if (!status)
        return dict;
    yk_state_dict_release(dict);
    return NULL;
}

static yk_status send_tensors(const yk_state_dict *dict, yk_process_group *group)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk__state_dict_count(dict) && !status; i++) {
        if (yk__state_dict_at(dict, i)->numel)
            status = YK__HOST_TENSORS(yk_broadcast(yk__state_dict_at(dict, i), 0, group));
    }
    return status;
}

/* Sends the snapshot that rank 0 has read to all ranks. */
static yk_status send_snapshot(yk__snapshot *snapshot, yk_process_group *group)
{
    bool root = yk_rank(group) == 0;
    char *text = NULL;
    if (root) {
        json_t *all = json_pack("{s:O, s:o, s:o}", "state", snapshot->state, "model", dict_json(snapshot->model),
                                "optimizer", dict_json(snapshot->optimizer));
        text = all ? json_dumps(all, JSON_COMPACT) : NULL;
        json_decref(all);
        if (!text)
            yk__fail_memory(sizeof(json_t *));
    }
    yk_status status = yk__ranks_agree(group);
    size_t size = status || !root ? 0 : strlen(text);
    if (!status)
        status = yk__ranks_broadcast(group, &text, &size);
    if (!status && !root) {
        json_t *all = json_loads(text, 0, NULL), *optimizer = json_object_get(all, "optimizer");
        snapshot->state = json_incref(json_object_get(all, "state"));
        snapshot->model = dict_make(json_object_get(all, "model"));
        snapshot->optimizer = dict_make(optimizer);
        if (!snapshot->state || !snapshot->model || (!snapshot->optimizer && !json_is_null(optimizer)))
            yk__fail_memory(size);
        json_decref(all);
    }
    free(text);
    if (!status)
        status = yk__ranks_agree(group);
    if (!status)
        status = send_tensors(snapshot->model, group);
    return status ? status : send_tensors(snapshot->optimizer, group);
}

/* ---- reading together ------------------------------------------------------------------------------------------- */

/* A number that tells one checkpoint from another: the checksum of state.json, which has those of all other files. */
static int64_t digest_of(const yk__snapshot *snapshot)
{
    const char *text = json_string_value(json_object_get(snapshot->state, "checksum"));
    return text ? (int64_t)strtoull(text + sizeof("xxh3:") - 1, NULL, 16) : 0;
}

static void read_mine(const char *dir, const yk_checkpoint_options *o, const yk_optimizer *optimizer,
                      yk__snapshot *snapshot)
{
    *snapshot = (yk__snapshot){0};
    if ((!o->broadcast || yk_rank(o->group) == 0) && dir)
        (void)!yk__snapshot_read(dir, o->weights_only,
                                 o->mmap || o->broadcast ? YK_OPTIONS(yk_read_options, .mmap = o->mmap) : NULL,
                                 optimizer, snapshot); /* the error record goes to the others */
}

yk_status yk__snapshot_read_group(const char *dir, const yk_checkpoint_options *o, const yk_optimizer *optimizer,
                                  yk__snapshot *snapshot)
{
    read_mine(dir, o, optimizer, snapshot);
    yk_status status =
        o->broadcast ? yk__ranks_agree(o->group) : yk__ranks_agree_checksum(o->group, dir, digest_of(snapshot));
    if (!status && o->broadcast)
        status = send_snapshot(snapshot, o->group);
    if (status)
        yk__snapshot_clear(snapshot);
    return status;
}

/* Every rank's newest step below `limit`; the highest of them, -1 for none. */
static yk_status propose(const int64_t *steps, size_t count, int64_t limit, yk_process_group *group, int64_t *step)
{
    int64_t values[YK__STATUS_VALUES] = {-1};
    for (size_t i = 0; i < count && values[0] < 0; i++)
        values[0] = steps[i] < limit ? steps[i] : -1;
    yk__rank_status *all;
    int ranks = yk__rank_count(group);
    yk_status status = yk__ranks_gather_status(group, values, &all);
    if (!status)
        status = yk__ranks_first_error(all, ranks);
    *step = -1;
    for (int r = 0; r < ranks && !status; r++)
        *step = all[r].values[0] > *step ? all[r].values[0] : *step;
    free(all);
    return status;
}

static yk_status try_step(const char *root, int64_t step, const yk_checkpoint_options *o, const yk_optimizer *optimizer,
                          yk__snapshot *snapshot, yk_checkpoint_found *found)
{
    char *path = yk__step_path(root, step);
    if (path && strlen(path) >= sizeof(found->path))
        yk__fail(YK_ERR_ARGUMENT, "%s: the path is too long", path);
    yk_status status = yk__snapshot_read_group(yk__error_code() ? NULL : path, o, optimizer, snapshot);
    if (!status) {
        snprintf(found->path, sizeof(found->path), "%s", path);
        found->step = step;
    }
    free(path);
    return status;
}

yk_status yk__snapshot_find_group(const char *root, const yk_checkpoint_options *o, const yk_optimizer *optimizer,
                                  yk__snapshot *snapshot, yk_checkpoint_found *found)
{
    *found = (yk_checkpoint_found){0};
    int64_t *steps = NULL, step = -1;
    size_t count = 0;
    if (!root)
        yk__fail(YK_ERR_ARGUMENT, "checkpoint: no path");
    else if (!o->broadcast || yk_rank(o->group) == 0)
        (void)!yk__steps_list(root, &steps, &count); /* the error record goes to the others */
    yk_status status = YK_ERR_NOT_FOUND;
    for (int64_t limit = INT64_MAX;; limit = step) {
        yk_status agreed = propose(steps, count, limit, o->group, &step);
        if (agreed || step < 0) {
            status = agreed ? agreed : YK_ERR_NOT_FOUND;
            break;
        }
        status = try_step(root, step, o, optimizer, snapshot, found);
        if (status != YK_ERR_FORMAT && status != YK_ERR_IO && status != YK_ERR_NOT_FOUND && status != YK_ERR_DTYPE &&
            status != YK_ERR_SHAPE)
            break;
        yk__pass_over(found);
    }
    free(steps);
    if (status == YK_ERR_NOT_FOUND && !yk__error_code())
        yk__fail(status,
                 found->broken ? "%s: no valid checkpoint; %d %s broken: %s"
                               : "%s: no checkpoint: there is no folder step-N in it",
                 root, found->broken, found->broken == 1 ? "is" : "are", found->message);
    return status;
}

/* ---- random generators ------------------------------------------------------------------------------------------ */

yk_status yk__snapshot_note_random(yk__snapshot *snapshot, const yk_random_state *states, int64_t count)
{
    json_t *list = json_array();
    for (int64_t r = 0; r < count; r++)
        json_array_append_new(
            list, json_pack("{s:I, s:I}", "seed", (json_int_t)states[r].seed, "calls", (json_int_t)states[r].calls));
    if (json_array_size(list) == (size_t)count && json_object_set(snapshot->state, "random_of_ranks", list) == 0) {
        json_decref(list);
        return YK_OK;
    }
    json_decref(list);
    return yk__fail_memory(sizeof(json_t *));
}

static bool random_of(const json_t *list, size_t rank, yk_random_state *state)
{
    json_t *entry = json_array_get(list, rank), *seed = json_object_get(entry, "seed");
    json_t *calls = json_object_get(entry, "calls");
    *state = (yk_random_state){(uint64_t)json_integer_value(seed), (uint32_t)json_integer_value(calls)};
    return json_is_integer(seed) && json_is_integer(calls);
}

/* Bits of a number spread over all 64 (the finaliser of SplitMix64; Steele et al., 2014). */
static uint64_t spread(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

void yk__snapshot_restore_random(const yk__snapshot *snapshot, int64_t rank)
{
    const json_t *list = json_object_get(snapshot->state, "random_of_ranks");
    yk_random_state state, first;
    if (!random_of(list, 0, &first))
        return; /* saved by one process: all have its generator now */
    if (!random_of(list, (size_t)rank, &state)) {
        bool alike = true;
        for (size_t r = 1; random_of(list, r, &state); r++)
            alike &= state.seed == first.seed;
        state = first;
        if (!alike)
            state.seed = spread(first.seed + (uint64_t)rank);
    }
    yk_random_set_state(state);
}

void yk__snapshot_restore_generators(const yk__snapshot *snapshot, yk_random_state *generators, int64_t count)
{
    yk_random_state alone = yk_random_get_state(); /* of a run of one process */
    for (int64_t i = 0; i < count; i++) {
        yk_random_set_state(alone);
        yk__snapshot_restore_random(snapshot, i);
        generators[i] = yk_random_get_state();
    }
    yk_random_set_state(generators[0]);
}
