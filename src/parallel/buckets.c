/*
 * buckets.c - the parameters whose gradients are reduced together, and the memory of these gradients. Layer: parallel.
 *
 * A bucket is one flat region of one dtype on one device that the ranks of the host share. Parameters fill buckets in a
 * given order; a bucket is closed when it has reached its size. Buckets are numbered by their last parameter's position
 * in that order, so that number 0 is the first to be complete if gradients come in the order. Every gradient begins at
 * a multiple of 64 bytes; what lies between stays zero.
 */
#include <stdlib.h>
#include <string.h>

#include "base/invariant.h"
#include "parallel/reducer.h"

/* Bytes: a cache line. */
enum { ALIGNMENT = 64 };

typedef struct draft {
    yk_device device;
    yk_dtype dtype;
    int64_t elements, limit; /* limit in bytes */
    int members, last;       /* position in the order of the last parameter */
    int number;
    bool open;
} draft;

typedef struct layout {
    yk__ddp_bucket *buckets;
    yk_tensor **grad_buffers; /* per parameter */
    int *bucket_of;
    draft *drafts;
    int n;
} layout;

static void bucket_clear(yk__ddp_bucket *b)
{
    yk_tensor_release(b->bucket.gradients);
    yk_tensor_release(b->bucket.scratch);
    yk_work_release(b->work);
    free(b->members);
}

static void layout_clear(layout *l, int count)
{
    for (int i = 0; i < l->n && l->buckets; i++)
        bucket_clear(&l->buckets[i]);
    for (int p = 0; p < count && l->grad_buffers; p++)
        yk_tensor_release(l->grad_buffers[p]);
    free(l->buckets);
    free(l->grad_buffers);
    free(l->bucket_of);
    free(l->drafts);
}

static int64_t padded(const yk_tensor *x)
{
    int64_t line = ALIGNMENT / (int64_t)yk_dtype_size((yk_dtype)x->dtype);
    return (x->numel + line - 1) / line * line;
}

static draft *open_draft(const yk__reducer *r, layout *l, const yk_tensor *x)
{
    bool first = true;
    for (int i = 0; i < l->n; i++) {
        draft *d = &l->drafts[i];
        if (d->dtype != (yk_dtype)x->dtype || !yk_device_equal(d->device, yk__device_of(x)))
            continue;
        if (d->open)
            return d;
        first = false;
    }
    l->drafts[l->n] = (draft){.device = yk__device_of(x),
                              .dtype = (yk_dtype)x->dtype,
                              .limit = first ? r->first_bucket : r->bucket_cap,
                              .open = true};
    return &l->drafts[l->n++];
}

/* bucket_of in terms of drafts, and then of bucket numbers. */
static void assign(const yk__reducer *r, layout *l)
{
    for (int i = 0; i < r->count; i++) {
        int index = r->order[i];
        const yk_tensor *x = r->parameters[index].x;
        l->bucket_of[index] = -1;
        if (!yk__wants_grad(x) || yk__in_rows(r, x))
            continue;
        draft *d = open_draft(r, l, x);
        d->elements += padded(x);
        d->members++;
        d->last = i;
        d->open = d->elements * (int64_t)yk_dtype_size(d->dtype) < d->limit;
        l->bucket_of[index] = (int)(d - l->drafts);
    }
    for (int i = 0; i < l->n; i++)
        for (int j = 0; j < l->n; j++)
            l->drafts[i].number += l->drafts[j].last < l->drafts[i].last;
    for (int p = 0; p < r->count; p++)
        if (l->bucket_of[p] >= 0)
            l->bucket_of[p] = l->drafts[l->bucket_of[p]].number;
}

/* A zeroed vector that the other ranks of the host can reach, where the device has such memory. */
static yk_tensor *flat(const draft *d)
{
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = d->dtype, .device = d->device);
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = d->device.type == YK_CPU ? yk_comm_alloc(1, &d->elements, &o) : yk_zeros(1, &d->elements, &o);
    yk_tensor_retain(x);
    yk_scope_end(scope);
    return x;
}

static yk_status bucket_fill(const yk__reducer *r, layout *l)
{
    for (int i = 0; i < l->n; i++) {
        const draft *d = &l->drafts[i];
        yk__ddp_bucket *b = &l->buckets[d->number];
        b->members = yk__calloc((size_t)d->members, sizeof(yk_tensor *));
        b->bucket = (yk_ddp_bucket){.index = d->number, .count = l->n, .parameters = b->members, .group = r->group};
        if (!b->members || !(b->bucket.gradients = flat(d)))
            return yk__error_code();
    }
    int64_t *used = yk__calloc((size_t)l->n + 1, sizeof(*used));
    for (int i = 0; used && i < r->count; i++) {
        int index = r->order[i], number = l->bucket_of[index];
        if (number < 0)
            continue;
        yk__ddp_bucket *b = &l->buckets[number];
        yk_tensor *x = r->parameters[index].x;
        int64_t stride[YK_MAX_DIMS];
        yk__contiguous_strides(x->ndim, x->shape, stride);
        l->grad_buffers[index] =
            yk__tensor_view(b->bucket.gradients, x->ndim, x->shape, yk__is_dense(x) ? x->stride : stride, used[number]);
        used[number] += padded(x);
        b->members[b->bucket.n_parameters++] = x;
        b->missing = b->bucket.n_parameters;
        if (!l->grad_buffers[index] || (yk_grad(x) && yk__raw_copy(l->grad_buffers[index], yk_grad(x)))) {
            free(used);
            return yk__error_code();
        }
    }
    free(used);
    return used ? YK_OK : YK_ERR_MEMORY;
}

static void bucket_drop(yk__reducer *r)
{
    for (int i = 0; i < r->n_buckets; i++)
        bucket_clear(&r->buckets[i]);
    free(r->buckets);
    r->buckets = NULL;
    r->n_buckets = 0;
}

/* The parameter's gradients go to `grad_buffer` from now on; NULL: wherever the engine likes. */
static yk_status set_grad_buffer(yk__reducer *r, int index, yk_tensor *grad_buffer)
{
    yk__ddp_parameter *p = &r->parameters[index];
    yk_tensor *old = p->grad_buffer;
    yk_status status = YK_OK;
    if (grad_buffer || old)
        status = yk__collect_gradients(p->x, grad_buffer ? &r->collector : NULL, index, grad_buffer);
    if (!status && grad_buffer && yk_grad(p->x))
        status = yk_set_grad(p->x, grad_buffer);
    p->grad_buffer = grad_buffer;
    yk_tensor_release(old);
    return status;
}

yk_status yk__buckets_make(yk__reducer *r)
{
    size_t count = (size_t)r->count + 1; /* an empty module has arrays too */
    layout l = {.buckets = yk__calloc(count, sizeof(*l.buckets)),
                .grad_buffers = yk__calloc(count, sizeof(*l.grad_buffers)),
                .bucket_of = yk__calloc(count, sizeof(*l.bucket_of)),
                .drafts = yk__calloc(count, sizeof(*l.drafts))};
    yk_status status = l.buckets && l.grad_buffers && l.bucket_of && l.drafts ? YK_OK : YK_ERR_MEMORY;
    if (!status) {
        assign(r, &l);
        status = bucket_fill(r, &l);
    }
    if (!status) {
        bucket_drop(r);
        r->buckets = l.buckets;
        r->n_buckets = l.n;
        l.buckets = NULL;
    }
    for (int p = 0; p < r->count && !status; p++) {
        r->parameters[p].bucket = l.bucket_of[p];
        status = set_grad_buffer(r, p, l.grad_buffers[p]);
        l.grad_buffers[p] = NULL;
    }
    layout_clear(&l, r->count);
    YK__ASSERT_SOUND(status ? NULL : yk__buckets_check(r));
    return status;
}

/* The members' gradients follow one another in the bucket, each at a multiple of 64 bytes. */
static const char *check_bucket(const yk__reducer *r, int number)
{
    const yk__ddp_bucket *b = &r->buckets[number];
    int members = 0;
    int64_t used = 0, size = (int64_t)yk_dtype_size((yk_dtype)b->bucket.gradients->dtype);
    for (int i = 0; i < r->count; i++) {
        const yk__ddp_parameter *p = &r->parameters[r->order[i]];
        if (!p->grad_buffer || p->bucket != number)
            continue;
        int64_t at = (const char *)p->grad_buffer->data - (const char *)b->bucket.gradients->data;
        if (members >= b->bucket.n_parameters || b->members[members] != p->x)
            return yk__broken("bucket %d: parameter %s is not member %d of %d", number, p->name, members,
                              b->bucket.n_parameters);
        if (at != used || (used + padded(p->x) * size) > b->bucket.gradients->numel * size)
            return yk__broken("bucket %d of %lld bytes: the gradient of %s lies at byte %lld, expected %lld", number,
                              (long long)(b->bucket.gradients->numel * size), p->name, (long long)at, (long long)used);
        used += padded(p->x) * size;
        members++;
    }
    if (members != b->bucket.n_parameters || b->bucket.index != number)
        return yk__broken("bucket %d, with the number %d, has %d members, and says %d", number, b->bucket.index,
                          members, b->bucket.n_parameters);
    if (b->missing < 0 || b->missing > members)
        return yk__broken("bucket %d waits for %d of its %d parameters", number, b->missing, members);
    return NULL;
}

const char *yk__buckets_check(const yk__reducer *r)
{
    for (int i = 0; i < r->count; i++) {
        int times = 0;
        for (int j = 0; j < r->count; j++)
            times += r->order[j] == i;
        if (times != 1)
            return yk__broken("parameter %d of %d is %d times in the order", i, r->count, times);
        const yk__ddp_parameter *p = &r->parameters[i];
        if (p->grad_buffer && (p->bucket < 0 || p->bucket >= r->n_buckets))
            return yk__broken("parameter %s is in bucket %d of %d", p->name, p->bucket, r->n_buckets);
    }
    if (r->next < 0 || r->next > r->n_buckets)
        return yk__broken("bucket %d of %d is next", r->next, r->n_buckets);
    const char *wrong = NULL;
    for (int i = 0; i < r->n_buckets && !wrong; i++)
        wrong = check_bucket(r, i);
    return wrong;
}

yk_status yk__buckets_renew(yk__reducer *r)
{
    r->n_seen = 0;
    r->reduced = false;
    return yk__buckets_make(r);
}

bool yk__buckets_stale(const yk__reducer *r)
{
    for (int i = 0; i < r->count; i++) {
        const yk__ddp_parameter *p = &r->parameters[i];
        if ((yk__wants_grad(p->x) && !yk__in_rows(r, p->x)) != (p->grad_buffer != NULL) ||
            (p->grad_buffer && yk__grad_buffer_of(p->x) != p->grad_buffer))
            return true;
    }
    return false;
}

void yk__buckets_clear(yk__reducer *r)
{
    for (int i = 0; i < r->count && r->parameters; i++) {
        yk_status status = set_grad_buffer(r, i, NULL);
        (void)status; /* taking out has no way to fail */
    }
    bucket_drop(r);
}
