/*
 * parallel_apply.c - replicas, or the stages of a pipeline, at work, each on its device's thread. Layer: parallel.
 *
 * The first one runs on the calling thread, the others on threads that live as long as the process
 * (device/device_thread.c). Each has the caller's modes (recording, inference, autocast, current devices), a scope of
 * its own, and random numbers that depend on the caller's generator and its number alone. All are waited for, whatever
 * fails.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/autocast.h"
#include "base/random_branch.h"
#include "device/device_thread.h"
#include "parallel/replicas.h"

/* The modes of the caller that a thread gets. */
typedef struct modes {
    bool recording, inference;
    yk_autocast autocast;
    yk_device current[YK__DEVICE_TYPES];
    yk_random_state random;
} modes;

/* Nodes that a member may record before it has to take their numbers where all do. */
#define SEQUENCES ((uint64_t)1 << 20)

typedef struct run {
    int number;
    yk_device device;
    const modes *modes;
    yk__sequences sequences;
    const yk__parallel_work *work;
    yk__device_job job;
    bool started, drew;
    yk_error error;
    double seconds;
} run;

/* fn in a scope; the error, if any, goes from the thread's record to the run. */
static void call(run *r)
{
    double began = yk__now();
    yk_scope scope = yk_scope_begin();
    yk__sequences before = yk__sequences_enter(r->sequences);
    yk_status status = r->work->fn(r->number, r->work->user);
    yk__sequences_enter(before);
    if (status && !yk__error_code())
        yk__fail(status, "failed with status %d and no message", (int)status);
    yk_scope_end(scope);
    char device[16];
    if (yk__error_code())
        yk__error_prefix("%s %d on %s", r->work->member, r->number, yk_device_format(r->device, device));
    yk__error_take(&r->error);
    if (r->error.code && r->work->failed)
        r->work->failed(r->work->user);
    r->seconds = yk__now() - began;
}

/* The first member, on the caller's thread: number 0 draws from the caller's generator itself. */
static void call_here(run *r)
{
    if (!r->number || yk__random_branch_used()) {
        call(r);
        return;
    }
    yk__random_branch_begin(r->modes->random, (uint32_t)r->number);
    call(r);
    r->drew = yk__random_branch_end();
}

static void call_elsewhere(void *argument)
{
    run *r = argument;
    yk_device before[YK__DEVICE_TYPES];
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        before[type] = yk_current_device((yk_device_type)type);
        if (r->modes->current[type].index != before[type].index)
            yk_device_guard_begin(r->modes->current[type]);
    }
    bool recording = yk_set_grad_enabled(r->modes->recording), inference = yk__inference_mode;
    yk__inference_mode = r->modes->inference;
    yk_autocast autocast = yk__autocast_enter(r->modes->autocast);
    yk__random_branch_begin(r->modes->random, (uint32_t)r->number);
    call(r);
    r->drew = yk__random_branch_end();
    yk_autocast_end(autocast);
    yk__inference_mode = inference;
    yk_set_grad_enabled(recording);
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        if (r->modes->current[type].index != before[type].index)
            yk_device_guard_end(before[type]);
    }
    yk_clear_error();
}

yk_status yk__parallel_run(const yk_device *devices, int count, const yk__parallel_work *work, double *seconds)
{
    YK__OWN_RECORD;
    modes m = {.recording = yk_grad_enabled(),
               .inference = yk__inference_mode,
               .autocast = yk__autocast_modes(),
               .random = work->random ? *work->random : yk_random_get_state()};
    for (int type = 0; type < YK__DEVICE_TYPES; type++)
        m.current[type] = yk_current_device((yk_device_type)type);
    run runs[YK__MOST_REPLICAS];
    uint64_t first = m.recording ? yk__sequences_reserve((uint64_t)count * SEQUENCES) : 0;
    for (int i = 0; i < count; i++) {
        runs[i] = (run){.number = work->first + i, .device = devices[i], .modes = &m, .work = work};
        if (m.recording)
            runs[i].sequences = (yk__sequences){first + (uint64_t)i * SEQUENCES, first + (uint64_t)(i + 1) * SEQUENCES};
    }
    for (int i = 1; i < count; i++) {
        run *r = &runs[i];
        r->started = yk__device_job_start(&r->job, r->device, call_elsewhere, r) == YK_OK;
        if (r->started)
            continue;
        char device[16];
        yk__error_prefix("%s %d on %s", work->member, r->number, yk_device_format(r->device, device));
        yk__error_take(&r->error);
        if (work->failed)
            work->failed(work->user);
    }
    call_here(&runs[0]);
    bool drew = runs[0].drew;
    for (int i = 1; i < count; i++) {
        if (runs[i].started)
            yk__device_job_wait(&runs[i].job);
        drew = drew || runs[i].drew;
    }
    yk__sequences_enter((yk__sequences){0}); /* nodes that a member records after its members have higher numbers than
                                              * theirs */
    if (work->drew)
        *work->drew = drew;
    /* The next branches must differ from these, also where the first one drew nothing. */
    else if (drew && yk_random_get_state().calls == m.random.calls)
        yk__random_next();
    for (int i = 0; i < count; i++) {
        if (seconds)
            seconds[i] += runs[i].seconds;
        yk__error_put(&runs[i].error); /* the first wins */
    }
    return yk__error_code();
}

typedef struct application {
    yk_module *const *replicas;
    yk_tensor *const *inputs;
    yk_tensor **outputs;
    int n_inputs, n_outputs;
} application;

static yk_status apply_one(int i, void *user)
{
    const application *a = user;
    yk_tensor **outputs = a->outputs + i * a->n_outputs;
    yk_status status = yk_forward_list(a->replicas[i], a->inputs + i * a->n_inputs, a->n_inputs, outputs, a->n_outputs);
    for (int o = 0; !status && o < a->n_outputs; o++)
        yk_tensor_retain(outputs[o]);
    return status;
}

yk_status yk__parallel_apply(yk_module *const *replicas, const yk_device *devices, int count, yk_tensor *const *inputs,
                             int n_inputs, yk_tensor **outputs, int n_outputs, double *seconds)
{
    memset(outputs, 0, sizeof(*outputs) * (size_t)(count * n_outputs));
    application a = {replicas, inputs, outputs, n_inputs, n_outputs};
    yk__parallel_work work = {.member = "replica", .fn = apply_one, .user = &a};
    yk_status status = yk__parallel_run(devices, count, &work, seconds);
    for (int o = 0; status && o < count * n_outputs; o++) {
        yk_tensor_release(outputs[o]);
        outputs[o] = NULL;
    }
    return status;
}

bool yk__module_device(const yk_module *m, yk_device *device)
{
    const yk__entries *lists[] = {&m->parameters, &m->buffers};
    for (int l = 0; l < 2; l++) {
        if (lists[l]->count) {
            *device = yk__device_of(lists[l]->items[0].object);
            return true;
        }
    }
    for (int64_t i = 0; i < m->children.count; i++) {
        if (yk__module_device(m->children.items[i].object, device))
            return true;
    }
    return false;
}

static yk_status check_apply(yk_module *const *replicas, int count, yk_tensor *const *inputs, int n_inputs,
                             yk_tensor **outputs, int n_outputs)
{
    if (!replicas || !outputs || (!inputs && n_inputs))
        return yk__fail(YK_ERR_ARGUMENT, "parallel_apply: %s is NULL",
                        !replicas ? "replicas"
                        : outputs ? "inputs"
                                  : "outputs");
    if (count < 1 || count > YK__MOST_REPLICAS || n_inputs < 0 || n_outputs < 1)
        return yk__fail(YK_ERR_ARGUMENT, "parallel_apply: %d replicas, %d inputs and %d outputs", count, n_inputs,
                        n_outputs);
    for (int i = 0; i < count; i++) {
        if (!yk__module_usable("parallel_apply", replicas[i]))
            return yk__error_code();
        for (int k = 0; k < i; k++) {
            if (replicas[k] == replicas[i])
                return yk__fail(YK_ERR_ARGUMENT, "parallel_apply: replicas %d and %d are one module", k, i);
        }
    }
    for (int64_t i = 0; i < (int64_t)count * n_inputs; i++) {
        if (!inputs[i] && yk__error_is_fresh()) /* it could not be made */
            return yk__error_code();
    }
    return yk__scope_reserve("parallel_apply", (size_t)count * (size_t)n_outputs) ? YK_OK : yk__error_code();
}

yk_status yk_parallel_apply(yk_module *const *replicas, int count, yk_tensor *const *inputs, int n_inputs,
                            yk_tensor **outputs, int n_outputs)
{
    for (int64_t o = 0; outputs && count > 0 && o < (int64_t)count * n_outputs; o++)
        outputs[o] = NULL;
    for (int i = 0; replicas && i < count; i++) {
        if (yk__is_freed(replicas[i]))
            return yk__fail_freed("parallel_apply", replicas[i]);
    }
    for (int64_t i = 0; inputs && count > 0 && i < (int64_t)count * n_inputs; i++) {
        if (yk__is_freed(inputs[i]))
            return yk__fail_freed("parallel_apply", inputs[i]);
    }
    yk_status status = check_apply(replicas, count, inputs, n_inputs, outputs, n_outputs);
    if (status)
        return status;
    YK__OWN_RECORD;
    yk_device devices[YK__MOST_REPLICAS];
    for (int i = 0; i < count; i++) {
        devices[i] = (yk_device){0};
        if (!yk__module_device(replicas[i], &devices[i]) && n_inputs && inputs[i * n_inputs])
            devices[i] = yk__device_of(inputs[i * n_inputs]);
    }
    status = yk__parallel_apply(replicas, devices, count, inputs, n_inputs, outputs, n_outputs, NULL);
    for (int o = 0; !status && o < count * n_outputs; o++)
        outputs[o] = yk__scope_own(outputs[o]);
    return status;
}
