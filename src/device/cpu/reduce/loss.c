/*
 * loss.c - the slots cross_entropy, cross_entropy_backward and label_margins. Layer: device/cpu.
 *
 * With p = softmax(x), w the class weights (1 where there are none), t the label of a row and e the smoothing, a row
 * that counts contributes (torch.nn.CrossEntropyLoss)
 *     (1 - e) w_t (-log p_t) + (e / C) sum_c w_c (-log p_c)
 * and its gradient is
 *     (1 - e) w_t (p_c - [c = t]) + (e / C) (p_c sum_k w_k - w_c).
 * The mean divides by the sum of w_t over the rows that count; if none does, it is NaN. Rows are summed in double, in
 * pieces that depend on the sizes alone.
 */
#include "device/cpu/iterate.h"
#include "device/cpu/rows.h"

/* The most pieces: bounds the threads, and the array of their sums. Sums are cut by it: another number may give other
 * last bits. */
enum { MAX_PIECES = 128 };

/* Rows of up to SHORT classes are transposed, and up to ROWS of them worked on side by side, for alone they would not
 * fill vectors; not where they are fewer than FEW. */
enum { SHORT = 16, ROWS = 64, FEW = 16 };

typedef struct loss_job {
    const yk__cross_entropy *p;
    const yk__view *x, *target, *weight, *lse, *gx;
    int64_t rows, classes, grain;
    double weight_sum; /* of all classes */
    double scale;      /* backward: the gradient of one row's contribution */
    struct {
        double nll, smooth, weight;
        int64_t bad; /* the first row with a label that is not a class, or -1 */
    } piece[MAX_PIECES];
} loss_job;

static double number(const yk__view *v, int64_t at)
{
    return v->dtype == YK_F32 ? (double)((const float *)v->data)[at] : ((const double *)v->data)[at];
}

static void store(const yk__view *v, int64_t at, double value)
{
    if (v->dtype == YK_F32)
        ((float *)v->data)[at] = (float)value;
    else
        ((double *)v->data)[at] = value;
}

static int64_t label_of(const loss_job *job, int64_t row)
{
    return ((const int64_t *)job->target->data)[row * job->target->stride[0]];
}

static double weight_of(const loss_job *job, int64_t c)
{
    return job->weight ? number(job->weight, c * job->weight->stride[0]) : 1.0;
}

#define LOG_SUM_EXP(S, T)                                                                                              \
    static double log_sum_exp_##S(const T *x, int64_t stride, int64_t n)                                               \
    {                                                                                                                  \
        T e[YK__ROW_CHUNK] __attribute__((aligned(64))), top = yk__row_max_##S(x, stride, n);                          \
        double sum = 0;                                                                                                \
        for (int64_t i = 0; i < n; i += YK__ROW_CHUNK)                                                                 \
            sum += yk__row_exp_##S(x + i * stride, stride, n - i < YK__ROW_CHUNK ? n - i : YK__ROW_CHUNK, top, e);     \
        return (double)top + log(sum);                                                                                 \
    }
#define SHORT_ROWS(S, T)                                                                                               \
    /* to[c][r] = x[r][c] for some rows; 0 for the others. */                                                          \
    static void turn_##S(T to[SHORT][ROWS], const yk__view *x, int64_t row, int64_t rows)                              \
    {                                                                                                                  \
        const T *from = (const T *)x->data + row * x->stride[0];                                                       \
        for (int64_t c = 0; c < x->shape[1]; c++) {                                                                    \
            for (int64_t r = 0; r < rows; r++)                                                                         \
                to[c][r] = from[r * x->stride[0] + c * x->stride[1]];                                                  \
            for (int64_t r = rows; r < ROWS; r++)                                                                      \
                to[c][r] = 0;                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void log_sums_exp_##S(const yk__view *x, int64_t row, int64_t rows, double *lse)                            \
    {                                                                                                                  \
        T t[SHORT][ROWS], top[ROWS];                                                                                   \
        double sum[ROWS];                                                                                              \
        turn_##S(t, x, row, rows);                                                                                     \
        for (int64_t r = 0; r < ROWS; r++)                                                                             \
            top[r] = (T)-INFINITY, sum[r] = 0;                                                                         \
        for (int64_t c = 0; c < x->shape[1]; c++)                                                                      \
            for (int64_t r = 0; r < ROWS; r++)                                                                         \
                top[r] = t[c][r] > top[r] ? t[c][r] : top[r];                                                          \
        for (int64_t c = 0; c < x->shape[1]; c++)                                                                      \
            YK__INDEPENDENT for (int64_t r = 0; r < ROWS; r++)                                                         \
            {                                                                                                          \
                sum[r] += (double)yk__exp_##S(t[c][r] - top[r]);                                                       \
            }                                                                                                          \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            lse[r] = (double)top[r] + log(sum[r]);                                                                     \
    }
LOG_SUM_EXP(f32, float)
LOG_SUM_EXP(f64, double)
SHORT_ROWS(f32, float)
SHORT_ROWS(f64, double)

/* The logarithms of the sums of exponentials of up to ROWS rows from `row` on; gives the number of rows. */
static int64_t log_sums_exp(const loss_job *job, int64_t row, int64_t rows, double *lse)
{
    const yk__view *x = job->x;
    bool alone = job->classes > SHORT || rows < FEW;
    rows = alone ? 1 : rows < ROWS ? rows : ROWS;
    if (alone) {
        int64_t at = row * x->stride[0];
        *lse = x->dtype == YK_F32 ? log_sum_exp_f32((const float *)x->data + at, x->stride[1], job->classes)
                                  : log_sum_exp_f64((const double *)x->data + at, x->stride[1], job->classes);
    } else if (x->dtype == YK_F32) {
        log_sums_exp_f32(x, row, rows, lse);
    } else {
        log_sums_exp_f64(x, row, rows, lse);
    }
    return rows;
}

static void forward_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    loss_job *job = arg;
    int64_t piece = begin / job->grain, step = job->x->stride[1];
    double nll = 0, smooth = 0, weight = 0, some[ROWS];
    int64_t bad = -1, first = begin, next = begin;
    for (int64_t row = begin; row < end; row++) {
        if (row == next)
            next += log_sums_exp(job, first = row, end - row, some);
        int64_t at = row * job->x->stride[0], label = label_of(job, row);
        double lse = some[row - first];
        store(job->lse, row * job->lse->stride[0], lse);
        if (label == job->p->ignore_index)
            continue;
        if (label < 0 || label >= job->classes) {
            bad = row;
            break;
        }
        double w = weight_of(job, label);
        nll += w * (lse - number(job->x, at + label * step));
        weight += w;
        if (job->p->label_smoothing != 0.0)
            for (int64_t c = 0; c < job->classes; c++)
                smooth += weight_of(job, c) * (lse - number(job->x, at + c * step));
    }
    job->piece[piece].nll = nll;
    job->piece[piece].smooth = smooth;
    job->piece[piece].weight = weight;
    job->piece[piece].bad = bad;
}

static void loss_job_init(loss_job *job)
{
    job->rows = job->x->shape[0];
    job->classes = job->x->shape[1];
    int64_t grain = YK__GRAIN / 4 / (job->classes > 0 ? job->classes : 1), least = (job->rows - 1) / MAX_PIECES + 1;
    job->grain = grain > least ? grain : least > 1 ? least : 1;
    job->weight_sum = 0;
    for (int64_t c = 0; c < job->classes; c++)
        job->weight_sum += weight_of(job, c);
}

static yk_status cross_entropy(int device, const yk__cross_entropy *p, const yk__view *loss, const yk__view *lse,
                               const yk__view *total, const yk__view *x, const yk__view *target, const yk__view *weight)
{
    loss_job job = {.p = p, .x = x, .target = target, .weight = weight, .lse = lse};
    loss_job_init(&job);
    yk__cpu_parallel(device, job.rows, job.grain, forward_piece, &job);
    double nll = 0, smooth = 0, divisor = 0;
    for (int64_t piece = 0; piece * job.grain < job.rows; piece++) {
        int64_t bad = job.piece[piece].bad;
        if (bad >= 0)
            return yk__fail(YK_ERR_ARGUMENT, "cross_entropy: target %lld in row %lld is outside [0, %lld)",
                            (long long)label_of(&job, bad), (long long)bad, (long long)job.classes);
        nll += job.piece[piece].nll;
        smooth += job.piece[piece].smooth;
        divisor += job.piece[piece].weight;
    }
    double sum = nll;
    if (p->label_smoothing != 0.0)
        sum = (1.0 - p->label_smoothing) * nll + p->label_smoothing / (double)job.classes * smooth;
    store(loss, 0, p->mean ? sum / divisor : sum);
    store(total, 0, divisor);
    return YK_OK;
}

/* p is recovered from the stored log-sum-exp, and then normalised: that takes the rounding of lse back out. */
#define GRADIENT_ROW(S, T)                                                                                             \
    static void gradient_row_##S(const loss_job *job, int64_t row, int64_t label)                                      \
    {                                                                                                                  \
        T e[YK__ROW_CHUNK] __attribute__((aligned(64)));                                                               \
        int64_t n = job->classes, step = job->x->stride[1], gx_step = job->gx->stride[1];                              \
        const T *x = (const T *)job->x->data + row * job->x->stride[0];                                                \
        T *gx = (T *)job->gx->data + row * job->gx->stride[0];                                                         \
        T lse = ((const T *)job->lse->data)[row * job->lse->stride[0]];                                                \
        double smoothing = job->p->label_smoothing / (double)n, w = weight_of(job, label), sum = 0;                    \
        for (int64_t i = 0; i < n; i += YK__ROW_CHUNK)                                                                 \
            sum += yk__row_exp_##S(x + i * step, step, n - i < YK__ROW_CHUNK ? n - i : YK__ROW_CHUNK, lse, e);         \
        double direct = (1.0 - job->p->label_smoothing) * w * job->scale;                                              \
        T all = (T)((direct + smoothing * job->weight_sum * job->scale) / sum), even = (T)(smoothing * job->scale);    \
        for (int64_t i = 0; i < n; i += YK__ROW_CHUNK) {                                                               \
            int64_t m = n - i < YK__ROW_CHUNK ? n - i : YK__ROW_CHUNK;                                                 \
            if (n > YK__ROW_CHUNK)                                                                                     \
                yk__row_exp_##S(x + i * step, step, m, lse, e);                                                        \
            if (even != 0)                                                                                             \
                for (int64_t c = 0; c < m; c++)                                                                        \
                    gx[(i + c) * gx_step] = all * e[c] - even * (T)weight_of(job, i + c);                              \
            else                                                                                                       \
                for (int64_t c = 0; c < m; c++)                                                                        \
                    gx[(i + c) * gx_step] = all * e[c];                                                                \
        }                                                                                                              \
        gx[label * gx_step] -= (T)direct;                                                                              \
    }
#define GRADIENT_SHORT_ROWS(S, T)                                                                                      \
    static void gradient_rows_##S(const loss_job *job, int64_t row, int64_t rows)                                      \
    {                                                                                                                  \
        T e[SHORT][ROWS], lse[ROWS], all[ROWS];                                                                        \
        double sum[ROWS], direct[ROWS], smoothing = job->p->label_smoothing / (double)job->classes;                    \
        T even = (T)(smoothing * job->scale);                                                                          \
        turn_##S(e, job->x, row, rows);                                                                                \
        for (int64_t r = 0; r < ROWS; r++) {                                                                           \
            lse[r] = r < rows ? ((const T *)job->lse->data)[(row + r) * job->lse->stride[0]] : 0;                      \
            sum[r] = 0;                                                                                                \
        }                                                                                                              \
        for (int64_t c = 0; c < job->classes; c++)                                                                     \
            YK__INDEPENDENT for (int64_t r = 0; r < ROWS; r++)                                                         \
            {                                                                                                          \
                e[c][r] = yk__exp_##S(e[c][r] - lse[r]);                                                               \
                sum[r] += (double)e[c][r];                                                                             \
            }                                                                                                          \
        for (int64_t r = 0; r < rows; r++) {                                                                           \
            int64_t label = label_of(job, row + r);                                                                    \
            direct[r] = label == job->p->ignore_index                                                                  \
                            ? 0                                                                                        \
                            : (1.0 - job->p->label_smoothing) * weight_of(job, label) * job->scale;                    \
            all[r] = (T)((direct[r] + smoothing * job->weight_sum * job->scale) / sum[r]);                             \
        }                                                                                                              \
        T *gx = (T *)job->gx->data + row * job->gx->stride[0];                                                         \
        int64_t gx_row = job->gx->stride[0], gx_step = job->gx->stride[1];                                             \
        for (int64_t c = 0; c < job->classes; c++) {                                                                   \
            T less = even != 0 ? even * (T)weight_of(job, c) : 0;                                                      \
            for (int64_t r = 0; r < rows; r++)                                                                         \
                gx[r * gx_row + c * gx_step] = even != 0 ? all[r] * e[c][r] - less : all[r] * e[c][r];                 \
        }                                                                                                              \
        for (int64_t r = 0; r < rows; r++) {                                                                           \
            int64_t label = label_of(job, row + r);                                                                    \
            if (label != job->p->ignore_index)                                                                         \
                gx[r * gx_row + label * gx_step] -= (T)direct[r];                                                      \
            else                                                                                                       \
                for (int64_t c = 0; c < job->classes; c++)                                                             \
                    gx[r * gx_row + c * gx_step] = 0;                                                                  \
        }                                                                                                              \
    }
GRADIENT_ROW(f32, float)
GRADIENT_ROW(f64, double)
GRADIENT_SHORT_ROWS(f32, float)
GRADIENT_SHORT_ROWS(f64, double)

static void backward_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const loss_job *job = arg;
    for (int64_t rows; job->classes <= SHORT && end - begin >= FEW; begin += rows) {
        rows = end - begin < ROWS ? end - begin : ROWS;
        (job->gx->dtype == YK_F32 ? gradient_rows_f32 : gradient_rows_f64)(job, begin, rows);
    }
    for (int64_t row = begin; row < end; row++) {
        int64_t label = label_of(job, row);
        if (label == job->p->ignore_index)
            for (int64_t c = 0; c < job->classes; c++)
                store(job->gx, row * job->gx->stride[0] + c * job->gx->stride[1], 0.0);
        else if (job->gx->dtype == YK_F32)
            gradient_row_f32(job, row, label);
        else
            gradient_row_f64(job, row, label);
    }
}

static yk_status cross_entropy_backward(int device, const yk__cross_entropy *p, const yk__view *gx,
                                        const yk__view *gloss, const yk__view *x, const yk__view *lse,
                                        const yk__view *total, const yk__view *target, const yk__view *weight)
{
    loss_job job = {.p = p, .x = x, .target = target, .weight = weight, .lse = lse, .gx = gx};
    loss_job_init(&job);
    for (int64_t row = 0; row < job.rows; row++) {
        int64_t label = label_of(&job, row);
        if (label != p->ignore_index && (label < 0 || label >= job.classes))
            return yk__fail(YK_ERR_ARGUMENT, "cross_entropy: target %lld in row %lld is outside [0, %lld)",
                            (long long)label, (long long)row, (long long)job.classes);
    }
    job.scale = number(gloss, 0) / (p->mean ? number(total, 0) : 1.0);
    yk__cpu_parallel(device, job.rows, job.grain, backward_piece, &job);
    return YK_OK;
}

/* ---- margins of labels ---- */

typedef struct margin_job {
    const yk__view *loss, *slope, *x, *label;
} margin_job;

/*
 * A row goes by pieces of its classes, in which labels are minus infinity, above which no margin is: each label then
 * goes through the piece without looking at what is a label. Sums are kept in LANES numbers, and of a label in double.
 */
enum { MARGIN_PIECE = 256, LANES = 16 };
#define MARGIN_ROW(S, T)                                                                                               \
    static void margin_row_##S(const margin_job *job, int64_t row)                                                     \
    {                                                                                                                  \
        const int64_t classes = job->x->shape[1], step = job->x->stride[1], next = job->label->stride[1];              \
        const T *x = (const T *)job->x->data + row * job->x->stride[0];                                                \
        const int64_t *label = (const int64_t *)job->label->data + row * job->label->stride[0];                        \
        const yk__view *to = job->slope;                                                                               \
        T *slope = to ? (T *)to->data + row * to->stride[0] : NULL;                                                    \
        double total = 0;                                                                                              \
        int64_t labels = 0;                                                                                            \
        while (labels < classes && label[labels * next] >= 0)                                                          \
            labels++;                                                                                                  \
        for (int64_t c = 0; slope && c < classes; c++)                                                                 \
            slope[c * to->stride[1]] = 0;                                                                              \
        for (int64_t from = 0; from < classes && labels; from += MARGIN_PIECE) {                                       \
            int64_t n = classes - from < MARGIN_PIECE ? classes - from : MARGIN_PIECE;                                 \
            int64_t padded = (n + LANES - 1) / LANES * LANES;                                                          \
            T other[MARGIN_PIECE], count[MARGIN_PIECE];                                                                \
            for (int64_t c = 0; c < padded; c++) {                                                                     \
                other[c] = c < n ? x[(from + c) * step] : (T)-INFINITY;                                                \
                count[c] = 0;                                                                                          \
            }                                                                                                          \
            for (int64_t l = 0; l < labels; l++) {                                                                     \
                int64_t c = label[l * next] - from;                                                                    \
                if (c >= 0 && c < n)                                                                                   \
                    other[c] = (T)-INFINITY;                                                                           \
            }                                                                                                          \
            for (int64_t l = 0; l < labels; l++) {                                                                     \
                T least = 1 - x[label[l * next] * step], sum[LANES] = {0}, hit[LANES] = {0};                           \
                for (int64_t c = 0; c < padded; c += LANES)                                                            \
                    for (int k = 0; k < LANES; k++) {                                                                  \
                        T above = least + other[c + k], one = above > 0 ? 1 : 0;                                       \
                        sum[k] += above > 0 ? above : 0;                                                               \
                        hit[k] += one;                                                                                 \
                        count[c + k] += one;                                                                           \
                    }                                                                                                  \
                T hits = 0;                                                                                            \
                for (int k = 0; k < LANES; k++) {                                                                      \
                    total += (double)sum[k];                                                                           \
                    hits += hit[k];                                                                                    \
                }                                                                                                      \
                if (slope)                                                                                             \
                    slope[label[l * next] * to->stride[1]] -= hits;                                                    \
            }                                                                                                          \
            for (int64_t c = 0; slope && c < n; c++)                                                                   \
                slope[(from + c) * to->stride[1]] += count[c];                                                         \
        }                                                                                                              \
        for (int64_t c = 0; slope && c < classes; c++)                                                                 \
            slope[c * to->stride[1]] /= (T)classes;                                                                    \
        if (job->loss)                                                                                                 \
            ((T *)job->loss->data)[row * job->loss->stride[0]] = (T)(total / (double)classes);                         \
    }
MARGIN_ROW(f32, float)
MARGIN_ROW(f64, double)

static void margin_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const margin_job *job = arg;
    for (int64_t row = begin; row < end; row++)
        (job->x->dtype == YK_F32 ? margin_row_f32 : margin_row_f64)(job, row);
}

static yk_status label_margins(int device, const yk__view *loss, const yk__view *slope, const yk__view *x,
                               const yk__view *label)
{
    margin_job job = {loss, slope, x, label};
    yk__cpu_parallel(device, x->shape[0], YK__GRAIN / 16 / (x->shape[1] + 1) + 1, margin_piece, &job);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_loss)(yk__backend *table)
{
    table->label_margins = label_margins;
    table->cross_entropy = cross_entropy;
    table->cross_entropy_backward = cross_entropy_backward;
}
