/*
 * norm_body.h - the loops of batch and layer normalisation for one type. Layer: device/cpu. Included by norm.c with T
 * (float or double), V (its vector) and NAME(x) defined.
 *
 * All of them walk `rows` rows of `width` neighbours, `step` apart, where position i of every row has parameters of
 * its own: the channels of [rows][C], or a plane of NCHW cut into rows that share one value.
 */
enum { NAME(LANES) = YK__VECTOR_BYTES / sizeof(T) };

static inline V NAME(load)(const T *p)
{
    typedef T unaligned __attribute__((vector_size(YK__VECTOR_BYTES), aligned(sizeof(T)), may_alias));
    return *(const unaligned *)p;
}

static inline void NAME(store)(T *p, V v)
{
    typedef T unaligned __attribute__((vector_size(YK__VECTOR_BYTES), aligned(sizeof(T)), may_alias));
    *(unaligned *)p = v;
}

/* relu of a value, and a gradient passed through a relu whose output is known; NaN passes both. */
static inline V NAME(positive)(V y)
{
    return (V)((__typeof__(y < y))y & ~(y < (V){0}));
}

static inline V NAME(passed)(V g, V out)
{
    return (V)((__typeof__(g < g))g & ~(out <= (V){0}));
}

/*
 * Sums over rows of (x - k) and of its square, added to d1 and d2, which already hold `done` rows. A group of ROW_GROUP
 * rows is summed in T relative to the mean of the rows before it (the first group: to its own mean), which keeps the
 * squares as small as the deviations are; groups are added up in double relative to k.
 */
static inline __attribute__((always_inline)) void NAME(stats_group)(const int vectors, const T *x, int64_t rows,
                                                                    int64_t step, const T *k, int64_t done, double *d1,
                                                                    double *d2)
{
    T sums[3][4 * NAME(LANES)]; /* pivot, sum, sum of squares */
    V pivot[4], s1[4], s2[4];
    if (done) {
        double share = 1 / (double)done;
        for (int i = 0; i < vectors * NAME(LANES); i++)
            sums[0][i] = (T)((double)k[i] + d1[i] * share);
        NORM_UNROLL
        for (int v = 0; v < vectors; v++)
            pivot[v] = NAME(load)(sums[0] + v * NAME(LANES));
    } else {
        NORM_UNROLL
        for (int v = 0; v < vectors; v++) {
            pivot[v] = (V){0};
            for (int64_t r = 0; r < rows; r++)
                pivot[v] += NAME(load)(x + r * step + v * NAME(LANES));
            pivot[v] *= 1 / (T)rows;
            NAME(store)(sums[0] + v * NAME(LANES), pivot[v]);
        }
    }
    NORM_UNROLL
    for (int v = 0; v < vectors; v++)
        s1[v] = s2[v] = (V){0};
    for (int64_t r = 0; r < rows; r++) {
        NORM_UNROLL
        for (int v = 0; v < vectors; v++) {
            V e = NAME(load)(x + r * step + v * NAME(LANES)) - pivot[v];
            s1[v] += e;
            s2[v] += e * e;
        }
    }
    NORM_UNROLL
    for (int v = 0; v < vectors; v++) {
        NAME(store)(sums[1] + v * NAME(LANES), s1[v]);
        NAME(store)(sums[2] + v * NAME(LANES), s2[v]);
    }
    for (int i = 0; i < vectors * NAME(LANES); i++) {
        double off = (double)sums[0][i] - (double)k[i], first = sums[1][i];
        d1[i] += (double)rows * off + first;
        d2[i] += (double)sums[2][i] + off * (2 * first + (double)rows * off);
    }
}

static void NAME(stats)(const T *x, int64_t rows, int64_t width, int64_t step, const T *k, int64_t done, double *d1,
                        double *d2)
{
    for (int64_t r = 0; r < rows; r += ROW_GROUP, x += ROW_GROUP * step) {
        int64_t group = rows - r < ROW_GROUP ? rows - r : ROW_GROUP, i = 0;
        for (; i + 4 * NAME(LANES) <= width; i += 4 * NAME(LANES))
            NAME(stats_group)(4, x + i, group, step, k + i, done + r, d1 + i, d2 + i);
        for (; i + NAME(LANES) <= width; i += NAME(LANES))
            NAME(stats_group)(1, x + i, group, step, k + i, done + r, d1 + i, d2 + i);
        for (; i < width; i++) {
            for (int64_t g = 0; g < group; g++) {
                double e = (double)x[g * step + i] - (double)k[i];
                d1[i] += e;
                d2[i] += e * e;
            }
        }
    }
}

/* out = (x - mean) scale + shift [+ residual] [relu] */
static inline __attribute__((always_inline)) void NAME(apply_rows)(const bool relu, const bool add, T *out, const T *x,
                                                                   const T *residual, int64_t rows, int64_t width,
                                                                   int64_t step, const T *mean, const T *scale,
                                                                   const T *shift)
{
    if (width == 4 * NAME(LANES)) { /* the numbers that all rows share stay in registers: planes, and maps of so many
                                     * channels */
        V m[4], s[4], b[4];
        NORM_UNROLL
        for (int v = 0; v < 4; v++) {
            m[v] = NAME(load)(mean + v * NAME(LANES));
            s[v] = NAME(load)(scale + v * NAME(LANES));
            b[v] = NAME(load)(shift + v * NAME(LANES));
        }
        for (int64_t r = 0; r < rows; r++, out += step, x += step, residual += add ? step : 0) {
            V y[4];
            NORM_UNROLL
            for (int v = 0; v < 4; v++) {
                y[v] = (NAME(load)(x + v * NAME(LANES)) - m[v]) * s[v] + b[v];
                if (add)
                    y[v] += NAME(load)(residual + v * NAME(LANES));
            }
            NORM_UNROLL
            for (int v = 0; v < 4; v++)
                NAME(store)(out + v * NAME(LANES), relu ? NAME(positive)(y[v]) : y[v]);
        }
        return;
    }
    for (int64_t r = 0; r < rows; r++, out += step, x += step, residual += add ? step : 0) {
        int64_t i = 0;
        for (; i + NAME(LANES) <= width; i += NAME(LANES)) {
            V y = (NAME(load)(x + i) - NAME(load)(mean + i)) * NAME(load)(scale + i) + NAME(load)(shift + i);
            if (add)
                y += NAME(load)(residual + i);
            NAME(store)(out + i, relu ? NAME(positive)(y) : y);
        }
        for (; i < width; i++) {
            T y = (x[i] - mean[i]) * scale[i] + shift[i];
            if (add)
                y += residual[i];
            out[i] = relu && y < 0 ? 0 : y;
        }
    }
}

static void NAME(apply)(bool relu, T *out, const T *x, const T *residual, int64_t rows, int64_t width, int64_t step,
                        const T *mean, const T *scale, const T *shift)
{
    if (relu && residual)
        NAME(apply_rows)(true, true, out, x, residual, rows, width, step, mean, scale, shift);
    else if (relu)
        NAME(apply_rows)(true, false, out, x, out, rows, width, step, mean, scale, shift);
    else if (residual)
        NAME(apply_rows)(false, true, out, x, residual, rows, width, step, mean, scale, shift);
    else
        NAME(apply_rows)(false, false, out, x, out, rows, width, step, mean, scale, shift);
}

/* Sums over rows of g and g (x - mean), g being gout, and the addend where there is one, masked by out > 0 where there
 * is an out, and kept in masked if wanted. */
static inline __attribute__((always_inline)) void NAME(grad_group)(const int vectors, const bool add, const bool relu,
                                                                   const bool keep, T *masked, const T *gout,
                                                                   const T *addend, const T *x, const T *out,
                                                                   int64_t rows, int64_t step, const T *mean,
                                                                   double *d1, double *d2)
{
    V m[4], s1[4], s2[4];
    NORM_UNROLL
    for (int v = 0; v < vectors; v++) {
        m[v] = NAME(load)(mean + v * NAME(LANES));
        s1[v] = s2[v] = (V){0};
    }
    for (int64_t r = 0; r < rows; r++) {
        NORM_UNROLL
        for (int v = 0; v < vectors; v++) {
            int64_t i = r * step + v * NAME(LANES);
            V g = NAME(load)(gout + i);
            if (add)
                g += NAME(load)(addend + i);
            if (relu)
                g = NAME(passed)(g, NAME(load)(out + i));
            if (keep)
                NAME(store)(masked + i, g);
            s1[v] += g;
            s2[v] += g * (NAME(load)(x + i) - m[v]);
        }
    }
    T sums[2][4 * NAME(LANES)];
    NORM_UNROLL
    for (int v = 0; v < vectors; v++) {
        NAME(store)(sums[0] + v * NAME(LANES), s1[v]);
        NAME(store)(sums[1] + v * NAME(LANES), s2[v]);
    }
    for (int i = 0; i < vectors * NAME(LANES); i++) {
        d1[i] += (double)sums[0][i];
        d2[i] += (double)sums[1][i];
    }
}

static inline __attribute__((always_inline)) void NAME(grad_rows)(const bool add, const bool relu, const bool keep,
                                                                  T *masked, const T *gout, const T *addend, const T *x,
                                                                  const T *out, int64_t rows, int64_t width,
                                                                  int64_t step, const T *mean, double *d1, double *d2)
{
    for (int64_t r = 0; r < rows; r += ROW_GROUP) {
        int64_t group = rows - r < ROW_GROUP ? rows - r : ROW_GROUP, i = 0, at = r * step;
        for (; i + 4 * NAME(LANES) <= width; i += 4 * NAME(LANES))
            NAME(grad_group)
        (4, add, relu, keep, keep ? masked + at + i : NULL, gout + at + i, add ? addend + at + i : NULL, x + at + i,
         relu ? out + at + i : NULL, group, step, mean + i, d1 + i, d2 + i);
        for (; i + NAME(LANES) <= width; i += NAME(LANES))
            NAME(grad_group)
        (1, add, relu, keep, keep ? masked + at + i : NULL, gout + at + i, add ? addend + at + i : NULL, x + at + i,
         relu ? out + at + i : NULL, group, step, mean + i, d1 + i, d2 + i);
        for (; i < width; i++) {
            for (int64_t e = at + i; e < at + i + group * step; e += step) {
                T whole = add ? gout[e] + addend[e] : gout[e], g = relu && out[e] <= 0 ? 0 : whole;
                if (keep)
                    masked[e] = g;
                d1[i] += (double)g;
                d2[i] += (double)g * ((double)x[e] - (double)mean[i]);
            }
        }
    }
}

static void NAME(grad_stats)(T *masked, const T *gout, const T *addend, const T *x, const T *out, int64_t rows,
                             int64_t width, int64_t step, const T *mean, double *d1, double *d2)
{
#define GRAD_ROWS(add, relu, keep)                                                                                     \
    NAME(grad_rows)(add, relu, keep, masked, gout, addend, x, out, rows, width, step, mean, d1, d2)
    if (addend && out && masked)
        GRAD_ROWS(true, true, true);
    else if (addend && out)
        GRAD_ROWS(true, true, false);
    else if (addend && masked)
        GRAD_ROWS(true, false, true);
    else if (addend)
        GRAD_ROWS(true, false, false);
    else if (out && masked)
        GRAD_ROWS(false, true, true);
    else if (out)
        GRAD_ROWS(false, true, false);
    else if (masked)
        GRAD_ROWS(false, false, true);
    else
        GRAD_ROWS(false, false, false);
#undef GRAD_ROWS
}

/* gx = (g - centre - (x - mean) slope) scale, g masked by out > 0 where there is an out */
static inline __attribute__((always_inline)) void NAME(grad_apply_rows)(const bool relu, T *gx, const T *gout,
                                                                        const T *x, const T *out, int64_t rows,
                                                                        int64_t width, int64_t step, const T *mean,
                                                                        const T *scale, const T *centre, const T *slope)
{
    for (int64_t r = 0; r < rows; r++, gx += step, gout += step, x += step, out += relu ? step : 0) {
        int64_t i = 0;
        for (; i + NAME(LANES) <= width; i += NAME(LANES)) {
            V g = NAME(load)(gout + i);
            if (relu)
                g = NAME(passed)(g, NAME(load)(out + i));
            V e = NAME(load)(x + i) - NAME(load)(mean + i);
            NAME(store)(gx + i, (g - NAME(load)(centre + i) - e * NAME(load)(slope + i)) * NAME(load)(scale + i));
        }
        for (; i < width; i++) {
            T g = relu && out[i] <= 0 ? 0 : gout[i];
            gx[i] = (g - centre[i] - (x[i] - mean[i]) * slope[i]) * scale[i];
        }
    }
}

static void NAME(grad_apply)(T *gx, const T *gout, const T *x, const T *out, int64_t rows, int64_t width, int64_t step,
                             const T *mean, const T *scale, const T *centre, const T *slope)
{
    if (out)
        NAME(grad_apply_rows)(true, gx, gout, x, out, rows, width, step, mean, scale, centre, slope);
    else
        NAME(grad_apply_rows)(false, gx, gout, x, gx, rows, width, step, mean, scale, centre, slope);
}
