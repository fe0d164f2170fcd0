/*
 * norm.c - batch and layer normalisation. Layer: device/cpu.
 *
 * Memory passes are what batch normalisation costs: forward reads x twice (sums, then values), backward reads its
 * inputs twice. Dense tensors with the channels innermost are walked as [rows][C], NCHW ones as planes; any other
 * layout is packed to NCHW first. The second pass goes through memory backwards, so that it starts with what the
 * cache still holds.
 *
 * Invariants: rows are cut into blocks by the shape alone, each block has sums of its own, and those are added in
 * double in the order of the blocks: the result has the same bits for any number of threads.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/iterate.h"
#include "device/cpu/partial_vectors.h"

#ifdef __clang__
#define NORM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NORM_UNROLL _Pragma("GCC unroll 4")
#endif

enum {
    ROW_GROUP = 32,     /* rows summed in float before double takes over */
    LAYER_ROWS = 16,    /* rows of a block, at least, whose sums of the parameters' gradients are as wide as the rows */
    BLOCK_SIZE = 16384, /* elements in a block of rows, at least */
    MOST_BLOCKS = 64,
    MOST_VIEWS = 6
};

/* The tensors and numbers of the passes over a tensor. Backward keeps the slope of gx over x in `shift`. */
typedef struct batch {
    const yk__batch_norm *p;
    int64_t channels, images, plane; /* plane: positions of one channel of one image */
    int64_t rows, block, blocks;     /* channels innermost: images * plane rows, in blocks; else rows is 0 */
    int64_t pivot_step;              /* from the first element of a channel to that of the next */
    const void *x, *residual, *gout, *addend, *out;
    void *to, *masked;
    void *mean, *scale, *shift, *centre; /* (C) */
    double *sums;                        /* per block: (C) sums and (C) sums of products */
} batch;

typedef struct batch_kernels {
    yk__range_fn stats_rows, stats_planes, apply_rows, apply_planes;
    yk__range_fn grad_stats_rows, grad_stats_planes, grad_apply_rows, grad_apply_planes;
    void (*finish)(const batch *j, const yk__view *mean, const yk__view *invstd, const yk__view *weight,
                   const yk__view *bias, const yk__view *running_mean, const yk__view *running_var);
    void (*grad_finish)(const batch *j, const yk__view *gweight, const yk__view *gbias, const yk__view *weight,
                        const yk__view *invstd);
} batch_kernels;

typedef struct layer {
    double eps;
    int64_t rows, width, block;
    const void *x, *gout, *weight, *bias;
    void *to; /* out or gx */
    int64_t x_step, gout_step, to_step;
    const yk__view *mean, *invstd;
    double *sums; /* per block: (D) gbias, (D) gweight, and room for both over a few rows; NULL: not wanted */
} layer;

#define T       float
#define V       yk__vf32
#define NAME(x) x##_f32
#include "device/cpu/norm/norm_body.h"

#include "device/cpu/norm/norm_batch_body.h"

#include "device/cpu/norm/norm_layer_body.h"
#undef T
#undef V
#undef NAME
#undef LAYER_SUM
#define T       double
#define V       yk__vf64
#define NAME(x) x##_f64
#include "device/cpu/norm/norm_body.h"

#include "device/cpu/norm/norm_batch_body.h"

#include "device/cpu/norm/norm_layer_body.h"
#undef T
#undef V
#undef NAME
#undef LAYER_SUM

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

/* True if all views (those that are not NULL) share strides in which dimension 1 is innermost and nothing is left
 * out. */
static bool channels_innermost(const yk__view *const *views, int count)
{
    const yk__view *first = NULL;
    for (int i = 0; i < count; i++) {
        const yk__view *v = views[i];
        if (!v)
            continue;
        first = first ? first : v;
        for (int d = 0; d < v->ndim; d++) {
            if (v->shape[d] != 1 && v->stride[d] != first->stride[d])
                return false;
        }
    }
    if (first->shape[1] != 1 && first->stride[1] != 1)
        return false;
    int64_t expected = first->shape[1]; /* each dimension must start where the ones inside it end */
    bool used[YK_MAX_DIMS] = {false, true};
    for (int found = 1; found;) {
        found = 0;
        for (int d = 0; d < first->ndim; d++) {
            if (!used[d] && (first->shape[d] == 1 || first->stride[d] == expected)) {
                expected *= first->shape[d];
                used[d] = true;
                found = 1;
            }
        }
    }
    for (int d = 0; d < first->ndim; d++) {
        if (!used[d])
            return false;
    }
    return true;
}

/* Copies a view of any strides to or from dense C order. */
static void copy_dense(const yk__view *v, char *dense, bool to_dense)
{
    size_t size = yk_dtype_size(v->dtype);
    int64_t index[YK_MAX_DIMS] = {0}, count = yk__view_numel(v);
    int last = v->ndim - 1;
    for (int64_t i = 0; i < count; i += v->shape[last]) {
        char *at = v->data;
        for (int d = 0; d < last; d++)
            at += index[d] * v->stride[d] * (int64_t)size;
        for (int64_t k = 0; k < v->shape[last]; k++, dense += size) {
            char *element = at + k * v->stride[last] * (int64_t)size;
            memcpy(to_dense ? dense : element, to_dense ? element : dense, size);
        }
        for (int d = last - 1; d >= 0 && ++index[d] == v->shape[d]; d--)
            index[d] = 0;
    }
}

/* Views to be had in C order: those that are not get a dense copy, outputs one that unpack brings back. */
typedef struct packing {
    const yk__view *views[MOST_VIEWS];
    void *data[MOST_VIEWS];
    bool packed[MOST_VIEWS];
} packing;

/* The bytes of workspace that packing needs; also says whether the channels are innermost and nothing needs packing. */
static size_t pack_bytes(packing *k, bool *innermost)
{
    const yk__view *any = NULL;
    bool contiguous = true;
    for (int i = 0; i < MOST_VIEWS; i++) {
        if (!k->views[i])
            continue;
        any = k->views[i];
        k->data[i] = any->data;
        contiguous = contiguous && yk__view_contiguous(any);
    }
    *innermost = channels_innermost(k->views, MOST_VIEWS) && (!contiguous || any->shape[1] >= 8);
    if (*innermost || contiguous)
        return 0;
    size_t bytes = ((size_t)yk__view_numel(any) * yk_dtype_size(any->dtype) + 63) & ~(size_t)63, total = 0;
    for (int i = 0; i < MOST_VIEWS; i++) {
        k->packed[i] = k->views[i] && !yk__view_contiguous(k->views[i]);
        total += k->packed[i] ? bytes : 0;
    }
    return total;
}

static void pack(packing *k, char *memory, int inputs)
{
    for (int i = 0; i < MOST_VIEWS; i++) {
        if (!k->packed[i])
            continue;
        const yk__view *v = k->views[i];
        k->data[i] = memory;
        memory += ((size_t)yk__view_numel(v) * yk_dtype_size(v->dtype) + 63) & ~(size_t)63;
        if (i < inputs)
            copy_dense(v, k->data[i], true);
    }
}

static void unpack(packing *k, int inputs)
{
    for (int i = inputs; i < MOST_VIEWS; i++) {
        if (k->packed[i])
            copy_dense(k->views[i], k->data[i], false);
    }
}

/* ---- batch normalisation ----------------------------------------------------------------------------------------- */

/* Sets the sizes and the partition, and takes the workspace for coefficients, sums and packing. */
static yk_status batch_prepare(int device, batch *j, const yk__view *x, packing *k, int inputs, yk__storage **handle)
{
    bool innermost;
    size_t packed = pack_bytes(k, &innermost), size = yk_dtype_size(x->dtype);
    j->images = x->shape[0];
    j->channels = x->shape[1];
    j->plane = 1;
    for (int d = 2; d < x->ndim; d++)
        j->plane *= x->shape[d];
    j->blocks = 1;
    j->pivot_step = j->plane;
    if (innermost) {
        j->rows = j->images * j->plane;
        j->pivot_step = 1;
        j->block = (j->rows + MOST_BLOCKS - 1) / MOST_BLOCKS;
        int64_t least = (BLOCK_SIZE + j->channels - 1) / j->channels;
        j->block = j->block < least ? least : j->block;
        j->block = (j->block + ROW_GROUP - 1) / ROW_GROUP * ROW_GROUP;
        j->blocks = (j->rows + j->block - 1) / j->block;
    }
    size_t coefficients = ((size_t)j->channels * size + 63) & ~(size_t)63;
    size_t sums = (size_t)(j->blocks * 2 * j->channels) * sizeof(double);
    sums = (sums + 63) & ~(size_t)63;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, 4 * coefficients + sums + packed, handle);
    if (!memory)
        return yk__error_code();
    j->mean = memory;
    j->scale = memory + coefficients;
    j->shift = memory + 2 * coefficients;
    j->centre = memory + 3 * coefficients;
    j->sums = (double *)(memory + 4 * coefficients);
    pack(k, memory + 4 * coefficients + sums, inputs);
    return YK_OK;
}

static void batch_pass(int device, batch *j, bool sums, yk__range_fn rows, yk__range_fn planes)
{
    if (j->rows) {
        yk__cpu_parallel(device, j->blocks, 1, rows, j);
        return;
    }
    int64_t items = sums ? j->channels : j->images * j->channels, size = sums ? j->images * j->plane : j->plane;
    yk__cpu_parallel(device, items, size < BLOCK_SIZE ? BLOCK_SIZE / size : 1, planes, j);
}

static const batch_kernels *kernels_of(const yk__view *x)
{
    return x->dtype == YK_F32 ? &kernels_f32 : &kernels_f64;
}

static void clear(const yk__view *v)
{
    for (int64_t i = 0; v && i < v->shape[0]; i++)
        memset((char *)v->data + (size_t)(i * v->stride[0]) * yk_dtype_size(v->dtype), 0, yk_dtype_size(v->dtype));
}

static yk_status batch_norm(int device, const yk__batch_norm *p, const yk__view *out, const yk__view *mean,
                            const yk__view *invstd, const yk__view *x, const yk__view *residual, const yk__view *weight,
                            const yk__view *bias, const yk__view *running_mean, const yk__view *running_var)
{
    if (yk__view_numel(x) == 0) {
        clear(mean);
        clear(invstd);
        return YK_OK;
    }
    const batch_kernels *kernels = kernels_of(x);
    packing k = {.views = {x, residual, out}};
    batch j = {.p = p};
    yk__storage *handle = NULL;
    yk_status status = batch_prepare(device, &j, x, &k, 2, &handle);
    if (status)
        return status;
    j.x = k.data[0];
    j.residual = k.data[1];
    j.to = k.data[2];
    if (p->training)
        batch_pass(device, &j, true, kernels->stats_rows, kernels->stats_planes);
    kernels->finish(&j, mean, invstd, weight, bias, running_mean, running_var);
    batch_pass(device, &j, false, kernels->apply_rows, kernels->apply_planes);
    unpack(&k, 2);
    yk__storage_release(handle);
    return YK_OK;
}

static yk_status batch_norm_backward(int device, const yk__batch_norm *p, const yk__view *gx, const yk__view *gresidual,
                                     const yk__view *gweight, const yk__view *gbias, const yk__view *gout,
                                     const yk__view *addend, const yk__view *x, const yk__view *out,
                                     const yk__view *weight, const yk__view *mean, const yk__view *invstd)
{
    if (yk__view_numel(x) == 0) {
        clear(gweight);
        clear(gbias);
        return YK_OK;
    }
    enum { INPUTS = 4 };
    const batch_kernels *kernels = kernels_of(x);
    size_t size = yk_dtype_size(x->dtype);
    packing k = {.views = {gout, addend, x, p->relu ? out : NULL, gx, gresidual}};
    batch j = {.p = p};
    yk__storage *handle = NULL;
    yk_status status = batch_prepare(device, &j, x, &k, INPUTS, &handle);
    if (status)
        return status;
    j.gout = k.data[0];
    j.addend = k.data[1];
    j.x = k.data[2];
    j.out = k.data[3];
    for (int64_t c = 0; c < j.channels; c++)
        memcpy((char *)j.mean + (size_t)c * size, (char *)mean->data + (size_t)(c * mean->stride[0]) * size, size);

    j.to = k.data[4];
    if ((p->training && gx) || gresidual || gweight || gbias || addend) {
        /* The first pass leaves the gradient, added up and masked, in gresidual if that is wanted, or in gx: the second
         * reads it there. */
        if (j.out || gresidual || addend)
            j.masked = gresidual ? k.data[5] : k.data[4];
        batch_pass(device, &j, true, kernels->grad_stats_rows, kernels->grad_stats_planes);
        if (j.masked) {
            j.gout = j.masked;
            j.addend = j.out = NULL;
        }
    } else {
        memset(j.sums, 0, (size_t)(j.blocks * 2 * j.channels) * sizeof(double));
    }
    kernels->grad_finish(&j, gweight, gbias, weight, invstd);
    if (!p->training) { /* gx is a multiple of gout: neither x nor the mean may leave a NaN in it */
        j.x = j.gout;
        memset(j.mean, 0, (size_t)j.channels * size);
    }
    if (j.to)
        batch_pass(device, &j, false, kernels->grad_apply_rows, kernels->grad_apply_planes);
    unpack(&k, INPUTS);
    yk__storage_release(handle);
    return YK_OK;
}

/* ---- layer normalisation ----------------------------------------------------------------------------------------- */

/* The data of a view as dense memory, a copy where it is not: an (M,D) view whose rows are not dense, a (D) view with
 * gaps. */
static void *dense_copy(const yk__view *v, char **memory)
{
    void *at = *memory;
    copy_dense(v, at, true);
    *memory += ((size_t)yk__view_numel(v) * yk_dtype_size(v->dtype) + 63) & ~(size_t)63;
    return at;
}

static bool gaps(const yk__view *v)
{
    int last = v ? v->ndim - 1 : 0;
    return v && v->shape[last] > 1 && v->stride[last] != 1;
}

static size_t copy_bytes(const yk__view *v)
{
    return gaps(v) ? ((size_t)yk__view_numel(v) * yk_dtype_size(v->dtype) + 63) & ~(size_t)63 : 0;
}

static const void *layer_input(const yk__view *v, int64_t *step, char **memory)
{
    *step = v->ndim > 1 && gaps(v) ? v->shape[1] : v->stride[0];
    return gaps(v) ? dense_copy(v, memory) : v->data;
}

static yk_status layer_norm(int device, double eps, const yk__view *out, const yk__view *mean, const yk__view *invstd,
                            const yk__view *x, const yk__view *weight, const yk__view *bias)
{
    layer j = {.eps = eps, .rows = x->shape[0], .width = x->shape[1], .mean = mean, .invstd = invstd};
    if (j.rows == 0 || j.width == 0) {
        clear(mean);
        clear(invstd);
        return YK_OK;
    }
    yk__storage *handle = NULL;
    size_t bytes = copy_bytes(x) + copy_bytes(weight) + copy_bytes(bias) + copy_bytes(out);
    char *memory = NULL;
    if (bytes && !(memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, bytes, &handle)))
        return yk__error_code();
    int64_t unused;
    j.x = layer_input(x, &j.x_step, &memory);
    j.weight = weight ? layer_input(weight, &unused, &memory) : NULL;
    j.bias = bias ? layer_input(bias, &unused, &memory) : NULL;
    j.to = gaps(out) ? memory : out->data;
    j.to_step = gaps(out) ? j.width : out->stride[0];
    int64_t grain = j.width < BLOCK_SIZE ? BLOCK_SIZE / j.width : 1;
    yk__cpu_parallel(device, j.rows, grain, x->dtype == YK_F32 ? layer_rows_f32 : layer_rows_f64, &j);
    if (gaps(out))
        copy_dense(out, j.to, false);
    yk__storage_release(handle);
    return YK_OK;
}

static void layer_sum(const layer *j, const yk__view *to, int64_t blocks, int which)
{
    for (int64_t i = 0; to && i < j->width; i++) {
        double sum = 0;
        for (int64_t b = 0; b < blocks; b++)
            sum += j->sums[(b * 4 + which) * j->width + i];
        if (to->dtype == YK_F32)
            ((float *)to->data)[i * to->stride[0]] = (float)sum;
        else
            ((double *)to->data)[i * to->stride[0]] = sum;
    }
}

static yk_status layer_norm_backward(int device, const yk__view *gx, const yk__view *gweight, const yk__view *gbias,
                                     const yk__view *gout, const yk__view *x, const yk__view *weight,
                                     const yk__view *mean, const yk__view *invstd)
{
    layer j = {.rows = x->shape[0], .width = x->shape[1], .mean = mean, .invstd = invstd};
    if (j.rows == 0 || j.width == 0) {
        clear(gweight);
        clear(gbias);
        return YK_OK;
    }
    j.block = (j.rows + MOST_BLOCKS - 1) / MOST_BLOCKS;
    int64_t least = (BLOCK_SIZE + j.width - 1) / j.width;
    least = least < LAYER_ROWS ? LAYER_ROWS : least;
    j.block = j.block < least ? least : j.block;
    int64_t blocks = (j.rows + j.block - 1) / j.block;
    size_t sums = gweight || gbias ? (size_t)(blocks * 4 * j.width) * sizeof(double) : 0;
    sums = (sums + 63) & ~(size_t)63;
    size_t bytes = sums + copy_bytes(gout) + copy_bytes(x) + copy_bytes(weight) + copy_bytes(gx);
    yk__storage *handle = NULL;
    char *memory = NULL;
    if (bytes && !(memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, bytes, &handle)))
        return yk__error_code();
    if (sums) {
        j.sums = (double *)memory;
        memory += sums;
    }
    int64_t unused;
    j.gout = layer_input(gout, &j.gout_step, &memory);
    j.x = layer_input(x, &j.x_step, &memory);
    j.weight = weight ? layer_input(weight, &unused, &memory) : NULL;
    if (gx) {
        j.to = gaps(gx) ? memory : gx->data;
        j.to_step = gaps(gx) ? j.width : gx->stride[0];
    }
    yk__cpu_parallel(device, blocks, 1, x->dtype == YK_F32 ? layer_grad_rows_f32 : layer_grad_rows_f64, &j);
    layer_sum(&j, gbias, blocks, 0);
    layer_sum(&j, gweight, blocks, 1);
    if (gaps(gx))
        copy_dense(gx, j.to, false);
    yk__storage_release(handle);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_norm)(yk__backend *table)
{
    table->batch_norm = batch_norm;
    table->batch_norm_backward = batch_norm_backward;
    table->layer_norm = layer_norm;
    table->layer_norm_backward = layer_norm_backward;
}
