/*
 * conv_few_body.h - convolutions to few outputs of one dtype; included by conv_few.c with T, V (a vector of T), VU (the
 * same anywhere in memory), LOAD_PART (the first n of its lanes) and TYPED(name) defined.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))

static void TYPED(pack)(const struct few *f)
{
    T *to = f->packed;
    memset(to, 0, (size_t)(f->kh * f->kw * f->o * f->vectors) * sizeof(V));
    for (int64_t ky = 0; ky < f->kh; ky++)
        for (int64_t kx = 0; kx < f->kw; kx++)
            for (int64_t o = 0; o < f->o; o++, to += f->vectors * WIDTH) {
                const T *w = (const T *)f->w.data + o * f->w.stride[0] + ky * f->w.stride[2] + kx * f->w.stride[3];
                for (int64_t i = 0; i < f->c; i++)
                    to[i] = w[i * f->w.stride[1]];
            }
}

/* Halves are added until one lane is left. */
static inline T TYPED(sum_of_lanes)(V v)
{
    typedef T quarter __attribute__((vector_size(16)));
    enum { QUARTERS = sizeof(V) / 16, LANES = 16 / sizeof(T) };
    quarter q[QUARTERS];
    memcpy(q, &v, sizeof v);
    YK__UNROLL
    for (int half = QUARTERS / 2; half; half /= 2)
        YK__UNROLL
    for (int i = 0; i < half; i++)
        q[i] += q[i + half];
    T sum = q[0][0] + q[0][1];
    return LANES == 4 ? sum + (q[0][LANES / 2] + q[0][LANES - 1]) : sum;
}

/*
 * Computes all outputs of some pixels that see the same taps, `step` apart in x and `out_step` in out; src is the
 * address of tap (0, 0) of the first of them, which may be outside. Inlined with constants for `outputs` and `pixels`.
 */
static inline __attribute__((always_inline)) void TYPED(pixels)(const struct few *f, const struct window *w,
                                                                const int outputs, const int pixels, const T *src,
                                                                int64_t step, T *out, int64_t out_step)
{
    int64_t whole = f->c / WIDTH, rest = f->c % WIDTH, most = SUM_LENGTH / f->vectors, taps = 0;
    V sums[MOST][PIXELS];
    T totals[MOST][PIXELS];
    YK__UNROLL
    for (int o = 0; o < outputs; o++)
        YK__UNROLL
    for (int p = 0; p < pixels; p++) {
        sums[o][p] = (V){0};
        totals[o][p] = f->bias ? ((const T *)f->bias)[o] : 0;
    }
    for (int64_t ky = w->ky0; ky < w->ky1; ky++)
        for (int64_t kx = w->kx0; kx < w->kx1; kx++) {
            const T *from = src + ky * f->dilation[0] * f->x.stride[2] + kx * f->dilation[1] * f->x.stride[3];
            const V *weights = (const V *)f->packed + (ky * f->kw + kx) * outputs * f->vectors;
            for (int64_t v = 0; v < whole; v++) {
                V x[PIXELS];
                YK__UNROLL
                for (int p = 0; p < pixels; p++)
                    x[p] = *(const VU *)(from + p * step + v * WIDTH);
                YK__UNROLL
                for (int o = 0; o < outputs; o++)
                    YK__UNROLL
                for (int p = 0; p < pixels; p++)
                    sums[o][p] += x[p] * weights[o * f->vectors + v];
            }
            if (rest)
                YK__UNROLL
            for (int p = 0; p < pixels; p++) {
                V x = LOAD_PART(from + p * step + whole * WIDTH, rest);
                YK__UNROLL
                for (int o = 0; o < outputs; o++)
                    sums[o][p] += x * weights[o * f->vectors + whole];
            }
            if (++taps < most)
                continue;
            taps = 0;
            YK__UNROLL
            for (int o = 0; o < outputs; o++)
                YK__UNROLL
            for (int p = 0; p < pixels; p++) {
                totals[o][p] += TYPED(sum_of_lanes)(sums[o][p]);
                sums[o][p] = (V){0};
            }
        }
    YK__UNROLL
    for (int o = 0; o < outputs; o++)
        YK__UNROLL
    for (int p = 0; p < pixels; p++)
        out[p * out_step + o] = totals[o][p] + TYPED(sum_of_lanes)(sums[o][p]);
}

/* Computes a run of pixels. */
static void TYPED(run)(const struct few *f, const struct window *w, int64_t count, const T *src, int64_t step, T *out,
                       int64_t out_step)
{
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < PIXELS ? 1 : PIXELS;
        const T *from = src + i * step;
        T *to = out + i * out_step;
        switch (f->o * 2 + (n == 1)) {
#define CASE(o)                                                                                                        \
    case (o)*2: TYPED(pixels)(f, w, o, PIXELS, from, step, to, out_step); break;                                       \
    case (o)*2 + 1: TYPED(pixels)(f, w, o, 1, from, step, to, out_step); break;
            CASE(1)
            CASE(2)
            CASE(3)
            CASE(4)
            CASE(5)
            CASE(6)
            CASE(7)
#undef CASE
        }
    }
}

/* Computes rows of outputs, of all images. */
static void TYPED(row_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct few *f = arg;
    const int64_t *xs = f->x.stride, *os = f->out.stride;
    int64_t images = f->out.shape[0], width = f->out.shape[3];
    bool by_image = images >= PIXELS && os[0] < os[3];
    int64_t begin_whole, end_whole;
    whole_windows(f, &begin_whole, &end_whole);
    for (int64_t y = begin; y < end; y++) {
        struct window w;
        taps_inside(f, 0, y, &w.ky0, &w.ky1);
        for (int64_t n = 0; n < (by_image ? 1 : images); n++)
            for (int64_t x = 0, run; x < width; x += run) {
                const T *src = (const T *)f->x.data + n * xs[0] + (y * f->stride[0] - f->padding[0]) * xs[2] +
                               (x * f->stride[1] - f->padding[1]) * xs[3];
                T *out = (T *)f->out.data + n * os[0] + y * os[2] + x * os[3];
                taps_inside(f, 1, x, &w.kx0, &w.kx1);
                run = 1;
                if (by_image) {
                    TYPED(run)(f, &w, images, src, xs[0], out, os[0]);
                    continue;
                }
                if (x == begin_whole && end_whole > x)
                    run = end_whole - x;
                TYPED(run)(f, &w, run, src, f->stride[1] * xs[3], out, os[3]);
            }
    }
}

#undef WIDTH
