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
        lanes_[0] = (lanes_[0] + lanes_[1]) + (lanes_[2] + lanes_[3]);                                                 \
        for (int l_ = 0; l_ < NAME(LANES); l_++)                                                                       \
            sum_ += (double)lanes_[0][l_];                                                                             \
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
        LAYER_SUM(off, NAME(load)(x + i) - mean, x[i] - mean); /* what rounding the mean left */
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

/* A block of rows has sums of its own for the parameters' gradients: in T over a few rows, then in double. */
static void NAME(layer_grad_rows)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const layer *j = arg;
    int64_t width = j->width;
    const T *weight = j->weight;
    for (int64_t b = begin; b < end; b++) {
        double *d1 = j->sums ? j->sums + b * 4 * width : NULL, *d2 = j->sums ? d1 + width : NULL;
        T *p1 = (T *)(d1 ? d2 + width : NULL), *p2 = p1 ? p1 + width : NULL;
        if (d1)
            memset(d1, 0, (size_t)(4 * width) * sizeof(double));
        int64_t last = (b + 1) * j->block < j->rows ? (b + 1) * j->block : j->rows;
        for (int64_t r = b * j->block; r < last; r++) {
            const T *x = (const T *)j->x + r * j->x_step, *g = (const T *)j->gout + r * j->gout_step;
            T mean = ((const T *)j->mean->data)[r * j->mean->stride[0]];
            T scale = ((const T *)j->invstd->data)[r * j->invstd->stride[0]];
            if (j->to) {
                double s1, s2;
                if (weight) {
                    LAYER_SUM(s1, NAME(load)(g + i) * NAME(load)(weight + i), g[i] * weight[i]);
                    LAYER_SUM(s2, NAME(load)(g + i) * NAME(load)(weight + i) * (NAME(load)(x + i) - mean),
                              g[i] * weight[i] * (x[i] - mean));
                } else {
                    LAYER_SUM(s1, NAME(load)(g + i), g[i]);
                    LAYER_SUM(s2, NAME(load)(g + i) * (NAME(load)(x + i) - mean), g[i] * (x[i] - mean));
                }
                T centre = (T)(s1 / (double)width);
                T slope = (T)(s2 * (double)scale * (double)scale / (double)width);
                T *gx = (T *)j->to + r * j->to_step;
                if (weight) {
                    for (int64_t i = 0; i < width; i++)
                        gx[i] = (g[i] * weight[i] - centre - (x[i] - mean) * slope) * scale;
                } else {
                    for (int64_t i = 0; i < width; i++)
                        gx[i] = (g[i] - centre - (x[i] - mean) * slope) * scale;
                }
            }
            for (int64_t i = 0; d1 && i < width; i++) {
                p1[i] += g[i];
                p2[i] += g[i] * ((x[i] - mean) * scale);
            }
            if (!d1 || ((r + 1 - b * j->block) % ROW_GROUP && r + 1 < last))
                continue;
            for (int64_t i = 0; i < width; i++) {
                d1[i] += (double)p1[i];
                d2[i] += (double)p2[i];
                p1[i] = p2[i] = 0;
            }
        }
    }
}
