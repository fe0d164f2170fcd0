/*
 * norm_layer_body.h - layer normalisation for one type: rows of `width` neighbours. Layer: device/cpu. Included by
 * norm.c, after norm_body.h.
 */

/* Sum over i < width of an expression in i, given for the vector at i and for the element i, as a double. */
#define LAYER_SUM(result, VECTOR, ONE)                                                                                 \
    do {                                                                                                               \
        V lanes_[4] = {{0}};                                                                                           \
        double sum_ = 0;                                                                                               \
        int64_t at_ = 0;                                                                                               \
        for (; at_ + 4 * NAME(LANES) <= width; at_ += 4 * NAME(LANES)) {                                               \
            NORM_UNROLL                                                                                                \
            for (int l_ = 0; l_ < 4; l_++) {                                                                           \
                int64_t i = at_ + l_ * NAME(LANES);                                                                    \
                lanes_[l_] += (VECTOR);                                                                                \
            }                                                                                                          \
        }                                                                                                              \
        if (at_)                                                                                                       \
            sum_ = NAME(yk__lanes_sum)((lanes_[0] + lanes_[1]) + (lanes_[2] + lanes_[3]));                             \
        for (int64_t i = at_; i < width; i++)                                                                          \
            sum_ += (double)(ONE);                                                                                     \
        (result) = sum_;                                                                                               \
    } while (0)

static void NAME(layer_rows)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const layer *j = arg;
    int64_t width = j->width;
    const T *weight = j->weight, *bias = j->bias;
    for (int64_t r = begin; r < end; r++) {
        const T *x = (const T *)j->x + r * j->x_step;
        T *out = (T *)j->to + r * j->to_step;
        double sum, off;
        LAYER_SUM(sum, NAME(load)(x + i), x[i]);
        T mean = (T)(sum / (double)width);
        LAYER_SUM(sum, (NAME(load)(x + i) - mean) * (NAME(load)(x + i) - mean), (x[i] - mean) * (x[i] - mean));
        LAYER_SUM(off, NAME(load)(x + i) - mean, x[i] - mean); /* the rounding error of the mean */
        off /= (double)width;
        double variance = sum / (double)width - off * off;
        T scale = (T)(1 / sqrt((variance < 0 ? 0 : variance) + j->eps));
        ((T *)j->mean->data)[r * j->mean->stride[0]] = mean;
        ((T *)j->invstd->data)[r * j->invstd->stride[0]] = scale;
        T rest = (T)(-off * (double)scale);
        for (int64_t i = 0; i < width; i++) {
            T y = (x[i] - mean) * scale + rest;
            if (weight)
                y *= weight[i];
            if (bias)
                y += bias[i];
            out[i] = y;
        }
    }
}

/* Sets *s1 and *s2 to the sums over i < width of g w and of g w (x - mean), lane by lane as LAYER_SUM's; w NULL: 1. */
static void NAME(layer_grad_sums)(const T *g, const T *weight, const T *x, T mean, int64_t width, double *s1,
                                  double *s2)
{
    V lanes[2][4] = {{{0}}};
    int64_t i = 0;
    for (; i + 4 * NAME(LANES) <= width; i += 4 * NAME(LANES)) {
        NORM_UNROLL
        for (int l = 0; l < 4; l++) {
            int64_t at = i + l * NAME(LANES);
            V scaled = weight ? NAME(load)(g + at) * NAME(load)(weight + at) : NAME(load)(g + at);
            lanes[0][l] += scaled;
            lanes[1][l] += scaled * (NAME(load)(x + at) - mean);
        }
    }
    double sums[2] = {0, 0};
    for (int k = 0; i && k < 2; k++)
        sums[k] = NAME(yk__lanes_sum)((lanes[k][0] + lanes[k][1]) + (lanes[k][2] + lanes[k][3]));
    for (; i < width; i++) {
        T scaled = weight ? g[i] * weight[i] : g[i];
        sums[0] += (double)scaled;
        sums[1] += (double)(scaled * (x[i] - mean));
    }
    *s1 = sums[0];
    *s2 = sums[1];
}

/* Adds a row to the sums of the parameters' gradients, and computes its own gradient; p1 and p2, or gx, may be NULL. */
static inline __attribute__((always_inline)) void NAME(layer_grad_row)(const layer *j, const T *x, const T *g, T *gx,
                                                                       T *p1, T *p2, T mean, T scale, T centre, T slope,
                                                                       const bool weighted)
{
    const T *weight = j->weight;
    const int64_t width = j->width;
    if (gx && p1) {
        YK__INDEPENDENT for (int64_t i = 0; i < width; i++)
        {
            T centred = x[i] - mean, grad = g[i];
            gx[i] = ((weighted ? grad * weight[i] : grad) - centre - centred * slope) * scale;
            p1[i] += grad;
            p2[i] += grad * (centred * scale);
        }
    } else if (gx) {
        YK__INDEPENDENT for (int64_t i = 0; i < width; i++)
        {
            gx[i] = ((weighted ? g[i] * weight[i] : g[i]) - centre - (x[i] - mean) * slope) * scale;
        }
    } else if (p1) {
        YK__INDEPENDENT for (int64_t i = 0; i < width; i++)
        {
            p1[i] += g[i];
            p2[i] += g[i] * ((x[i] - mean) * scale);
        }
    }
}

/* Computes blocks of rows, each of which has sums of its own for the parameters' gradients: in T over a few rows, then
 * in double. */
static void NAME(layer_grad_rows)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const layer *j = arg;
    int64_t width = j->width;
    for (int64_t b = begin; b < end; b++) {
        double *d1 = j->sums ? j->sums + b * 4 * width : NULL, *d2 = j->sums ? d1 + width : NULL;
        T *p1 = (T *)(d1 ? d2 + width : NULL), *p2 = p1 ? p1 + width : NULL;
        if (d1)
            memset(p1, 0, (size_t)(2 * width) * sizeof(T));
        int64_t last = (b + 1) * j->block < j->rows ? (b + 1) * j->block : j->rows;
        for (int64_t r = b * j->block; r < last; r++) {
            const T *x = (const T *)j->x + r * j->x_step, *g = (const T *)j->gout + r * j->gout_step;
            T *gx = j->to ? (T *)j->to + r * j->to_step : NULL;
            T mean = ((const T *)j->mean->data)[r * j->mean->stride[0]];
            T scale = ((const T *)j->invstd->data)[r * j->invstd->stride[0]];
            double s1 = 0, s2 = 0;
            if (gx)
                NAME(layer_grad_sums)(g, j->weight, x, mean, width, &s1, &s2);
            T centre = (T)(s1 / (double)width);
            T slope = (T)(s2 * (double)scale * (double)scale / (double)width);
            if (j->weight)
                NAME(layer_grad_row)(j, x, g, gx, p1, p2, mean, scale, centre, slope, true);
            else
                NAME(layer_grad_row)(j, x, g, gx, p1, p2, mean, scale, centre, slope, false);
            if (!d1 || ((r + 1 - b * j->block) % ROW_GROUP && r + 1 < last))
                continue;
            bool first = r - b * j->block < ROW_GROUP;
            YK__INDEPENDENT for (int64_t i = 0; i < width; i++)
            {
                d1[i] = (first ? 0 : d1[i]) + (double)p1[i];
                d2[i] = (first ? 0 : d2[i]) + (double)p2[i];
                p1[i] = p2[i] = 0;
            }
        }
    }
}
