/*
 * pinned.c - batches on their way to a device that copies while it computes (a GPU). Layer: data.
 *
 * Workers make the tensors of a batch in pinned memory, which a copy reads while kernels run. The loader's thread puts
 * the copy of a batch on the device's queue of copies before the work of the batch in front is queued:
 *
 *   queue of copies    batch 1 | batch 2 |            | batch 3 |
 *   queue of kernels           | step 1             | step 2 ...
 *
 * Where a batch comes as bytes, the kernel that makes its floats is on the queue of copies, behind them.
 *
 * The queue of kernels waits, by an event, for the copy of the batch that is given out. A block of pinned memory is
 * written again once the event behind its copy has passed; a block of the device belongs to the queue of copies, and is
 * said to be used by that of kernels, so it is written again once what was queued until it was released is done.
 *
 * The host stays at most AHEAD batches in front of the device, or memory for batches would grow with what is queued.
 *
 * Invariant: a block that is not busy is nobody's but, until `event` has passed, its copy's.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "device/graph.h"
#include "tensor/tensor.h"

enum { AHEAD = 8 };

typedef struct block {
    yk__pinned *owner;
    struct block *next;
    void *memory;
    size_t bytes;
    bool busy;        /* a tensor has it */
    yk__event *event; /* behind its last copy; NULL: there is none, or it has passed */
} block;

struct yk__pinned {
    yk_device device;
    const yk__backend *backend;
    pthread_mutex_t lock; /* of the blocks */
    block *blocks;
    yk_tensor *table;        /* the pipeline's, on the device; NULL until the first batch of bytes */
    yk__event *given[AHEAD]; /* behind what was queued when a batch was asked for */
    int at;                  /* the oldest of them */
};

yk__pinned *yk__pinned_create(yk_device device)
{
    yk__pinned *p = yk__calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->device = device;
    p->backend = yk__backend_of(device);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

void yk__pinned_destroy(yk__pinned *p)
{
    yk_error before;
    if (!p)
        return;
    yk__error_take(&before);
    yk_tensor_release(p->table);
    for (int i = 0; i < AHEAD; i++)
        p->backend->event_release(p->given[i]);
    while (p->blocks) {
        block *b = p->blocks;
        p->blocks = b->next;
        if (b->event && p->backend->event_wait(b->event))
            yk_clear_error(); /* the device is lost, and with it the copy */
        p->backend->event_release(b->event);
        p->backend->release_pinned(p->device.index, b->memory);
        free(b);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
    yk__error_put(&before);
}

/* ---- blocks of pinned memory ---- */

static void block_release(void *context)
{
    block *b = context;
    pthread_mutex_lock(&b->owner->lock);
    b->busy = false;
    pthread_mutex_unlock(&b->owner->lock);
}

/* Releases the events of copies that are done, whose blocks can be taken again. Locked. */
static void copies_settle(yk__pinned *p)
{
    for (block *b = p->blocks; b; b = b->next) {
        bool passed = false;
        if (b->busy || !b->event || p->backend->event_query(b->event, &passed) || !passed)
            continue;
        p->backend->event_release(b->event);
        b->event = NULL;
    }
}

/* True if nobody holds the block, and no copy reads it. Locked. */
static bool block_is_free(const block *b)
{
    return !b->busy && !b->event;
}

/* The smallest free block that is large enough, else a new one. */
static block *block_get(yk__pinned *p, size_t bytes)
{
    block *found = NULL;
    pthread_mutex_lock(&p->lock);
    copies_settle(p);
    for (block *b = p->blocks; b; b = b->next) {
        if (b->bytes >= bytes && (!found || b->bytes < found->bytes) && block_is_free(b))
            found = b;
    }
    if (!found && (found = yk__calloc(1, sizeof(*found)))) {
        *found = (block){.owner = p, .next = p->blocks, .bytes = bytes};
        if (p->backend->allocate_pinned(p->device.index, bytes, &found->memory)) {
            free(found);
            found = NULL;
        } else {
            p->blocks = found;
        }
    }
    if (found)
        found->busy = true;
    pthread_mutex_unlock(&p->lock);
    return found;
}

yk_tensor *yk__pinned_tensor(yk__pinned *p, int ndim, const int64_t *shape, yk_dtype dtype)
{
    size_t bytes = yk_dtype_size(dtype);
    for (int d = 0; d < ndim; d++)
        bytes *= (size_t)shape[d];
    block *b = block_get(p, bytes ? bytes : 1);
    if (!b)
        return NULL;
    yk__storage *storage = yk__storage_wrap((yk_device){0}, b->memory, bytes, block_release, b);
    if (!storage)
        block_release(b);
    return storage ? yk__tensor_over(storage, ndim, shape, dtype) : NULL;
}

yk_tensor *yk__pinned_copy(yk__pinned *p, yk_tensor *x)
{
    if (!yk__backend_for(x)->host_memory)
        return yk_tensor_retain(x);
    yk_tensor *copy = yk__pinned_tensor(p, x->ndim, x->shape, (yk_dtype)x->dtype);
    return copy ? yk__tensor_if_ok(copy, yk__raw_copy(copy, x)) : NULL;
}

/* ---- copies ---- */

static yk_status queue_copy(const yk__pinned *p, block *b, yk_tensor *to, size_t bytes)
{
    int device = p->device.index;
    yk_status status = p->backend->queue_upload(device, to->data, b->memory, bytes);
    yk__event *event = NULL;
    if (!status)
        status = p->backend->event_record(device, YK__QUEUE_COPY, &event);
    pthread_mutex_lock(&b->owner->lock);
    b->event = event; /* a block that was free had none */
    pthread_mutex_unlock(&b->owner->lock);
    return status;
}

/* Queues the copy of x, which is in pinned memory, to the device, on the queue of copies; returns the copy. */
static yk_tensor *upload(const yk__pinned *p, yk_tensor *x)
{
    yk__queue before = yk__queue_begin(YK__QUEUE_COPY);
    yk_tensor *there = yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, p->device);
    if (there)
        there = yk__tensor_if_ok(there, queue_copy(p, x->storage->foreign_context, there, x->storage->bytes));
    yk__queue_end(before);
    return there;
}

/* A tensor that the queue of copies made becomes the caller's, whose kernels read it. */
static yk_tensor *given_out(yk_tensor *x)
{
    if (x) {
        x->inference = false;
        yk__storage_used_on(x->storage, YK__QUEUE_COMPUTE);
    }
    return x;
}

yk_tensor *yk__pinned_upload(yk__pinned *p, yk_tensor *x)
{
    if (x->storage->foreign_release != block_release) /* a collate made it on a device */
        return yk__raw_to(x, p->device);
    return given_out(upload(p, x));
}

bool yk__pinned_can_augment(const yk__pinned *p)
{
    return p->backend->augment != NULL;
}

static yk_status bring_table(yk__pinned *p, const yk__pipeline *pipeline)
{
    yk__view from = yk__pipeline_table(pipeline);
    yk_tensor *table = yk__pinned_tensor(p, from.ndim, from.shape, from.dtype);
    if (!table)
        return yk__error_code();
    memcpy(table->data, from.data, table->storage->bytes);
    p->table = upload(p, table);
    yk_tensor_release(table);
    return p->table ? YK_OK : yk__error_code();
}

yk_tensor *yk__pinned_augment(yk__pinned *p, const yk__pipeline *pipeline, yk_tensor *bytes, yk_tensor *crops)
{
    if (!p->table && bring_table(p, pipeline))
        return NULL;
    yk_tensor *images = upload(p, bytes), *where = images ? upload(p, crops) : NULL;
    yk__queue before = yk__queue_begin(YK__QUEUE_COPY);
    yk_tensor *out = where ? yk__tensor_new(bytes->ndim, bytes->shape, NULL, pipeline->dtype, p->device) : NULL;
    if (out) {
        yk__view to = yk__view_of(out), line = yk__line_of(images), list = yk__view_of(where),
                 table = yk__view_of(p->table);
        out = yk__tensor_if_ok(out, p->backend->augment(p->device.index, &to, &line, &list, &table));
    }
    yk__queue_end(before);
    yk_tensor_release(images);
    yk_tensor_release(where);
    return given_out(out);
}

yk_status yk__pinned_await(const yk__pinned *p)
{
    return yk__queue_order(p->device, YK__QUEUE_COMPUTE, p->device, YK__QUEUE_COPY);
}

yk_status yk__pinned_hold_back(yk__pinned *p)
{
    yk__event **oldest = &p->given[p->at];
    yk_status status = yk__graph_forbid_in("loader_next", "a batch comes from the host",
                                           "take it before yk_graph_run, and yk_copy_ it to tensors that stay");
    if (!status && *oldest)
        status = p->backend->event_wait(*oldest);
    if (status)
        return status;
    p->backend->event_release(*oldest);
    *oldest = NULL;
    p->at = (p->at + 1) % AHEAD;
    return p->backend->event_record(p->device.index, YK__QUEUE_COMPUTE, oldest);
}
