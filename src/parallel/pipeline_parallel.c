/*
 * pipeline_parallel.c - a pipeline of stages on several devices as a module: making it, what it refuses, its forward,
 * and a step of training. Layer: parallel.
 *
 * Of a pipeline over a group a process has its own stages alone: p->own of them from p->first on. What can be wrong is
 * found before anything is sent, and told to all ranks (yk__pipeline_agree).
 *
 * Invariant: as each stage has a thread of its own, no parameter or buffer is in two of them.
 */
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline_parallel.h"
#include "parallel/reducer.h"

/* ---- checks of the stages ---------------------------------------------------------------------------------------- */

/* Entry i of the tensors of a module itself: parameters, then buffers. NULL after the last. */
static yk__entry *tensor_entry(const yk_module *m, int64_t i)
{
    if (i < m->parameters.count)
        return &m->parameters.items[i];
    i -= m->parameters.count;
    return i < m->buffers.count ? &m->buffers.items[i] : NULL;
}

static bool has_tensor(const yk_module *m, const yk_tensor *x)
{
    const yk__entry *entry;
    for (int64_t i = 0; (entry = tensor_entry(m, i)); i++) {
        if (entry->object == x)
            return true;
    }
    for (int64_t i = 0; i < m->children.count; i++) {
        if (has_tensor(m->children.items[i].object, x))
            return true;
    }
    return false;
}

/* Writes the dotted name of x, which is below m. */
static const char *name_in(const yk_module *m, const yk_tensor *x, char *name, size_t size)
{
    size_t used = 0;
    name[0] = '\0';
    while (used < size) {
        const yk__entry *entry;
        for (int64_t i = 0; (entry = tensor_entry(m, i)); i++) {
            if (entry->object != x)
                continue;
            snprintf(name + used, size - used, "%s", entry->name);
            return name;
        }
        int64_t child = 0;
        while (child < m->children.count && !has_tensor(m->children.items[child].object, x))
            child++;
        if (child == m->children.count)
            break;
        used += (size_t)snprintf(name + used, size - used, "%s.", m->children.items[child].name);
        m = m->children.items[child].object;
    }
    return name;
}

static yk_status check_tensor(const yk__pipeline *p, const char *what, int s, const yk_tensor *x, bool train)
{
    char name[200], here[16], there[16];
    if (!yk_device_equal(yk__device_of(x), p->devices[s]))
        return yk__fail(YK_ERR_DEVICE, "%s: stage %d is on %s, but its %s is on %s", what, s,
                        yk_device_format(p->devices[s], here), name_in(p->stages[s], x, name, sizeof(name)),
                        yk_device_format(yk__device_of(x), there));
    if (train && yk__collector_of(x))
        return yk__fail(YK_ERR_STATE,
                        "%s: %s of stage %d belongs to a module of yk_ddp, which reduces gradients once for all "
                        "micro-batches; give that module to %s in place of the pipeline",
                        what, name_in(p->stages[s], x, name, sizeof(name)), s, what);
    return YK_OK;
}

/* A module of stage s, and everything below it. */
static yk_status check_module(const yk__pipeline *p, const char *what, int s, const yk_module *m, bool train)
{
    if (yk_is_ddp(m) || yk__is_sync_batch_norm(m))
        return yk__fail(YK_ERR_STATE,
                        "%s: stage %d has a %s in it, and the stages' collectives would come in another order on each "
                        "rank; put yk_ddp around the pipeline",
                        what, s, yk_is_ddp(m) ? "module of yk_ddp" : "SyncBatchNorm");
    const yk__entry *entry;
    for (int64_t i = 0; (entry = tensor_entry(m, i)); i++) {
        yk_status status = check_tensor(p, what, s, entry->object, train);
        if (status)
            return status;
    }
    for (int64_t i = 0; i < m->children.count; i++) {
        yk_status status = check_module(p, what, s, m->children.items[i].object, train);
        if (status)
            return status;
    }
    return YK_OK;
}

static yk_status check_stages(const yk__pipeline *p, const char *what, bool train)
{
    for (int s = p->first; s < p->first + p->own; s++) {
        yk_status status = check_module(p, what, s, p->stages[s], train);
        if (status)
            return status;
    }
    return YK_OK;
}

/* A tensor of m that `other` has, too. */
static const yk_tensor *shared_tensor(const yk_module *m, const yk_module *other)
{
    const yk__entry *entry;
    for (int64_t i = 0; (entry = tensor_entry(m, i)); i++) {
        if (has_tensor(other, entry->object))
            return entry->object;
    }
    const yk_tensor *found = NULL;
    for (int64_t i = 0; !found && i < m->children.count; i++)
        found = shared_tensor(m->children.items[i].object, other);
    return found;
}

static yk_status check_shared(yk_module *const *stages, int first, int end)
{
    for (int s = first + 1; s < end; s++) {
        for (int before = first; before < s; before++) {
            if (stages[before] == stages[s])
                return yk__fail(YK_ERR_ARGUMENT, "pipeline: stages %d and %d are one module", before, s);
            const yk_tensor *x = shared_tensor(stages[s], stages[before]);
            char name[200], other[200];
            if (x)
                return yk__fail(YK_ERR_ARGUMENT,
                                "pipeline: %s of stage %d and %s of stage %d are one tensor, which cannot be on two "
                                "devices",
                                name_in(stages[before], x, other, sizeof(other)), before,
                                name_in(stages[s], x, name, sizeof(name)), s);
        }
    }
    return YK_OK;
}

/* One size along dim, at least a sample for each micro-batch; `name` and its number are for the error. */
static yk_status check_size(const yk__pipeline *p, const char *what, yk_tensor *x, const char *name, int64_t *samples)
{
    char shape[200];
    int dim = p->dim;
    if (x->ndim == 0)
        return yk__fail(YK_ERR_SHAPE, "%s: %s has no dimensions and cannot be split into micro-batches", what, name);
    if (yk__wrap_dim(what, x, &dim))
        return yk__error_code();
    if (x->shape[dim] < p->chunks)
        return yk__fail(YK_ERR_SHAPE, "%s: %s has shape %s, fewer samples along dimension %d than the %d micro-batches",
                        what, name, yk_shape_format(x, shape, sizeof(shape)), p->dim, p->chunks);
    if (*samples && x->shape[dim] != *samples)
        return yk__fail(YK_ERR_SHAPE, "%s: %s has shape %s, but the batch has %lld samples along dimension %d", what,
                        name, yk_shape_format(x, shape, sizeof(shape)), (long long)*samples, p->dim);
    *samples = x->shape[dim];
    return YK_OK;
}

/* The first rank of a group has the inputs, and the last one the target; others' are not looked at. */
static yk_status check_batch(const yk__pipeline *p, const char *what, yk__pipeline_batch *batch)
{
    if (p->first)
        batch->n_inputs = 0;
    if (p->first + p->own < p->count)
        batch->target = NULL;
    for (int i = 0; i < batch->n_inputs; i++) {
        char name[32];
        snprintf(name, sizeof(name), "input %d", i);
        yk_status status = batch->inputs[i] ? check_size(p, what, batch->inputs[i], name, &batch->samples) : YK_OK;
        if (status)
            return status;
    }
    if (!batch->samples && !p->first)
        return yk__fail(YK_ERR_ARGUMENT, "%s: there is no tensor to split", what);
    return batch->target ? check_size(p, what, batch->target, "the target", &batch->samples) : YK_OK;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static yk_status check_forward(yk__pipeline *p, yk__pipeline_batch *batch)
{
    yk_status status = YK_OK;
    if (p->group && yk_grad_enabled())
        status =
            yk__fail(YK_ERR_STATE,
                     "pipeline: operations are recorded, but yk_backward does not go through the %d processes that "
                     "have the stages: train by yk_pipeline_step, and evaluate between yk_no_grad_begin and end",
                     yk_world_size(p->group));
    if (!status)
        status = check_batch(p, "pipeline", batch);
    if (!status)
        status = check_stages(p, "pipeline", false);
    return p->group ? yk__pipeline_agree(p, "pipeline", batch) : status;
}

static yk_status pipeline_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                  int n_outputs)
{
    yk__pipeline *p = yk__module_data(m);
    yk__pipeline_batch batch = {.inputs = inputs, .n_inputs = n_inputs, .n_outputs = n_outputs};
    yk_status status = check_forward(p, &batch);
    if (status)
        return status;
    bool last = p->first + p->own == p->count;
    size_t results = (size_t)p->chunks * (size_t)n_outputs;
    batch.results = yk__calloc(results, sizeof(*batch.results));
    yk_tensor **parts = yk__calloc((size_t)p->chunks, sizeof(*parts));
    status = batch.results && parts ? yk__pipeline_run(p, &batch) : YK_ERR_MEMORY;
    for (int o = 0; !status && o < n_outputs && last; o++) {
        for (int k = 0; k < p->chunks; k++)
            parts[k] = batch.results[k * n_outputs + o];
        outputs[o] = yk_device_gather(parts, p->chunks, p->dim, p->devices[p->count - 1]);
        status = outputs[o] ? YK_OK : yk__error_code();
    }
    if (p->group)
        status = yk__pipeline_end(p, &batch, outputs, status);
    for (size_t i = 0; batch.results && i < results; i++)
        yk_tensor_release(batch.results[i]);
    free(parts);
    free(batch.results);
    return status;
}

static void pipeline_destroy(yk_module *m)
{
    yk_process_group_release(((yk__pipeline *)yk__module_data(m))->group);
}

static const yk_module_class pipeline_class = {.name = "Pipeline",
                                               .data_size = sizeof(yk__pipeline),
                                               .forward_list = pipeline_forward,
                                               .destroy = pipeline_destroy};

bool yk_is_pipeline(const yk_module *m)
{
    YK__LIVE(m);
    return m && m->cls == &pipeline_class;
}

int yk_pipeline_count(const yk_module *m)
{
    YK__LIVE(m);
    return yk_is_pipeline(m) ? ((const yk__pipeline *)m->data)->count : 0;
}

yk__pipeline *yk__pipeline_of(const char *what, yk_module *m)
{
    if (!yk__is_there(what, "module", m))
        return NULL;
    if (yk_is_ddp(m) && yk_is_pipeline(yk_ddp_module(m)))
        m = yk_ddp_module(m);
    if (yk_is_pipeline(m))
        return yk_module_data(m);
    yk__fail(YK_ERR_ARGUMENT, "%s: the module is a %s, not one of yk_pipeline", what, m->cls->name);
    return NULL;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static yk_status check_options(const yk_pipeline_options *o, int count)
{
    if (count < 1 || count > YK__MOST_STAGES)
        return yk__fail(YK_ERR_ARGUMENT, "pipeline: %d stages; 1 to %d are possible", count, YK__MOST_STAGES);
    yk_status status =
        o->chunks == YK_NOT_GIVEN ? YK_OK : yk__check_integer("pipeline", "chunks", o->chunks, 1, 1 << 20);
    if (!status && o->schedule != YK_PIPELINE_1F1B && o->schedule != YK_PIPELINE_GPIPE)
        status = yk__fail(YK_ERR_ARGUMENT, "pipeline: %d is no schedule", (int)o->schedule);
    if (!status && o->reduction != YK_REDUCE_MEAN && o->reduction != YK_REDUCE_SUM)
        status =
            yk__fail(YK_ERR_ARGUMENT, "pipeline: the reduction, %d, is neither a mean nor a sum", (int)o->reduction);
    if (!status && (o->dim < -YK_MAX_DIMS || o->dim >= YK_MAX_DIMS))
        status = yk__fail(YK_ERR_ARGUMENT, "pipeline: no tensor has a dimension %d", o->dim);
    for (int s = 0; !status && o->tensors && s < count - 1; s++) {
        if (o->tensors[s] < 1 || o->tensors[s] > 1024)
            status = yk__fail(YK_ERR_ARGUMENT, "pipeline: stage %d hands on %d tensors; 1 to 1024 are possible", s,
                              o->tensors[s]);
    }
    return status;
}

/* Puts the stages on their devices, or finds out where they are. */
static yk_status assign_devices(yk__pipeline *p, yk_module *const *stages, const yk_pipeline_options *o)
{
    for (int s = p->first; s < p->first + p->own; s++) {
        p->stages[s] = stages[s];
        if (o->devices)
            p->devices[s] = o->devices[s];
        else if (!yk__module_device(stages[s], &p->devices[s]))
            return yk__fail(YK_ERR_ARGUMENT,
                            "pipeline: stage %d has neither parameters nor buffers that would tell its device; name "
                            "the devices",
                            s);
    }
    yk_status status = yk__devices_check("pipeline", p->devices + p->first, p->own);
    for (int s = p->first; !status && o->devices && s < p->first + p->own; s++)
        status = yk_module_to(stages[s], p->devices[s]) ? YK_OK : yk__error_code();
    return status ? status : check_stages(p, "pipeline", false);
}

static yk_status add_stages(yk_module *m, const yk__pipeline *p)
{
    yk_status status = YK_OK;
    m->training = false;
    for (int s = p->first; !status && s < p->first + p->own; s++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", s);
        m->training = m->training || yk_module_is_training(p->stages[s]);
        status = yk_module_add(m, name, p->stages[s]) ? YK_OK : yk__error_code();
    }
    return status;
}

static yk_status check_own_stages(const yk__pipeline *p, yk_module *const *stages, yk_process_group *group)
{
    if (!stages)
        return yk__fail(YK_ERR_ARGUMENT, "pipeline: stages is NULL");
    for (int s = p->first; s < p->first + p->own; s++) {
        if (yk__is_freed(stages[s]))
            return yk__fail_freed("pipeline", stages[s]);
        if (!stages[s] && group && !yk__error_code())
            return yk__fail(YK_ERR_ARGUMENT,
                            "pipeline: stage %d of %d is that of rank %d of the %d of group '%s', and NULL", s,
                            p->count, yk_rank(group), yk_world_size(group), yk_process_group_name(group));
        if (!yk__module_usable("pipeline", stages[s]))
            return yk__error_code();
    }
    return check_shared(stages, p->first, p->first + p->own);
}

/* Everything but the group, which has to know how it went. */
static yk_status pipeline_fill(yk_module *m, yk_module *const *stages, int count, const yk_pipeline_options *o,
                               yk_process_group *group)
{
    yk__pipeline *p = yk__module_data(m);
    yk_status status = check_options(o, count);
    if (!status && group && count < yk_world_size(group))
        status =
            yk__fail(YK_ERR_ARGUMENT, "pipeline: %d stage%s for the %d ranks of group '%s': each rank has one at least",
                     count, count == 1 ? "" : "s", yk_world_size(group), yk_process_group_name(group));
    if (status)
        return status;
    p->count = count;
    p->own = yk_pipeline_local(count, group, &p->first);
    p->chunks = (int)yk__integer_or(o->chunks, count);
    p->dim = o->dim;
    p->schedule = o->schedule;
    p->criterion = o->criterion;
    p->criterion_user = o->criterion_user;
    p->reduction = o->reduction;
    for (int s = 0; s < count; s++)
        p->tensors[s] = o->tensors && s < count - 1 ? o->tensors[s] : 1;
    status = check_own_stages(p, stages, group);
    if (!status)
        status = assign_devices(p, stages, o);
    return status ? status : add_stages(m, p);
}

/* An error that was on record before is none of this rank's here, and stays the first one. */
static yk_status join_group(yk_module *m, yk_process_group *group, yk_status status)
{
    yk_error before = {0}, own;
    if (!status)
        yk__error_take(&before);
    status = yk__pipeline_join(yk__module_data(m), group, status);
    yk__error_take(&own);
    yk__error_put(&before);
    yk__error_put(&own);
    return status;
}

yk_module *yk_pipeline(yk_module *const *stages, int count, const yk_pipeline_options *options)
{
    yk_pipeline_options o;
    if (YK__OPTIONS_TAKE("pipeline", yk_pipeline_options, options, &o))
        return NULL;
    if (yk__is_freed(o.group)) {
        yk__fail_freed("pipeline", o.group);
        return NULL;
    }
    yk_process_group *group = o.group && yk_world_size(o.group) > 1 ? o.group : NULL;
    if (o.group && yk_rank(o.group) < 0) {
        yk__fail(YK_ERR_STATE, "pipeline: this rank is not in the group '%s'", yk_process_group_name(o.group));
        return NULL;
    }
    yk_module *m = yk_module_create(&pipeline_class);
    if (!m)
        return NULL;
    yk_status status = pipeline_fill(m, stages, count, &o, group);
    if (group)
        status = join_group(m, group, status);
    return status ? NULL : m;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static yk_status check_step(const yk__pipeline *p, yk__pipeline_batch *batch, bool in_ddp)
{
    bool last = p->first + p->own == p->count;
    if (!p->criterion && last)
        return yk__fail(YK_ERR_ARGUMENT, "pipeline_step: the pipeline was made without a criterion");
    if (!yk_grad_enabled())
        return yk__fail(YK_ERR_STATE, "pipeline_step: nothing is recorded here; use yk_forward");
    if (!yk__scope_check("pipeline_step"))
        return yk__error_code();
    yk_status status = check_batch(p, "pipeline_step", batch);
    return status ? status : check_stages(p, "pipeline_step", !in_ddp);
}

/* The losses of the micro-batches, together; owned by the scope. */
static yk_tensor *join_losses(const yk__pipeline *p, const yk__pipeline_batch *batch)
{
    bool recording = yk_no_grad_begin();
    yk_tensor *sum = NULL;
    for (int k = 0; k < p->chunks; k++) {
        yk_tensor *part = yk_mul_scalar(batch->results[k], yk__micro_batch_weight(p, batch->samples, k));
        sum = k ? yk_add(sum, part) : part;
    }
    yk_no_grad_end(recording);
    return sum;
}

static void count_step(yk__pipeline *p, const yk__pipeline_batch *batch, double seconds)
{
    p->steps++;
    p->seconds += seconds;
    for (int s = p->first; s < p->first + p->own; s++) {
        const yk__stage_clock *step = &batch->clocks[s];
        yk__stage_clock *clock = &p->clocks[s];
        clock->forward += step->forward;
        clock->backward += step->backward;
        clock->in_flight = step->in_flight > clock->in_flight ? step->in_flight : clock->in_flight;
    }
}

/* True where a tensor was freed, or could not be made: the record says why. */
static bool is_lost(yk_tensor *const *inputs, int n_inputs, yk_tensor *target)
{
    for (int i = -1; i < n_inputs && (inputs || i < 0); i++) {
        yk_tensor *x = i < 0 ? target : inputs[i];
        if (yk__is_freed(x))
            yk__fail_freed("pipeline_step", x);
        if (yk__is_freed(x) || (!x && yk__error_is_fresh()))
            return true;
    }
    return false;
}

/* The step of a batch whose ranks agree; the loss, owned by the scope. */
static yk_tensor *run_step(yk__pipeline *p, yk__pipeline_batch *batch)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *loss = NULL;
    double began = yk__now();
    batch->results = yk__calloc((size_t)p->chunks, sizeof(*batch->results));
    yk_status status = batch->results ? yk__pipeline_run(p, batch) : YK_ERR_MEMORY;
    double seconds = yk__now() - began;
    if (!status && p->first + p->own == p->count) {
        loss = join_losses(p, batch);
        status = loss ? YK_OK : yk__error_code();
    }
    if (p->group)
        status = yk__pipeline_end(p, batch, &loss, status);
    if (!status) {
        count_step(p, batch, seconds);
        loss = yk_scope_return(scope, loss);
    }
    for (int k = 0; batch->results && k < p->chunks; k++)
        yk_tensor_release(batch->results[k]);
    free(batch->results);
    yk_scope_end(scope);
    return status ? NULL : loss;
}

/* The same in a module of yk_ddp, whose reducer averages what all micro-batches gave. */
static yk_tensor *run_reduced(yk__pipeline *p, yk__pipeline_batch *batch, yk__reducer *r, bool training)
{
    if (yk__reducer_hold(r, training)) {
        if (p->group) /* whose other ranks are about to begin */
            yk_process_group_abort(p->group, yk_last_error() ? yk_last_error()->message : "out of memory");
        return NULL;
    }
    yk_tensor *loss = run_step(p, batch);
    yk_status status = yk__reducer_release(r, loss ? YK_OK : yk__error_code());
    return status ? NULL : loss;
}

yk_tensor *yk_pipeline_step_list(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor *target)
{
    YK__LIVE(m);
    yk_error lost = {0};
    if (is_lost(inputs, n_inputs, target))
        lost = *yk_last_error();
    YK__OWN_RECORD;
    yk__pipeline *p = yk__pipeline_of("pipeline_step", m);
    if (!p)
        return NULL;
    yk__reducer *reducer = NULL;
    yk__pipeline_batch batch = {
        .inputs = inputs, .target = target, .n_inputs = n_inputs, .n_outputs = 1, .train = true};
    yk_status status = yk_is_ddp(m) ? yk__reducer_of("pipeline_step", m, &reducer) : YK_OK;
    yk__error_put(&lost);
    if (!status)
        status = lost.code;
    if (!status && !p->first && n_inputs > 0 && !yk__is_there("pipeline_step", "list of inputs", inputs))
        status = YK_ERR_ARGUMENT;
    if (!status)
        status = check_step(p, &batch, reducer != NULL);
    if (p->group)
        status = yk__pipeline_agree(p, "pipeline_step", &batch);
    if (status && reducer && !reducer->no_sync) /* the others wait for this rank's gradients */
        yk__reducer_abort(reducer, "pipeline_step");
    if (status)
        return NULL;
    return reducer ? run_reduced(p, &batch, reducer, yk_module_is_training(m)) : run_step(p, &batch);
}

yk_tensor *yk_pipeline_step(yk_module *m, yk_tensor *input, yk_tensor *target)
{
    YK__LIVE(m);
    YK__LIVE(input);
    YK__LIVE(target);
    const yk__pipeline *p = yk_is_pipeline(m)                                  ? yk_module_data(m)
                            : yk_is_ddp(m) && yk_is_pipeline(yk_ddp_module(m)) ? yk_module_data(yk_ddp_module(m))
                                                                               : NULL;
    if (p && p->group) /* an input that is missing is an error of all ranks */
        return yk_pipeline_step_list(m, &input, 1, target);
    return yk__is_there("pipeline_step", "input", input) ? yk_pipeline_step_list(m, &input, 1, target) : NULL;
}
