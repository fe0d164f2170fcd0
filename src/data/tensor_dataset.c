/*
 * tensor_dataset.c - tensors in memory as a data set: a sample is a row of each. Layer: data.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/autograd.h>
#include <yoke/ops.h>

#include "data/dataset.h"
#include "tensor/tensor.h"

/* The tensors are of cpu:0, in C order and outside of any graph; one reference to each. */
typedef struct tensor_rows {
    int count;
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    size_t row_bytes[YK_SAMPLE_TENSORS];
} tensor_rows;

static void tensor_rows_destroy(void *context)
{
    tensor_rows *rows = context;
    for (int i = 0; i < rows->count; i++)
        yk_object_release(rows->tensors[i]);
    free(rows);
}

static yk_status tensor_rows_get(void *context, int64_t index, yk_sample *sample)
{
    const tensor_rows *rows = context;
    for (int i = 0; i < rows->count; i++) {
        const yk_tensor *x = rows->tensors[i];
        const char *row = (const char *)x->data + (size_t)index * rows->row_bytes[i];
        if (i == 0)
            yk_sample_view(sample, row, x->dtype, x->ndim - 1, x->shape + 1);
        else if (yk_sample_view_at(sample, i, row, x->dtype, x->ndim - 1, x->shape + 1))
            return yk__error_code();
    }
    return YK_OK;
}

static int64_t tensor_rows_label(void *context, int64_t index)
{
    const tensor_rows *rows = context;
    const yk_tensor *y = rows->count > 1 ? rows->tensors[1] : NULL;
    return y && y->dtype == YK_I64 && y->ndim == 1 ? ((const int64_t *)y->data)[index] : -1;
}

/* True if the rows of tensor i of `count` can be samples, beside those of the first. */
static bool rows_fit(int i, int count, const yk_tensor *first, const yk_tensor *x)
{
    char shape[128];
    if (x->ndim == 0) {
        yk__fail(YK_ERR_SHAPE,
                 "tensor_dataset: tensor %d of %d is a single number; its dimension 0 has to be the samples", i, count);
        return false;
    }
    if (x->shape[0] != first->shape[0]) {
        yk__fail(YK_ERR_SHAPE,
                 "tensor_dataset: tensor 0 has %lld rows and tensor %d has %lld; each sample is a row of all",
                 (long long)first->shape[0], i, (long long)x->shape[0]);
        return false;
    }
    bool empty = false;
    for (int d = 1; d < x->ndim; d++)
        empty |= x->shape[d] == 0;
    if (i == 0 && empty) {
        yk__fail(YK_ERR_SHAPE, "tensor_dataset: the rows of the inputs, %s, have no elements",
                 yk__shape_text(x->ndim, x->shape, shape, sizeof(shape)));
        return false;
    }
    return true;
}

/* Keeps a tensor as the data set reads it; its sizes were checked. */
static yk_status tensor_rows_add(tensor_rows *rows, yk_tensor *x)
{
    x = yk_contiguous(yk_to(yk_detach(x), (yk_device){YK_CPU, 0}));
    if (!x)
        return yk__error_code();
    size_t bytes = yk_dtype_size(x->dtype);
    for (int d = 1; d < x->ndim; d++)
        bytes *= (size_t)x->shape[d];
    rows->row_bytes[rows->count] = bytes;
    rows->tensors[rows->count++] = yk_object_retain(x);
    return YK_OK;
}

yk_dataset *yk_tensor_dataset_counted(int count, ...)
{
    YK__OWN_RECORD;
    if (!yk__scope_check("tensor_dataset"))
        return NULL;
    if (count < 1 || count > YK_SAMPLE_TENSORS) {
        yk__fail(YK_ERR_ARGUMENT, "tensor_dataset: %d tensors; expected 1 to %d", count, YK_SAMPLE_TENSORS);
        return NULL;
    }
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        tensors[i] = va_arg(list, yk_tensor *);
    va_end(list);
    for (int i = 0; i < count; i++) {
        YK__LIVE(tensors[i]);
        if (!tensors[i]) {
            yk__fail(YK_ERR_ARGUMENT, "tensor_dataset: tensor %d of %d is NULL", i, count);
            return NULL;
        }
        if (!rows_fit(i, count, tensors[0], tensors[i]))
            return NULL;
    }
    tensor_rows *rows = yk__calloc(1, sizeof(*rows));
    if (!rows)
        return NULL;
    for (int i = 0; i < count; i++) {
        if (tensor_rows_add(rows, tensors[i])) {
            tensor_rows_destroy(rows);
            return NULL;
        }
    }
    return yk_dataset_create(&(yk_dataset_table){.name = "tensors",
                                                 .length = rows->tensors[0]->shape[0],
                                                 .get = tensor_rows_get,
                                                 .label = tensor_rows_label,
                                                 .destroy = tensor_rows_destroy},
                             rows, NULL);
}
