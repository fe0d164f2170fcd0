/*
 * table.h - the table of functions through which everything above device/ reaches a backend. Layer: device.
 *
 * A backend (cpu/, cuda/) fills one yk__backend; backend.c knows them. The rules for every kernel slot:
 *  - A backend that carries kernels out later cannot fail at the call for a value (a label, an index): it keeps the
 * first such failure, in the order of its queue, in the device's error record, and the next `synchronize` or `download`
 *    fails with it, once, naming operation, row and value. On the CPU the call fails.
 *  - Views are borrowed. Shapes, dtypes and devices were checked by the caller and match what the slot says; the
 *    kernel needs to check only what depends on values (labels, indices).
 *  - Strides are in elements and may be anything, 0 and overlapping included, for inputs; an output never overlaps
 *    itself or an input, except that an elementwise output may be the very same view as an input. Every layout must
 *    give the right result; which ones are fast is the kernel's business.
 *  - A slot takes the dtypes that the backend declares for it in `takes`; the layer above brings f16 and bf16 to f32
 *    where one of them is not among these. "float" means one of the floating ones, the same for all float arguments of
 *    the call, but for what is marked "statistic": with f16 and bf16 that is f32. `copy`, `fill` and `where` take every
 *    dtype. A backward slot takes what its forward slot takes.
 *  - f16 and bf16 are computed in f32 and rounded once, when a result is stored. Products of bf16 may take subnormal
 *    numbers for zeros.
 *  - Sizes may be 0: then there is nothing to do, but reductions write their identity.
 *  - Results have the same bits for any number of threads.
 *  - Slots are called from any thread, several at once, on the same device too. They return YK_OK or fail with the
 *    error record set; what failed kernels leave in their outputs is not defined.
 *  - A NULL slot means "not there on this backend"; the caller turns it into an error.
 */
#ifndef YOKE_DEVICE_TABLE_H
#define YOKE_DEVICE_TABLE_H

#include "base/core.h"
#include "device/kernel_args.h"

/* The slots that declare their dtypes. */
/* clang-format off */
#define YK__TYPED_SLOTS(X)                                                                                             \
    X(unary) X(binary) X(random) X(dropout) X(reduce) X(softmax) X(gemm) X(conv2d) X(max_pool2d) X(avg_pool2d)         \
    X(adaptive_avg_pool2d) X(batch_norm) X(layer_norm) X(attention) X(lstm) X(embedding) X(index) X(index_put)         \
    X(nonzero) X(argsort) X(scan) X(cross_entropy) X(sgd) X(adam) X(descend) X(unscale)
#define YK__SLOT_NAME(slot) YK__SLOT_##slot,
typedef enum yk__slot { YK__TYPED_SLOTS(YK__SLOT_NAME) YK__SLOTS } yk__slot;
#undef YK__SLOT_NAME
/* clang-format on */

/* Sets of dtypes. */
enum {
    YK__FLOATS = 1 << YK_F32 | 1 << YK_F64,
    YK__HALVES = 1 << YK_F16 | 1 << YK_BF16,
    YK__WHOLES = 1 << YK_I64 | 1 << YK_I32 | 1 << YK_U8 | 1 << YK_BOOL,
    YK__ALL_DTYPES = YK__FLOATS | YK__HALVES | YK__WHOLES
};

typedef struct yk__backend {
    const char *name; /* "cpu" */
    /* By slot, the dtypes (1 << dtype) of its first input, or of its output where it has none; 0 where the slot is not
     * there. An operation of `unary`, `binary` or `reduce` may take fewer (sqrt of integers); none lacks f16 or bf16
     * alone. For index_put, the dtypes that it adds up; values that it only writes may have any. */
    uint16_t takes[YK__SLOTS];

    /* ---- devices and memory ---- */
    int (*device_count)(void);
    /* The reason why there is no device, for the error of a program that asks for one (the part that is missing, a
     * remedy); NULL where there always is one. */
    const char *(*why_none)(void);
    /* 64-byte aligned memory, not cleared; fails with YK_ERR_MEMORY. Called by the caching allocator only. */
    yk_status (*allocate)(int device, size_t bytes, void **memory);
    void (*release)(int device, void *memory, size_t bytes);
    /* True if the two are shares of one memory: where it is full, the memory that the other has cached is given back,
     * too. NULL: no two are. */
    bool (*shares_memory)(int device, int other);
    /* Host memory in whole pages, cleared: at `near`, where that is not NULL and the place is free, else anywhere with
     * room after it. unmap gives back any pages of what map gave. NULL where blocks cannot be split. */
    yk_status (*map)(int device, size_t bytes, void *near, void **memory);
    void (*unmap)(int device, void *memory, size_t bytes);
    /* Bytes between host and device memory. A download is done when it returns, an upload has read the host's. */
    yk_status (*upload)(int device, void *to, const void *from_host, size_t bytes);
    yk_status (*download)(int device, void *to_host, const void *from, size_t bytes);
    yk_status (*synchronize)(int device);
    /* ---- work of others on the device's queue ---- */
    /* For tests, which keep a queue busy by it: nothing else puts the host's work on one (docs/cuda-inside.md). Calls
     * fn(arg) on some thread when everything queued before is done; work that is queued after waits until it returns.
     * fn may block, and calls no slot. Where a device fails for good before, fn is never called. A backend that is done
     * when a slot returns calls it at once. */
    yk_status (*enqueue)(int device, void (*fn)(void *arg), void *arg);
    /* Host memory that copies reach while others run, and copies that are queued: the memory is not touched until they
     * are done. */
    yk_status (*allocate_pinned)(int device, size_t bytes, void **memory);
    void (*release_pinned)(int device, void *memory);
    yk_status (*queue_upload)(int device, void *to, const void *from_pinned, size_t bytes);
    yk_status (*queue_download)(int device, void *to_pinned, const void *from, size_t bytes);
    /* ---- queues: a slot puts its work on the calling thread's (yk__queue_begin). All NULL on a backend that is done
     * when a slot returns. ---- */
    /* Work that is put on `queue` from here on starts when all work that is on `after` of `other` by now is done. The
     * host does not wait. */
    yk_status (*queue_order)(int device, yk__queue queue, int other, yk__queue after);
    yk_status (*event_record)(int device, yk__queue queue, yk__event **event);
    yk_status (*event_query)(yk__event *event, bool *passed);
    yk_status (*event_wait)(yk__event *event); /* the calling thread does */
    void (*event_release)(yk__event *event);
    /* The queue as the vendor's libraries take it (a cudaStream_t), made at its first use. */
    yk_status (*queue_handle)(int device, yk__queue queue, void **handle);
    /* Bytes from one device to another of the same backend, in the order of both queues of the thread's kind: after
     * what is on either, before what comes to either. */
    yk_status (*copy_peer)(int to_device, void *to, int from_device, const void *from, size_t bytes);
    /* ---- recording (device/graph.c): all NULL where work cannot be recorded ---- */
    /* From here to capture_end what the calling thread puts on YK__QUEUE_COMPUTE, and on queues that come to wait for
     * it, is recorded with its arguments instead of carried out. Both by one thread, which fails where it waits for the
     * device meanwhile; other threads' work is carried out as ever. After a failure capture_end is called all the same,
     * fails, and nothing was recorded: with YK_ERR_STATE where something else in the process ended the recording, which
     * may succeed another time. */
    yk_status (*capture_begin)(int device);
    yk_status (*capture_end)(int device, yk__graph_exec **exec);
    /* Puts all of it on YK__QUEUE_COMPUTE. */
    yk_status (*graph_launch)(yk__graph_exec *exec);
    void (*graph_release)(yk__graph_exec *exec);       /* waits until what was launched is done */
    yk_status (*set_threads)(int device, int threads); /* NULL where threads are not ours to set */
    int (*get_threads)(int device);
    bool host_memory; /* its memory can be read and written from the host */

    /* ---- elementwise: inputs are already expanded to the shape of out (stride 0 where broadcast) ---- */
    yk_status (*fill)(int device, const yk__view *out, double value); /* any dtype; an i64 beyond 2^53 comes by copy */
    /* Any dtype to any dtype, PyTorch's casts (float to integer truncates, to bool is != 0). */
    yk_status (*copy)(int device, const yk__view *out, const yk__view *in);
    /* `copy` of each of `count` pairs, in any order, for parts of one tensor that lie between each other (cat): no
     * output overlaps another one or an input. */
    yk_status (*copy_parts)(int device, int count, const yk__view *outs, const yk__view *ins);
    yk_status (*unary)(int device, yk__unary op, const yk__view *out, const yk__view *in, double p0, double p1);
    yk_status (*binary)(int device, yk__binary op, const yk__view *out, const yk__view *a, const yk__view *b,
                        double alpha);
    yk_status (*where)(int device, const yk__view *out, const yk__view *condition, const yk__view *a,
                       const yk__view *b);
    /* Element i (C order) of `out` is a function of (stream, i) alone. `calls` is NULL, or a number in the device's
     * memory that is added to stream.epoch when the operation is carried out: see Note [What changes from step to step]
     * in kernel_args.h. */
    yk_status (*random)(int device, yk__random_kind kind, const yk__view *out, yk__stream stream, const uint32_t *calls,
                        double p0, double p1);
    /* The same of integers in [low, high), which need not be numbers that a double holds; `out` may have any dtype. */
    yk_status (*random_integers)(int device, const yk__view *out, yk__stream stream, const uint32_t *calls, int64_t low,
                                 int64_t high);
    /* out = x * keep / (1 - p), where keep of element i (C order) is random(stream, first + i) >= p: `first` is above 0
     * for a part of a tensor. Backward is the same call. */
    yk_status (*dropout)(int device, const yk__view *out, const yk__view *x, yk__stream stream, const uint32_t *calls,
                         uint64_t first, double p);

    /* ---- reductions ---- */
    /* out has the ndim of in, with size 1 where it is reduced. Sums of f32 are kept in blocks so that the error does
     * not grow with the count. SUM, PROD of integers give i64. */
    yk_status (*reduce)(int device, yk__reduce op, const yk__view *out, const yk__view *in, double p0);
    yk_status (*softmax)(int device, const yk__view *out, const yk__view *x, int dim, bool log);
    yk_status (*softmax_backward)(int device, const yk__view *gx, const yk__view *gout, const yk__view *out, int dim,
                                  bool log);

    /* ---- matrix product ---- */
    /* out (B,M,N) = a (B,M,K) b (B,K,N) [+ bias (N)]; any strides, stride 0 over B included; `accumulate` adds to
     * what out holds. bias may be NULL. float. */
    yk_status (*gemm)(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                      bool accumulate);
    /* out = max(0, a b [+ bias]), NaN staying NaN. NULL: a backend that lacks it has ReLU computed afterwards. */
    yk_status (*gemm_relu)(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias);
    /* gemm without a bias, and sums (M), of one dtype with out, the sum of a over K: the gradients of a weight and of
     * its bias. B is 1. **done: the sums were made as well; else out was not touched. NULL: never. */
    yk_status (*gemm_row_sums)(int device, const yk__view *out, const yk__view *sums, const yk__view *a,
                               const yk__view *b, bool accumulate, bool *done);

    /* ---- convolution: x (N,C,H,W), w (O,C/groups,KH,KW), out (N,O,OH,OW), bias (O) or NULL; float; ReLU after it
     * where p->relu ---- */
    /* The strides that out should have (dense, any order), given x and w; and those that a weight should have. */
    void (*conv2d_layout)(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                          int64_t out_stride[4]);
    void (*conv2d_weight_layout)(const yk__conv2d *p, yk_dtype dtype, const int64_t w_shape[4], int64_t w_stride[4]);
    yk_status (*conv2d)(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w,
                        const yk__view *bias);
    yk_status (*conv2d_backward_input)(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                       const yk__view *w);
    /* gbias may be NULL. */
    yk_status (*conv2d_backward_weight)(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                        const yk__view *gout, const yk__view *x);
    /* The same, but gw (of a dense layout) += the gradient, in whatever order its terms are added, without memory for
     * another gw where that is large; gbias is written. NULL: a backend that lacks it has the sum made afterwards. */
    yk_status (*conv2d_accumulate_weight)(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                          const yk__view *gout, const yk__view *x);

    /* ---- pooling: x (N,C,H,W), out (N,C,OH,OW); float ---- */
    /* index (N,C,OH,OW), i32, same strides as out: iy * W + ix of the maximum (the first of equals; the last NaN wins).
     */
    yk_status (*max_pool2d)(int device, const yk__pool2d *p, const yk__view *out, const yk__view *index,
                            const yk__view *x);
    yk_status (*max_pool2d_backward)(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout,
                                     const yk__view *index);
    yk_status (*avg_pool2d)(int device, const yk__pool2d *p, const yk__view *out, const yk__view *x);
    yk_status (*avg_pool2d_backward)(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout);
    /* Window of output o over input size I and output size O: [floor(o I / O), ceil((o + 1) I / O)). */
    yk_status (*adaptive_avg_pool2d)(int device, const yk__view *out, const yk__view *x);
    yk_status (*adaptive_avg_pool2d_backward)(int device, const yk__view *gx, const yk__view *gout);

    /* ---- resizing: x (P,H,W), out (P,OH,OW), of one dtype, f32 or f64, both in C order and not empty ---- */
    /* out[p][i][j] = the sum of the elements of plane p that taps i of `rows` and taps j of `columns` name, each times
     * both weights; NULL for one of them: the size along it does not change. NULL: a backend that lacks it has results
     * made of selections. */
    yk_status (*resize)(int device, const yk__view *out, const yk__view *x, const yk__taps *rows,
                        const yk__taps *columns);
    /* yk_grid_sample of x (N,C,H,W) or (N,C,D,H,W) at grid (N,OH,OW,2) or (N,OD,OH,OW,3), to out (N,C,OH,OW) or
     * (N,C,OD,OH,OW), of one dtype, f32 or f64, all in C order and not empty, the planes of x with fewer than 2^31
     * elements. What is not a number is a point outside. NULL: as above. */
    yk_status (*grid_sample)(int device, const yk__grid_sampling *how, const yk__view *out, const yk__view *x,
                             const yk__view *grid);
    /* The gradients of x and grid from that of out, or NULL where one is not wanted. */
    yk_status (*grid_sample_backward)(int device, const yk__grid_sampling *how, const yk__view *gx,
                                      const yk__view *ggrid, const yk__view *gout, const yk__view *x,
                                      const yk__view *grid);

    /* ---- normalisation ---- */
    /* x, residual, out (N,C,...) of 2 to 5 dimensions; weight, bias, running_mean, running_var (C) or NULL; mean and
     * invstd (C) are outputs kept for backward; all but the first three, and gweight and gbias, are statistics. out =
     * (x - mean) invstd weight + bias [+ residual] [then relu]. In training the running statistics, where given, move
     * by momentum towards the batch's mean and unbiased variance. */
    yk_status (*batch_norm)(int device, const yk__batch_norm *p, const yk__view *out, const yk__view *mean,
                            const yk__view *invstd, const yk__view *x, const yk__view *residual, const yk__view *weight,
                            const yk__view *bias, const yk__view *running_mean, const yk__view *running_var);
    /* gx, gresidual, gweight, gbias may be NULL (not wanted); out is read only where relu is fused and
     * p->edges is NULL (may be NULL otherwise). Where addend is not NULL, which has the strides of gout, the gradient
     * is gout + addend, rounded to their dtype. gresidual may be the same view as gout or addend, and so may gx, if not
     * both are the same. Where p->edges is not NULL, gresidual is. */
    yk_status (*batch_norm_backward)(int device, const yk__batch_norm *p, const yk__view *gx, const yk__view *gresidual,
                                     const yk__view *gweight, const yk__view *gbias, const yk__view *gout,
                                     const yk__view *addend, const yk__view *x, const yk__view *out,
                                     const yk__view *weight, const yk__view *mean, const yk__view *invstd);
    bool batch_norm_edges; /* these take p->batches and p->edges */
    /* x (M,D) normalised over D; weight, bias (D) or NULL; mean, invstd (M) outputs for backward; all but x, out and
     * their gradients are statistics. */
    yk_status (*layer_norm)(int device, double eps, const yk__view *out, const yk__view *mean, const yk__view *invstd,
                            const yk__view *x, const yk__view *weight, const yk__view *bias);
    yk_status (*layer_norm_backward)(int device, const yk__view *gx, const yk__view *gweight, const yk__view *gbias,
                                     const yk__view *gout, const yk__view *x, const yk__view *weight,
                                     const yk__view *mean, const yk__view *invstd);

    /* ---- attention: q (B,H,L,E), k (B,H,S,E), v (B,H,S,D), out (B,H,L,D), lse (B,H,L); float, or
     * halves ---- */
    /* out = softmax(scale q k^T + mask) v; lse, dense, a statistic, is the logarithm of the sum of e^score, kept for
     * backward. mask (B,H,L,S) is NULL, bool (false: the query may not look at the key) or of q's dtype (added). A
     * query that may look at no key gives 0. The columns of q, out, gout and the gradients have stride 1. */
    yk_status (*attention)(int device, const yk__attention *p, const yk__view *out, const yk__view *lse,
                           const yk__view *q, const yk__view *k, const yk__view *v, const yk__view *mask);
    yk_status (*attention_backward)(int device, const yk__attention *p, const yk__view *gq, const yk__view *gk,
                                    const yk__view *gv, const yk__view *gout, const yk__view *q, const yk__view *k,
                                    const yk__view *v, const yk__view *mask, const yk__view *out, const yk__view *lse);
    /* gmask, dense, is the gradient of a mask that was added, summed to its shape: each of its four sizes is 1 or that
     * of (B,H,L,S). A backend without it takes no p->dropout in the two above, either. */
    yk_status (*attention_mask_gradient)(int device, const yk__attention *p, const yk__view *gmask,
                                         const yk__view *gout, const yk__view *q, const yk__view *k, const yk__view *v,
                                         const yk__view *mask, const yk__view *out, const yk__view *lse);

    /* ---- one layer of an LSTM in one direction: gates (T,N,4H), h and c (T,N,H), weight (4H,H), states (N,H); all in
     * C order but the weight; T at least 1; float ---- */
    /* Before, gates holds what the inputs and the biases give: x W_ih^T + b_ih + b_hh. Step t adds h_before weight^T,
     * and leaves i = sigmoid, f = sigmoid, g = tanh, o = sigmoid of it in its place, c = f c_before + i g and h = o
     * tanh(c). h0 and c0, NULL for zeros, come before the first step, which is the last one where p->reverse. */
    yk_status (*lstm)(int device, const yk__lstm *p, const yk__view *gates, const yk__view *h, const yk__view *c,
                      const yk__view *h0, const yk__view *c0, const yk__view *weight);
    /* ggates: the gradients of what gates held before; gh0 and gc0: those of the states, of which gh0 is left undefined
     * unless p->want_h0. gh, ghn and gcn, NULL for zeros, are the gradients of h, of its last step and of that of c. */
    yk_status (*lstm_backward)(int device, const yk__lstm *p, const yk__view *ggates, const yk__view *gh0,
                               const yk__view *gc0, const yk__view *gh, const yk__view *ghn, const yk__view *gcn,
                               const yk__view *gates, const yk__view *c, const yk__view *c0, const yk__view *weight);

    /* ---- lookup ---- */
    /* out (M,D) = weight (V,D) rows by index (M), i64 or i32; an index outside [0, V) is an error that names it. */
    yk_status (*embedding)(int device, const yk__view *out, const yk__view *weight, const yk__view *index);
    /* gweight is written whole; rows of `padding_idx` (-1: none) get nothing. */
    yk_status (*embedding_backward)(int device, const yk__view *gweight, const yk__view *gout, const yk__view *index,
                                    int64_t padding_idx);

    /* ---- indexing: the same dtype for both; x has the shape of out (value), with stride 0 where only an index
     * tensor moves. An index outside its dimension is an error that names both, and then nothing was written to x. ----
     */
    /* out[c] = x[c + sum of index_k[c] stride_k] */
    yk_status (*index)(int device, const yk__view *out, const yk__view *x, const yk__indices *p);
    /* x[c + ...] = value[c], or += where `accumulate` (of bool: or). Elements of one position come in
     * C order of c: the last one stays. Without the index tensors, no two c are one position. */
    yk_status (*index_put)(int device, const yk__view *x, const yk__view *value, const yk__indices *p, bool accumulate);
    /* *count of the elements of x, bool alone, that are true; out (count, ndim) i64 or NULL: their positions in C
     * order. */
    yk_status (*nonzero)(int device, const yk__view *x, int64_t *count, const yk__view *out);

    /* ---- order: along a dimension, whose size is at least 1 ---- */
    /* index (i64, of x's shape, but perhaps shorter along dim): the positions of the first elements in sorted order;
     * equal ones keep their order, NaN is larger than any number, -0 equals 0. */
    yk_status (*argsort)(int device, const yk__view *index, const yk__view *x, int dim, bool descending);
    /* out[i] = x[0] op ... op x[i], or x[i] op ... op x[last] where `reverse`. Sums of f32 are kept in f64. out may
     * be x. */
    yk_status (*scan)(int device, yk__scan op, const yk__view *out, const yk__view *x, int dim, bool reverse);

    /* ---- losses: x (N,C) logits, target (N) i64, weight (C) or NULL ---- */
    /* loss: 0-dim; lse (N): log-sum-exp per row; total: 0-dim, the divisor of the mean; all but x and gx are
     * statistics. A label outside [0, C) that is not ignore_index is an error that names row, label and C. */
    yk_status (*cross_entropy)(int device, const yk__cross_entropy *p, const yk__view *loss, const yk__view *lse,
                               const yk__view *total, const yk__view *x, const yk__view *target,
                               const yk__view *weight);
    yk_status (*cross_entropy_backward)(int device, const yk__cross_entropy *p, const yk__view *gx,
                                        const yk__view *gloss, const yk__view *x, const yk__view *lse,
                                        const yk__view *total, const yk__view *target, const yk__view *weight);

    /* ---- optimizers: one pass over memory for all tensors of a group. params[i], grads[i] and the state have equal
     * shape and dtype; where their strides are equal and dense the pass is linear. ---- */
    yk_status (*sgd)(int device, const yk__sgd *p, int64_t count, const yk__view *params, const yk__view *grads,
                     const yk__view *momentum /* NULL where p->momentum is 0 */);
    yk_status (*adam)(int device, const yk__adam *p, int64_t count, const yk__view *params, const yk__view *grads,
                      const yk__view *mean, const yk__view *square, const yk__view *max_square /* amsgrad or NULL */);
    /* A step by p->rule. The state, as optimizer_rules.h has it: first is always there, second and third (arrays of
     * `count`) where the rule has them, else NULL. */
    yk_status (*descend)(int device, const yk__descent *p, int64_t count, const yk__view *params, const yk__view *grads,
                         const yk__view *first, const yk__view *second, const yk__view *third);
    /* ---- what changes from step to step, in the device's memory (kernel_args.h); pointers are to that ---- */
    /* state->step += 1, but not where *skip is there and not 0. */
    yk_status (*step_advance)(int device, yk__step_state *state, const int32_t *skip);
    /* Each gradient is multiplied by scale->inverse; scale->found becomes 1 where one of their elements
     * was not finite. (torch._amp_foreach_non_finite_check_and_unscale_) */
    yk_status (*unscale)(int device, int64_t count, const yk__view *grads, yk__scale_state *scale);
    /* The scale of the next step, by what was found; forgets that. (torch._amp_update_scale_) */
    yk_status (*scale_update)(int device, const yk__scaling *p, yk__scale_state *scale);

    /* ---- augmentation ---- */
    /* out (N,C,H,W), f32 or f64, in C order, from bytes: [random_crop] [flip] to_tensor [normalize] in one pass. images
     * is u8 of one dimension, which the crops, i64 (N,6), one yk__crop a sample, lie inside; table (C or 1,256), of
     * out's dtype, has what a byte of a channel becomes. images and table have stride 1 along the last dimension,
     * crops and table no gaps. NULL: a backend that lacks it has batches made on the host. */
    yk_status (*augment)(int device, const yk__view *out, const yk__view *images, const yk__view *crops,
                         const yk__view *table);

    /* ---- images: bytes in the host's memory; NULL where the device's memory is not that. Any thread may call. ---- */
    /* n pixels of three bytes to three planes that are `plane` bytes apart. */
    void (*split_pixels)(const unsigned char *from, int64_t n, unsigned char *to, int64_t plane);
    void (*resample)(const yk__resample *r);

    /* ---- operations that a backend may lack: they are composed of others there ---- */
    /* out = op(a, b, c, value) of each element; f32 or f64. */
    yk_status (*ternary)(int device, yk__ternary op, const yk__view *out, const yk__view *a, const yk__view *b,
                         const yk__view *c, double value);
    /* multilabel_margin_loss, of x (N,C), f32 or f64, and label (N,C), i64, whose rows end with the first negative one:
     * loss (N), the sum over the labels t of a row and the classes d that are none of them of max(0, 1 - x_t + x_d)
     * over C, or its derivative slope (N,C) by x; either may be NULL. Labels below C were checked. */
    yk_status (*label_margins)(int device, const yk__view *loss, const yk__view *slope, const yk__view *x,
                               const yk__view *label);
    /* The positions of maxima: which (rows,P), i64, holds for each of P windows the index, within a row of x, of its
     * first maximum, or of its first NaN. x (rows,D,H,W) and from (rows,M), i64, have no gaps; a window is kernel[k]
     * elements along axis k, and begins at from[row][i] along the depth, at the next windows[0] + j along the height,
     * and so on; P is the product of windows. */
    yk_status (*window_maxima)(int device, const yk__view *which, const yk__view *x, const yk__view *from,
                               const int64_t windows[3], const int64_t kernel[3]);
    /* out (B,D), of rows of weight (V,D), f32 or f64: the sum of those that index (M), i64, names from ends[b - 1], or
     * 0, up to ends[b], i64 (B), but of those that it names by padding_idx (-1: none); over their number where `mean`.
     */
    yk_status (*embedding_bag)(int device, const yk__view *out, const yk__view *weight, const yk__view *index,
                               const yk__view *ends, int64_t padding_idx, bool mean);
} yk__backend;

/* The backends that are loaded. (backend.c) */
extern _Atomic(const yk__backend *) yk__backends[YK__DEVICE_TYPES];
const yk__backend *yk__backend_load(yk_device device);
/* The backend of a type, loaded at first use; NULL and an error where it is not there. */
static inline const yk__backend *yk__backend_of(yk_device device)
{
    const yk__backend *loaded = (unsigned)device.type < YK__DEVICE_TYPES
                                    ? atomic_load_explicit(&yk__backends[device.type], memory_order_acquire)
                                    : NULL;
    return __builtin_expect(loaded != NULL, 1) ? loaded : yk__backend_load(device);
}
/* Checks that the device exists. */
yk_status yk__device_check(yk_device device);
/* Fails in the name of `slot`: a NULL slot was needed. */
yk_status yk__slot_missing(yk_device device, const char *slot);

/* ---- queues (queues.c) ---- */
/* The calling thread's work goes to this queue of every device until the end, which takes what begin returned. A block
 * of memory belongs to the queue that its thread was on when it was allocated: where another uses it, order them, and
 * say so by yk__storage_used_on. Source: torch.cuda.stream. */
yk__queue yk__queue_begin(yk__queue queue);
void yk__queue_end(yk__queue previous);
yk__queue yk__queue_current(void);
/* Work that is put on `queue` of a device from here on starts when all work that is on `after` of `other`, a device of
 * the same type, by now is done; nothing to do on a backend without queues. Source: torch.cuda.Stream.wait_stream. */
yk_status yk__queue_order(yk_device device, yk__queue queue, yk_device other, yk__queue after);

/* ---- storage (memory/storage.c, cache.c): counted memory of one device, from a caching allocator ---- */
typedef struct yk__storage {
    void *data; /* first: the rest is poisoned while the storage is cached, and leak checkers must see this */
    atomic_int references;
    yk_device device;
    atomic_uint version;   /* writes in place */
    atomic_uint *versions; /* the count of writes: `version`, or that of a storage whose memory this shares */
    atomic_uint exchanged; /* times that a collective set the values to those that other ranks have as well */
    size_t bytes;          /* as asked for */
    size_t reserved;       /* as the allocator gave; 0 for memory that it did not give */
    void (*foreign_release)(void *context); /* memory that is not ours */
    void *foreign_context;
    const char *maker; /* the operation that the memory was made for: yk__operation_name, static */
    bool for_backward;
    struct yk__storage *previous, *next; /* in the list of what is allocated on the device, or of free blocks */
    struct yk__storage *below, *above;   /* large blocks (heap.c): those that lie next to it, or NULL */
    bool heaped, idle;                   /* has a large block; that is free */
    struct yk__memory_pool *pool;        /* of the graph in whose recording it was allocated, or NULL */
    uint8_t queue;                       /* it was allocated on */
    _Atomic uint8_t used_on;             /* 1 << queue: the others that use it */
} yk__storage;
yk__storage *yk__storage_create(yk_device device, size_t bytes);
/*
 * The memory of `from`, which it keeps alive, as memory of `device`, which must be that of `from` or have the same
 * memory (yk__same_memory). Writes in place count for both, or, with own_versions, for each alone. It is accounted
 * where it was allocated.
 */
yk__storage *yk__storage_share(yk__storage *from, yk_device device, bool own_versions);
/* True if memory of one device can be read and written by the other as it is. */
bool yk__same_memory(yk_device a, yk_device b);
/*
 * The operation that this thread runs, or whose backward it does, as errors name it that are found below it: that
 * memory ran out, or that a graph cannot repeat it. The name is static, and stays until another begins; NULL is
 * "other".
 */
extern _Thread_local const char *yk__operation_name;
extern _Thread_local bool yk__operation_is_backward;
yk__storage *yk__storage_wrap(yk_device device, void *data, size_t bytes, void (*release)(void *), void *context);
yk__storage *yk__storage_retain(yk__storage *storage);
void yk__storage_release(yk__storage *storage);

/* The fault in the counts and lists of a device's allocator, NULL for none (base/invariant.h). */
const char *yk__memory_check(yk_device device);

/* Work on `queue` uses this memory: when the last reference goes, nobody gets it before what is on that queue by then
 * is done. Source: Tensor.record_stream. */
void yk__storage_used_on(yk__storage *storage, yk__queue queue);

/*
 * The memory of a graph (graph.c). From open to close what the calling thread allocates on the device comes from the
 * pool, and what it frees goes to it; nobody else gets it before the pool's release, so that a replay finds it as the
 * recording did. One at a time is open on a device: *busy says that NULL is for that.
 */
typedef struct yk__memory_pool yk__memory_pool;
yk__memory_pool *yk__memory_pool_open(yk_device device, bool *busy);
void yk__memory_pool_close(yk__memory_pool *pool);
/* Releases the pool: its blocks are the device's again; tensors that have some keep them. */
void yk__memory_pool_release(yk__memory_pool *pool);

/* Memory for a kernel's own use during one call, from the same cache, 64-byte aligned. */
void *yk__workspace_get(yk_device device, size_t bytes, yk__storage **handle);

#endif
