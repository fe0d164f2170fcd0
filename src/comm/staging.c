/*
 * staging.c - collectives of tensors whose memory the host cannot touch, in their turn on the device's queue; messages
 * of such tensors. Layer: comm.
 *
 *   thread that calls        device's queue               group's thread
 *   ----------------------   --------------------------   ------------------------------------
 *   queues -------------->   inputs to pinned memory
 *                            turn: ready; waits ------>   waits for ready, collective, end_turn
 *                            outputs from pinned memory
 *                            let_go
 *
 * What the program queues on the device afterwards sees the outputs; nothing waits for the host but the queue itself.
 * The device waits only for the group's thread, which ends every turn, by time-out or abort if need be; that thread
 * waits for the device no longer than the group's time-out. Turns are queued under the group's lock, in the order in
 * which its thread takes them.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "comm/staging.h"

struct yk__staging {
    yk_device device;
    yk_tensor *in, *out;          /* retained; contiguous ones in place of those that are not, `out` may be `in` */
    yk_tensor *wanted;            /* retained: where out goes, if it is a contiguous copy */
    void *in_memory, *out_memory; /* pinned; one where in is out */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ready, ended, let_go, queued;
};

static const yk_tensor *any_tensor(const yk__call *call)
{
    return call->in ? call->in : call->out;
}

bool yk__staging_needed(const yk__call *call)
{
    const yk_tensor *x = any_tensor(call);
    return x && !yk__backend_for(x)->host_memory;
}

static size_t bytes_of(const yk_tensor *x)
{
    return (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype);
}

static yk_tensor *dense_room(yk_tensor *x)
{
    return yk_is_contiguous(x) ? yk_tensor_retain(x)
                               : yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
}

static yk_status prepare(yk__staging *s, const yk__call *call)
{
    const yk__backend *backend = yk__backend_of(s->device);
    yk_tensor *both[2] = {call->in, call->out};
    yk_status status = yk__same_device(yk__comm_kind_name(call->op.kind), 2, both);
    if (status)
        return status;
    if (!backend->enqueue)
        return yk__slot_missing(s->device, "enqueue");
    s->in = call->in ? dense_room(call->in) : NULL;
    s->out = !call->out ? NULL : call->out == call->in ? yk_tensor_retain(s->in) : dense_room(call->out);
    s->wanted = yk_tensor_retain(call->out ? call->out : call->in);
    if ((call->in && !s->in) || (call->out && !s->out))
        return yk__error_code();
    if (s->in)
        status = backend->allocate_pinned(s->device.index, bytes_of(s->in) + 1, &s->in_memory);
    if (!status && s->out && s->out != s->in)
        status = backend->allocate_pinned(s->device.index, bytes_of(s->out) + 1, &s->out_memory);
    else if (s->out)
        s->out_memory = s->in_memory;
    return status;
}

yk__staging *yk__staging_create(const yk__call *call)
{
    yk__staging *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->device = yk__device_of(any_tensor(call));
    if (prepare(s, call)) {
        yk__staging_free(s, 0);
        return NULL;
    }
    /* `in` keeps the tensor that the program gave, too, until its elements were copied. */
    if (call->in && s->in != call->in && yk__raw_copy(s->in, call->in)) {
        yk__staging_free(s, 0);
        return NULL;
    }
    return s;
}

/* On the device's queue. */
static void run_in_queue(void *arg)
{
    yk__staging *s = arg;
    pthread_mutex_lock(&s->lock);
    s->ready = true;
    pthread_cond_broadcast(&s->changed);
    while (!s->ended)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void let_go(void *arg)
{
    yk__staging *s = arg;
    pthread_mutex_lock(&s->lock);
    s->let_go = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static yk_status queue_output(yk__staging *s)
{
    const yk__backend *backend = yk__backend_of(s->device);
    yk_status status = backend->queue_upload(s->device.index, s->out->data, s->out_memory, bytes_of(s->out));
    if (!status && s->out != s->wanted)
        status = yk__raw_copy(s->wanted, s->out);
    if (!status)
        yk__bump_version(s->wanted);
    return status;
}

yk_status yk__staging_queue(yk__staging *s)
{
    const yk__backend *backend = yk__backend_of(s->device);
    int index = s->device.index;
    yk_status status = YK_OK;
    s->queued = true;
    if (s->in)
        status = backend->queue_download(index, s->in_memory, s->in->data, bytes_of(s->in));
    if (!status)
        status = backend->enqueue(index, run_in_queue, s);
    if (!status && s->out)
        status = queue_output(s);
    yk_status last = backend->enqueue(index, let_go, s);
    if (last) /* then nobody will */
        s->let_go = true;
    return status ? status : last;
}

/* The moment in `seconds`; those that no clock reaches are cut. */
static struct timespec moment_in(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = seconds < 1e9 ? seconds : 1e9;
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* With the lock held: until *flag, or not longer than `seconds`. */
static bool wait_until(yk__staging *s, const bool *flag, double seconds)
{
    struct timespec end = moment_in(seconds);
    while (!*flag && pthread_cond_timedwait(&s->changed, &s->lock, &end) != ETIMEDOUT)
        continue;
    return *flag;
}

yk_status yk__staging_fetch(yk__staging *s, double seconds, yk__comm_op *op)
{
    const yk__backend *backend = yk__backend_of(s->device);
    int index = s->device.index;
    op->in = s->in_memory;
    op->out = s->out_memory;
    if (!s->in)
        return YK_OK;
    s->queued = s->ended = true; /* nothing waits for a turn */
    yk_status status = backend->queue_download(index, s->in_memory, s->in->data, bytes_of(s->in));
    if (!status)
        status = backend->enqueue(index, run_in_queue, s);
    yk_status last = backend->enqueue(index, let_go, s);
    if (last) /* then nobody will */
        s->let_go = true;
    status = status ? status : last;
    return status ? status : yk__staging_wait(s, seconds, op);
}

yk_status yk__staging_deliver(yk__staging *s)
{
    s->queued = true;
    yk_status status = queue_output(s);
    yk_status last = yk__backend_of(s->device)->enqueue(s->device.index, let_go, s);
    if (last) /* then nobody will */
        s->let_go = true;
    return status ? status : last;
}

yk_status yk__staging_wait(yk__staging *s, double seconds, yk__comm_op *op)
{
    pthread_mutex_lock(&s->lock);
    bool ready = wait_until(s, &s->ready, seconds);
    pthread_mutex_unlock(&s->lock);
    char text[64];
    if (!ready)
        return yk__fail(YK_ERR_TIMEOUT, "%s did not come to %s #%llu within %g s", yk_device_format(s->device, text),
                        yk__comm_kind_name(op->kind), (unsigned long long)op->number, seconds);
    op->in = s->in_memory;
    op->out = s->out_memory;
    return YK_OK;
}

void yk__staging_end_turn(yk__staging *s)
{
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void yk__staging_free(yk__staging *s, double seconds)
{
    if (!s)
        return;
    const yk__backend *backend = yk__backend_of(s->device);
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    pthread_cond_broadcast(&s->changed);
    bool free_now = !s->queued || wait_until(s, &s->let_go, seconds);
    pthread_mutex_unlock(&s->lock);
    if (!free_now) /* the device failed, or hangs: it may touch this memory yet */
        return;
    if (s->out_memory && s->out_memory != s->in_memory)
        backend->release_pinned(s->device.index, s->out_memory);
    if (s->in_memory)
        backend->release_pinned(s->device.index, s->in_memory);
    yk_tensor_release(s->in);
    yk_tensor_release(s->out);
    yk_tensor_release(s->wanted);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
