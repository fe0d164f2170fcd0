/*
 * mix.c - batches mixed with themselves: mixup and cutmix, whose labels become probabilities. Layer: data.
 *
 * Row i is mixed with row i - 1, the first one with the last: torchvision's roll(1, 0). All is done in position, from
 * the last row to the first, so that the row before is still as it was; a copy of the last one is kept for the first.
 * What is drawn depends on the seed, the epoch and the batch's position in the epoch's order, on nothing else.
 *
 * Sources: "mixup: Beyond Empirical Risk Minimization" (2017), "CutMix: Regularization Strategy to Train Strong
 * Classifiers with Localizable Features" (2019), torchvision.transforms.v2.MixUp and CutMix.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "data/dataset.h"
#include "tensor/tensor.h"

/* ---- draws ----------------------------------------------------------------------------------------------- */
typedef struct draws {
    yk__stream stream;
    uint64_t position; /* below 2^40; the bits above count the blocks of one batch */
    uint32_t words[4];
    uint32_t drawn;
} draws;

static uint32_t draw_word(draws *d)
{
    if (d->drawn % 4 == 0)
        yk__philox(d->stream, d->position | (uint64_t)(d->drawn / 4) << 40, d->words);
    return d->words[d->drawn++ % 4];
}

/* In (0, 1). */
static double draw_uniform(draws *d)
{
    return (draw_word(d) + 0.5) * 0x1p-32;
}

static double draw_normal(draws *d)
{
    double radius = sqrt(-2 * log(draw_uniform(d)));
    return radius * cos(2 * M_PI * draw_uniform(d));
}

/* The logarithm of a number of Gamma(alpha, 1): of a small alpha the number itself would often be 0. Source: Marsaglia
 * and Tsang, "A simple method for generating gamma variables" (2000), for alpha + 1, times u^(1 / alpha). */
static double draw_log_gamma(draws *d, double alpha)
{
    double a = alpha + 1 - 1.0 / 3, c = 1 / sqrt(9 * a), v, x, u;
    do {
        x = draw_normal(d);
        v = 1 + c * x;
        v = v * v * v;
        u = draw_uniform(d);
    } while (!(v > 0 && log(u) < 0.5 * x * x + a - a * v + a * log(v)));
    return log(a * v) + log(draw_uniform(d)) / alpha;
}

/* A number of Beta(alpha, alpha), in [0, 1]. */
static double draw_beta(draws *d, double alpha)
{
    double one = draw_log_gamma(d, alpha), other = draw_log_gamma(d, alpha);
    return 1 / (1 + exp(other - one));
}

yk__mixed yk__mix_draw(const yk__mix *mix, uint64_t seed, int64_t epoch, int64_t position, int64_t height,
                       int64_t width)
{
    draws d = {.stream = {.key = seed, .purpose = YK__RANDOM_MIX, .epoch = (uint32_t)epoch},
               .position = (uint64_t)position};
    yk__mixed m = {.cut = mix->cutmix > 0};
    if (mix->mixup > 0 && mix->cutmix > 0)
        m.cut = draw_word(&d) >> 31;
    m.share = draw_beta(&d, m.cut ? mix->cutmix : mix->mixup);
    if (!m.cut || height < 1 || width < 1)
        return m;
    int64_t x = (int64_t)(draw_uniform(&d) * (double)width), y = (int64_t)(draw_uniform(&d) * (double)height);
    double half = 0.5 * sqrt(1 - m.share);
    int64_t half_width = (int64_t)(half * (double)width), half_height = (int64_t)(half * (double)height);
    int64_t left = x - half_width, top = y - half_height, right = x + half_width, bottom = y + half_height;
    m.part.left = left < 0 ? 0 : left;
    m.part.top = top < 0 ? 0 : top;
    m.part.width = (right < width ? right : width) - m.part.left;
    m.part.height = (bottom < height ? bottom : height) - m.part.top;
    m.share = 1 - (double)(m.part.width * m.part.height) / (double)(width * height);
    return m;
}

/* ---- rows ------------------------------------------------------------------------------------------------ */
/* to = share * to + (1 - share) * before, each product rounded, in PyTorch's order. */
#define MIX_FUNCTION(T)                                                                                                \
    static void mix_##T(void *data, const void *before_data, size_t n, double share)                                   \
    {                                                                                                                  \
        T *to = data, own = (T)share, other = (T)(1 - share);                                                          \
        const T *before = before_data;                                                                                 \
        for (size_t i = 0; i < n; i++) {                                                                               \
            T first = before[i] * other, second = to[i] * own;                                                         \
            to[i] = first + second;                                                                                    \
        }                                                                                                              \
    }
MIX_FUNCTION(float)
MIX_FUNCTION(double)

static void paste(const yk__rectangle *part, const yk_tensor *images, char *to, const char *from)
{
    size_t element = yk_dtype_size((yk_dtype)images->dtype);
    int64_t height = images->shape[2], width = images->shape[3];
    for (int64_t c = 0; c < images->shape[1]; c++) {
        for (int64_t y = part->top; y < part->top + part->height; y++) {
            size_t at = (size_t)((c * height + y) * width + part->left) * element;
            memcpy(to + at, from + at, (size_t)part->width * element);
        }
    }
}

/* Mixes the rows of x, whole or, with a rectangle, of images that part. `kept` holds the last row as it was. */
static void mix_rows(yk_tensor *x, double share, const yk__rectangle *part, char *kept)
{
    int64_t count = x->shape[0];
    size_t numel = (size_t)(x->numel / count), row = numel * yk_dtype_size((yk_dtype)x->dtype);
    char *data = x->data;
    memcpy(kept, data + (size_t)(count - 1) * row, row);
    for (int64_t i = count - 1; i >= 0; i--) {
        char *to = data + (size_t)i * row;
        const char *before = i ? to - row : kept;
        if (part)
            paste(part, x, to, before);
        else if (x->dtype == YK_F32)
            mix_float(to, before, numel, share);
        else
            mix_double(to, before, numel, share);
    }
}

static bool is_floating(const yk_tensor *x)
{
    return x->dtype == YK_F32 || x->dtype == YK_F64;
}

/* Probabilities for classes, as their one-hot rows mixed. */
static yk_status spread_labels(const yk_tensor *labels, const int64_t *samples, int64_t classes, double share,
                               yk_tensor *to)
{
    int64_t count = labels->shape[0];
    const int64_t *label = labels->data;
    memset(to->data, 0, (size_t)to->numel * yk_dtype_size((yk_dtype)to->dtype));
    for (int64_t i = 0; i < count; i++) {
        if (label[i] < 0 || label[i] >= classes)
            return yk__fail(YK_ERR_ARGUMENT, "mixup, cutmix: label %lld of sample %lld is outside [0, %lld)",
                            (long long)label[i], (long long)samples[i], (long long)classes);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t own = i * classes + label[i], other = i * classes + label[i ? i - 1 : count - 1];
        if (to->dtype == YK_F32) {
            float *p = to->data;
            p[other] += (float)(1 - share);
            p[own] += (float)share;
        } else {
            double *p = to->data;
            p[other] += 1 - share;
            p[own] += share;
        }
    }
    return YK_OK;
}

static yk_status check_batch(const yk__mix *mix, const yk__mixed *m, const yk__batch *batch)
{
    const yk_tensor *input = batch->tensors[0], *target = batch->tensors[1];
    char text[200];
    if (m->cut && input->ndim != 4)
        return yk__fail(YK_ERR_SHAPE, "cutmix: takes batches of images (N, C, H, W), got %s",
                        yk_shape_format(input, text, sizeof(text)));
    if (!m->cut && !is_floating(input))
        return yk__fail(YK_ERR_DTYPE, "mixup: takes inputs of float32 or float64, got %s%s",
                        yk_dtype_name((yk_dtype)input->dtype),
                        input->dtype == YK_U8 ? "; yk_to_tensor() makes floats of bytes" : "");
    bool labels = target && target->dtype == YK_I64 && target->ndim == 1;
    if (target && !labels && !(is_floating(target) && target->ndim == 2))
        return yk__fail(YK_ERR_SHAPE, "mixup, cutmix: take classes (N) of int64 or probabilities (N, C), got %s of %s",
                        yk_shape_format(target, text, sizeof(text)), yk_dtype_name((yk_dtype)target->dtype));
    if (labels && mix->classes < 1)
        return yk__fail(YK_ERR_ARGUMENT,
                        "mixup, cutmix: the number of classes is not known to the data set; give .num_classes");
    return YK_OK;
}

yk_status yk__mix_apply(const yk__batch_plan *plan, const yk__mixed *m, yk__data_worker *worker, yk__batch *batch)
{
    yk_tensor *input = batch->tensors[0], *target = batch->tensors[1];
    const yk__mix *mix = plan->mix;
    yk_status status = check_batch(mix, m, batch);
    if (status)
        return status;
    size_t row = (size_t)(input->numel / input->shape[0]) * yk_dtype_size((yk_dtype)input->dtype);
    size_t target_row =
        target && is_floating(target) ? (size_t)target->shape[1] * yk_dtype_size((yk_dtype)target->dtype) : 0;
    char *kept = yk__buffer_get(&worker->rows, (row > target_row ? row : target_row) + 1);
    if (!kept)
        return YK_ERR_MEMORY;
    mix_rows(input, m->share, m->cut ? &m->part : NULL, kept);
    if (target_row)
        mix_rows(target, m->share, NULL, kept);
    if (!target || target_row)
        return YK_OK;
    yk_tensor *soft = yk__batch_tensor(plan, 2, (int64_t[]){target->shape[0], mix->classes}, plan->pipeline->dtype);
    if (!soft)
        return yk__error_code();
    status = spread_labels(target, batch->samples ? batch->samples : plan->order, mix->classes, m->share, soft);
    yk_tensor_release(target);
    batch->tensors[1] = soft;
    return status;
}

yk_status yk__mix_batch(const yk__batch_plan *plan, yk__data_worker *worker, yk__batch *batch)
{
    const yk_tensor *input = batch->tensors[0];
    bool images = input->ndim == 4;
    yk__mixed m = yk__mix_draw(plan->mix, plan->seed, plan->epoch, plan->position, images ? input->shape[2] : 0,
                               images ? input->shape[3] : 0);
    return yk__mix_apply(plan, &m, worker, batch);
}
