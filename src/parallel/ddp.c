/*
 * ddp.c - DistributedDataParallel as a module: making it, its forward, no_sync. Layer: parallel.
 *
 * In a world of one there is no reducer, and the module is its child and nothing more.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "host/rank_info.h"
#include "nn/module.h"
#include "parallel/reducer.h"
#include "parallel/replicas.h"
#include "tensor/host_tensor.h"

typedef struct ddp {
    yk_module *inner; /* the child */
    yk_process_group *group;
    yk__reducer *reducer;            /* NULL in a world of one */
    bool moves;                      /* inputs to `device`, and outputs to `output_device` */
    yk_device device, output_device; /* of device_ids */
} ddp;

static void reducer_free(yk__reducer *r)
{
    if (!r)
        return;
    yk__collector_forget(&r->collector);
    yk__buckets_clear(r);
    yk__join_clear(r);
    for (int i = 0; i < r->n_buffers; i++)
        yk_tensor_release(r->buffers[i]);
    for (int i = 0; i < r->count && r->parameters; i++)
        yk_tensor_release(r->parameters[i].kept);
    yk_tensor_release(r->buffer_flat);
    yk_tensor_release(r->used);
    yk_work_release(r->used_work);
    yk_parameters_release(r->list);
    pthread_mutex_destroy(&r->lock);
    free(r->buffers);
    free(r->parameters);
    free(r->order);
    free(r->seen);
    free(r);
}

static void ddp_destroy(yk_module *m)
{
    ddp *d = yk__module_data(m);
    reducer_free(d->reducer);
    yk_process_group_release(d->group);
}

/* The module's own forward, with tensors moved as device_ids and output_device say. */
static yk_status forward_inner(const ddp *d, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs)
{
    if (!d->moves)
        return yk_forward_list(d->inner, inputs, n_inputs, outputs, n_outputs);
    yk_tensor **here = yk__calloc((size_t)n_inputs + 1, sizeof(*here));
    yk_status status = here ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; !status && i < n_inputs; i++) {
        here[i] = inputs[i] ? yk__on_device(inputs[i], d->device) : NULL;
        status = inputs[i] && !here[i] ? yk__error_code() : YK_OK;
    }
    if (!status)
        status = yk_forward_list(d->inner, here, n_inputs, outputs, n_outputs);
    for (int o = 0; !status && o < n_outputs; o++) {
        outputs[o] = yk__on_device(outputs[o], d->output_device);
        status = outputs[o] ? YK_OK : yk__error_code();
    }
    free(here);
    return status;
}

static yk_status ddp_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs)
{
    ddp *d = yk__module_data(m);
    yk__reducer *r = d->reducer;
    if (!r || !yk_grad_enabled())
        return forward_inner(d, inputs, n_inputs, outputs, n_outputs);
    double began = yk__now(), waited = yk__sync_waited();
    if (!r->clock.born)
        r->clock.born = began;
    yk_status status = yk__reducer_prepare(r, yk_module_is_training(m));
    if (status)
        return status;
    double prepared = yk__now();
    status = forward_inner(d, inputs, n_inputs, outputs, n_outputs);
    if (r->sync && yk_module_is_training(m)) {
        if (status)
            yk__reducer_abort(r, "forward"); /* the others wait for this rank's gradients */
        else
            yk__collector_await(&r->collector);
    }
    waited = yk__sync_waited() - waited;
    r->clock.waited += prepared - began + waited;
    r->clock.forward += yk__now() - prepared - waited;
    return status;
}

static const yk_module_class ddp_class = {
    .name = "DistributedDataParallel", .data_size = sizeof(ddp), .forward_list = ddp_forward, .destroy = ddp_destroy};

static const double mebibyte = 1 << 20, most_mebibytes = 1e6; /* 1 TB: more than a group of parameters has */

static yk_status check_options(const yk_ddp_options *o)
{
    if (yk__check_number("ddp", "bucket_cap_mb", o->bucket_cap_mb, 0, most_mebibytes) ||
        yk__check_number("ddp", "first_bucket_mb", o->first_bucket_mb, 0, most_mebibytes))
        return YK_ERR_ARGUMENT;
    if (o->comm_hook && !o->comm_hook->start)
        return yk__fail(YK_ERR_ARGUMENT, "ddp: the communication hook has no start");
    return YK_OK;
}

/* ---- device_ids and output_device -------------------------------------------------------------------------------- */

typedef struct device_list {
    yk_device devices[16];
    int count;
} device_list;

static yk_status note_devices(yk_module *m, void *user)
{
    device_list *l = user;
    for (int64_t i = 0; i < m->parameters.count; i++) {
        yk_device device = yk__device_of(m->parameters.items[i].object);
        int k = 0;
        while (k < l->count && !yk_device_equal(l->devices[k], device))
            k++;
        if (k == l->count && k < (int)(sizeof(l->devices) / sizeof(l->devices[0])))
            l->devices[l->count++] = device;
    }
    return YK_OK;
}

/* "[cpu:0, cpu:1]" */
static const char *devices_text(const yk_device *devices, int count, char *text, size_t size)
{
    char name[16];
    snprintf(text, size, "[");
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", i ? ", " : "", yk_device_format(devices[i], name));
    }
    size_t used = strlen(text);
    snprintf(text + used, size - used, "]");
    return text;
}

/* Source: the checks of DistributedDataParallel's constructor. */
static yk_status set_devices(ddp *d, const yk_ddp_options *o)
{
    YK__OWN_RECORD;
    char ids[400], on[400], name[16];
    if (!o->devices && o->count)
        return yk__fail(YK_ERR_ARGUMENT, "ddp: %d devices in a list that is NULL", o->count);
    if (o->count < 0)
        return yk__fail(YK_ERR_ARGUMENT, "ddp: %d devices", o->count);
    if (!o->count && !o->output_device)
        return YK_OK;
    device_list parameters = {0};
    yk_status status = yk_module_apply(d->inner, note_devices, &parameters);
    if (status)
        return status;
    if (parameters.count > 1 || !o->count)
        return yk__fail(YK_ERR_ARGUMENT,
                        "ddp: device_ids and output_device only work with a module on one device, which device_ids "
                        "names, but got device_ids %s, output_device %s, and parameters on %s",
                        o->count ? devices_text(o->devices, o->count > 16 ? 16 : o->count, ids, sizeof(ids)) : "None",
                        o->output_device ? yk_device_format(*o->output_device, name) : "None",
                        devices_text(parameters.devices, parameters.count, on, sizeof(on)));
    if (o->count > 1)
        return yk__fail(YK_ERR_ARGUMENT, "ddp: device_ids can only be None or contain a single element, and is %s",
                        devices_text(o->devices, o->count > 16 ? 16 : o->count, ids, sizeof(ids)));
    d->moves = true;
    d->device = o->devices[0];
    d->output_device = o->output_device ? *o->output_device : d->device;
    if (yk__device_check(d->device) || yk__device_check(d->output_device)) {
        yk__error_prefix("ddp");
        return yk__error_code();
    }
    if (parameters.count && !yk_device_equal(parameters.devices[0], d->device))
        return yk__fail(YK_ERR_DEVICE, "ddp: device_ids is %s, but the module's parameters are on %s",
                        devices_text(o->devices, 1, ids, sizeof(ids)), yk_device_format(parameters.devices[0], name));
    return YK_OK;
}

static yk_status list_parameters(yk__reducer *r)
{
    r->list = yk__parameters_new();
    yk_status status =
        r->list ? yk__module_collect(r->module, YK__PARAMETERS, yk__parameters_list(r->list)) : yk__error_code();
    if (status)
        return status;
    int count = (int)yk__parameters_count(r->list);
    size_t room = (size_t)count + 1;
    r->parameters = yk__calloc(room, sizeof(*r->parameters));
    r->order = yk__calloc(room, sizeof(*r->order));
    r->seen = yk__calloc(room, sizeof(*r->seen));
    if (!r->parameters || !r->order || !r->seen)
        return YK_ERR_MEMORY;
    r->count = count;
    for (int i = 0; i < count; i++) {
        r->parameters[i].x = yk__parameters_at(r->list, i);
        r->parameters[i].name = yk__parameters_name(r->list, i);
        r->order[i] = count - 1 - i;
        if (!r->wrapped && yk__collector_of(r->parameters[i].x))
            r->wrapped = r->parameters[i].name;
    }
    return YK_OK;
}

/* Makes the tensor of used parameters, which is kept for collectives. */
static yk_status make_used(yk__reducer *r)
{
    int64_t count = r->count;
    r->used = yk__host_zeros(1, &count, YK_U8);
    return r->used ? YK_OK : yk__error_code();
}

static yk_status reducer_fill(yk__reducer *r, const yk_ddp_options *o)
{
    yk_status status = list_parameters(r);
    if (!status)
        status = yk__model_buffers(r->module, &r->buffers, &r->n_buffers);
    if (!status && r->find_unused)
        status = make_used(r);
    if (!status)
        status = yk__model_compare(r);
    if (!status && r->wrapped) /* on all ranks, as the comparison has found */
        return yk__fail(YK_ERR_STATE,
                        "ddp: parameter %s belongs to another module of yk_ddp already; wrap the whole model once, or "
                        "release the other module before",
                        r->wrapped);
    if (status == YK_ERR_MISMATCH) /* all ranks fail alike, and may go on with another model */
        return status;
    if (!status && o->init_sync)
        status = yk__model_broadcast_all(r, 0);
    if (!status)
        status = yk__buckets_make(r);
    if (status)
        yk__reducer_abort(r, "ddp");
    else
        yk__reducer_reset(r);
    return status;
}

static yk__reducer *reducer_create(yk_module *module, yk_process_group *group, const yk_ddp_options *o)
{
    yk__reducer *r = yk__calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    r->collector = yk__reducer_collector;
    r->module = module;
    r->group = group;
    r->rank = yk_rank(group);
    r->world_size = yk_world_size(group);
    r->find_unused = o->find_unused_parameters;
    r->broadcast_buffers = o->broadcast_buffers;
    r->bucket_cap = (int64_t)(o->bucket_cap_mb * mebibyte);
    r->first_bucket = (int64_t)(o->first_bucket_mb * mebibyte);
    r->sync = true;
    r->has_hook = o->comm_hook != NULL;
    if (r->has_hook)
        r->hook = *o->comm_hook;
    if (!reducer_fill(r, o))
        return r;
    reducer_free(r);
    return NULL;
}

yk_status yk__reducer_regroup(yk__reducer *r)
{
    r->rank = yk_rank(r->group);
    r->world_size = yk_world_size(r->group);
    r->walking = r->settled = false;
    for (int i = 0; i < r->count; i++)
        r->order[i] = r->count - 1 - i;
    yk__reducer_reset(r);
    return yk__buckets_renew(r);
}

/* A program that knows nothing of virtual ranks would train with another joined batch than the job was started for. */
static yk_status check_virtual_ranks(yk_process_group *group)
{
    int wanted, world = group ? yk_world_size(group) : 1;
    yk_status status = yk__virtual_ranks_read(&wanted);
    if (status || !wanted || wanted == world)
        return status;
    return yk__fail(YK_ERR_STATE,
                    "ddp: the job has %d virtual ranks (YOKE_VIRTUAL_RANKS, yoke run --virtual-ranks) on %d process%s, "
                    "and yk_ddp computes one shard of a step in each process: train by yk_elastic_create "
                    "(docs/elastic.md), or start %d processes",
                    wanted, world, world == 1 ? "" : "es", wanted);
}

static yk_module *make_ddp(yk_module *module, const yk_ddp_options *options, bool virtual_ranks)
{
    YK__LIVE(module);
    yk_ddp_options given;
    const yk_ddp_options *o = &given;
    if (!yk__module_usable("ddp", module) || YK__OPTIONS_TAKE("ddp", yk_ddp_options, options, &given) ||
        check_options(o))
        return NULL;
    if (!o->group && yk__group_expected("ddp"))
        return NULL;
    yk_process_group *group = o->group ? o->group : yk_is_initialized() ? yk_default_process_group() : NULL;
    if (group && yk_rank(group) < 0) {
        if (!yk__error_code())
            yk__fail(YK_ERR_STATE, "ddp: this rank is not in the group '%s'", yk_process_group_name(group));
        return NULL;
    }
    bool whole_job = !group || group == yk_default_process_group();
    if (!virtual_ranks && whole_job && check_virtual_ranks(group))
        return NULL;
    yk_module *m = yk_module_create(&ddp_class);
    if (!m || !yk_module_add(m, "module", module))
        return NULL;
    ddp *d = yk__module_data(m);
    d->inner = module;
    if (set_devices(d, o))
        return NULL;
    d->group = yk_process_group_retain(group);
    m->training = yk_module_is_training(module);
    if (group && (virtual_ranks || yk_world_size(group) > 1)) {
        d->reducer = reducer_create(module, group, o);
        if (!d->reducer)
            return NULL;
        d->reducer->virtual_ranks = virtual_ranks;
    }
    return m;
}

yk_module *yk_ddp(yk_module *module, const yk_ddp_options *options)
{
    return make_ddp(module, options, false);
}

yk_module *yk__ddp_virtual(yk_module *module, const yk_ddp_options *options)
{
    return make_ddp(module, options, true);
}

bool yk_is_ddp(const yk_module *m)
{
    YK__LIVE(m);
    return m && m->cls == &ddp_class;
}

static ddp *ddp_of(const char *what, yk_module *m)
{
    if (yk_is_ddp(m))
        return yk__module_data(m);
    if (m)
        yk__fail(YK_ERR_ARGUMENT, "%s: the module is a %s, not one of yk_ddp", what, m->cls->name);
    else if (!yk__error_code())
        yk__fail(YK_ERR_ARGUMENT, "%s: the module is NULL", what);
    return NULL;
}

yk_status yk__reducer_of(const char *what, yk_module *m, yk__reducer **reducer)
{
    ddp *d = ddp_of(what, m);
    *reducer = d ? d->reducer : NULL;
    return d ? YK_OK : yk__error_code();
}

yk_module *yk_ddp_module(yk_module *m)
{
    YK__LIVE(m);
    return yk_is_ddp(m) ? ((ddp *)yk_module_data(m))->inner : NULL;
}

yk_process_group *yk_ddp_group(yk_module *m)
{
    YK__LIVE(m);
    return yk_is_ddp(m) ? ((ddp *)yk_module_data(m))->group : NULL;
}

bool yk_no_sync_begin(yk_module *m)
{
    YK__LIVE(m);
    yk__reducer *r =
        yk__is_there("no_sync_begin", "module", m) && yk_is_ddp(m) ? ((ddp *)yk_module_data(m))->reducer : NULL;
    bool previous = r && r->no_sync;
    if (r)
        r->no_sync = true;
    return previous;
}

void yk_no_sync_end(yk_module *m, bool previous)
{
    YK__LIVE(m);
    yk__reducer *r =
        yk__is_there("no_sync_end", "module", m) && yk_is_ddp(m) ? ((ddp *)yk_module_data(m))->reducer : NULL;
    if (r)
        r->no_sync = previous;
}
