/*
 * lstm.c - the slots lstm and lstm_backward. Layer: device/cpu.
 *
 * A row of the batch goes through all steps without looking at another, so a piece of work is some rows of it, from the
 * first step to the last, and no thread waits for another between two steps. The weight is packed for the register
 * tiles once for all steps; a block of its rows at a time meets all rows of the piece. Few products in all do without
 * packing: they are the gemm slot's.
 *
 * What is summed up for an element, and in which order, depends on no other row, and so the bits do not depend on the
 * pieces.
 */
#include <string.h>

#include "device/cpu/gemm/gemm_micro.h"
#include "device/cpu/rows.h"

enum {
    BLOCK_DEPTH = 256, /* a panel of so many rows stays in the first-level cache; another number gives other bits */
    LEAST_ROWS = 4,    /* of a piece: each piece reads the whole weight in every step */
    FEW_PRODUCTS = 8,  /* rows times steps up to which packing takes longer than it saves */
};

#define MIN(a, b) ((a) < (b) ? (a) : (b))

typedef struct lstm_job {
    const yk__lstm *p;
    int device;
    int64_t steps, rows, hidden, pieces;
    void *gates;
    const void *before, *cells_before; /* h0 and c0 */
    void *h, *c;                       /* forward */
    /* Backward. The gradients of the state are kept in gh0 and gc0 from step to step. */
    void *ggates, *gh0, *gc0;
    const void *gh;
    /* The weight as the right factor, (depth, columns). */
    const yk__view *weight;
    int64_t depth, columns, depth_stride, column_stride;
    void *packed; /* NULL: few products */
    const void *zeros;
} lstm_job;

/* The gemm slot of this instruction set; set with the table. */
static yk_status (*gemm)(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                         bool accumulate);

static inline int64_t step_at(const lstm_job *job, int64_t i)
{
    return job->p->reverse ? job->steps - 1 - i : i;
}

/* out (rows, columns) = or += left (rows, depth) weight, by the gemm slot. */
static yk_status few(const lstm_job *job, void *out, int64_t out_stride, const void *left, bool accumulate)
{
    yk_dtype dtype = job->weight->dtype;
    yk__view o = {out, dtype, 3, {1, job->rows, job->columns}, {0, out_stride, 1}};
    yk__view a = {(void *)left, dtype, 3, {1, job->rows, job->depth}, {0, job->depth, 1}};
    yk__view b = {
        job->weight->data, dtype, 3, {1, job->depth, job->columns}, {0, job->depth_stride, job->column_stride}};
    return gemm(job->device, &o, &a, &b, NULL, accumulate);
}

#define TYPED(name)  TYPED_(name)
#define T            float
#define V            yk__vf32
#define TYPED_(name) name##_f32
#include "device/cpu/sequence/lstm_body.h"
#undef T
#undef V
#undef TYPED_

#define T            double
#define V            yk__vf64
#define TYPED_(name) name##_f64
#include "device/cpu/sequence/lstm_body.h"

/* Packs the weight, then takes the steps. */
static yk_status steps_run(lstm_job *job, bool forward)
{
    bool f32 = job->weight->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, panel = YK__GEMM_VECTORS * YK__VECTOR_BYTES / size;
    int64_t panels = yk__ceil_div(job->columns, panel), products = job->steps - !job->before;
    if (!forward)
        products = job->steps - !job->p->want_h0;
    bool pack = job->rows * products > FEW_PRODUCTS;
    size_t row = (size_t)yk__ceil_div(job->hidden * size, 64) * 64;
    yk__storage *handle;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)job->device},
                                     row + (pack ? (size_t)(panels * panel * job->depth * size) : 0), &handle);
    if (!memory)
        return yk__error_code();
    job->zeros = memset(memory, 0, row);
    job->packed = pack ? memory + row : NULL;
    yk_status status = YK_OK;
    if (pack) {
        job->pieces = MIN(yk__cpu_threads(job->device), yk__ceil_div(job->rows, LEAST_ROWS));
        yk__cpu_parallel(job->device, panels, 1, f32 ? pack_piece_f32 : pack_piece_f64, job);
        yk__range_fn steps = forward ? f32 ? forward_piece_f32 : forward_piece_f64
                             : f32   ? backward_piece_f32
                                     : backward_piece_f64;
        yk__cpu_parallel(job->device, job->pieces, 1, steps, job);
    } else if (forward) {
        status = (f32 ? forward_f32 : forward_f64)(job, 0, job->rows);
    } else {
        status = (f32 ? backward_f32 : backward_f64)(job, 0, job->rows);
    }
    yk__storage_release(handle);
    return status;
}

static lstm_job job_of(int device, const yk__lstm *p, const yk__view *gates, const yk__view *c0, const yk__view *weight)
{
    return (lstm_job){.p = p,
                      .device = device,
                      .steps = gates->shape[0],
                      .rows = gates->shape[1],
                      .hidden = gates->shape[2] / 4,
                      .gates = gates->data,
                      .cells_before = c0 ? c0->data : NULL,
                      .weight = weight};
}

static yk_status lstm(int device, const yk__lstm *p, const yk__view *gates, const yk__view *h, const yk__view *c,
                      const yk__view *h0, const yk__view *c0, const yk__view *weight)
{
    lstm_job job = job_of(device, p, gates, c0, weight);
    job.before = h0 ? h0->data : NULL;
    job.h = h->data, job.c = c->data;
    job.depth = weight->shape[1], job.depth_stride = weight->stride[1];
    job.columns = weight->shape[0], job.column_stride = weight->stride[0];
    return steps_run(&job, true);
}

static yk_status lstm_backward(int device, const yk__lstm *p, const yk__view *ggates, const yk__view *gh0,
                               const yk__view *gc0, const yk__view *gh, const yk__view *ghn, const yk__view *gcn,
                               const yk__view *gates, const yk__view *c, const yk__view *c0, const yk__view *weight)
{
    lstm_job job = job_of(device, p, gates, c0, weight);
    job.c = c->data;
    job.ggates = ggates->data, job.gh0 = gh0->data, job.gc0 = gc0->data;
    job.gh = gh ? gh->data : NULL;
    job.depth = weight->shape[0], job.depth_stride = weight->stride[0];
    job.columns = weight->shape[1], job.column_stride = weight->stride[1];
    size_t bytes = (size_t)(job.rows * job.hidden) * yk_dtype_size(weight->dtype);
    const yk__view *from[2] = {ghn, gcn};
    void *to[2] = {job.gh0, job.gc0};
    for (int i = 0; i < 2; i++) {
        if (from[i])
            memcpy(to[i], from[i]->data, bytes);
        else
            memset(to[i], 0, bytes);
    }
    return steps_run(&job, false);
}

void YK__ISA_NAME(yk__cpu_fill_lstm)(yk__backend *table)
{
    gemm = table->gemm;
    table->lstm = lstm;
    table->lstm_backward = lstm_backward;
}
