/*
 * ddp_rows.c - gradients by rows under DistributedDataParallel: the ranks give each other the rows that they have, and
 * all come to the same sums. Layer: parallel.
 *
 * The weights of sparse embeddings are in no bucket. At the end of a reduction every rank gathers, for each of them in
 * turn, the indices and rows of all ranks, filled up to the number of the rank that has most, and adds them in the
 * order of the ranks: the same gradient everywhere, to the last bit, of so many bytes as rows were looked up. A rank
 * whose gradient is of all elements (the weight has another use, a hook) makes it so on all.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/agreement.h"
#include "parallel/reducer.h"
#include "tensor/host_tensor.h"

bool yk__rows_are_apart(const yk__reducer *r)
{
    bool others = false;
    for (int i = 0; i < r->count && !r->has_hook && !others; i++) {
        const yk_tensor *x = r->parameters[i].x;
        others = yk__wants_grad(x) && !(x->leaf_gradient && x->leaf_gradient->by_rows);
    }
    return others; /* without others no backward would be noticed */
}

bool yk__in_rows(const yk__reducer *r, const yk_tensor *x)
{
    return yk__wants_grad(x) && x->leaf_gradient && x->leaf_gradient->by_rows && yk__rows_are_apart(r);
}

/* The number of rows that this rank's gradient has; -1: it is of all elements. An error without memory. */
static yk_status rows_count(yk_tensor *x, int64_t *count)
{
    const yk__row_part *part = yk__has_rows(x) ? yk__rows_sorted(x) : NULL;
    if (yk__has_rows(x) && !part)
        return yk__error_code();
    *count = yk_grad(x) ? -1 : part ? part->index->numel : 0;
    return YK_OK;
}

/* The gradient of all elements becomes the mean of the ranks'. In a scope. */
static yk_status all_elements(const yk__reducer *r, yk_tensor *x, int divisor)
{
    yk_tensor *there = yk_grad_to_dense(x), *all = there ? yk_clone(there) : yk_zeros_like(x);
    yk_status status = all ? yk_all_reduce(all, YK_OP_SUM, r->group) : yk__error_code();
    if (!status)
        status = yk__raw_unary_into("ddp", YK__MUL_SCALAR, all, 1.0 / divisor, 0);
    return status ? status : yk_set_grad(x, all);
}

/* A copy of `part` (n, ...), or nothing, at the beginning of zeros like `like` (0, ...) with `most` of them, gathered
 * from all ranks: (world_size, most, ...). In a scope. */
static yk_tensor *gathered(const yk__reducer *r, yk_tensor *like, yk_tensor *part, int64_t most)
{
    int64_t shape[3] = {r->world_size, most, like->ndim == 2 ? like->shape[1] : 1};
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)like->dtype, .device = yk__device_of(like));
    yk_tensor *own = yk_zeros(like->ndim, shape + 1, &o), *all = yk_zeros(like->ndim + 1, shape, &o);
    if (own && part && part->shape[0] && yk__raw_copy(yk_narrow(own, 0, 0, part->shape[0]), part))
        return NULL;
    return own && all && !yk_all_gather(all, own, r->group) ? all : NULL;
}

/* The gradient by rows becomes the mean of the ranks'. counts[] are their numbers of rows. In a scope. */
static yk_status some_rows(const yk__reducer *r, yk_tensor *x, const int64_t *counts, int64_t stride, int64_t most,
                           int divisor)
{
    const yk__row_part *part = yk__has_rows(x) ? yk__rows_sorted(x) : NULL;
    yk_tensor *numbers =
        yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(x)));
    yk_tensor *index = numbers ? gathered(r, numbers, part ? part->index : NULL, most) : NULL;
    yk_tensor *rows = index ? gathered(r, x, part ? part->rows : NULL, most) : NULL;
    yk_status status = rows ? yk_set_grad(x, NULL) : yk__error_code();
    for (int rank = 0; rank < r->world_size && !status; rank++) {
        int64_t n = counts[rank * stride];
        yk_tensor *i = n ? yk_narrow(yk_select(index, 0, rank), 0, 0, n) : NULL;
        yk_tensor *g = n ? yk_narrow(yk_select(rows, 0, rank), 0, 0, n) : NULL;
        if (n)
            status = i && g ? yk__rows_add(x, i, g, -1) : yk__error_code();
    }
    const yk__row_part *sum = status ? NULL : yk__rows_sorted(x);
    if (!status && !sum)
        status = yk__error_code();
    if (!status)
        x->leaf_gradient->rows->fresh = false;
    return status || !sum->rows->numel ? status
                                       : yk__raw_unary_into("ddp", YK__MUL_SCALAR, sum->rows, 1.0 / divisor, 0);
}

/* Exchanges the parameters at which[]. In a scope, unrecorded. */
static yk_status rows_exchange(const yk__reducer *r, const int *which, int64_t n, int divisor)
{
    int64_t total = r->world_size * n;
    yk_tensor *own = yk__scope_own(yk__host_zeros(1, &n, YK_I64));
    yk_tensor *all = own ? yk__scope_own(yk__host_zeros(1, &total, YK_I64)) : NULL;
    yk_status status = all ? YK_OK : yk__error_code();
    for (int64_t i = 0; i < n && !status; i++)
        status = rows_count(r->parameters[which[i]].x, &((int64_t *)own->data)[i]);
    if (!status)
        status = YK__HOST_TENSORS(yk_all_gather(all, own, r->group));
    for (int64_t i = 0; i < n && !status; i++) {
        const int64_t *counts = (const int64_t *)all->data + i;
        int64_t most = 0, least = 0;
        for (int rank = 0; rank < r->world_size; rank++) {
            most = counts[rank * n] > most ? counts[rank * n] : most;
            least = counts[rank * n] < least ? counts[rank * n] : least;
        }
        yk_tensor *x = r->parameters[which[i]].x;
        if (least < 0)
            status = all_elements(r, x, divisor);
        else if (most)
            status = some_rows(r, x, counts, n, most, divisor);
    }
    return status;
}

yk_status yk__rows_exchange(yk__reducer *r)
{
    int n = 0, *which = yk__calloc((size_t)r->count + 1, sizeof(*which));
    yk_status status = which ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < r->count && !status; i++)
        if (!r->parameters[i].grad_buffer && yk__in_rows(r, r->parameters[i].x))
            which[n++] = i;
    if (n) {
        int divisor = r->join.on && r->join.divide_by_active ? r->join.active : r->world_size;
        bool recording = yk_no_grad_begin();
        yk_scope scope = yk_scope_begin();
        status = rows_exchange(r, which, n, divisor);
        yk_scope_end(scope);
        yk_no_grad_end(recording);
        if (status)
            yk__error_prefix("ddp: gradients by rows");
    }
    free(which);
    return status;
}

void yk__rows_drop(const yk__reducer *r)
{
    for (int i = 0; i < r->count; i++)
        if (yk__in_rows(r, r->parameters[i].x) && yk_set_grad(r->parameters[i].x, NULL))
            return; /* dropping has no way to fail */
}
