/*
 * norm_batch_body.h - batch normalisation for one type, on the loops of norm_body.h. Layer: device/cpu. Included by
 * norm.c.
 */

/* One value for every position of a plane's rows. */
enum { NAME(WIDTH) = 4 * NAME(LANES) };

static inline void NAME(spread)(T *to, T value)
{
    for (int i = 0; i < NAME(WIDTH); i++)
        to[i] = value;
}

static void NAME(stats_rows)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    for (int64_t b = begin; b < end; b++) {
        double *d = j->sums + b * 2 * j->channels;
        memset(d, 0, (size_t)(2 * j->channels) * sizeof(double));
        int64_t first = b * j->block, rows = j->rows - first < j->block ? j->rows - first : j->block;
        NAME(stats)((const T *)j->x + first * j->channels, rows, j->channels, j->channels, j->x, 0, d, d + j->channels);
    }
}

/* Applies blocks of rows, later ones first: the statistics read them last, and the cache still has them. Without
 * statistics they go in the order of memory. */
static void NAME(apply_row_blocks)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = (j->p->training ? j->blocks - 1 - i : i) * j->block, at = first * j->channels;
        int64_t rows = j->rows - first < j->block ? j->rows - first : j->block;
        NAME(apply)
        (j->p->relu, (T *)j->to + at, (const T *)j->x + at, j->residual ? (const T *)j->residual + at : NULL, rows,
         j->channels, j->channels, j->mean, j->scale, j->shift);
    }
}

static void NAME(stats_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    for (int64_t c = begin; c < end; c++) {
        double d[4][NAME(WIDTH)] = {{0}}; /* whole rows, then what is left of a plane */
        T k[NAME(WIDTH)];
        const T *x = (const T *)j->x + c * j->plane;
        NAME(spread)(k, x[0]);
        int64_t rows = j->plane / NAME(WIDTH), tail = j->plane % NAME(WIDTH);
        for (int64_t n = 0; n < j->images; n++, x += j->channels * j->plane) {
            NAME(stats)(x, rows, NAME(WIDTH), NAME(WIDTH), k, n * rows, d[0], d[1]);
            NAME(stats)(x + rows * NAME(WIDTH), tail > 0, tail, NAME(WIDTH), k, n, d[2], d[3]);
        }
        j->sums[c] = j->sums[j->channels + c] = 0;
        for (int i = 0; i < NAME(WIDTH); i++) {
            j->sums[c] += d[0][i] + d[2][i];
            j->sums[j->channels + c] += d[1][i] + d[3][i];
        }
    }
}

static void NAME(apply_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    int64_t rows = j->plane / NAME(WIDTH), tail = j->plane % NAME(WIDTH), done = rows * NAME(WIDTH);
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % j->channels, at = i * j->plane;
        T mean[NAME(WIDTH)], scale[NAME(WIDTH)], shift[NAME(WIDTH)];
        NAME(spread)(mean, ((const T *)j->mean)[c]);
        NAME(spread)(scale, ((const T *)j->scale)[c]);
        NAME(spread)(shift, ((const T *)j->shift)[c]);
        T *to = (T *)j->to + at;
        const T *x = (const T *)j->x + at, *residual = j->residual ? (const T *)j->residual + at : NULL;
        NAME(apply)(j->p->relu, to, x, residual, rows, NAME(WIDTH), NAME(WIDTH), mean, scale, shift);
        NAME(apply)
        (j->p->relu, to + done, x + done, residual ? residual + done : NULL, tail > 0, tail, NAME(WIDTH), mean, scale,
         shift);
    }
}

static inline T NAME(at)(const yk__view *v, int64_t i)
{
    return ((const T *)v->data)[i * v->stride[0]];
}

static inline void NAME(put)(const yk__view *v, int64_t i, double value)
{
    ((T *)v->data)[i * v->stride[0]] = (T)value;
}

/* Turns the batch's mean and variance, or the running ones, into the numbers that apply needs and those that backward
 * will need. */
static void NAME(batch_finish)(const batch *j, const yk__view *mean, const yk__view *invstd, const yk__view *weight,
                               const yk__view *bias, const yk__view *running_mean, const yk__view *running_var)
{
    const yk__batch_norm *p = j->p;
    double count = (double)j->images * (double)j->plane;
    for (int64_t c = 0; c < j->channels; c++) {
        double m, v;
        if (p->training) {
            double s1 = 0, s2 = 0;
            for (int64_t b = 0; b < j->blocks; b++) {
                s1 += j->sums[b * 2 * j->channels + c];
                s2 += j->sums[(b * 2 + 1) * j->channels + c];
            }
            m = (double)((const T *)j->x)[c * j->pivot_step] + s1 / count;
            v = (s2 - s1 * s1 / count) / count;
            v = v < 0 ? 0 : v;
            if (running_mean)
                NAME(put)(running_mean, c, (1 - p->momentum) * (double)NAME(at)(running_mean, c) + p->momentum * m);
            if (running_var) {
                double unbiased = count > 1 ? v * (count / (count - 1)) : v;
                NAME(put)
                (running_var, c, (1 - p->momentum) * (double)NAME(at)(running_var, c) + p->momentum * unbiased);
            }
        } else {
            m = running_mean ? (double)NAME(at)(running_mean, c) : 0;
            v = running_var ? (double)NAME(at)(running_var, c) : 1;
        }
        double s = 1 / sqrt(v + p->eps);
        NAME(put)(mean, c, m);
        NAME(put)(invstd, c, s);
        ((T *)j->mean)[c] = (T)m;
        double scale = weight ? s * (double)NAME(at)(weight, c) : s;
        ((T *)j->scale)[c] = (T)scale;
        /* the rounding error of the mean in T goes into the shift */
        double left = isfinite(m) ? (double)(T)m - m : 0;
        ((T *)j->shift)[c] = (T)((bias ? (double)NAME(at)(bias, c) : 0) + left * scale);
    }
}

static void NAME(grad_stats_rows)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    for (int64_t b = begin; b < end; b++) {
        double *d = j->sums + b * 2 * j->channels;
        memset(d, 0, (size_t)(2 * j->channels) * sizeof(double));
        int64_t first = b * j->block, rows = j->rows - first < j->block ? j->rows - first : j->block;
        int64_t at = first * j->channels;
        NAME(grad_stats)
        (j->masked ? (T *)j->masked + at : NULL, (const T *)j->gout + at, j->addend ? (const T *)j->addend + at : NULL,
         (const T *)j->x + at, j->out ? (const T *)j->out + at : NULL, rows, j->channels, j->channels, j->mean, d,
         d + j->channels);
    }
}

static void NAME(grad_apply_row_blocks)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = (j->blocks - 1 - i) * j->block, at = first * j->channels;
        int64_t rows = j->rows - first < j->block ? j->rows - first : j->block;
        NAME(grad_apply)
        ((T *)j->to + at, (const T *)j->gout + at, (const T *)j->x + at, j->out ? (const T *)j->out + at : NULL, rows,
         j->channels, j->channels, j->mean, j->scale, j->centre, j->shift);
    }
}

static void NAME(grad_stats_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    int64_t rows = j->plane / NAME(WIDTH), tail = j->plane % NAME(WIDTH), done = rows * NAME(WIDTH);
    for (int64_t c = begin; c < end; c++) {
        double d[2][NAME(WIDTH)] = {{0}};
        T mean[NAME(WIDTH)];
        NAME(spread)(mean, ((const T *)j->mean)[c]);
        for (int64_t n = 0; n < j->images; n++) {
            int64_t at = (n * j->channels + c) * j->plane;
            T *masked = j->masked ? (T *)j->masked + at : NULL;
            const T *g = (const T *)j->gout + at, *x = (const T *)j->x + at;
            const T *out = j->out ? (const T *)j->out + at : NULL;
            const T *addend = j->addend ? (const T *)j->addend + at : NULL;
            NAME(grad_stats)(masked, g, addend, x, out, rows, NAME(WIDTH), NAME(WIDTH), mean, d[0], d[1]);
            NAME(grad_stats)
            (masked ? masked + done : NULL, g + done, addend ? addend + done : NULL, x + done, out ? out + done : NULL,
             tail > 0, tail, NAME(WIDTH), mean, d[0], d[1]);
        }
        j->sums[c] = j->sums[j->channels + c] = 0;
        for (int i = 0; i < NAME(WIDTH); i++) {
            j->sums[c] += d[0][i];
            j->sums[j->channels + c] += d[1][i];
        }
    }
}

static void NAME(grad_apply_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const batch *j = arg;
    int64_t rows = j->plane / NAME(WIDTH), tail = j->plane % NAME(WIDTH), done = rows * NAME(WIDTH);
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % j->channels, at = i * j->plane;
        T mean[NAME(WIDTH)], scale[NAME(WIDTH)], centre[NAME(WIDTH)], slope[NAME(WIDTH)];
        NAME(spread)(mean, ((const T *)j->mean)[c]);
        NAME(spread)(scale, ((const T *)j->scale)[c]);
        NAME(spread)(centre, ((const T *)j->centre)[c]);
        NAME(spread)(slope, ((const T *)j->shift)[c]);
        T *to = (T *)j->to + at;
        const T *g = (const T *)j->gout + at, *x = (const T *)j->x + at;
        const T *out = j->out ? (const T *)j->out + at : NULL;
        NAME(grad_apply)(to, g, x, out, rows, NAME(WIDTH), NAME(WIDTH), mean, scale, centre, slope);
        NAME(grad_apply)
        (to + done, g + done, x + done, out ? out + done : NULL, tail > 0, tail, NAME(WIDTH), mean, scale, centre,
         slope);
    }
}

/* Computes the parameters' gradients, and the coefficients of gx. */
static void NAME(grad_finish)(const batch *j, const yk__view *gweight, const yk__view *gbias, const yk__view *weight,
                              const yk__view *invstd)
{
    double count = (double)j->images * (double)j->plane;
    for (int64_t c = 0; c < j->channels; c++) {
        double s1 = 0, s2 = 0, s = (double)NAME(at)(invstd, c);
        for (int64_t b = 0; b < j->blocks; b++) {
            s1 += j->sums[b * 2 * j->channels + c];
            s2 += j->sums[(b * 2 + 1) * j->channels + c];
        }
        if (gweight)
            NAME(put)(gweight, c, s2 * s);
        if (gbias)
            NAME(put)(gbias, c, s1);
        ((T *)j->scale)[c] = (T)(weight ? s * (double)NAME(at)(weight, c) : s);
        ((T *)j->centre)[c] = j->p->training ? (T)(s1 / count) : 0;
        ((T *)j->shift)[c] = j->p->training ? (T)(s2 * s * s / count) : 0;
    }
}

static const batch_kernels NAME(kernels) = {
    NAME(stats_rows),      NAME(stats_planes),      NAME(apply_row_blocks),      NAME(apply_planes),
    NAME(grad_stats_rows), NAME(grad_stats_planes), NAME(grad_apply_row_blocks), NAME(grad_apply_planes),
    NAME(batch_finish),    NAME(grad_finish),
};
