/*
 * cuda.h - declarations that the files of the CUDA backend share on the host. Layer: device/cuda. C and C++.
 *
 * Note [Order on a device]
 * A logical device has a stream for each yk__queue: kernels, and what a program waits for, are on the first; copies
 * that overlap with them, and collectives, on the others, which are made when they are first used. A slot puts its work
 * on the stream of its thread's queue. A block that the cache hands out anew goes to the queue that had it, whose order
 * keeps the two apart; where another queue used it, an event after its work comes first (device/memory/cache.c).
 * Queues wait for one another by cuda_queue_order, by an event as well.
 */
#ifndef YOKE_DEVICE_CUDA_H
#define YOKE_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "device/device_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const yk__base_services *cuda_base;
extern const yk__device_services *cuda_yoke;
#define cuda_fail(code, ...) cuda_base->fail_at((code), __FILE__, __LINE__, __VA_ARGS__)

/* ---- cuda_device.c: GPUs, logical devices and their streams ---- */
int cuda_device_count(void);
const char *cuda_why_none(void);
/* Makes the device's GPU this thread's, and gives the stream of the thread's queue, or of `queue`; starts either at its
 * first use. A GPU that is never used gets no context. */
yk_status cuda_use(int device, cudaStream_t *stream);
/* Makes the GPU this thread's, if it is not yet. */
cudaError_t cuda_choose_gpu(int gpu);
yk_status cuda_stream(int device, yk__queue queue, cudaStream_t *stream);
/* Gives the calling thread streams of its own for the device's queues, from here on: Note [Streams of a recording] in
 * cuda_graph.c. -1: no longer. */
void cuda_record_on(int device);
/* Between begin and end the thread's work is not part of its recording, if it has one: it goes to the device's own
 * streams, and may be of a kind that a recording forbids. */
typedef struct cuda_outside {
    int recorded;
    enum cudaStreamCaptureMode mode;
} cuda_outside;
cuda_outside cuda_outside_begin(void);
void cuda_outside_end(cuda_outside before);
/* From begin to end the thread may do what a recording forbids, and what it queues is still recorded. */
enum cudaStreamCaptureMode cuda_relaxed_begin(void);
void cuda_relaxed_end(enum cudaStreamCaptureMode before);
/* True while the stream is being captured. */
bool cuda_is_captured(cudaStream_t stream);
/* The GPU that a logical device is a share of. */
int cuda_gpu_of(int device);
/* The device that the calling thread records on; -1: none. */
int cuda_recorded(void);
/* The error record of a device that is in use: Note [The error record of a device]. */
struct cuda_record *cuda_record_of(int device);
/* Called after work that may write the error record was queued: the next thread to wait reads the record. Called
 * before, a thread that waits meanwhile would read it too early, and nobody after that. */
void cuda_checks_queued(int device);
/* Multiprocessors of the device's GPU; it is in use. */
int cuda_processors(int device);
/* Waits for the thread's queue, and fails with what the error record holds; `what` and `instead` are for a graph that
 * cannot be recorded for it (yk__graph_forbid). */
yk_status cuda_wait(int device, const char *what, const char *instead);
yk_status cuda_synchronize(int device);

/* ---- cuda_queues.c ---- */
yk_status cuda_queue_order(int device, yk__queue queue, int other, yk__queue after);
yk_status cuda_queue_handle(int device, yk__queue queue, void **handle);
yk_status cuda_event_record(int device, yk__queue queue, yk__event **event);
yk_status cuda_event_query(yk__event *event, bool *passed);
yk_status cuda_event_wait(yk__event *event);
void cuda_event_release(yk__event *event);
yk_status cuda_copy_peer(int to_device, void *to, int from_device, const void *from, size_t bytes);

/* ---- cuda_graph.c ---- */
yk_status cuda_capture_begin(int device);
yk_status cuda_capture_end(int device, yk__graph_exec **exec);
yk_status cuda_graph_launch(yk__graph_exec *exec);
void cuda_graph_release(yk__graph_exec *exec);

/* ---- cuda_memory.c ---- */
yk_status cuda_allocate(int device, size_t bytes, void **memory);
void cuda_release(int device, void *memory, size_t bytes);
bool cuda_shares_memory(int device, int other);
yk_status cuda_upload(int device, void *to, const void *from_host, size_t bytes);
yk_status cuda_download(int device, void *to_host, const void *from, size_t bytes);

yk_status cuda_enqueue(int device, void (*fn)(void *arg), void *arg);
yk_status cuda_allocate_pinned(int device, size_t bytes, void **memory);
void cuda_release_pinned(int device, void *memory);
yk_status cuda_queue_upload(int device, void *to, const void *from_pinned, size_t bytes);
yk_status cuda_queue_download(int device, void *to_pinned, const void *from, size_t bytes);

/* ---- cuda_errors.c ---- */
/* Fails with CUDA's name and text of `code`, after "cuda:1: CALL"; clears what CUDA keeps of it. */
yk_status cuda_failed(int device, cudaError_t code, const char *call);
/* "; process 4711 (python3) 12.1 GiB, this process 3.0 GiB hold the GPU": the processes that are seen to, or "". */
const char *cuda_holders(int device, char *text, size_t size);
/* Notes that this thread's launch was refused, which the next cuda_launched tells. */
void cuda_note_launch(cudaError_t code);
/* The status after a launch: YK_OK, or the failure with the operation's name and the views' shapes; notes the
 * operation, so that a fault that shows later can be put down to it. */
yk_status cuda_launched(int device, const char *operation, int count, const yk__view *const *views);
/* The number of operations that were queued; all_done notes that the first `count` are over: none of them is to blame
 * from here on. */
uint64_t cuda_queued_count(int device, yk__queue queue);
void cuda_all_done(int device, yk__queue queue, uint64_t count);
/* "add (2, 3), mul (2, 3)": the operations queued since their queue was last known to be idle, oldest first. */
const char *cuda_queued(int device, char *text, size_t size);

/* ---- the slots; contracts in device/table.h ---- */
yk_status cuda_fill(int device, const yk__view *out, double value);
yk_status cuda_copy(int device, const yk__view *out, const yk__view *in);
yk_status cuda_copy_parts(int device, int count, const yk__view *outs, const yk__view *ins);
yk_status cuda_augment(int device, const yk__view *out, const yk__view *images, const yk__view *crops,
                       const yk__view *table);
yk_status cuda_unary(int device, yk__unary op, const yk__view *out, const yk__view *in, double p0, double p1);
yk_status cuda_binary(int device, yk__binary op, const yk__view *out, const yk__view *a, const yk__view *b,
                      double alpha);
yk_status cuda_where(int device, const yk__view *out, const yk__view *condition, const yk__view *a, const yk__view *b);

yk_status cuda_reduce(int device, yk__reduce op, const yk__view *out, const yk__view *in, double p0);
yk_status cuda_softmax(int device, const yk__view *out, const yk__view *x, int dim, bool log);
yk_status cuda_softmax_backward(int device, const yk__view *gx, const yk__view *gout, const yk__view *out, int dim,
                                bool log);
/* Besides, a and b may be of a half where out is of f32. */
yk_status cuda_gemm(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                    bool accumulate);
yk_status cuda_gemm_relu(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias);
yk_status cuda_gemm_row_sums(int device, const yk__view *out, const yk__view *sums, const yk__view *a,
                             const yk__view *b, bool accumulate, bool *done);
yk_status cuda_batch_norm(int device, const yk__batch_norm *p, const yk__view *out, const yk__view *mean,
                          const yk__view *invstd, const yk__view *x, const yk__view *residual, const yk__view *weight,
                          const yk__view *bias, const yk__view *running_mean, const yk__view *running_var);
yk_status cuda_batch_norm_backward(int device, const yk__batch_norm *p, const yk__view *gx, const yk__view *gresidual,
                                   const yk__view *gweight, const yk__view *gbias, const yk__view *gout,
                                   const yk__view *addend, const yk__view *x, const yk__view *out,
                                   const yk__view *weight, const yk__view *mean, const yk__view *invstd);
yk_status cuda_layer_norm(int device, double eps, const yk__view *out, const yk__view *mean, const yk__view *invstd,
                          const yk__view *x, const yk__view *weight, const yk__view *bias);
yk_status cuda_layer_norm_backward(int device, const yk__view *gx, const yk__view *gweight, const yk__view *gbias,
                                   const yk__view *gout, const yk__view *x, const yk__view *weight,
                                   const yk__view *mean, const yk__view *invstd);
yk_status cuda_max_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *index,
                          const yk__view *x);
yk_status cuda_max_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout,
                                   const yk__view *index);
yk_status cuda_avg_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *x);
yk_status cuda_avg_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout);
yk_status cuda_adaptive_avg_pool2d(int device, const yk__view *out, const yk__view *x);
yk_status cuda_adaptive_avg_pool2d_backward(int device, const yk__view *gx, const yk__view *gout);
void cuda_conv2d_layout(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                        int64_t out_stride[4]);
void cuda_conv2d_weight_layout(const yk__conv2d *p, yk_dtype dtype, const int64_t w_shape[4], int64_t w_stride[4]);
yk_status cuda_conv2d(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w,
                      const yk__view *bias);
yk_status cuda_conv2d_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                     const yk__view *w);
yk_status cuda_conv2d_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                      const yk__view *gout, const yk__view *x);
yk_status cuda_attention(int device, const yk__attention *p, const yk__view *out, const yk__view *lse,
                         const yk__view *q, const yk__view *k, const yk__view *v, const yk__view *mask);
yk_status cuda_attention_backward(int device, const yk__attention *p, const yk__view *gq, const yk__view *gk,
                                  const yk__view *gv, const yk__view *gout, const yk__view *q, const yk__view *k,
                                  const yk__view *v, const yk__view *mask, const yk__view *out, const yk__view *lse);
yk_status cuda_lstm(int device, const yk__lstm *p, const yk__view *gates, const yk__view *h, const yk__view *c,
                    const yk__view *h0, const yk__view *c0, const yk__view *weight);
yk_status cuda_lstm_backward(int device, const yk__lstm *p, const yk__view *ggates, const yk__view *gh0,
                             const yk__view *gc0, const yk__view *gh, const yk__view *ghn, const yk__view *gcn,
                             const yk__view *gates, const yk__view *c, const yk__view *c0, const yk__view *weight);
yk_status cuda_index(int device, const yk__view *out, const yk__view *x, const yk__indices *p);
yk_status cuda_index_put(int device, const yk__view *x, const yk__view *value, const yk__indices *p, bool accumulate);
yk_status cuda_nonzero(int device, const yk__view *x, int64_t *count, const yk__view *out);
yk_status cuda_argsort(int device, const yk__view *index, const yk__view *x, int dim, bool descending);
yk_status cuda_scan(int device, yk__scan op, const yk__view *out, const yk__view *x, int dim, bool reverse);
yk_status cuda_random(int device, yk__random_kind kind, const yk__view *out, yk__stream stream, const uint32_t *calls,
                      double p0, double p1);
yk_status cuda_random_integers(int device, const yk__view *out, yk__stream stream, const uint32_t *calls, int64_t low,
                               int64_t high);
yk_status cuda_dropout(int device, const yk__view *out, const yk__view *x, yk__stream stream, const uint32_t *calls,
                       uint64_t first, double p);
yk_status cuda_embedding(int device, const yk__view *out, const yk__view *weight, const yk__view *index);
yk_status cuda_embedding_backward(int device, const yk__view *gweight, const yk__view *gout, const yk__view *index,
                                  int64_t padding_idx);
yk_status cuda_cross_entropy(int device, const yk__cross_entropy *p, const yk__view *loss, const yk__view *lse,
                             const yk__view *total, const yk__view *x, const yk__view *target, const yk__view *weight);
yk_status cuda_cross_entropy_backward(int device, const yk__cross_entropy *p, const yk__view *gx, const yk__view *gloss,
                                      const yk__view *x, const yk__view *lse, const yk__view *total,
                                      const yk__view *target, const yk__view *weight);
yk_status cuda_sgd(int device, const yk__sgd *p, int64_t count, const yk__view *params, const yk__view *grads,
                   const yk__view *momentum);
yk_status cuda_adam(int device, const yk__adam *p, int64_t count, const yk__view *params, const yk__view *grads,
                    const yk__view *mean, const yk__view *square, const yk__view *max_square);
yk_status cuda_descend(int device, const yk__descent *p, int64_t count, const yk__view *params, const yk__view *grads,
                       const yk__view *first, const yk__view *second, const yk__view *third);
yk_status cuda_step_advance(int device, yk__step_state *state, const int32_t *skip);
yk_status cuda_unscale(int device, int64_t count, const yk__view *grads, yk__scale_state *scale);
yk_status cuda_scale_update(int device, const yk__scaling *p, yk__scale_state *scale);

#ifdef __cplusplus
}
#endif
#endif
