/*
 * packed.c - sequences of several lengths as one: padded and packed. Layer: ops.
 *
 * A packed sequence has the first steps of all sequences, the longest one first, then the second steps of those that
 * have one, and so on. Packing and padding are one gather of rows, whose gradient goes back by the same positions.
 */
#include <stdlib.h>

#include "ops/op.h"

typedef struct sorted {
    int64_t length, position;
} sorted;

static int longer_first(const void *a, const void *b)
{
    const sorted *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? 1 : -1;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* A tensor of int64 on the CPU, owned by the scope. */
static yk_tensor *integers(const int64_t *values, int64_t count)
{
    return yk_from_data(values, 1, &count, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = {YK_CPU, 0}));
}

/* The lengths, longest first, of x (N,T,...) or (T,N,...). */
static yk_status read_lengths(const yk_tensor *x, const yk_tensor *lengths, bool batch_first, bool enforce_sorted,
                              sorted *order)
{
    int64_t count = x->shape[!batch_first], steps = x->shape[batch_first];
    int64_t *values = yk__calloc((size_t)count, sizeof(*values));
    yk_status status = values ? yk_tensor_read(lengths, values, sizeof(*values) * (size_t)count) : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        order[i] = (sorted){values[i], i};
        if (values[i] < 1 || values[i] > steps)
            status =
                yk__fail(YK_ERR_ARGUMENT, "pack_padded_sequence: lengths[%lld] is %lld, expected 1 to the %lld steps",
                         (long long)i, (long long)values[i], (long long)steps);
        else if (i && enforce_sorted && values[i] > values[i - 1])
            status =
                yk__fail(YK_ERR_ARGUMENT,
                         "pack_padded_sequence: lengths[%lld] is %lld, above the %lld before it; sort them, or set "
                         "enforce_sorted to false",
                         (long long)i, (long long)values[i], (long long)values[i - 1]);
    }
    free(values);
    if (!status && !enforce_sorted)
        qsort(order, (size_t)count, sizeof(*order), longer_first);
    return status;
}

/* x as rows, (steps N, ...), in the order of its memory; row (t, n) is at t stride[0] + n stride[1]. */
static yk_tensor *rows_of(yk_tensor *x, bool batch_first, int64_t stride[2])
{
    int64_t shape[YK_MAX_DIMS];
    stride[batch_first] = x->shape[1];
    stride[!batch_first] = 1;
    memcpy(shape + 1, x->shape + 2, sizeof(shape[0]) * (size_t)(x->ndim - 2));
    shape[0] = x->shape[0] * x->shape[1];
    return yk_reshape(x, x->ndim - 1, shape);
}

static yk_status pack(yk_tensor *x, const sorted *order, bool batch_first, bool enforce_sorted, yk_packed_sequence *out)
{
    int64_t count = x->shape[!batch_first], total = 0, stride[2];
    for (int64_t i = 0; i < count; i++)
        total += order[i].length;
    int64_t steps = order[0].length, *positions = yk__calloc((size_t)(total + steps + 2 * count), sizeof(*positions));
    if (!positions)
        return yk__error_code();
    int64_t *sizes = positions + total, *there = sizes + steps, *back = there + count, at = 0;
    yk_tensor *rows = rows_of(x, batch_first, stride);
    for (int64_t t = 0; t < steps; t++) {
        int64_t n = 0;
        for (; n < count && order[n].length > t; n++)
            positions[at++] = t * stride[0] + order[n].position * stride[1];
        sizes[t] = n;
    }
    for (int64_t i = 0; i < count; i++) {
        there[i] = order[i].position;
        back[order[i].position] = i;
    }
    yk_device device = yk__device_of(x);
    out->data = rows ? yk_index_select(rows, 0, yk_to(integers(positions, total), device)) : NULL;
    out->batch_sizes = integers(sizes, steps);
    if (!enforce_sorted) {
        out->sorted_indices = yk_to(integers(there, count), device);
        out->unsorted_indices = yk_to(integers(back, count), device);
    }
    free(positions);
    bool complete = out->data && out->batch_sizes && (enforce_sorted || (out->sorted_indices && out->unsorted_indices));
    return complete ? YK_OK : yk__status_of(NULL);
}

/* Hands the four tensors to the scope around `scope`, and ends it. */
static yk_status hand_out(yk_scope scope, yk_status status, yk_packed_sequence *packed)
{
    yk_tensor **parts[] = {&packed->data, &packed->batch_sizes, &packed->sorted_indices, &packed->unsorted_indices};
    for (int i = 0; i < 4; i++) {
        bool there = !status && *parts[i];
        *parts[i] = there ? yk_scope_return(scope, *parts[i]) : NULL;
        status = there ? yk__status_of(*parts[i]) : status;
    }
    yk_scope_end(scope);
    if (status)
        *packed = (yk_packed_sequence){.data = NULL};
    return status;
}

yk_status yk_pack_padded_sequence(yk_tensor *x, yk_tensor *lengths, bool batch_first, bool enforce_sorted,
                                  yk_packed_sequence *packed)
{
    static const char name[] = "pack_padded_sequence";
    char text[200];
    if (!yk__is_there(name, "packed sequence", packed))
        return YK_ERR_ARGUMENT;
    *packed = (yk_packed_sequence){.data = NULL};
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0) || !yk__op_begin(name, 1, &lengths, 0))
        return yk__status_of(NULL);
    if (x->ndim < 2 || !x->shape[0] || !x->shape[1])
        return yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (%s, ...), neither of them 0", name,
                        yk_shape_format(x, text, sizeof(text)), batch_first ? "N, T" : "T, N");
    if (lengths->dtype != YK_I64 || yk__device_of(lengths).type != YK_CPU || lengths->ndim != 1 ||
        lengths->shape[0] != x->shape[!batch_first])
        return yk__fail(YK_ERR_ARGUMENT, "%s: lengths is %s of %s, expected (%lld) of int64 on a CPU", name,
                        yk_shape_format(lengths, text, sizeof(text)), yk_dtype_name((yk_dtype)lengths->dtype),
                        (long long)x->shape[!batch_first]);
    sorted *order = yk__calloc((size_t)lengths->shape[0], sizeof(*order));
    if (!order)
        return yk__error_code();
    yk_scope scope = yk_scope_begin();
    yk_status status = read_lengths(x, lengths, batch_first, enforce_sorted, order);
    status = status ? status : pack(x, order, batch_first, enforce_sorted, packed);
    free(order);
    return hand_out(scope, status, packed);
}

/* ---- padding ----------------------------------------------------------------------------------------------------- */

/* The padded tensor and the lengths of sorted sequences, whose batch sizes are checked; order[] or NULL: the sorting
 * that they had before. */
static yk_status pad_rows(const yk_packed_sequence *packed, const int64_t *sizes, int64_t steps, int64_t total,
                          const int64_t *order, bool batch_first, double value, yk_tensor **out, yk_tensor **lengths)
{
    yk_tensor *data = packed->data;
    int64_t count = sizes[0], rows = data->shape[0], at = 0;
    int64_t *positions = yk__calloc((size_t)(total * count + count), sizeof(*positions)), *ends = positions;
    if (!positions)
        return yk__error_code();
    int64_t *from = positions + count;
    for (int64_t i = 0; i < total * count; i++)
        from[i] = rows; /* the row of padding */
    for (int64_t t = 0; t < steps; t++) {
        for (int64_t n = 0; n < sizes[t]; n++) {
            int64_t to_row = order ? order[n] : n;
            from[batch_first ? to_row * total + t : t * count + to_row] = at++;
            ends[to_row]++;
        }
    }
    int64_t shape[YK_MAX_DIMS], whole[YK_MAX_DIMS];
    memcpy(shape, data->shape, sizeof(shape[0]) * (size_t)data->ndim);
    shape[0] = 1;
    yk_tensor_options options =
        *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)data->dtype, .device = yk__device_of(data));
    yk_tensor *padding = yk_full(data->ndim, shape, value, &options);
    yk_tensor *all = yk_cat((yk_tensor *[]){data, padding}, 2, 0);
    yk_tensor *picked = yk_index_select(all, 0, yk_to(integers(from, total * count), yk__device_of(data)));
    whole[0] = batch_first ? count : total;
    whole[1] = batch_first ? total : count;
    memcpy(whole + 2, data->shape + 1, sizeof(whole[0]) * (size_t)(data->ndim - 1));
    *out = yk_reshape(picked, data->ndim + 1, whole);
    *lengths = integers(ends, count);
    free(positions);
    return *out && *lengths ? YK_OK : yk__status_of(NULL);
}

static yk_status pad_packed(const yk_packed_sequence *packed, bool batch_first, double value, int64_t total_length,
                            yk_tensor **out, yk_tensor **lengths)
{
    static const char name[] = "pad_packed_sequence";
    const yk_tensor *sizes = packed->batch_sizes, *sorting = packed->sorted_indices;
    int64_t steps = sizes->numel, sum = 0, rows = packed->data->shape[0];
    int64_t most = sorting ? sorting->numel : 0, *values = yk__calloc((size_t)(steps + most), sizeof(*values));
    yk_status status = values ? yk_tensor_read(sizes, values, sizeof(*values) * (size_t)steps) : YK_ERR_MEMORY;
    for (int64_t t = 0; t < steps && !status; t++) {
        if (values[t] < 1 || (t && values[t] > values[t - 1]) || values[t] > rows - sum)
            status = yk__fail(YK_ERR_ARGUMENT, "%s: batch_sizes[%lld] is %lld, which does not fit data of %lld rows",
                              name, (long long)t, (long long)values[t], (long long)rows);
        sum += values[t];
    }
    if (!status && sum != rows)
        status = yk__fail(YK_ERR_ARGUMENT, "%s: batch_sizes add up to %lld, but data has %lld rows", name,
                          (long long)sum, (long long)rows);
    if (!status && total_length != YK_NOT_GIVEN && total_length < steps)
        status = yk__fail(YK_ERR_ARGUMENT, "%s: total_length is %lld, but the longest sequence has %lld steps", name,
                          (long long)total_length, (long long)steps);
    int64_t total = yk__integer_or(total_length, steps), cells;
    if (!status && (total > INT32_MAX || __builtin_mul_overflow(total, values[0], &cells) || cells > INT64_MAX / 32))
        status = yk__fail(YK_ERR_ARGUMENT, "%s: total_length is %lld, more than fits in memory", name,
                          (long long)total_length);
    int64_t *order = status || !sorting ? NULL : values + steps;
    if (order)
        status = yk_tensor_read(yk_cpu((yk_tensor *)sorting), order, sizeof(*order) * (size_t)most);
    for (int64_t i = 0; i < most && order && !status; i++)
        if (most != values[0] || order[i] < 0 || order[i] >= most)
            status = yk__fail(YK_ERR_ARGUMENT, "%s: sorted_indices do not fit batch_sizes", name);
    status = status ? status : pad_rows(packed, values, steps, total, order, batch_first, value, out, lengths);
    free(values);
    return status;
}

yk_status yk_pad_packed_sequence(const yk_packed_sequence *packed, bool batch_first, double padding_value,
                                 int64_t total_length, yk_tensor **padded, yk_tensor **lengths)
{
    static const char name[] = "pad_packed_sequence";
    yk_tensor *made[2] = {NULL}, **to[2] = {padded, lengths};
    char text[200];
    for (int i = 0; i < 2; i++)
        if (to[i])
            *to[i] = NULL;
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__is_there(name, "packed sequence", packed))
        return YK_ERR_ARGUMENT;
    if (!yk__op_begin(name, 1, &packed->data, 0) || !yk__op_begin(name, 1, &packed->batch_sizes, 0) ||
        !yk__op_begin(name, 1, &packed->sorted_indices, 1))
        return yk__status_of(NULL);
    const yk_tensor *sizes = packed->batch_sizes, *sorting = packed->sorted_indices;
    if (packed->data->ndim < 1 || packed->data->ndim >= YK_MAX_DIMS || sizes->ndim != 1 || sizes->dtype != YK_I64 ||
        yk__device_of(sizes).type != YK_CPU || !sizes->numel)
        return yk__fail(YK_ERR_ARGUMENT, "%s: batch_sizes is %s of %s, expected (T) of int64 on a CPU", name,
                        yk_shape_format(sizes, text, sizeof(text)), yk_dtype_name((yk_dtype)sizes->dtype));
    if (sorting && (sorting->ndim != 1 || sorting->dtype != YK_I64))
        return yk__fail(YK_ERR_ARGUMENT, "%s: sorted_indices is %s of %s, expected (N) of int64", name,
                        yk_shape_format(sorting, text, sizeof(text)), yk_dtype_name((yk_dtype)sorting->dtype));
    yk_scope scope = yk_scope_begin();
    yk_status status = pad_packed(packed, batch_first, padding_value, total_length, &made[0], &made[1]);
    for (int i = 0; i < 2; i++) {
        if (!status && to[i]) {
            *to[i] = yk_scope_return(scope, made[i]);
            status = yk__status_of(*to[i]);
        }
    }
    yk_scope_end(scope);
    return status;
}

yk_tensor *yk_pad_sequence(yk_tensor *const *sequences, int count, bool batch_first, double padding_value)
{
    static const char name[] = "pad_sequence";
    char a[200], b[200];
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (count < 1) {
        yk__fail(YK_ERR_ARGUMENT, "%s: %d sequences, expected at least one", name, count);
        return NULL;
    }
    if (!yk__is_there(name, "array of sequences", sequences) || !yk__op_begin(name, count, sequences, 0))
        return NULL;
    int64_t longest = 0;
    const yk_tensor *first = sequences[0];
    for (int i = 0; i < count; i++) {
        const yk_tensor *x = sequences[i];
        if (x->ndim < 1 || x->ndim != first->ndim || x->ndim >= YK_MAX_DIMS || x->dtype != first->dtype ||
            !yk__equal_sizes(x->shape + 1, first->shape + 1, x->ndim - 1)) {
            yk__fail(YK_ERR_SHAPE,
                     "%s: sequence %d is %s of %s, the first %s of %s; they may differ in their first size "
                     "alone",
                     name, i, yk_shape_format(x, a, sizeof(a)), yk_dtype_name((yk_dtype)x->dtype),
                     yk_shape_format(first, b, sizeof(b)), yk_dtype_name((yk_dtype)first->dtype));
            return NULL;
        }
        longest = x->shape[0] > longest ? x->shape[0] : longest;
    }
    yk_tensor **padded = yk__calloc((size_t)count, sizeof(*padded));
    if (!padded)
        return NULL;
    yk_scope scope = yk_scope_begin();
    bool complete = true;
    for (int i = 0; i < count && complete; i++) {
        int64_t widths[2 * YK_MAX_DIMS] = {0};
        int n = 2 * sequences[i]->ndim;
        widths[n - 1] = longest - sequences[i]->shape[0];
        padded[i] = widths[n - 1] ? yk_pad(sequences[i], widths, n, YK_PAD_CONSTANT, padding_value) : sequences[i];
        complete = padded[i] != NULL;
    }
    yk_tensor *out = complete ? yk_stack(padded, count, batch_first ? 0 : 1) : NULL;
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    free(padded);
    return out;
}
