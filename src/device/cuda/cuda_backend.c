/*
 * cuda_backend.c - the plug-in yoke-cuda.so: its table and its description. Layer: device/cuda.
 *
 * The object has the CUDA runtime inside (cudart, linked statically) and needs nothing else to be loaded: the driver is
 * looked for when devices are counted, cuBLASLt when a matrix product first wants it.
 */
#include <cuda_runtime_api.h>

#include "device/cuda/cuda.h"
#include "device/table.h"

const yk__base_services *cuda_base;
const yk__device_services *cuda_yoke;

static const yk__backend backend = {
    .name = "cuda",
    .takes = {[YK__SLOT_unary] = YK__ALL_DTYPES,
              [YK__SLOT_binary] = YK__ALL_DTYPES,
              [YK__SLOT_random] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_dropout] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_reduce] = YK__ALL_DTYPES,
              [YK__SLOT_softmax] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_gemm] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_conv2d] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_max_pool2d] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_avg_pool2d] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_adaptive_avg_pool2d] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_batch_norm] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_layer_norm] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_attention] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_lstm] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_embedding] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_index] = YK__ALL_DTYPES,
              [YK__SLOT_index_put] = YK__FLOATS | YK__WHOLES,
              [YK__SLOT_nonzero] = 1 << YK_BOOL,
              [YK__SLOT_argsort] = YK__FLOATS | YK__WHOLES,
              [YK__SLOT_scan] = YK__FLOATS | 1 << YK_I64,
              [YK__SLOT_cross_entropy] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_sgd] = YK__FLOATS,
              [YK__SLOT_adam] = YK__FLOATS,
              [YK__SLOT_descend] = YK__FLOATS,
              [YK__SLOT_unscale] = YK__FLOATS},
    .device_count = cuda_device_count,
    .why_none = cuda_why_none,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .shares_memory = cuda_shares_memory,
    .upload = cuda_upload,
    .download = cuda_download,
    .synchronize = cuda_synchronize,
    .enqueue = cuda_enqueue,
    .allocate_pinned = cuda_allocate_pinned,
    .release_pinned = cuda_release_pinned,
    .queue_upload = cuda_queue_upload,
    .queue_download = cuda_queue_download,
    .queue_order = cuda_queue_order,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .event_release = cuda_event_release,
    .queue_handle = cuda_queue_handle,
    .copy_peer = cuda_copy_peer,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_release = cuda_graph_release,
    .fill = cuda_fill,
    .copy = cuda_copy,
    .copy_parts = cuda_copy_parts,
    .unary = cuda_unary,
    .binary = cuda_binary,
    .where = cuda_where,
    .reduce = cuda_reduce,
    .softmax = cuda_softmax,
    .softmax_backward = cuda_softmax_backward,
    .gemm = cuda_gemm,
    .gemm_relu = cuda_gemm_relu,
    .gemm_row_sums = cuda_gemm_row_sums,
    .batch_norm = cuda_batch_norm,
    .batch_norm_backward = cuda_batch_norm_backward,
    .batch_norm_edges = true,
    .layer_norm = cuda_layer_norm,
    .layer_norm_backward = cuda_layer_norm_backward,
    .max_pool2d = cuda_max_pool2d,
    .max_pool2d_backward = cuda_max_pool2d_backward,
    .avg_pool2d = cuda_avg_pool2d,
    .avg_pool2d_backward = cuda_avg_pool2d_backward,
    .adaptive_avg_pool2d = cuda_adaptive_avg_pool2d,
    .adaptive_avg_pool2d_backward = cuda_adaptive_avg_pool2d_backward,
    .conv2d_layout = cuda_conv2d_layout,
    .conv2d_weight_layout = cuda_conv2d_weight_layout,
    .conv2d = cuda_conv2d,
    .conv2d_backward_input = cuda_conv2d_backward_input,
    .conv2d_backward_weight = cuda_conv2d_backward_weight,
    .attention = cuda_attention,
    .attention_backward = cuda_attention_backward,
    .lstm = cuda_lstm,
    .lstm_backward = cuda_lstm_backward,
    .index = cuda_index,
    .index_put = cuda_index_put,
    .nonzero = cuda_nonzero,
    .argsort = cuda_argsort,
    .scan = cuda_scan,
    .random = cuda_random,
    .random_integers = cuda_random_integers,
    .dropout = cuda_dropout,
    .embedding = cuda_embedding,
    .embedding_backward = cuda_embedding_backward,
    .cross_entropy = cuda_cross_entropy,
    .cross_entropy_backward = cuda_cross_entropy_backward,
    .sgd = cuda_sgd,
    .adam = cuda_adam,
    .descend = cuda_descend,
    .step_advance = cuda_step_advance,
    .unscale = cuda_unscale,
    .scale_update = cuda_scale_update,
    .augment = cuda_augment,
};

static const void *start_plugin(const yk__base_services *base, const void *services)
{
    cuda_base = base;
    cuda_yoke = services;
    return &backend;
}

#ifndef YK__CUDA_BUILT_WITH
#error "the Makefile says which CUDA this is built with"
#endif

const yk__plugin yk__plugin_description = {
    .format = YK__PLUGIN_FORMAT,
    .name = "cuda",
    .version = YK_VERSION,
    .interface = YK__DEVICE_PLUGIN_INTERFACE,
    .sizes = YK__DEVICE_PLUGIN_SIZES,
    .built_with = YK__CUDA_BUILT_WITH,
    .start = start_plugin,
};
