/*
 * index_targets.c - indices that are outside of their dimension, and more index tensors than a loop has operands for.
 * Layer: device/cpu.
 */
#include "device/cpu/index/index_targets.h"

bool yk__indices_inside(const int64_t *index, int64_t n, uint64_t below, uint64_t room)
{
    uint64_t outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside |= (uint64_t)index[i] + below >= room;
    return outside == 0;
}

/* The view without the dimensions that it is only repeated along. */
static yk__view own_part(const yk__view *v)
{
    yk__view own = *v;
    for (int d = 0; d < own.ndim; d++)
        if (own.stride[d] == 0 && own.shape[d] > 1)
            own.shape[d] = 1;
    return own;
}

typedef struct search {
    uint64_t below, room;
    atomic_bool *bad;
    const int64_t *found; /* the first outside, where one thread looks */
} search;

static void check_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const search *s = context;
    uint64_t outside = 0;
    if (stride[0] == (int64_t)sizeof(int64_t)) {
        outside = !yk__indices_inside((const int64_t *)data[0], n, s->below, s->room);
    } else {
        for (int64_t i = 0; i < n; i++)
            outside |= (uint64_t) * (const int64_t *)(data[0] + i * stride[0]) + s->below >= s->room;
    }
    if (outside)
        atomic_store_explicit(s->bad, true, memory_order_relaxed);
}

static void find_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    search *s = (search *)context;
    for (int64_t i = 0; i < n && !s->found; i++) {
        const int64_t *at = (const int64_t *)(data[0] + i * stride[0]);
        if ((uint64_t)*at + s->below >= s->room)
            s->found = at;
    }
}

static search search_of(const yk__indices *p, int k, atomic_bool *bad)
{
    uint64_t size = (uint64_t)p->of[k].size, below = p->wrap ? size : 0;
    return (search){.below = below, .room = size + below, .bad = bad};
}

yk_status yk__indices_fail(const yk__indices *p)
{
    for (int k = 0; k < p->count; k++) {
        search s = search_of(p, k, NULL);
        yk__view own = own_part(&p->of[k].view);
        const yk__view *views[] = {&own};
        yk__loop loop;
        yk__loop_init(&loop, 1, views, true);
        yk__loop_job job = {&loop, find_run, &s};
        if (loop.total)
            yk__loop_piece(&job, 0, loop.total, 0);
        if (s.found)
            return yk__fail(YK_ERR_ARGUMENT, "%s: index %lld is outside dimension %d of size %lld", p->name,
                            (long long)*s.found, p->of[k].dim, (long long)p->of[k].size);
    }
    return YK_OK;
}

yk_status yk__indices_check(int device, const yk__indices *p)
{
    atomic_bool bad = false;
    for (int k = 0; k < p->count; k++) {
        search s = search_of(p, k, &bad);
        yk__view own = own_part(&p->of[k].view);
        const yk__view *views[] = {&own};
        yk__loop loop;
        yk__loop_init(&loop, 1, views, false);
        yk__loop_run(device, &loop, YK__GRAIN, check_run, &s);
    }
    return atomic_load(&bad) ? yk__indices_fail(p) : YK_OK;
}

/* ---- many index tensors ---- */

static void add_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const targets *p = context;
    int64_t offset[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        char *index[] = {data[1] + i * stride[1]};
        offsets(p, m, index, stride + 1, offset);
        for (int64_t j = 0; j < m; j++) {
            int64_t *to = (int64_t *)(data[0] + (i + j) * stride[0]);
            *to = (p->accumulate ? *to : 0) + offset[j];
        }
    }
    (void)first;
}

yk_status yk__index_operands(int device, const yk__view *shape_of, const yk__indices *p, targets *to, yk__view *sum,
                             const yk__view **views, yk__storage **scratch)
{
    to->wrap = p->wrap;
    to->count = p->count;
    *scratch = NULL;
    if (p->count <= FUSED) {
        for (int k = 0; k < p->count; k++) {
            views[2 + k] = &p->of[k].view;
            to->size[k] = p->of[k].size;
            to->step[k] = p->of[k].stride * (int64_t)to->element;
        }
        return YK_OK;
    }
    *sum = *shape_of;
    sum->dtype = YK_I64;
    int64_t step = 1, extent = 1;
    for (int d = sum->ndim - 1; d >= 0; d--) {
        sum->stride[d] = step;
        step *= sum->shape[d];
    }
    if (yk__indices_check(device, p))
        return yk__error_code();
    sum->data = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)step * sizeof(int64_t), scratch);
    if (!sum->data)
        return yk__error_code();
    for (int k = 0; k < p->count; k++) {
        targets one = {
            .count = 1, .wrap = p->wrap, .size = {p->of[k].size}, .step = {p->of[k].stride}, .accumulate = k > 0};
        const yk__view *pair[] = {sum, &p->of[k].view};
        yk__loop loop;
        yk__loop_init(&loop, 2, pair, false);
        yk__loop_run(device, &loop, YK__GRAIN, add_run, &one);
        extent += (p->of[k].size - 1) * p->of[k].stride;
    }
    views[2] = sum;
    to->count = 1;
    to->wrap = false;
    to->size[0] = extent;
    to->step[0] = (int64_t)to->element;
    return YK_OK;
}
