/*
 * lstm.cu - the slots lstm and lstm_backward. Layer: device/cuda.
 *
 * Each step is a product by the slot gemm and one kernel for all gates, in which a thread takes an element of the
 * state. The gradients of the state and of the cell are kept in gh0 and gc0 from step to step.
 */
#include "device/cuda/walk.h"

#include "device/cuda/exponential.h"

enum { THREADS = WALK_THREADS };

/* The operands of one step; pointers are to its rows. */
typedef struct lstm_step {
    void *gates, *h, *c;    /* forward writes them */
    const void *before;     /* the cells before, NULL for zeros */
    void *ggates, *gh, *gc; /* backward */
    const void *gout;       /* the gradient of h, NULL for zeros */
    int64_t total, hidden;  /* elements of a state, and of one row of it */
} lstm_step;

static YK__DEVICE float sigmoid_of(float x)
{
    return yk__sigmoid_f32(x);
}
static YK__DEVICE double sigmoid_of(double x)
{
    return yk__sigmoid_f64(x);
}
static YK__DEVICE float tanh_of(float x)
{
    return yk__tanh_f32(x);
}
static YK__DEVICE double tanh_of(double x)
{
    return yk__tanh_f64(x);
}

template <typename E> static YK__DEVICE yk__global<typename E::stored> to_write(void *data)
{
    return yk__global<typename E::stored>(static_cast<typename E::stored *>(data));
}
template <typename E> static YK__DEVICE yk__global<const typename E::stored> to_read(const void *data)
{
    return yk__global<const typename E::stored>(static_cast<const typename E::stored *>(data));
}

template <typename E> YK__KERNEL(THREADS) step_kernel(lstm_step s)
{
    typedef typename E::number T;
    yk__global<typename E::stored> gates = to_write<E>(s.gates), h = to_write<E>(s.h), c = to_write<E>(s.c);
    yk__global<const typename E::stored> before = to_read<E>(s.before);
    YK__LOOP for (int64_t e = (int64_t)THREADS * blockIdx.x + threadIdx.x; e < s.total;
                  e += (int64_t)THREADS * gridDim.x)
    {
        int64_t n = s.hidden, at = e + 3 * (e / n) * n; /* row e / n of 4 n numbers, column e % n */
        T i = sigmoid_of(E::load(gates[at])), f = sigmoid_of(E::load(gates[at + n]));
        T g = tanh_of(E::load(gates[at + 2 * n])), o = sigmoid_of(E::load(gates[at + 3 * n]));
        T next = f * (s.before ? E::load(before[e]) : (T)0) + i * g;
        gates[at] = E::store(i);
        gates[at + n] = E::store(f);
        gates[at + 2 * n] = E::store(g);
        gates[at + 3 * n] = E::store(o);
        c[e] = E::store(next);
        h[e] = E::store(o * tanh_of(next));
    }
}

template <typename E> YK__KERNEL(THREADS) step_backward_kernel(lstm_step s)
{
    typedef typename E::number T;
    yk__global<typename E::stored> ggates = to_write<E>(s.ggates), gc = to_write<E>(s.gc);
    yk__global<const typename E::stored> gates = to_read<E>(s.gates), c = to_read<E>(s.c), gh = to_read<E>(s.gh),
                                         before = to_read<E>(s.before), gout = to_read<E>(s.gout);
    YK__LOOP for (int64_t e = (int64_t)THREADS * blockIdx.x + threadIdx.x; e < s.total;
                  e += (int64_t)THREADS * gridDim.x)
    {
        int64_t n = s.hidden, at = e + 3 * (e / n) * n;
        T i = E::load(gates[at]), f = E::load(gates[at + n]), g = E::load(gates[at + 2 * n]);
        T o = E::load(gates[at + 3 * n]), y = tanh_of(E::load(c[e]));
        T state = E::load(gh[e]) + (s.gout ? E::load(gout[e]) : (T)0);
        T next = E::load(gc[e]) + state * o * (1 - y * y);
        ggates[at] = E::store(next * g * ((1 - i) * i));
        ggates[at + n] = E::store(next * (s.before ? E::load(before[e]) : (T)0) * ((1 - f) * f));
        ggates[at + 2 * n] = E::store(next * i * (1 - g * g));
        ggates[at + 3 * n] = E::store(state * y * ((1 - o) * o));
        gc[e] = E::store(next * f);
    }
}

/* The part of a sequence that is one step, as gemm's matrix. */
static yk__view step_of(const yk__view *sequence, int64_t t)
{
    yk__view v = *sequence;
    v.data =
        static_cast<char *>(v.data) + t * v.shape[1] * v.shape[2] * static_cast<int64_t>(yk__size_of(sequence->dtype));
    v.shape[0] = 1;
    return v;
}

/* A matrix as the batch of one. */
static yk__view batch_of(const yk__view *matrix, bool transposed)
{
    yk__view v = *matrix;
    v.ndim = 3;
    v.shape[0] = 1, v.stride[0] = 0;
    for (int d = 0; d < 2; d++) {
        v.shape[1 + d] = matrix->shape[transposed ? 1 - d : d];
        v.stride[1 + d] = matrix->stride[transposed ? 1 - d : d];
    }
    return v;
}

yk_status cuda_lstm(int device, const yk__lstm *p, const yk__view *gates, const yk__view *h, const yk__view *c,
                    const yk__view *h0, const yk__view *c0, const yk__view *weight)
{
    const yk__view *views[] = {gates, h, c, weight};
    int64_t steps = gates->shape[0];
    yk__view right = batch_of(weight, true), before = {};
    lstm_step s = {};
    s.total = h->shape[1] * h->shape[2], s.hidden = h->shape[2];
    s.before = c0 ? c0->data : NULL;
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || s.total == 0)
        return status;
    if (h0)
        before = batch_of(h0, false);
    for (int64_t i = 0; i < steps && !status; i++) {
        int64_t t = p->reverse ? steps - 1 - i : i;
        yk__view g = step_of(gates, t), state = step_of(h, t);
        s.gates = g.data, s.h = state.data, s.c = step_of(c, t).data;
        if (before.data)
            status = cuda_gemm(device, &g, &before, &right, NULL, true);
        if (status)
            break;
#define STEP(E) YK__LAUNCH("lstm", step_kernel<E>, walk_blocks(device, s.total), THREADS, 0, stream, s)
        FLOATING(gates->dtype, STEP);
        before = state;
        s.before = s.c;
    }
    return status ? status : cuda_launched(device, "lstm", 4, views);
}

yk_status cuda_lstm_backward(int device, const yk__lstm *p, const yk__view *ggates, const yk__view *gh0,
                             const yk__view *gc0, const yk__view *gh, const yk__view *ghn, const yk__view *gcn,
                             const yk__view *gates, const yk__view *c, const yk__view *c0, const yk__view *weight)
{
    const yk__view *views[] = {ggates, gh0, gc0, gates, c, weight};
    int64_t steps = gates->shape[0];
    yk__view right = batch_of(weight, false), state = batch_of(gh0, false);
    lstm_step s = {};
    s.total = c->shape[1] * c->shape[2], s.hidden = c->shape[2];
    s.gh = gh0->data, s.gc = gc0->data;
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || s.total == 0)
        return status;
    status = ghn ? cuda_copy(device, gh0, ghn) : cuda_fill(device, gh0, 0);
    if (!status)
        status = gcn ? cuda_copy(device, gc0, gcn) : cuda_fill(device, gc0, 0);
    for (int64_t i = steps - 1; i >= 0 && !status; i--) {
        int64_t t = p->reverse ? steps - 1 - i : i, earlier = p->reverse ? t + 1 : t - 1;
        yk__view g = step_of(ggates, t);
        s.ggates = g.data, s.gates = step_of(gates, t).data, s.c = step_of(c, t).data;
        s.before = i ? step_of(c, earlier).data : c0 ? c0->data : NULL;
        s.gout = gh ? step_of(gh, t).data : NULL;
#define STEP_BACKWARD(E)                                                                                               \
    YK__LAUNCH("lstm_backward", step_backward_kernel<E>, walk_blocks(device, s.total), THREADS, 0, stream, s)
        FLOATING(gates->dtype, STEP_BACKWARD);
        if (i || p->want_h0)
            status = cuda_gemm(device, &state, &g, &right, NULL, false);
    }
    return status ? status : cuda_launched(device, "lstm_backward", 6, views);
}
