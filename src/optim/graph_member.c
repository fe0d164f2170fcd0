/*
 * graph_member.c - an optimizer's step inside a function that is recorded and replayed (yk_graph). Layer: optim.
 *
 * The step reads the learning rate and its own number from the device's memory, so its kernels are right in each
 * replay; what is left is the host's side (Note [What a replay leaves out] in device/graph.h). Of each batch that the
 * function's last call handed to the table there is a note: its record in the device's memory and its parameters.
 * Before a replay the records are brought to the rates and steps that the host has; after it, the host's numbers of
 * steps go on. The other arguments of the recorded kernels (pointers, constants) are compared with their values now,
 * and so are the parameters that require a gradient: backward reaches others then, and the step changes others.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/graph.h"
#include "host/progress.h"
#include "nn/state_dict.h"
#include "optim/optimizer.h"

typedef struct noted_batch {
    int group, record;
    int64_t count;
    int64_t *indices; /* in the group */
    uint64_t given;   /* hash of what the kernels were given */
    bool skips;       /* the device may leave the step out */
} noted_batch;

typedef struct notes {
    noted_batch *batches;
    int count, room;
    int steps;        /* of the function's last call */
    uint64_t trained; /* hash of which parameters required a gradient when the function was called */
} notes;

/* A hash of the options, and of the memory of parameters and state. */
static uint64_t given(const yk_optimizer *o, const yk__optim_group *group, const int64_t *indices, int64_t count)
{
    uint64_t h = yk__hash(YK__HASH_BASIS, &group->options, sizeof(group->options));
    for (int64_t n = 0; n < count; n++) {
        const yk_tensor *x = yk__parameters_at(group->params, indices[n]);
        h = yk__hash(h, &x->data, sizeof(x->data));
        for (int s = 0; s < YK__OPTIM_STATES; s++) {
            const yk_tensor *state = group->states[indices[n]].tensors[s];
            if (state)
                h = yk__hash(h, &state->data, sizeof(state->data));
        }
    }
    return yk__hash(h, &o->n_groups, sizeof(o->n_groups));
}

static uint64_t trained(const yk_optimizer *o)
{
    uint64_t h = YK__HASH_BASIS;
    for (int k = 0; k < o->n_groups; k++) {
        for (int64_t i = 0; i < o->groups[k].count; i++) {
            bool wants = yk__wants_grad(yk__parameters_at(o->groups[k].params, i));
            h = yk__hash(h, &wants, sizeof(wants));
        }
    }
    return h;
}

static void forget(notes *all)
{
    for (int i = 0; i < all->count; i++)
        free(all->batches[i].indices);
    all->count = all->steps = 0;
}

static void begin(void *object, void *of)
{
    notes *all = of;
    forget(all);
    all->trained = trained(object);
}

static void release(void *object, void *of)
{
    notes *all = of;
    if (all) {
        forget(all);
        free(all->batches);
        free(all);
    }
    yk_object_release(object);
}

/* True if the host's numbers of steps can be written to the batch's record: where steps may have been left out, those
 * of the batch's parameters have all taken that record, and nobody else's has. */
static bool steps_are_sure(const yk__optim_group *group, const noted_batch *b)
{
    int64_t of_batch = 0, of_record = 0;
    for (int64_t n = 0; n < b->count; n++) {
        int taken = group->states[b->indices[n]].record;
        of_batch += taken == b->record + 1;
        if (taken && taken != b->record + 1 && group->device_steps[taken - 1].unsure)
            return false;
    }
    for (int64_t i = 0; i < group->count; i++)
        of_record += group->states[i].record == b->record + 1;
    return !group->device_steps[b->record].unsure || (of_batch == b->count && of_record == b->count);
}

static yk_status before(void *object, void *of, const char **stale)
{
    const yk_optimizer *o = object;
    const notes *all = of;
    bool sure = true;
    for (int i = 0; i < all->count; i++)
        sure &= steps_are_sure(&o->groups[all->batches[i].group], &all->batches[i]);
    yk_status settled = sure ? YK_OK : yk__optimizer_settle(o);
    if (settled)
        return settled;
    if (trained(o) != all->trained)
        *stale = "parameters of an optimizer were frozen, or are trained again";
    for (int i = 0; i < all->count; i++) {
        const noted_batch *b = &all->batches[i];
        yk__optim_group *group = &o->groups[b->group];
        int64_t step = group->states[b->indices[0]].step + 1;
        if (given(o, group, b->indices, b->count) != b->given)
            *stale = "a constant, a parameter or the state of an optimizer was replaced";
        for (int64_t n = 1; n < b->count; n++) {
            if (group->states[b->indices[n]].step + 1 != step)
                *stale = "parameters that an optimizer changed together have different steps behind them";
        }
        yk_status status =
            *stale ? YK_OK : yk__optimizer_set_device_step(&group->device_steps[b->record], group->lr, step);
        for (int64_t n = 0; n < b->count && !*stale && !status; n++)
            status = yk__master_follow(group, b->indices[n]);
        if (status)
            return status;
    }
    return YK_OK;
}

static void after(void *object, void *of)
{
    const yk_optimizer *o = object;
    const notes *all = of;
    for (int i = 0; i < all->count; i++) {
        const noted_batch *b = &all->batches[i];
        yk__optim_group *group = &o->groups[b->group];
        group->device_steps[b->record].step++;
        group->device_steps[b->record].unsure |= b->skips;
        yk__optimizer_take_record(group, b->record, b->indices, b->count);
        for (int64_t n = 0; n < b->count; n++) {
            group->states[b->indices[n]].step++;
            yk__bump_version(yk__parameters_at(group->params, b->indices[n]));
            yk__master_same(&group->states[b->indices[n]], yk__parameters_at(group->params, b->indices[n]));
        }
    }
    for (int i = 0; i < all->steps; i++)
        yk__progress_step();
    yk__progress_mark();
}

yk_status yk__optimizer_graph_begin(yk_optimizer *o)
{
    yk_graph *g = yk__graph_current();
    if (!g || yk__graph_notes(g, o))
        return YK_OK;
    yk__optimizer_keep_steps_on_device(o);
    yk__graph_member member = {.object = yk_object_retain(o),
                               .notes = yk__calloc(1, sizeof(notes)),
                               .before = before,
                               .after = after,
                               .begin = begin,
                               .release = release};
    if (member.notes) {
        begin(o, member.notes);
        return yk__graph_add(g, &member);
    }
    release(o, NULL);
    return YK_ERR_MEMORY;
}

void yk__optimizer_graph_end(const yk_optimizer *o, uint64_t now)
{
    const yk_graph *g = yk__graph_current();
    notes *all = g ? yk__graph_notes(g, o) : NULL;
    if (all)
        all->steps++;
    if (!yk__graph_recording()) /* the replay, which computes it, counts it */
        yk__progress_step_at(now);
}

yk_status yk__optimizer_graph_note(const yk_optimizer *o, const yk__optim_group *group, int record, bool skips)
{
    const yk_graph *g = yk__graph_current();
    notes *all = g ? yk__graph_notes(g, o) : NULL;
    if (!all)
        return YK_OK;
    if (all->count == all->room) {
        int room = all->room ? 2 * all->room : 4;
        noted_batch *grown = yk__realloc(all->batches, (size_t)room * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        all->batches = grown;
        all->room = room;
    }
    const yk__optim_batch *batch = &o->batch;
    int64_t *indices = yk__calloc((size_t)batch->count, sizeof(*indices));
    if (!indices)
        return YK_ERR_MEMORY;
    memcpy(indices, batch->indices, (size_t)batch->count * sizeof(*indices));
    all->batches[all->count++] = (noted_batch){.group = (int)(group - o->groups),
                                               .record = record,
                                               .count = batch->count,
                                               .indices = indices,
                                               .skips = skips,
                                               .given = given(o, group, indices, batch->count)};
    return YK_OK;
}
