/*
 * staging.c - collectives and messages of tensors whose memory the host cannot touch, by way of pinned memory.
 * Layer: comm.
 *
 *   thread that calls          YK__QUEUE_COMM of the device    group's thread
 *   ------------------------   -----------------------------   ---------------------------------
 *   queues, after its own ---> inputs to pinned memory
 *                              event ----------------------->  waits for it, collective
 *                              outputs from pinned memory <--  queues, waits for them
 *   yk_work_wait <-------------------------------------------  the work is done
 *
 * No queue of a device ever waits for the host: a function of the host that waited for other ranks would be one of
 * those that CUDA may carry out by one thread for all streams of a process, and a stream that waited for a value in
 * memory may share a queue of the hardware with the one that it waits for. Ranks that are threads on one GPU would so
 * wait for each other. Only threads wait, for no longer than the group's time-out. What the program queues while the
 * collective is under way does not wait for it; it must wait for the work before it uses the tensors.
 *
 * Pinned memory is kept by the group, for the next calls: to take and release it costs more than most collectives.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/staging.h"

typedef struct yk__pinned {
    yk_device device;
    void *memory;
    size_t bytes;
    struct yk__pinned *next;
} yk__pinned;

struct yk__staging {
    yk__group *group;
    yk_device device;
    yk_tensor *in, *out;   /* retained; contiguous ones in place of those that are not, `out` may be `in` */
    yk_tensor *wanted;     /* retained: where out goes, if it is a contiguous copy */
    yk__pinned *from, *to; /* one where in is out */
    yk__event *copied;     /* after the copies that are queued, or NULL */
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

/* ---- pinned memory ----------------------------------------------------------------------------------------------- */
/* Guards all groups' lists of pinned memory; nothing that waits is done under it. */
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

/* The size that is allocated for a request, so that one that is somewhat larger the next time finds the same memory. */
static size_t rounded(size_t bytes)
{
    size_t step = 4096;
    while (step * 8 < bytes)
        step *= 2;
    return (bytes + step) / step * step;
}

static yk__pinned *pinned_take(yk__group *g, yk_device device, size_t bytes)
{
    yk__pinned **best = NULL;
    pthread_mutex_lock(&pinned_lock);
    for (yk__pinned **at = &g->pinned; *at; at = &(*at)->next)
        if (yk_device_equal((*at)->device, device) && (*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes))
            best = at;
    yk__pinned *p = best ? *best : NULL;
    if (p)
        *best = p->next;
    pthread_mutex_unlock(&pinned_lock);
    if (p)
        return p;
    p = yk__calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->device = device;
    p->bytes = rounded(bytes);
    if (!yk__backend_of(device)->allocate_pinned(device.index, p->bytes, &p->memory))
        return p;
    free(p);
    return NULL;
}

static void pinned_give(yk__group *g, yk__pinned *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&pinned_lock);
    p->next = g->pinned;
    g->pinned = p;
    pthread_mutex_unlock(&pinned_lock);
}

const yk__pinned *yk__staging_next(const yk__pinned *piece)
{
    return piece->next;
}

void yk__staging_leave(yk__group *g)
{
    while (g->pinned) {
        yk__pinned *p = g->pinned;
        g->pinned = p->next;
        yk__backend_of(p->device)->release_pinned(p->device.index, p->memory);
        free(p);
    }
}

/* ---- a call's ---------------------------------------------------------------------------------------------------- */
static yk_tensor *dense_room(yk_tensor *x)
{
    return yk_is_contiguous(x) ? yk_tensor_retain(x)
                               : yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
}

static yk_status staging_prepare(yk__staging *s, const yk__call *call)
{
    yk_tensor *both[2] = {call->in, call->out};
    yk_status status = yk__same_device(yk__comm_kind_name(call->op.kind), 2, both);
    if (status)
        return status;
    s->in = call->in ? dense_room(call->in) : NULL;
    s->out = !call->out ? NULL : call->out == call->in ? yk_tensor_retain(s->in) : dense_room(call->out);
    s->wanted = yk_tensor_retain(call->out);
    if ((call->in && !s->in) || (call->out && !s->out))
        return yk__error_code();
    if (s->in)
        s->from = pinned_take(s->group, s->device, bytes_of(s->in));
    if (s->out)
        s->to = s->out == s->in ? s->from : pinned_take(s->group, s->device, bytes_of(s->out));
    return (s->in && !s->from) || (s->out && !s->to) ? yk__error_code() : YK_OK;
}

yk__staging *yk__staging_create(yk__group *g, const yk__call *call)
{
    yk__staging *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->group = g;
    s->device = yk__device_of(any_tensor(call));
    if (staging_prepare(s, call) || (call->in && s->in != call->in && yk__raw_copy(s->in, call->in))) {
        yk__staging_free(s, 0);
        return NULL;
    }
    return s;
}

/* Records the event for which wait_for_copies waits, after the work that the calling thread has put on its queue for
 * collectives. */
static yk_status record_copies(yk__staging *s)
{
    const yk__backend *backend = yk__backend_of(s->device);
    return backend->event_record ? backend->event_record(s->device.index, YK__QUEUE_COMM, &s->copied) : YK_OK;
}

/* Waits for up to `seconds`; *done: no copy is in progress. */
static yk_status wait_for_copies(yk__staging *s, double seconds, bool *done)
{
    /* Seconds for which the core is offered between looks; then naps of a share of the time that it took so far. */
    static const double offer = 1e-4, share = 1.0 / 16, longest = 1e-3;
    const yk__backend *backend = yk__backend_of(s->device);
    double began = yk__now();
    *done = !s->copied;
    while (!*done) {
        yk_status status = backend->event_query(s->copied, done);
        if (status)
            return status;
        double waited = yk__now() - began, nap = waited * share < longest ? waited * share : longest;
        if (*done || waited >= seconds)
            break;
        if (waited < offer)
            sched_yield();
        else
            usleep((useconds_t)(nap * 1e6));
    }
    if (*done && s->copied) {
        backend->event_release(s->copied);
        s->copied = NULL;
    }
    return YK_OK;
}

static yk_status wait_in_time(yk__staging *s, double seconds, const yk__comm_op *op)
{
    char text[64];
    bool done;
    yk_status status = wait_for_copies(s, seconds, &done);
    if (status || done)
        return status;
    return yk__fail(YK_ERR_TIMEOUT, "%s did not come to %s #%llu within %g s", yk_device_format(s->device, text),
                    yk__comm_kind_name(op->kind), (unsigned long long)op->number, seconds);
}

yk_status yk__staging_queue(yk__staging *s)
{
    const yk__backend *backend = yk__backend_of(s->device);
    yk_status status = yk__queue_order(s->device, YK__QUEUE_COMM, s->device, yk__queue_current());
    if (status || !s->in)
        return status;
    yk__queue before = yk__queue_begin(YK__QUEUE_COMM);
    status = backend->queue_download(s->device.index, s->from->memory, s->in->data, bytes_of(s->in));
    yk__queue_end(before);
    yk_status last = record_copies(s);
    return status ? status : last;
}

yk_status yk__staging_fetch(yk__staging *s, double seconds, yk__comm_op *op)
{
    op->in = s->from ? s->from->memory : NULL;
    op->out = s->to ? s->to->memory : NULL;
    return wait_in_time(s, seconds, op);
}

yk_status yk__staging_deliver(yk__staging *s, double seconds, const yk__comm_op *op)
{
    const yk__backend *backend = yk__backend_of(s->device);
    if (!s->out)
        return YK_OK;
    yk__queue before = yk__queue_begin(YK__QUEUE_COMM);
    yk_status status = backend->queue_upload(s->device.index, s->out->data, s->to->memory, bytes_of(s->out));
    if (!status && s->out != s->wanted)
        status = yk__raw_copy(s->wanted, s->out);
    yk__queue_end(before);
    yk_status last = record_copies(s);
    yk__bump_version(s->wanted);
    status = status ? status : last;
    return status ? status : wait_in_time(s, seconds, op);
}

void yk__staging_free(yk__staging *s, double seconds)
{
    if (!s)
        return;
    yk_error before, unused;
    yk__error_take(&before);
    bool done = false;
    yk_status status = wait_for_copies(s, seconds, &done);
    yk__error_take(&unused);
    yk__error_put(&before);
    if (status || !done) /* the device failed, or hangs: it may touch this memory yet */
        return;
    if (s->to != s->from)
        pinned_give(s->group, s->to);
    pinned_give(s->group, s->from);
    yk_tensor_release(s->in);
    yk_tensor_release(s->out);
    yk_tensor_release(s->wanted);
    free(s);
}
