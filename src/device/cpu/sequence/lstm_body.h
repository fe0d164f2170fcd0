/*
 * lstm_body.h - the steps of an LSTM of one dtype; included by lstm.c with T, V and TYPED(name) defined.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))
#define PANEL (WIDTH * YK__GEMM_VECTORS)
#include "device/cpu/gemm/gemm_panels_body.h"

/* Panels of the weight, a block of depth at a time: block k0 starts at k0 times the columns of whole panels. */
static void TYPED(pack_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const lstm_job *job = arg;
    int64_t width = yk__ceil_div(job->columns, PANEL) * PANEL, first = begin * PANEL;
    int64_t count = MIN(end * PANEL, job->columns) - first;
    for (int64_t k0 = 0; k0 < job->depth; k0 += BLOCK_DEPTH) {
        int64_t k = MIN(BLOCK_DEPTH, job->depth - k0);
        TYPED(pack_panels)
        ((T *)job->packed + k0 * width + first * k,
         (const T *)job->weight->data + k0 * job->depth_stride + first * job->column_stride, k, job->depth_stride,
         count, job->column_stride);
    }
}

/* out (rows, columns) = or += left (rows, depth) weight. */
static yk_status TYPED(product)(const lstm_job *job, T *out, const T *left, int64_t rows, bool accumulate)
{
    if (!job->packed)
        return few(job, out, job->columns, left, accumulate);
    int64_t width = yk__ceil_div(job->columns, PANEL) * PANEL;
    for (int64_t k0 = 0; k0 < job->depth; k0 += BLOCK_DEPTH)
        TYPED(multiply)
    (YK__GEMM_A_ROWS, out, job->columns, left + k0, job->depth, (const T *)job->packed + k0 * width, rows, job->columns,
     MIN(BLOCK_DEPTH, job->depth - k0), accumulate || k0, false);
    return YK_OK;
}

/* Computes one row: the gates' activations, which replace the gates, the next cell and state. */
static void TYPED(activate)(int64_t n, T *gates, const T *before, T *c, T *h)
{
    T *in = gates, *forget = gates + n, *cell = gates + 2 * n, *out = gates + 3 * n;
    YK__INDEPENDENT for (int64_t j = 0; j < n; j++)
    {
        T i = TYPED(yk__sigmoid)(in[j]), f = TYPED(yk__sigmoid)(forget[j]);
        T g = TYPED(yk__tanh)(cell[j]), o = TYPED(yk__sigmoid)(out[j]);
        T next = f * before[j] + i * g;
        in[j] = i, forget[j] = f, cell[j] = g, out[j] = o;
        c[j] = next;
        h[j] = o * TYPED(yk__tanh)(next);
    }
}

/* Rows [begin, end) of all steps. */
static yk_status TYPED(forward)(const lstm_job *job, int64_t begin, int64_t end)
{
    int64_t n = job->hidden, state = job->rows * n;
    const T *before = job->before, *cells = job->cells_before;
    yk_status status = YK_OK;
    for (int64_t s = 0; s < job->steps && !status; s++) {
        int64_t t = step_at(job, s);
        T *gates = (T *)job->gates + 4 * t * state, *h = (T *)job->h + t * state, *c = (T *)job->c + t * state;
        if (before)
            status = TYPED(product)(job, gates + 4 * begin * n, before + begin * n, end - begin, true);
        for (int64_t r = begin; r < end && !status; r++)
            TYPED(activate)(n, gates + 4 * r * n, cells ? cells + r * n : job->zeros, c + r * n, h + r * n);
        before = h, cells = c;
    }
    return status;
}

/* Differentiates one row: gh is the gradient of the state so far, to which that of the output is added, gc of the cell,
 * which becomes that of the cell before. */
static void TYPED(differentiate)(int64_t n, T *ggates, const T *gh, const T *gout, T *gc, const T *gates, const T *c,
                                 const T *before)
{
    const T *in = gates, *forget = gates + n, *cell = gates + 2 * n, *out = gates + 3 * n;
    T *g_in = ggates, *g_forget = ggates + n, *g_cell = ggates + 2 * n, *g_out = ggates + 3 * n;
    YK__INDEPENDENT for (int64_t j = 0; j < n; j++)
    {
        T i = in[j], f = forget[j], g = cell[j], o = out[j], y = TYPED(yk__tanh)(c[j]), h = gh[j] + gout[j];
        T next = gc[j] + h * o * (1 - y * y);
        g_in[j] = next * g * ((1 - i) * i);
        g_forget[j] = next * before[j] * ((1 - f) * f);
        g_cell[j] = next * i * (1 - g * g);
        g_out[j] = h * y * ((1 - o) * o);
        gc[j] = next * f;
    }
}

static yk_status TYPED(backward)(const lstm_job *job, int64_t begin, int64_t end)
{
    int64_t n = job->hidden, state = job->rows * n;
    T *gh = job->gh0, *gc = job->gc0;
    yk_status status = YK_OK;
    for (int64_t s = job->steps - 1; s >= 0 && !status; s--) {
        int64_t t = step_at(job, s);
        const T *gates = (const T *)job->gates + 4 * t * state, *c = (const T *)job->c + t * state;
        const T *gout = job->gh ? (const T *)job->gh + t * state : NULL;
        const T *before = s ? (const T *)job->c + step_at(job, s - 1) * state : job->cells_before;
        T *ggates = (T *)job->ggates + 4 * t * state;
        for (int64_t r = begin; r < end; r++)
            TYPED(differentiate)
        (n, ggates + 4 * r * n, gh + r * n, gout ? gout + r * n : job->zeros, gc + r * n, gates + 4 * r * n, c + r * n,
         before ? before + r * n : job->zeros);
        if (s || job->p->want_h0)
            status = TYPED(product)(job, gh + begin * n, ggates + 4 * begin * n, end - begin, false);
    }
    return status;
}

static void TYPED(forward_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const lstm_job *job = arg;
    (void)TYPED(forward)(job, begin * job->rows / job->pieces, end * job->rows / job->pieces);
}

static void TYPED(backward_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const lstm_job *job = arg;
    (void)TYPED(backward)(job, begin * job->rows / job->pieces, end * job->rows / job->pieces);
}

#undef WIDTH
#undef PANEL
