/*
 * grad_scaler.c - a factor on the loss that keeps small gradients above what a narrow type rounds to zero, found by
 * trying. Layer: optim.
 *
 * The factor is a float32, as PyTorch's, so that both go through the same values. It lies in the memory of the device
 * whose loss or gradient came first, in a yk__scale_state: the product with the loss, the division of the gradients and
 * the update are operations of that device, which read it when they are carried out. Each optimizer has a copy on every
 * device of its gradients, which notes whether one of them was not finite. On a CPU a step reads that note; on a device
 * that carries work out later the optimizer's kernels do, and so does the update, unless somebody wants to know (the
 * caller, other ranks) or the gradients are on several devices.
 *
 * Invariant: `state` is what the device's memory holds once everything queued is done, so that questions and
 * checkpoints wait for no device; but where an update was left to the device (`unread`), scale and growth_tracker are
 * read when a caller asks for them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/invariant.h"
#include "device/graph.h"
#include "device/optimizer_math.h"
#include "nn/state_dict.h"
#include "optim/optimizer.h"

/* The progress of an optimizer since the last update. */
typedef enum stage { READY, UNSCALED, STEPPED } stage;

typedef struct entry {
    yk_optimizer *optimizer;
    stage stage;
    bool has_grads, by_rows; /* by_rows: one of them is */
    bool found_known, found; /* one of them was not finite */
    yk_tensor **copies;      /* of the scale's record, one for each device of the gradients */
    int n_copies;
} entry;

enum { RECORD_WORDS = sizeof(yk__scale_state) / sizeof(int32_t) };
_Static_assert(sizeof(yk__scale_state) % sizeof(int32_t) == 0 && offsetof(yk__scale_state, scale) == 0,
               "a record is a tensor of int32, and the scale its first element");

/* The scale in a device's memory; both tensors are NULL before its first use. */
typedef struct device_scale {
    yk_tensor *record; /* a yk__scale_state: RECORD_WORDS of int32 */
    yk_tensor *scale;  /* its first element: a float32 without dimensions on the same memory */
    bool unread;       /* updates were left to the device: the host has the scale before them */
} device_scale;

struct yk_grad_scaler {
    yk__object object;
    yk_grad_scaler_state state;
    bool disabled;
    entry *entries;
    int count;
    device_scale *on_device;
    yk__found_agreement others;
};

static void forget(yk_grad_scaler *s)
{
    for (int i = 0; i < s->count; i++) {
        entry *e = &s->entries[i];
        for (int c = 0; c < e->n_copies; c++)
            yk_tensor_release(e->copies[c]);
        free(e->copies);
        yk_object_release(e->optimizer);
    }
    s->count = 0;
}

void yk__grad_scaler_set_agreement(yk_grad_scaler *s, yk__found_agreement others)
{
    if (s->others.release)
        s->others.release(s->others.user);
    s->others = others;
}

static void scaler_destroy(void *object)
{
    yk_grad_scaler *s = object;
    forget(s);
    free(s->entries);
    if (s->on_device) {
        yk_tensor_release(s->on_device->record);
        yk_tensor_release(s->on_device->scale);
    }
    free(s->on_device);
    yk__grad_scaler_set_agreement(s, (yk__found_agreement){0});
    yk__object_free(s);
}

static const yk__type scaler_type = {"grad_scaler", scaler_destroy};

yk_status yk__grad_scaler_check(const char *what, const yk_grad_scaler_state *state)
{
    if (!((float)state->scale > 0) || !isfinite((float)state->scale))
        return yk__fail(YK_ERR_ARGUMENT, "%s: the scale is %g, expected a positive float32", what, state->scale);
    if (!(state->growth_factor > 1) || !isfinite(state->growth_factor))
        return yk__fail(YK_ERR_ARGUMENT, "%s: growth_factor is %g, expected more than 1", what, state->growth_factor);
    if (!(state->backoff_factor > 0 && state->backoff_factor < 1))
        return yk__fail(YK_ERR_ARGUMENT, "%s: backoff_factor is %g, expected a number between 0 and 1", what,
                        state->backoff_factor);
    if (state->growth_interval < 1 || state->growth_tracker < 0 || state->growth_tracker > INT32_MAX)
        return yk__fail(YK_ERR_ARGUMENT, "%s: growth_interval is %lld and growth_tracker %lld", what,
                        (long long)state->growth_interval, (long long)state->growth_tracker);
    return YK_OK;
}

yk_grad_scaler *yk_grad_scaler_create(const yk_grad_scaler_options *options)
{
    yk_grad_scaler_options o;
    if (YK__OPTIONS_TAKE("grad_scaler_create", yk_grad_scaler_options, options, &o))
        return NULL;
    yk_grad_scaler_state state = {.scale = o.init_scale,
                                  .growth_factor = o.growth_factor,
                                  .backoff_factor = o.backoff_factor,
                                  .growth_interval = o.growth_interval};
    if (!((float)state.scale > 0) || !isfinite((float)state.scale)) {
        yk__fail(YK_ERR_ARGUMENT, "grad_scaler_create: init_scale is %g, expected a positive float32", state.scale);
        return NULL;
    }
    if (yk__grad_scaler_check("grad_scaler_create", &state) || !yk__scope_check("grad_scaler_create"))
        return NULL;
    yk_grad_scaler *s = yk__object_new(&scaler_type, sizeof(*s));
    if (!s)
        return NULL;
    state.scale = (float)state.scale;
    s->state = state;
    s->disabled = !o.enabled;
    s->on_device = yk__calloc(1, sizeof(*s->on_device));
    if (!s->on_device) {
        yk_object_release(s);
        return NULL;
    }
    return yk__scope_own(s);
}

/* ---- the record in the device's memory --------------------------------------------------------------------------- */

static yk_status set_field(yk_tensor *record, size_t offset, yk_dtype dtype, double value)
{
    yk__view v = {.data = (char *)record->data + offset, .dtype = dtype};
    return YK__SLOT(record, fill, &v, value);
}

static yk_status set_record(yk_tensor *record, const yk_grad_scaler_state *state)
{
    yk__bump_version(record);
    yk_status status = set_field(record, offsetof(yk__scale_state, scale), YK_F32, state->scale);
    if (!status)
        status = set_field(record, offsetof(yk__scale_state, inverse), YK_F32, 1 / state->scale);
    if (!status)
        status = set_field(record, offsetof(yk__scale_state, growth_tracker), YK_I32, (double)state->growth_tracker);
    return status ? status : set_field(record, offsetof(yk__scale_state, found), YK_I32, 0);
}

static yk_tensor *record_new(yk_device device)
{
    yk_tensor *record = yk__tensor_new(1, (int64_t[]){RECORD_WORDS}, NULL, YK_I32, device);
    if (record)
        record->inference = false; /* a loss that is made after inference mode has ended may save it */
    return record;
}

/* The scaler's record, made on `device` if there is none yet. */
static yk_status settle_on_device(const yk_grad_scaler *s, yk_device device)
{
    device_scale *d = s->on_device;
    if (d->record)
        return YK_OK;
    yk_tensor *record = record_new(device);
    yk_status status = record ? set_record(record, &s->state) : yk__error_code();
    yk_tensor *scale = status ? NULL : yk__tensor_over(yk__storage_retain(record->storage), 0, NULL, YK_F32);
    if (!scale) {
        yk_tensor_release(record);
        return status ? status : yk__error_code();
    }
    scale->inference = false;
    d->record = record;
    d->scale = scale;
    return YK_OK;
}

#ifdef YK__SANITIZED
/* The fault of the record in the device's memory, NULL for none. */
static const char *check_record(const yk_grad_scaler *s)
{
    const yk_tensor *record = s->on_device->record;
    if (!record || s->on_device->unread || !yk__backend_for(record)->host_memory)
        return NULL;
    const yk__scale_state *there = record->data;
    if (there->scale != (float)s->state.scale || there->inverse != (float)(1 / (double)there->scale))
        return "the scale on the device is not the one that stands in the state, or its inverse is another number's";
    return there->growth_tracker == s->state.growth_tracker && !there->found
               ? NULL
               : "the growth tracker on the device is not the one that stands in the state";
}
#endif

/* Reads into *state the state that the device has once everything queued is done; waits for it where updates were left
 * to it. */
static yk_status read_state(const yk_grad_scaler *s, yk_grad_scaler_state *state)
{
    yk__scale_state there;
    *state = s->state;
    if (!s->on_device->unread)
        return YK_OK;
    yk__operation_name = "grad_scaler";
    yk_status status = YK__SLOT(s->on_device->record, download, &there, s->on_device->record->data, sizeof(there));
    if (!status) {
        state->scale = there.scale;
        state->growth_tracker = there.growth_tracker;
    }
    return status;
}

/* ---- inside a function that is recorded and replayed ------------------------------------------------------------- */

/* The numbers that the recorded update was given. */
typedef struct graph_notes {
    yk__scaling given;
    bool recording; /* a recording began on gradients, and may have ended before the update */
} graph_notes;

static yk__scaling scaling_of(const yk_grad_scaler *s)
{
    yk__scaling p;
    memset(&p, 0, sizeof(p)); /* it is compared by its bytes */
    p.growth_factor = s->state.growth_factor;
    p.backoff_factor = s->state.backoff_factor;
    p.growth_interval = s->state.growth_interval;
    return p;
}

static yk_status graph_before(void *object, void *of, const char **stale)
{
    const graph_notes *notes = of;
    yk__scaling now = scaling_of(object);
    if (memcmp(&now, &notes->given, sizeof(now)) != 0)
        *stale = "a constant of a gradient scaler was changed";
    return YK_OK;
}

static void graph_after(void *object, void *of)
{
    const yk_grad_scaler *s = object;
    (void)of;
    s->on_device->unread = true;
}

static void graph_begin(void *object, void *of)
{
    graph_notes *notes = of;
    if (notes->recording) /* it failed, and nothing of it was carried out */
        forget(object);
    notes->recording = false;
}

static void graph_release(void *object, void *of)
{
    free(of);
    yk_object_release(object);
}

/* Takes part in the graph whose function looks at gradients on this device. */
static yk_status graph_join(yk_grad_scaler *s, yk_device device)
{
    yk_graph *g = yk__graph_current();
    graph_notes *notes = g ? yk__graph_notes(g, s) : NULL;
    if (!g)
        return YK_OK;
    if (!notes) {
        notes = yk__calloc(1, sizeof(*notes));
        if (!notes)
            return YK_ERR_MEMORY;
        yk_status status = yk__graph_add(g, &(yk__graph_member){.object = yk_object_retain(s),
                                                                .notes = notes,
                                                                .before = graph_before,
                                                                .after = graph_after,
                                                                .begin = graph_begin,
                                                                .release = graph_release});
        if (status)
            return status;
    }
    notes->given = scaling_of(s);
    notes->recording = yk__graph_records(device);
    return YK_OK;
}

/* ---- scaling ----------------------------------------------------------------------------------------------------- */

yk_tensor *yk_grad_scaler_scale(const yk_grad_scaler *s, yk_tensor *loss)
{
    YK__LIVE(s);
    YK__LIVE(loss);
    if (!s) {
        yk__fail(YK_ERR_ARGUMENT, "grad_scaler_scale: the scaler is NULL");
        return NULL;
    }
    if (!yk__is_there("grad_scaler_scale", "loss", loss) || s->disabled)
        return loss;
    if (yk__is_half(yk_tensor_dtype(loss))) /* 65536 is beyond float16 */
        loss = yk_cast(loss, YK_F32);
    if (!loss || settle_on_device(s, yk__device_of(loss)))
        return NULL;
    yk_tensor *scale = yk__raw_to(s->on_device->scale, yk__device_of(loss));
    yk_tensor *scaled = scale ? yk_mul(loss, scale) : NULL;
    yk_tensor_release(scale);
    return scaled;
}

static yk_status entry_of(const char *what, yk_grad_scaler *s, yk_optimizer *o, entry **found)
{
    if (!s || !o)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "%s: the %s is NULL", what, s ? "optimizer" : "scaler");
    for (int i = 0; i < s->count; i++) {
        if (s->entries[i].optimizer == o) {
            *found = &s->entries[i];
            return YK_OK;
        }
    }
    entry *grown = yk__realloc(s->entries, (size_t)(s->count + 1) * sizeof(*grown));
    if (!grown)
        return YK_ERR_MEMORY;
    s->entries = grown;
    *found = &grown[s->count++];
    **found = (entry){.optimizer = yk_object_retain(o)};
    return YK_OK;
}

/* The optimizer's copy of the scaler's record on a device. */
static yk_status copy_of_record(const yk_grad_scaler *s, entry *e, yk_device device, yk_tensor **copy)
{
    for (int c = 0; c < e->n_copies; c++) {
        if (yk_device_equal(yk__device_of(e->copies[c]), device)) {
            *copy = e->copies[c];
            return YK_OK;
        }
    }
    yk_status status = settle_on_device(s, device);
    if (status)
        return status;
    yk_tensor **grown = yk__realloc(e->copies, (size_t)(e->n_copies + 1) * sizeof(yk_tensor *));
    if (!grown)
        return YK_ERR_MEMORY;
    e->copies = grown;
    *copy = record_new(device);
    status = *copy ? yk__raw_copy(*copy, s->on_device->record) : yk__error_code();
    if (status) {
        yk_tensor_release(*copy);
        return status;
    }
    grown[e->n_copies++] = *copy;
    return YK_OK;
}

/* Divides the gradients of one device by the scale. What the slot lacks (f16, bf16) goes there and back as f32. */
static yk_status unscale_on(yk_tensor *const *grads, int64_t count, yk_tensor *record)
{
    yk__view *views = yk__calloc((size_t)count, sizeof(*views));
    yk_tensor **wide = yk__calloc((size_t)count, sizeof(yk_tensor *));
    yk_status status = views && wide ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        wide[i] = yk__raw_cast(grads[i], yk__slot_dtype(grads[i], YK__SLOT_unscale, (yk_dtype)grads[i]->dtype));
        if (wide[i])
            views[i] = yk__view_of(wide[i]);
        else
            status = yk__error_code();
    }
    if (!status)
        status = YK__SLOT(record, unscale, count, views, record->data);
    for (int64_t i = 0; wide && i < count; i++) {
        if (!status) {
            yk__bump_version(grads[i]);
            if (wide[i] != grads[i])
                status = yk__raw_copy(grads[i], wide[i]);
        }
        yk_tensor_release(wide[i]);
    }
    free(wide);
    free(views);
    return status;
}

static yk_status unscale_group(const yk_grad_scaler *s, entry *e, const yk_parameters *params)
{
    int64_t total = yk__parameters_count(params), left = 0;
    yk_tensor **grads = yk__calloc((size_t)total, 2 * sizeof(yk_tensor *)), **here = grads + total;
    if (!grads)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < total; i++) {
        yk_tensor *x = yk__parameters_at(params, i), *grad = yk__grad_elements(x);
        if (grad)
            grads[left++] = grad;
        if (yk__has_rows(x))
            e->by_rows = true;
        if (grad || !yk__has_rows(x))
            continue;
        free(grads);
        return yk__error_code();
    }
    e->has_grads |= left > 0;
    yk_status status = YK_OK;
    while (left && !status) {
        yk_device device = yk__device_of(grads[0]);
        int64_t count = 0, others = 0;
        for (int64_t i = 0; i < left; i++) {
            if (yk_device_equal(yk__device_of(grads[i]), device))
                here[count++] = grads[i];
            else
                grads[others++] = grads[i];
        }
        left = others;
        yk_tensor *record;
        status = copy_of_record(s, e, device, &record);
        if (!status)
            status = unscale_on(here, count, record);
    }
    free(grads);
    return status;
}

static yk_status unscale(yk_grad_scaler *s, entry *e)
{
    const yk_optimizer *o = e->optimizer;
    yk_status status = s->on_device->record ? graph_join(s, yk__device_of(s->on_device->record)) : YK_OK;
    for (int g = 0; g < o->n_groups && !status; g++)
        status = unscale_group(s, e, o->groups[g].params);
    if (!status && e->has_grads) /* without any it can be asked for again, when there are some */
        e->stage = UNSCALED;
    return status;
}

/* True if the finding of values that are not finite can stay on the device: all gradients are on one device, that of
 * the scale, whose work is carried out later. */
static bool stays_on_device(const yk_grad_scaler *s, const entry *e)
{
    return e->n_copies == 1 && !e->by_rows && !yk__backend_for(e->copies[0])->host_memory &&
           yk_device_equal(yk__device_of(e->copies[0]), yk__device_of(s->on_device->record));
}

/* Sets e->found if a gradient that was divided was not finite: waits for the devices, once. */
static yk_status read_found(entry *e)
{
    for (int c = 0; c < e->n_copies && !e->found_known; c++) {
        yk__scale_state there;
        yk__operation_name = "grad_scaler_step";
        yk_status status = YK__SLOT(e->copies[c], download, &there, e->copies[c]->data, sizeof(there));
        if (status)
            return status;
        e->found |= there.found != 0;
    }
    e->found_known = true;
    return YK_OK;
}

yk_status yk_grad_scaler_unscale(yk_grad_scaler *s, yk_optimizer *o)
{
    YK__LIVE(s);
    YK__LIVE(o);
    if (s && s->disabled)
        return YK_OK;
    entry *e;
    yk_status status = entry_of("grad_scaler_unscale", s, o, &e);
    if (status)
        return status;
    if (e->stage != READY)
        return yk__fail(YK_ERR_STATE, "grad_scaler_unscale: this optimizer's %s since the last update",
                        e->stage == STEPPED ? "step was taken" : "gradients were unscaled");
    return unscale(s, e);
}

yk_status yk_grad_scaler_step(yk_grad_scaler *s, yk_optimizer *o, bool *skipped)
{
    YK__LIVE(s);
    YK__LIVE(o);
    YK__OWN_RECORD; /* agree sends the others what failed in this call */
    if (skipped)
        *skipped = false;
    if (s && s->disabled)
        return yk_optimizer_step(o);
    entry *e;
    yk_status status = entry_of("grad_scaler_step", s, o, &e);
    if (!status && e->stage == STEPPED)
        status = yk__fail(YK_ERR_STATE, "grad_scaler_step: this optimizer's step was taken since the last update");
    if (!status && e->stage == READY)
        status = unscale(s, e);
    if (!status && !e->has_grads)
        status = yk__fail(YK_ERR_STATE, "grad_scaler_step: no parameter of the optimizer has a gradient");
    if (!status && !skipped && !s->others.agree && !e->found_known && stays_on_device(s, e)) {
        const yk_tensor *copy = e->copies[0];
        status = yk__optimizer_step_skipping(o, yk__device_of(copy), &((const yk__scale_state *)copy->data)->found);
        if (!status)
            e->stage = STEPPED;
        return status;
    }
    if (!status)
        status = read_found(e);
    bool found = !status && e->found;
    if (s && s->others.agree)
        status = s->others.agree(s->others.user, &found);
    if (status)
        return status;
    e->found = found;
    if (!found)
        status = yk_optimizer_step(o);
    if (status)
        return status;
    if (skipped)
        *skipped = e->found;
    e->stage = STEPPED;
    return YK_OK;
}

/* Collects in the record whether one of the optimizers' copies found a value that is not finite; the host learns of it
 * when it asks. */
static yk_status update_on_device(yk_grad_scaler *s)
{
    yk_tensor *record = s->on_device->record;
    const yk__scaling p = scaling_of(s);
    yk__view all = {.data = (char *)record->data + offsetof(yk__scale_state, found), .dtype = YK_I32};
    yk_status status = graph_join(s, yk__device_of(record));
    for (int i = 0; i < s->count && !status; i++) {
        yk__view one = {.data = (char *)s->entries[i].copies[0]->data + offsetof(yk__scale_state, found),
                        .dtype = YK_I32};
        status = YK__SLOT(record, binary, YK__MAXIMUM, &all, &all, &one, 0);
    }
    yk__bump_version(record);
    if (!status)
        status = YK__SLOT(record, scale_update, &p, record->data);
    if (status)
        return status;
    s->on_device->unread = true;
    graph_notes *notes = yk__graph_current() ? yk__graph_notes(yk__graph_current(), s) : NULL;
    if (notes)
        notes->recording = false;
    forget(s);
    return YK_OK;
}

static yk_status update_from_host(yk_grad_scaler *s)
{
    bool found = false;
    yk_status status = read_state(s, &s->state);
    for (int i = 0; i < s->count && !status; i++) {
        status = read_found(&s->entries[i]);
        found |= s->entries[i].found;
    }
    const yk__scaling p = scaling_of(s);
    yk_tensor *record = s->on_device->record;
    if (!status) {
        s->on_device->unread = false;
        yk__bump_version(record);
        status = found ? set_field(record, offsetof(yk__scale_state, found), YK_I32, 1) : YK_OK;
    }
    if (!status)
        status = YK__SLOT(record, scale_update, &p, record->data);
    if (status)
        return status;
    yk__scale_state next = {.scale = (float)s->state.scale, .growth_tracker = (int32_t)s->state.growth_tracker};
    next.found = found;
    yk__scale_next(&p, &next);
    s->state.scale = next.scale;
    s->state.growth_tracker = next.growth_tracker;
    forget(s);
    YK__ASSERT_SOUND(check_record(s));
    return YK_OK;
}

yk_status yk_grad_scaler_update(yk_grad_scaler *s)
{
    YK__LIVE(s);
    if (!s)
        return yk__fail(YK_ERR_ARGUMENT, "grad_scaler_update: the scaler is NULL");
    if (s->disabled)
        return YK_OK;
    bool has_grads = false, on_device = true;
    for (int i = 0; i < s->count; i++) {
        has_grads |= s->entries[i].has_grads;
        on_device &= !s->entries[i].found_known && stays_on_device(s, &s->entries[i]);
    }
    if (!has_grads)
        return yk__fail(YK_ERR_STATE, "grad_scaler_update: no gradients were looked at since the last update");
    return on_device ? update_on_device(s) : update_from_host(s);
}

yk_grad_scaler_state yk_grad_scaler_get_state(const yk_grad_scaler *s)
{
    YK__LIVE(s);
    YK__QUESTION;
    yk_grad_scaler_state state = {0};
    yk_status lost = s ? read_state(s, &state) : YK_OK; /* the scale as the host had it last */
    (void)lost;
    return state;
}

yk_status yk_grad_scaler_set_state(yk_grad_scaler *s, const yk_grad_scaler_state *state)
{
    YK__LIVE(s);
    if (!s || !state)
        return yk__fail(YK_ERR_ARGUMENT, "grad_scaler_set_state: the %s is NULL", s ? "state" : "scaler");
    yk_status status = yk__grad_scaler_check("grad_scaler_set_state", state);
    if (status)
        return status;
    s->state = *state;
    s->state.scale = (float)state->scale;
    s->on_device->unread = false;
    return s->on_device->record ? set_record(s->on_device->record, &s->state) : YK_OK;
}

bool yk_grad_scaler_enabled(const yk_grad_scaler *s)
{
    YK__LIVE(s);
    return s && !s->disabled;
}

yk_grad_scaler *yk_grad_scaler_retain(yk_grad_scaler *s)
{
    return yk_object_retain(s);
}

void yk_grad_scaler_release(yk_grad_scaler *s)
{
    yk_object_release(s);
}
