/*
 * row_gradient.c - the gradient of a leaf (V, D) as rows of it: those that an embedding has looked up. Layer: autograd.
 *
 * A backward appends the indices and the gradient of the rows that it looked up, a *part*, and computes nothing. Who
 * wants the gradient sorts it: the indices ascend, each is there once, and its row is the sum of all terms for it,
 * added in their order, as the gradient of all elements would add them. So nothing takes time or memory for rows that
 * were not looked up.
 *
 * Invariants: a leaf has `grad` or rows, and both only while a backward is under way; sorted rows are one part with
 * memory of its own, so they may be changed in place.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "tensor/host_tensor.h"

/* MOST_PARTS: they are summed before there are more, so that backwards without a step take no more memory with time.
 * DIGIT: bits of an index that one pass sorts by. */
enum { MOST_PARTS = 8, DIGIT = 11, BINS = 1 << DIGIT };

yk_tensor *yk__rows_leaf(const yk__node *node, int input)
{
    const yk__node *to = node->edges[input].node;
    if (!to || node->edges[input].skipped || to->op || to->captured)
        return NULL;
    /* A distributed backward claims no leaves: their gradients go to its context. */
    if (atomic_load_explicit(&to->owner, memory_order_relaxed) !=
        atomic_load_explicit(&node->owner, memory_order_relaxed))
        return NULL;
    for (int i = 0; i < to->outputs[0].n_hooks; i++)
        if (to->outputs[0].hooks[i].fn)
            return NULL;
    return to->leaf->leaf_gradient->collector ? NULL : to->leaf;
}

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

/* An index, and its position among the terms. */
typedef struct entry {
    int64_t index, at;
} entry;

/* Sorts by index, and by position where that is the same; `room` has as many. The result is in one of the two. */
static entry *entries_sort(entry *list, entry *room, int64_t count, int64_t most)
{
    for (int shift = 0; shift < 63 && most >> shift > 0; shift += DIGIT) {
        int64_t starts[BINS + 1] = {0};
        for (int64_t i = 0; i < count; i++)
            starts[(list[i].index >> shift & (BINS - 1)) + 1]++;
        for (int b = 0; b < BINS; b++)
            starts[b + 1] += starts[b];
        for (int64_t i = 0; i < count; i++)
            room[starts[list[i].index >> shift & (BINS - 1)]++] = list[i];
        entry *other = list;
        list = room;
        room = other;
    }
    return list;
}

/* The indices of all parts, those of padding left out; *count of them, *terms with the padding. The caller frees. */
static entry *entries_read(const yk__row_gradient *g, int64_t *count, int64_t *terms, int64_t *most)
{
    *count = *terms = *most = 0;
    for (int p = 0; p < g->count; p++)
        *terms += g->parts[p].index->numel;
    entry *list = yk__calloc(2 * (size_t)*terms + 1, sizeof(*list));
    int64_t *read = list ? yk__calloc((size_t)*terms + 1, sizeof(*read)) : NULL;
    yk_status status = read ? YK_OK : YK_ERR_MEMORY;
    int64_t at = 0;
    for (int p = 0; p < g->count && !status; p++) {
        const yk__row_part *part = &g->parts[p];
        int64_t n = part->index->numel;
        yk_tensor *wide = yk__raw_cast(part->index, YK_I64);
        status = wide && n ? yk__tensor_read("grad_rows", wide, read, (size_t)n * sizeof(*read)) : yk__error_code();
        yk_tensor_release(wide);
        for (int64_t i = 0; i < n && !status; i++, at++) {
            if (read[i] == part->padding)
                continue;
            list[(*count)++] = (entry){read[i], at};
            *most = read[i] > *most ? read[i] : *most;
        }
    }
    free(read);
    if (!status)
        return list;
    free(list);
    return NULL;
}

/* The rows of all parts, one after the other: (terms, D); one reference. */
static yk_tensor *rows_together(const yk__row_gradient *g, int64_t terms, int64_t width)
{
    if (g->count == 1)
        return yk__raw_contiguous(g->parts[0].rows);
    const yk_tensor *first = g->parts[0].rows;
    yk_tensor *all = yk__tensor_new(2, (int64_t[]){terms, width}, NULL, (yk_dtype)first->dtype, yk__device_of(first));
    int64_t at = 0;
    for (int p = 0; p < g->count && all; p++) {
        yk_tensor *rows = g->parts[p].rows;
        yk_tensor *to = yk__tensor_view(all, 2, rows->shape, (int64_t[]){width, 1}, at * width);
        yk_status status = to ? yk__raw_copy(to, rows) : yk__error_code();
        yk_tensor_release(to);
        all = yk__tensor_if_ok(all, status);
        at += rows->shape[0];
    }
    return all;
}

/* out (n, D) = the sums of the terms (M, D) by their positions in it (M, on the host); position n is no row of it. */
static yk_tensor *rows_sum(yk_tensor *terms, yk_tensor *positions, int64_t n)
{
    yk_dtype dtype = yk__slot_dtype(terms, YK__SLOT_embedding, (yk_dtype)terms->dtype);
    yk_tensor *wide = yk__raw_cast(terms, dtype), *index = wide ? yk__raw_to(positions, yk__device_of(terms)) : NULL;
    yk_tensor *all =
        index ? yk__tensor_new(2, (int64_t[]){n + 1, terms->shape[1]}, NULL, dtype, yk__device_of(terms)) : NULL;
    if (all) {
        yk__view vo = yk__view_of(all), vt = yk__view_of(wide), vi = yk__view_of(index);
        all = yk__tensor_if_ok(all, YK__SLOT(all, embedding_backward, &vo, &vt, &vi, n));
    }
    yk_tensor_release(wide);
    yk_tensor_release(index);
    yk_tensor *some = all ? yk__tensor_view(all, 2, (int64_t[]){n, terms->shape[1]}, all->stride, 0) : NULL;
    yk_tensor *out = some ? yk__raw_cast(some, (yk_dtype)terms->dtype) : NULL;
    yk_tensor_release(all);
    yk_tensor_release(some);
    return out;
}

/* Takes the entries, in order: the indices that are there (on the host), and the position of each term among them. */
static int64_t entries_number(const entry *list, int64_t count, int64_t terms, int64_t *indices, int64_t *positions)
{
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || list[i].index != list[i - 1].index)
            indices[n++] = list[i].index;
        positions[list[i].at] = n - 1;
    }
    for (int64_t i = 0; i < terms; i++)
        positions[i] = positions[i] < 0 ? n : positions[i];
    return n;
}

static yk_status rows_sort(yk_tensor *leaf, yk__row_gradient *g)
{
    int64_t count, terms, most, n = 0, width = leaf->shape[1];
    entry *list = entries_read(g, &count, &terms, &most);
    if (!list)
        return yk__error_code();
    yk_tensor *indices = yk__host_zeros(1, &count, YK_I64), *positions = yk__host_zeros(1, &terms, YK_I64);
    if (indices && positions) {
        memset(positions->data, 0xff, (size_t)terms * sizeof(int64_t));
        const entry *sorted = entries_sort(list, list + terms, count, most);
        n = entries_number(sorted, count, terms, indices->data, positions->data);
    }
    free(list);
    yk_tensor *some = indices && positions ? yk__tensor_view(indices, 1, &n, (int64_t[]){1}, 0) : NULL;
    yk_tensor *own = some ? yk__raw_clone(some) : NULL, *there = own ? yk__raw_to(own, yk__device_of(leaf)) : NULL;
    yk_tensor *all = there && n ? rows_together(g, terms, width) : NULL;
    yk_tensor *rows = !there ? NULL
                      : n    ? (all ? rows_sum(all, positions, n) : NULL)
                          : yk__tensor_new(2, (int64_t[]){0, width}, NULL, (yk_dtype)leaf->dtype, yk__device_of(leaf));
    yk_tensor_release(all);
    yk_tensor_release(some);
    yk_tensor_release(own);
    yk_tensor_release(indices);
    yk_tensor_release(positions);
    if (!rows) {
        yk_tensor_release(there);
        return yk__error_code();
    }
    for (int p = 0; p < g->count; p++) {
        yk_tensor_release(g->parts[p].index);
        yk_tensor_release(g->parts[p].rows);
    }
    g->count = 1;
    g->parts[0] = (yk__row_part){there, rows, -1};
    g->sorted = true;
    return YK_OK;
}

yk__row_part *yk__rows_sorted(yk_tensor *x)
{
    yk__row_gradient *g = x->leaf_gradient->rows;
    return !g->sorted && rows_sort(x, g) ? NULL : &g->parts[0];
}

/* ---- a leaf's rows ----------------------------------------------------------------------------------------------- */

yk_status yk__rows_add(yk_tensor *leaf, yk_tensor *index, yk_tensor *rows, int64_t padding)
{
    yk__leaf_gradient *meta = yk__leaf_gradient_of(leaf);
    yk__row_gradient *g = meta ? meta->rows : NULL;
    if (meta && !g)
        g = meta->rows = yk__calloc(1, sizeof(*g));
    if (!g)
        return YK_ERR_MEMORY;
    if (g->count >= MOST_PARTS && rows_sort(leaf, g))
        return yk__error_code();
    if (g->count == g->room) {
        int room = g->room ? 2 * g->room : 2;
        yk__row_part *grown = yk__realloc(g->parts, sizeof(*grown) * (size_t)room);
        if (!grown)
            return YK_ERR_MEMORY;
        g->parts = grown;
        g->room = room;
    }
    g->parts[g->count++] = (yk__row_part){yk_tensor_retain(index), yk_tensor_retain(rows), padding};
    g->sorted = false;
    g->fresh = true;
    return YK_OK;
}

/* All elements, (V, D), with the strides of the leaf; one reference. */
static yk_tensor *rows_to_dense(yk_tensor *x)
{
    const yk__row_part *part = yk__rows_sorted(x);
    yk_dtype dtype = part ? yk__slot_dtype(part->rows, YK__SLOT_embedding, (yk_dtype)x->dtype) : YK_F32;
    yk_tensor *all = part ? yk__tensor_new(2, x->shape, NULL, dtype, yk__device_of(x)) : NULL;
    if (all && !part->rows->numel) {
        all = yk__tensor_if_ok(all, yk__raw_fill(all, 0));
    } else if (all) {
        yk_tensor *wide = yk__raw_cast(part->rows, dtype);
        yk__view vo = yk__view_of(all), vt = wide ? yk__view_of(wide) : vo, vi = yk__view_of(part->index);
        all = yk__tensor_if_ok(all, wide ? YK__SLOT(all, embedding_backward, &vo, &vt, &vi, -1) : yk__error_code());
        yk_tensor_release(wide);
    }
    yk_tensor *out = all ? yk__raw_cast(all, (yk_dtype)x->dtype) : NULL;
    yk_tensor_release(all);
    return out;
}

yk_status yk__rows_settle(yk_tensor *leaf)
{
    yk__leaf_gradient *meta = leaf->leaf_gradient;
    meta->rows->fresh = false;
    if (!meta->grad)
        return YK_OK;
    yk_tensor *all = rows_to_dense(leaf), *before = meta->grad;
    yk_tensor *sum = all ? yk__raw_binary("backward", YK__ADD, before, all, 1) : NULL;
    yk_tensor_release(all);
    if (!sum)
        return yk__error_code();
    meta->grad = sum;
    yk_tensor_release(before);
    yk__row_gradient_free(meta->rows);
    meta->rows = NULL;
    return YK_OK;
}

yk_tensor *yk__grad_elements(yk_tensor *x)
{
    if (!yk__has_rows(x))
        return yk_grad(x);
    const yk__row_part *part = yk__rows_sorted(x);
    return part ? part->rows : NULL;
}

yk_status yk__rows_follow(yk_tensor *x)
{
    if (!yk__has_rows(x))
        return YK_OK;
    yk__row_part *part = yk__rows_sorted(x);
    yk_tensor *index = part ? yk__raw_to(part->index, yk__device_of(x)) : NULL;
    yk_tensor *cast = index ? yk__raw_cast(part->rows, (yk_dtype)x->dtype) : NULL;
    yk_tensor *rows = cast ? yk__raw_to(cast, yk__device_of(x)) : NULL;
    yk_tensor_release(cast);
    if (!rows) {
        yk_tensor_release(index);
        return yk__error_code();
    }
    yk_tensor_release(part->index);
    yk_tensor_release(part->rows);
    *part = (yk__row_part){index, rows, -1};
    return YK_OK;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

yk_status yk_grad_rows(yk_tensor *x, yk_tensor **indices, yk_tensor **rows)
{
    YK__LIVE(x);
    if (!indices || !rows)
        return yk__fail(YK_ERR_ARGUMENT, "grad_rows: there is no room for the %s", indices ? "rows" : "indices");
    *indices = *rows = NULL;
    if (!yk__is_there("grad_rows", "tensor", x))
        return yk__error_code();
    const yk__row_part *part = yk__has_rows(x) ? yk__rows_sorted(x) : NULL;
    if (part) {
        *indices = part->index;
        *rows = part->rows;
    }
    return part || !yk__has_rows(x) ? YK_OK : yk__error_code();
}

/* Fails unless the indices are those of rows of x. */
static yk_status indices_check(const yk_tensor *x, yk_tensor *indices)
{
    yk_tensor *wide = yk__raw_cast(indices, YK_I64);
    int64_t *read = wide ? yk__calloc((size_t)indices->numel + 1, sizeof(*read)) : NULL;
    yk_status status = read ? YK_OK : yk__error_code();
    if (!status && indices->numel)
        status = yk__tensor_read("set_grad_rows", wide, read, (size_t)indices->numel * sizeof(*read));
    for (int64_t i = 0; i < indices->numel && !status; i++)
        if (read[i] < 0 || read[i] >= x->shape[0])
            status = yk__fail(YK_ERR_ARGUMENT, "set_grad_rows: index %lld at position %lld is outside [0, %lld)",
                              (long long)read[i], (long long)i, (long long)x->shape[0]);
    free(read);
    yk_tensor_release(wide);
    return status;
}

yk_status yk_set_grad_rows(yk_tensor *x, yk_tensor *indices, yk_tensor *rows)
{
    YK__LIVE(x);
    YK__LIVE(indices);
    YK__LIVE(rows);
    if (!yk__is_there("set_grad_rows", "tensor", x) || !yk__is_there("set_grad_rows", "tensor of indices", indices) ||
        !yk__is_there("set_grad_rows", "tensor of rows", rows))
        return yk__error_code();
    char a[200], b[200], c[200];
    if (!yk_is_leaf(x) || x->ndim != 2)
        return yk__fail(YK_ERR_ARGUMENT, "set_grad_rows: the tensor has shape %s, expected a leaf (V, D)",
                        yk_shape_format(x, a, sizeof(a)));
    if (indices->ndim != 1 || rows->ndim != 2 || rows->shape[0] != indices->shape[0] || rows->shape[1] != x->shape[1])
        return yk__fail(YK_ERR_SHAPE,
                        "set_grad_rows: indices of shape %s and rows of %s for a tensor of %s; expected "
                        "(n) and (n, %lld)",
                        yk_shape_format(indices, a, sizeof(a)), yk_shape_format(rows, b, sizeof(b)),
                        yk_shape_format(x, c, sizeof(c)), (long long)x->shape[1]);
    if ((indices->dtype != YK_I64 && indices->dtype != YK_I32) || rows->dtype != x->dtype)
        return yk__fail(YK_ERR_DTYPE,
                        "set_grad_rows: indices of %s and rows of %s for a tensor of %s; expected int64 or "
                        "int32, and %s",
                        yk_dtype_name((yk_dtype)indices->dtype), yk_dtype_name((yk_dtype)rows->dtype),
                        yk_dtype_name((yk_dtype)x->dtype), yk_dtype_name((yk_dtype)x->dtype));
    yk_tensor *all[3] = {x, indices, rows};
    yk_status status = yk__same_device("set_grad_rows", 3, all);
    status = status ? status : indices_check(x, indices);
    if (status)
        return status;
    yk_tensor *index = yk__raw_clone(indices), *copy = index ? yk__raw_clone(rows) : NULL;
    status = copy ? yk_set_grad(x, NULL) : yk__error_code();
    status = status ? status : yk__rows_add(x, index, copy, -1);
    if (!status)
        x->leaf_gradient->rows->fresh = false;
    yk_tensor_release(index);
    yk_tensor_release(copy);
    return status;
}

yk_tensor *yk_grad_to_dense(yk_tensor *x)
{
    YK__LIVE(x);
    if (!yk__is_there("grad_to_dense", "tensor", x) || !yk__scope_check("grad_to_dense"))
        return NULL;
    return yk__has_rows(x) ? yk__scope_own(rows_to_dense(x)) : yk__scope_own(yk_tensor_retain(yk_grad(x)));
}
