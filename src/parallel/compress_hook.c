/*
 * compress_hook.c - communication hooks that send gradients in 16 bits. Layer: parallel.
 *
 * The copy in 16 bits is made once and stays with the bucket. The mean is taken in f32 and rounded once.
 */
#include "parallel/reducer.h"

static yk_work *compress_start(yk_ddp_bucket *bucket, yk_dtype dtype)
{
    yk_tensor *g = bucket->gradients;
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = dtype, .device = yk__device_of(g));
    if (!bucket->scratch) /* a GPU's memory is not shared between processes */
        bucket->scratch =
            o.device.type == YK_CPU ? yk_comm_alloc(g->ndim, g->shape, &o) : yk_empty(g->ndim, g->shape, &o);
    if (!bucket->scratch || yk__raw_copy(bucket->scratch, g))
        return NULL;
    return yk_all_reduce_async(bucket->scratch, YK_OP_MEAN, bucket->group);
}

static yk_work *start_fp16(yk_ddp_bucket *bucket, void *user)
{
    (void)user;
    return compress_start(bucket, YK_F16);
}

static yk_work *start_bf16(yk_ddp_bucket *bucket, void *user)
{
    (void)user;
    return compress_start(bucket, YK_BF16);
}

static yk_status compress_finish(yk_ddp_bucket *bucket, void *user)
{
    (void)user;
    return yk__raw_copy(bucket->gradients, bucket->scratch);
}

const yk_ddp_comm_hook yk_ddp_fp16_compress = {.start = start_fp16, .finish = compress_finish};
const yk_ddp_comm_hook yk_ddp_bf16_compress = {.start = start_bf16, .finish = compress_finish};
