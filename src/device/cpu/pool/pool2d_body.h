/*
 * pool2d_body.h - the pooling kernels for one type. Layer: device/cpu. Included by pool2d.c with T (float or double),
 * NAME(x), V (a vector of T) and VU (one that is not aligned) defined, and what it has in vectors for that type:
 * max_vectors, max_plane, max_halves, grad_plane, grad_halves, and planes in lanes.
 */

/* ---- maximum over runs: positions whose (n, c) lie next to each other in memory ---------------------------------- */

/* Folds taps into best and index; `first` starts with tap 0 instead of their contents. A tap wins when it is greater
 * or NaN: the first of equals and the last NaN stay, as in PyTorch. The inputs of the next window are fetched
 * meanwhile. */
static void NAME(max_fold)(int taps, bool first, T *restrict best, int32_t *restrict index, const T *const *x,
                           const int32_t *at, int64_t n, int fetches, const T *const *fetch)
{
    for (int64_t i = NAME(max_vectors)(taps, first, best, index, x, at, n, fetches, fetch); i < n; i++) {
        T m = first ? x[0][i] : best[i];
        int32_t k = first ? at[0] : index[i];
        for (int t = first; t < taps; t++) {
            bool take = x[t][i] > m || x[t][i] != x[t][i];
            m = take ? x[t][i] : m;
            k = take ? at[t] : k;
        }
        best[i] = m;
        index[i] = k;
    }
}

static void NAME(max_runs)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    const yk__pool2d *p = j->p;
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->out.h, oy = item % j->out.h;
        for (int64_t ox = 0; ox < j->out.w; ox++) {
            T *out = (T *)j->out.data + offset(&j->out, n, oy, ox);
            int32_t *index = (int32_t *)j->index.data + offset(&j->index, n, oy, ox);
            for (int64_t i = 0; i < j->run; i += RUN_CHUNK) {
                int64_t length = j->run - i < RUN_CHUNK ? j->run - i : RUN_CHUNK;
                const T *x[MOST_TAPS], *fetch[MOST_TAPS];
                int32_t at[MOST_TAPS];
                int taps = 0, fetches = 0;
                bool first = true;
                for (int64_t ky = 0; ky < p->kernel[0]; ky++) {
                    int64_t iy = oy * p->stride[0] - p->padding[0] + ky * p->dilation[0];
                    if (iy < 0 || iy >= j->in.h)
                        continue;
                    for (int64_t kx = 0; kx < p->kernel[1]; kx++) {
                        int64_t ix = ox * p->stride[1] - p->padding[1] + kx * p->dilation[1];
                        if (ix < 0 || ix >= j->in.w)
                            continue;
                        x[taps] = (const T *)j->in.data + offset(&j->in, n, iy, ix) + i;
                        /* New in the next window to the right, and to the row of windows that this one is in. */
                        if (kx >= p->kernel[1] - p->stride[1] && (ky >= p->kernel[0] - p->stride[0] || oy == 0) &&
                            ix + p->stride[1] < j->in.w)
                            fetch[fetches++] = x[taps] + p->stride[1] * j->in.w_step;
                        at[taps++] = (int32_t)(iy * j->in.w + ix);
                        if (taps < MOST_TAPS)
                            continue;
                        NAME(max_fold)(taps, first, out + i, index + i, x, at, length, fetches, fetch);
                        first = false;
                        taps = fetches = 0;
                    }
                }
                if (taps)
                    NAME(max_fold)(taps, first, out + i, index + i, x, at, length, fetches, fetch);
                for (int64_t e = i; !taps && first && e < i + length; e++) { /* the window holds no input */
                    out[e] = (T)-INFINITY;
                    index[e] = -1;
                }
            }
        }
    }
}

/* gx = [what it holds, unless `first`] + the gradients of those of up to four outputs whose maximum is `at`. */
static inline __attribute__((always_inline)) void NAME(grad_taps)(const int taps, const bool first, T *restrict gx,
                                                                  const T *const g[4], const int32_t *const k[4],
                                                                  int32_t at, int64_t n)
{
    const T *g0 = g[0], *g1 = g[1], *g2 = g[2], *g3 = g[3];
    const int32_t *k0 = k[0], *k1 = k[1], *k2 = k[2], *k3 = k[3];
    for (int64_t i = 0; i < n; i++) {
        T sum = k0[i] == at ? g0[i] : 0;
        if (!first)
            sum += gx[i];
        if (taps > 1)
            sum += k1[i] == at ? g1[i] : 0;
        if (taps > 2)
            sum += (k2[i] == at ? g2[i] : 0) + (k3[i] == at ? g3[i] : 0);
        gx[i] = sum;
    }
}

static void NAME(grad_fold)(int taps, bool first, T *gx, const T *const g[4], const int32_t *const k[4], int32_t at,
                            int64_t n)
{
    if (first && taps == 4) {
        NAME(grad_taps)(4, true, gx, g, k, at, n);
    } else if (first && taps == 2) {
        NAME(grad_taps)(2, true, gx, g, k, at, n);
    } else {
        for (int t = 0; t < taps; t++) {
            if (first && t == 0)
                NAME(grad_taps)(1, true, gx, g + t, k + t, at, n);
            else
                NAME(grad_taps)(1, false, gx, g + t, k + t, at, n);
        }
    }
}

/* Each input position gathers from the outputs whose windows hold it, so that nothing is cleared or written twice. */
static void NAME(max_grad_runs)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->in.h, iy = item % j->in.h;
        const cover *cy = &j->rows[iy];
        for (int64_t i = 0; i < j->run; i += RUN_CHUNK) {
            int64_t length = j->run - i < RUN_CHUNK ? j->run - i : RUN_CHUNK;
            for (int64_t ix = 0; ix < j->in.w; ix++) {
                const cover *cx = &j->cols[ix];
                T *gx = (T *)j->in.data + offset(&j->in, n, iy, ix) + i;
                const T *g[4] = {0};
                const int32_t *k[4] = {0};
                int taps = 0;
                bool first = true;
                for (int64_t oy = cy->first; oy <= cy->last; oy++) {
                    for (int64_t ox = cx->first; ox <= cx->last; ox++) {
                        g[taps] = (const T *)j->out.data + offset(&j->out, n, oy, ox) + i;
                        k[taps++] = (const int32_t *)j->index.data + offset(&j->index, n, oy, ox) + i;
                        if (taps < 4)
                            continue;
                        NAME(grad_fold)(4, first, gx, g, k, (int32_t)(iy * j->in.w + ix), length);
                        first = false;
                        taps = 0;
                    }
                }
                if (taps)
                    NAME(grad_fold)(taps, first, gx, g, k, (int32_t)(iy * j->in.w + ix), length);
                else if (first)
                    memset(gx, 0, (size_t)length * sizeof(T));
            }
        }
    }
}

/* ---- maximum over planes: any strides ---------------------------------------------------------------------------- */

/* One tap of n windows next to each other, whose elements are `step` apart: `at` and every `next` is their index. The
 * index of a window without input is -1. */
static inline __attribute__((always_inline)) void NAME(max_tap)(T *restrict m, int32_t *restrict k, const T *restrict x,
                                                                const int64_t step, int32_t at, int32_t next, int64_t n)
{
    for (int64_t l = 0; l < n; l++) {
        T v = x[l * step];
        bool take = (k[l] < 0) | (v > m[l]) | (v != v);
        m[l] = take ? v : m[l];
        k[l] = take ? at + (int32_t)l * next : k[l];
    }
}

/* A row of windows, some at a time, tap by tap. */
static void NAME(max_row)(const pooling *j, const T *x, T *out, int32_t *index, int64_t oy)
{
    enum { TOGETHER = 64 };
    const yk__pool2d *p = j->p;
    const int64_t stride = p->stride[1], step = stride * j->in.w_step;
    for (int64_t first = 0; first < j->out.w; first += TOGETHER) {
        int64_t n = j->out.w - first < TOGETHER ? j->out.w - first : TOGETHER;
        T m[TOGETHER];
        int32_t k[TOGETHER];
        for (int64_t l = 0; l < n; l++) {
            m[l] = (T)-INFINITY;
            k[l] = -1;
        }
        int64_t iy = oy * p->stride[0] - p->padding[0];
        for (int64_t ky = 0; ky < p->kernel[0]; ky++, iy += p->dilation[0]) {
            int64_t ix = first * stride - p->padding[1];
            for (int64_t kx = 0; kx < p->kernel[1] && iy >= 0 && iy < j->in.h; kx++, ix += p->dilation[1]) {
                /* Window l reads column ix + l stride, where that is inside. */
                int64_t low = ix < 0 ? (stride - 1 - ix) / stride : 0, high = n;
                if (ix + (n - 1) * stride >= j->in.w)
                    high = ix < j->in.w ? (j->in.w - 1 - ix) / stride + 1 : 0;
                if (low >= high)
                    continue;
                const int64_t column = ix + low * stride;
                const T *from = x + iy * j->in.h_step + column * j->in.w_step;
                int32_t at = (int32_t)(iy * j->in.w + column);
                if (step == 1)
                    NAME(max_tap)(m + low, k + low, from, 1, at, (int32_t)stride, high - low);
                else if (step == 2)
                    NAME(max_tap)(m + low, k + low, from, 2, at, (int32_t)stride, high - low);
                else
                    NAME(max_tap)(m + low, k + low, from, step, at, (int32_t)stride, high - low);
            }
        }
        for (int64_t l = 0; l < n; l++) {
            out[(first + l) * j->out.w_step] = m[l];
            index[(first + l) * j->index.w_step] = k[l];
        }
    }
}

static void NAME(max_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->channels, c = item % j->channels;
        const T *x = (const T *)j->in.data + n * j->in.n_step + c * j->in.c_step;
        T *out = (T *)j->out.data + n * j->out.n_step + c * j->out.c_step;
        int32_t *index = (int32_t *)j->index.data + n * j->index.n_step + c * j->index.c_step;
        if (NAME(max_plane)(j, out, index, x) || NAME(max_plane_lanes)(j, out, index, x))
            continue;
        if (j->halves) {
            for (int64_t oy = 0; oy < j->out.h; oy++) {
                const T *row = x + 2 * oy * j->in.h_step;
                NAME(max_halves)
                (out + oy * j->out.h_step, index + oy * j->index.h_step, row, row + j->in.h_step, j->out.w,
                 (int32_t)(2 * oy * j->in.w), (int32_t)j->in.w);
            }
            continue;
        }
        for (int64_t oy = 0; oy < j->out.h; oy++)
            NAME(max_row)(j, x, out + oy * j->out.h_step, index + oy * j->index.h_step, oy);
    }
}

static void NAME(max_grad_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->channels, c = item % j->channels;
        T *gx = (T *)j->in.data + n * j->in.n_step + c * j->in.c_step;
        const T *g = (const T *)j->out.data + n * j->out.n_step + c * j->out.c_step;
        const int32_t *index = (const int32_t *)j->index.data + n * j->index.n_step + c * j->index.c_step;
        if (NAME(grad_plane)(j, gx, g, index))
            continue;
        if (j->halves) {
            for (int64_t oy = 0; oy < j->out.h; oy++) {
                T *row = gx + 2 * oy * j->in.h_step;
                NAME(grad_halves)
                (row, row + j->in.h_step, g + oy * j->out.h_step, index + oy * j->index.h_step, j->out.w,
                 (int32_t)(2 * oy * j->in.w), (int32_t)j->in.w);
                for (int64_t ix = 2 * j->out.w; ix < j->in.w; ix++)
                    row[ix] = row[j->in.h_step + ix] = 0;
            }
            for (int64_t iy = 2 * j->out.h; iy < j->in.h; iy++)
                memset(gx + iy * j->in.h_step, 0, (size_t)j->in.w * sizeof(T));
            continue;
        }
        bool linear = j->in.h_step == j->in.w * j->in.w_step;
        for (int64_t iy = 0; iy < j->in.h; iy++) {
            for (int64_t ix = 0; ix < j->in.w; ix++)
                gx[iy * j->in.h_step + ix * j->in.w_step] = 0;
        }
        for (int64_t oy = 0; oy < j->out.h; oy++) {
            for (int64_t ox = 0; ox < j->out.w; ox++) {
                int32_t k = index[oy * j->index.h_step + ox * j->index.w_step];
                T v = g[oy * j->out.h_step + ox * j->out.w_step];
                if (linear && k >= 0)
                    gx[k * j->in.w_step] += v;
                else if (k >= 0)
                    gx[k / j->in.w * j->in.h_step + k % j->in.w * j->in.w_step] += v;
            }
        }
    }
}

/* ---- averages: windows are rectangles, given per axis by tables -------------------------------------------------- */

/* sum = [sum +] x * factor. */
static void NAME(add_run)(T *restrict sum, const T *restrict x, T factor, bool first, int64_t n)
{
    if (first) {
        for (int64_t i = 0; i < n; i++)
            sum[i] = x[i] * factor;
    } else {
        for (int64_t i = 0; i < n; i++)
            sum[i] += x[i] * factor;
    }
}

static void NAME(average_runs)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    T row[RUN_CHUNK];
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->out.h, oy = item % j->out.h;
        for (int64_t ox = 0; ox < j->out.w; ox++) {
            const window *wy = &j->row_windows[oy], *wx = &j->col_windows[ox];
            T factor = (T)(1.0 / divisor(j, wy, wx));
            T *out = (T *)j->out.data + offset(&j->out, n, oy, ox);
            for (int64_t i = 0; i < j->run; i += RUN_CHUNK) {
                int64_t length = j->run - i < RUN_CHUNK ? j->run - i : RUN_CHUNK;
                const T *x = (const T *)j->in.data + n * j->in.n_step + i;
                if (wy->low >= wy->high || wx->low >= wx->high)
                    memset(out + i, 0, (size_t)length * sizeof(T));
                for (int64_t iy = wy->low; iy < wy->high; iy++) {
                    for (int64_t ix = wx->low; ix < wx->high; ix++)
                        NAME(add_run)(row, x + iy * j->in.h_step + ix * j->in.w_step, 1, ix == wx->low, length);
                    if (wx->low < wx->high)
                        NAME(add_run)(out + i, row, factor, iy == wy->low, length);
                }
            }
        }
    }
}

/* The sum of n neighbours: four vectors of sums, so that additions do not wait for each other. */
static double NAME(line_sum)(const T *x, int64_t n)
{
    enum { LANES = (int)(sizeof(V) / sizeof(T)) };
    double total = 0;
    for (int64_t from = 0; from < n; from += SUM_BLOCK) {
        int64_t to = n - from < SUM_BLOCK ? n : from + SUM_BLOCK, i = from;
        V s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        for (; i + 4 * LANES <= to; i += 4 * LANES) {
            s0 += *(const VU *)(x + i);
            s1 += *(const VU *)(x + i + LANES);
            s2 += *(const VU *)(x + i + 2 * LANES);
            s3 += *(const VU *)(x + i + 3 * LANES);
        }
        for (; i + LANES <= to; i += LANES)
            s0 += *(const VU *)(x + i);
        if (i < to)
            s1 += NAME(yk__load_part)(x + i, to - i);
        total += NAME(yk__lanes_sum)((s0 + s1) + (s2 + s3));
    }
    return total;
}

enum { NAME(DENSE_WIDTH) = 2048, NAME(DENSE_TAPS) = 64 }; /* of planes that are averaged by whole rows, at most */

/* True if the averages, or their gradients, go by whole rows: small windows, and rows without gaps. */
static bool NAME(dense_rows)(const pooling *j)
{
    return j->p && j->in.w_step == 1 && j->out.w_step == 1 && j->in.w <= NAME(DENSE_WIDTH) &&
           j->out.w <= NAME(DENSE_WIDTH) && j->p->kernel[0] * j->p->kernel[1] <= NAME(DENSE_TAPS);
}

/* out[i] = the sum of the `taps` elements of the row from i step on, times a factor. */
static void NAME(row_averages)(T *restrict out, const T *restrict row, int64_t n, int64_t taps, int64_t step, T factor)
{
    if (taps == 2 && step == 2) { /* the usual one */
        for (int64_t i = 0; i < n; i++)
            out[i] = (row[2 * i] + row[2 * i + 1]) * factor;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = row[i * step];
    for (int64_t k = 1; k < taps; k++)
        for (int64_t i = 0; i < n; i++)
            out[i] += row[i * step + k];
    for (int64_t i = 0; i < n; i++)
        out[i] *= factor;
}

/* Averages a plane: the rows of windows are added up first, then columns; false, with nothing done, if not so. */
static bool NAME(average_dense_plane)(const pooling *j, T *out, const T *x)
{
    if (!NAME(dense_rows)(j))
        return false;
    const int64_t taps = j->p->kernel[1], step = j->p->stride[1], h_step = j->in.h_step;
    const window *wx = j->col_windows;
    int64_t first = 0, end = j->out.w; /* of the windows that have all their columns */
    while (first < end && wx[first].high - wx[first].low < taps)
        first++;
    while (end > first && wx[end - 1].high - wx[end - 1].low < taps)
        end--;
    T sums[NAME(DENSE_WIDTH)];
    for (int64_t oy = 0; oy < j->out.h; oy++, out += j->out.h_step) {
        const window *wy = &j->row_windows[oy];
        const T *row = x + wy->low * h_step;
        const int64_t height = wy->high - wy->low;
        if (height <= 0) {
            memset(out, 0, (size_t)j->out.w * sizeof(T));
            continue;
        }
        if (height > 1) {
            for (int64_t i = 0; i < j->in.w; i++)
                sums[i] = row[i] + row[h_step + i];
            for (int64_t k = 2; k < height; k++)
                for (int64_t i = 0; i < j->in.w; i++)
                    sums[i] += row[k * h_step + i];
            row = sums;
        }
        if (first < end)
            NAME(row_averages)
        (out + first, row + wx[first].low, end - first, taps, step, (T)(1 / divisor(j, wy, &wx[first])));
        for (int64_t ox = first ? 0 : end; ox < j->out.w; ox = ox + 1 == first ? end : ox + 1) {
            T sum = 0;
            for (int64_t ix = wx[ox].low; ix < wx[ox].high; ix++)
                sum += row[ix];
            out[ox] = wx[ox].low < wx[ox].high ? (T)((double)sum / divisor(j, wy, &wx[ox])) : 0;
        }
    }
    return true;
}

/* The gradient of the same: what a row of gx gets of all rows of outputs first, then columns. */
static bool NAME(average_grad_dense_plane)(const pooling *j, T *gx, const T *g)
{
    if (!NAME(dense_rows)(j))
        return false;
    const int64_t ow = j->out.w;
    T sums[NAME(DENSE_WIDTH)], inverse[NAME(DENSE_WIDTH)];
    for (int64_t ox = 0; ox < ow; ox++)
        inverse[ox] = (T)(1 / col_size(j, &j->col_windows[ox]));
    for (int64_t iy = 0; iy < j->in.h; iy++, gx += j->in.h_step) {
        const cover *cy = &j->rows[iy];
        if (iy > 0 && cy->first == cy[-1].first && cy->last == cy[-1].last) {
            memcpy(gx, gx - j->in.h_step, (size_t)j->in.w * sizeof(T));
            continue;
        }
        memset(sums, 0, (size_t)ow * sizeof(T));
        for (int64_t oy = cy->first; oy <= cy->last; oy++) {
            const T *row = g + oy * j->out.h_step, factor = (T)(1 / row_size(j, &j->row_windows[oy]));
            for (int64_t ox = 0; ox < ow; ox++)
                sums[ox] += row[ox] * factor;
        }
        for (int64_t ox = 0; ox < ow; ox++)
            sums[ox] *= inverse[ox];
        for (int64_t ix = 0; ix < j->in.w; ix++) {
            const cover *cx = &j->cols[ix];
            T sum = 0;
            for (int64_t ox = cx->first; ox <= cx->last; ox++)
                sum += sums[ox];
            gx[ix] = sum;
        }
    }
    return true;
}

static void NAME(average_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    if (NAME(average_whole_planes)(j, begin, end))
        return;
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->channels, c = item % j->channels;
        const T *x = (const T *)j->in.data + n * j->in.n_step + c * j->in.c_step;
        T *out = (T *)j->out.data + n * j->out.n_step + c * j->out.c_step;
        if (NAME(average_plane)(j, out, x) || NAME(average_dense_plane)(j, out, x))
            continue;
        for (int64_t oy = 0; oy < j->out.h; oy++) {
            const window *wy = &j->row_windows[oy];
            for (int64_t ox = 0; ox < j->out.w; ox++) {
                const window *wx = &j->col_windows[ox];
                int64_t width = wx->high - wx->low, height = wy->high - wy->low;
                double sum = 0;
                if (j->in.w_step == 1 && width == j->in.h_step && height > 1) { /* whole rows lie in order */
                    width *= height;
                    height = 1;
                }
                bool long_rows = j->in.w_step == 1 && width >= 8;
                for (int64_t iy = wy->low; iy < wy->low + height; iy++) {
                    const T *row = x + iy * j->in.h_step + wx->low * j->in.w_step;
                    if (long_rows)
                        sum += NAME(line_sum)(row, width);
                    for (int64_t ix = 0; !long_rows && ix < width; ix++)
                        sum += (double)row[ix * j->in.w_step];
                }
                bool empty = height <= 0 || width <= 0;
                out[oy * j->out.h_step + ox * j->out.w_step] = empty ? 0 : (T)(sum / divisor(j, wy, wx));
            }
        }
    }
}

static void NAME(average_grad_runs)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->in.h, iy = item % j->in.h;
        const cover *cy = &j->rows[iy];
        for (int64_t ix = 0; ix < j->in.w; ix++) {
            const cover *cx = &j->cols[ix];
            T *gx = (T *)j->in.data + offset(&j->in, n, iy, ix);
            bool first = true;
            for (int64_t oy = cy->first; oy <= cy->last; oy++) {
                for (int64_t ox = cx->first; ox <= cx->last; ox++) {
                    const T *g = (const T *)j->out.data + offset(&j->out, n, oy, ox);
                    T factor = (T)(1.0 / divisor(j, &j->row_windows[oy], &j->col_windows[ox]));
                    NAME(add_run)(gx, g, factor, first, j->run);
                    first = false;
                }
            }
            if (first)
                memset(gx, 0, (size_t)j->run * sizeof(T));
        }
    }
}

static void NAME(average_grad_planes)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pooling *j = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / j->channels, c = item % j->channels;
        T *gx = (T *)j->in.data + n * j->in.n_step + c * j->in.c_step;
        const T *g = (const T *)j->out.data + n * j->out.n_step + c * j->out.c_step;
        if (j->out.h * j->out.w == 1 && j->row_windows->high == j->in.h && j->col_windows->high == j->in.w &&
            j->row_windows->low + j->col_windows->low == 0) { /* the global average */
            T value = (T)((double)*g / divisor(j, j->row_windows, j->col_windows));
            for (int64_t iy = 0; iy < j->in.h; iy++) {
                for (int64_t ix = 0; ix < j->in.w; ix++)
                    gx[iy * j->in.h_step + ix * j->in.w_step] = value;
            }
            continue;
        }
        if (NAME(average_grad_plane)(j, gx, g) || NAME(average_grad_dense_plane)(j, gx, g))
            continue;
        for (int64_t iy = 0; iy < j->in.h; iy++) {
            const cover *cy = &j->rows[iy];
            if (iy > 0 && j->in.w_step == 1 && cy->first == cy[-1].first && cy->last == cy[-1].last) {
                memcpy(gx + iy * j->in.h_step, gx + (iy - 1) * j->in.h_step, (size_t)j->in.w * sizeof(T));
                continue;
            }
            for (int64_t ix = 0; ix < j->in.w; ix++) {
                const cover *cx = &j->cols[ix];
                double sum = 0;
                for (int64_t oy = cy->first; oy <= cy->last; oy++) {
                    double height = row_size(j, &j->row_windows[oy]);
                    for (int64_t ox = cx->first; ox <= cx->last; ox++)
                        sum += (double)g[oy * j->out.h_step + ox * j->out.w_step] /
                               (height * col_size(j, &j->col_windows[ox]));
                }
                gx[iy * j->in.h_step + ix * j->in.w_step] = (T)sum;
            }
        }
    }
}
