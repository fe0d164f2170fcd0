/*
 * conv_small.c - direct convolution for few channels: forward and input gradient. Layer: device/cpu.
 *
 * LeNet's maps are 24 and 8 wide: too narrow to fill vectors row by row, and too small for a matrix product through
 * im2col to pay. So each image is first staged into kw planes per channel, plane kx holding the padded input moved
 * left by kx and cut to the output's width. Then the input of tap (c, ky, kx) for the outputs q = oy * ow + ox is one
 * straight run of floats, at plane (c, kx) + ky * ow + q, and vectors run over q with no lane wasted, whatever ow is.
 * Staging copies each row kw times, against kh * kw * o multiplications of it.
 *
 * Invariants: images are independent and each is computed in one fixed order, so the number of threads changes no bit.
 */
#include "device/cpu/conv/conv_small.h"

typedef struct job {
    cs_shape s;
    const float *x, *w, *bias;
    float *out;
    float *scratch;
    int64_t scratch_floats; /* for one thread */
    int64_t plane;          /* backward: floats of one zero-padded plane of gout */
} job;

/* True for few channels on at least one side: beyond that a matrix product has enough to share. */
bool yk__conv_small_applies(const yk__conv2d *p, const yk__view *x, const yk__view *w, const yk__view *out)
{
    if (x->dtype != YK_F32 || p->groups != 1)
        return false;
    for (int d = 0; d < 2; d++) {
        if (p->stride[d] != 1 || p->dilation[d] != 1 || w->shape[2 + d] > CS_KERNEL ||
            p->padding[d] >= w->shape[2 + d] || out->shape[2 + d] < 1)
            return false;
    }
    if (w->shape[2] * w->shape[3] == 1 || x->shape[0] < 1 || w->shape[0] < 1 || w->shape[1] < 1)
        return false;
    if (w->shape[0] > CS_CHANNELS || w->shape[1] > CS_CHANNELS || (w->shape[0] > 16 && w->shape[1] > 16))
        return false;
    return yk__view_contiguous(x) && yk__view_contiguous(w) && yk__view_contiguous(out);
}

/*
 * Copies rows of 8 parts + rest floats. Half-width vectors, since rows are mostly short of a whole one; what lies after
 * a row of `to` is overwritten by up to 7 floats, what lies after a row of `from` is not read.
 */
static inline __attribute__((always_inline)) void copy_rows(const int parts, const int64_t rest, float *to,
                                                            int64_t to_step, const float *from, int64_t from_step,
                                                            int64_t rows)
{
    typedef float part __attribute__((vector_size(32), aligned(4), may_alias));
    for (; rows > 0; rows--, to += to_step, from += from_step) {
        CS_UNROLL
        for (int i = 0; i < parts; i++)
            *(part *)(to + 8 * i) = *(const part *)(from + 8 * i);
#ifdef __AVX512F__
        if (rest)
            _mm256_storeu_ps(to + 8 * parts, _mm256_maskz_loadu_ps((__mmask8)((1u << rest) - 1), from + 8 * parts));
#else
        for (int64_t i = 8 * parts; i < 8 * parts + rest; i++)
            to[i] = from[i];
#endif
    }
}

static void copy(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t n)
{
    if (n == 8)
        copy_rows(1, 0, to, to_step, from, from_step, rows);
    else if (n == 24)
        copy_rows(3, 0, to, to_step, from, from_step, rows);
    else if (n < 8)
        copy_rows(0, n, to, to_step, from, from_step, rows);
    else if (n < 16)
        copy_rows(1, n - 8, to, to_step, from, from_step, rows);
    else if (n < 24)
        copy_rows(2, n - 16, to, to_step, from, from_step, rows);
    else if (n < 32)
        copy_rows(3, n - 24, to, to_step, from, from_step, rows);
    else {
        for (; rows > 0; rows--, to += to_step, from += from_step)
            memcpy(to, from, (size_t)n * sizeof(float));
    }
}

void YK__ISA_NAME(yk__conv_small_stage)(const cs_shape *s, float *planes, const float *x)
{
    for (int64_t c = 0; c < s->c; c++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            float *to = planes + (c * s->kw + kx) * s->pitch;
            int64_t left = s->pw > kx ? s->pw - kx : 0; /* columns of padding on either side of the row's part */
            int64_t right = s->ow + kx - s->pw - s->w;
            right = right > 0 ? right : 0;
            int64_t inside = s->ow - left - right;
            if (inside <= 0) { /* a tap that sees nothing but padding */
                memset(to, 0, (size_t)(s->rows * s->ow) * sizeof(float));
                continue;
            }
            memset(to, 0, (size_t)(s->ph * s->ow) * sizeof(float));
            to += s->ph * s->ow;
            const float *from = x + c * s->h * s->w + kx + left - s->pw;
            copy(to + left, s->ow, from, s->w, s->h, inside);
            if (left + right > 0) { /* after the copy, which may write beyond its rows */
                for (int64_t y = 0; y < s->h; y++) {
                    for (int64_t i = 0; i < left; i++)
                        to[y * s->ow + i] = 0.0f;
                    for (int64_t i = s->ow - right; i < s->ow; i++)
                        to[y * s->ow + i] = 0.0f;
                }
            }
            memset(to + s->h * s->ow, 0, (size_t)(s->ph * s->ow) * sizeof(float));
        }
    }
}

static void forward_images(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const cs_shape *s = &j->s;
    float *planes = j->scratch + thread * j->scratch_floats;
    int64_t taps = s->c * s->kh * s->kw;
    int64_t vectors = cs_even((s->positions + CS_LANES - 1) / CS_LANES, CS_VECTORS);
    cs_tile t = {.count = {s->c, s->kh, s->kw},
                 .a_step = {s->kh * s->kw, s->kw, 1},
                 .b_step = {s->kw * s->pitch, s->ow, s->pitch}};
    for (int64_t n = begin; n < end; n++) {
        YK__ISA_NAME(yk__conv_small_stage)(s, planes, j->x + n * s->c * s->h * s->w);
        float *out = j->out + n * s->o * s->positions;
        for (int64_t q = 0; q < s->positions; q += vectors * CS_LANES) {
            int64_t left = s->positions - q, wide = (left + CS_LANES - 1) / CS_LANES;
            wide = wide < vectors ? wide : vectors;
            int64_t rows = cs_even(s->o, cs_tile_rows((int)wide));
            t.b = planes + q;
            t.width = left < wide * CS_LANES ? left : wide * CS_LANES;
            for (int64_t o = 0; o < s->o; o += rows) {
                int64_t high = s->o - o < rows ? s->o - o : rows;
                for (int64_t r = 0; r < high; r++) {
                    t.a[r] = j->w + (o + r) * taps;
                    t.out[r] = out + (o + r) * s->positions + q;
                }
                t.start = j->bias ? j->bias + o : NULL;
                YK__ISA_NAME(yk__conv_small_tile)((int)high, (int)wide, &t);
            }
        }
    }
}

/* The images of a piece of work: there are enough pieces for any number of threads worth having. */
static int64_t grain_of(int64_t n)
{
    return n > 64 ? (n + 63) / 64 : 1;
}

static yk_status images_run(int device, job *j, yk__range_fn fn)
{
    yk__storage *handle = NULL;
    size_t bytes = (size_t)j->scratch_floats * (size_t)yk__cpu_threads(device) * sizeof(float);
    j->scratch = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, bytes, &handle);
    if (!j->scratch)
        return yk__error_code();
    yk__cpu_parallel(device, j->s.n, grain_of(j->s.n), fn, j);
    yk__storage_release(handle);
    return YK_OK;
}

yk_status yk__conv_small_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                 const yk__view *w, const yk__view *bias)
{
    job j = {.s = cs_shape_of(p, x, w, out), .x = x->data, .w = w->data, .out = out->data};
    float dense[CS_CHANNELS];
    if (bias) {
        for (int64_t o = 0; o < j.s.o; o++)
            dense[o] = ((const float *)bias->data)[o * bias->stride[0]];
        j.bias = dense;
    }
    j.scratch_floats = j.s.c * j.s.kw * j.s.pitch + CS_LANES;
    return images_run(device, &j, forward_images);
}

/*
 * The input gradient. Columns kx of the kernel are kept apart at first: part (c, kx), row r of the padded input,
 *     part[c][kx][r * ow + x] = sum over o, ky of w[o][c][ky][kx] gout[o][(r - ky) * ow + x]
 * reads straight runs of gout (between kh - 1 rows of zeros above and below), and
 *     gx[c][r - ph][x + kx - pw] = sum over kx of part[c][kx][r * ow + x].
 * Vectors whose rows a tap cannot reach are skipped, so few multiplications meet the zeros.
 */
static void gather(const cs_shape *s, float *gx, const float *parts)
{
    parts += s->ph * s->ow;
#ifdef __AVX512F__
    for (int64_t x = 0; x < s->w; x += 16) {
        const float
            *from[CS_KERNEL]; /* of the parts that reach these columns, lane 0; lanes outside of [0, ow) are masked */
        __mmask16 mask[CS_KERNEL], store = (__mmask16)(s->w - x < 16 ? (1u << (s->w - x)) - 1 : 0xFFFF);
        int reach = 0;
        for (int64_t kx = 0; kx < s->kw; kx++) {
            int64_t at = x + s->pw - kx, low = at < 0 ? -at : 0, high = s->ow - at;
            if (low >= 16 || high <= low)
                continue;
            mask[reach] = (__mmask16)((high >= 16 ? 0xFFFFu : (1u << high) - 1) & (0xFFFFu << low));
            from[reach++] = parts + kx * s->pitch + at;
        }
        for (int64_t y = 0; y < s->h; y++) {
            __m512 sum = _mm512_setzero_ps();
            for (int k = 0; k < reach; k++)
                sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask[k], from[k] + y * s->ow));
            _mm512_mask_storeu_ps(gx + y * s->w + x, store, sum);
        }
    }
#else
    memset(gx, 0, (size_t)(s->h * s->w) * sizeof(float));
    for (int64_t kx = 0; kx < s->kw; kx++) {
        int64_t low = s->pw > kx ? s->pw - kx : 0, high = s->w + s->pw - kx;
        high = high < s->ow ? high : s->ow;
        for (int64_t y = 0; y < s->h; y++) {
            float *to = gx + y * s->w;
            const float *part = parts + kx * s->pitch + y * s->ow;
            for (int64_t x = low; x < high; x++)
                to[x + kx - s->pw] += part[x];
        }
    }
#endif
}

static void input_images(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const cs_shape *s = &j->s;
    int64_t border = (s->kh - 1) * s->ow, all = s->c * s->kw, taps = s->kh * s->kw;
    float *padded = j->scratch + thread * j->scratch_floats;
    float *parts = padded + s->o * j->plane;
    for (int64_t o = 0; o < s->o; o++) {
        float *plane = padded + o * j->plane;
        memset(plane, 0, (size_t)border * sizeof(float));
        memset(plane + border + s->positions, 0, (size_t)(j->plane - border - s->positions) * sizeof(float));
    }
    int64_t weight_at[CS_CHANNELS * CS_KERNEL]; /* of part (c, kx) */
    for (int64_t c = 0; c < s->c; c++) {
        for (int64_t kx = 0; kx < s->kw; kx++)
            weight_at[c * s->kw + kx] = c * taps + kx;
    }
    int64_t wide = s->ow <= CS_LANES / 2 ? 1 : 2; /* two vectors need fewer loads, but of short rows skip less */
    int64_t rows = cs_even(all, cs_tile_rows((int)wide));
    int64_t size = s->rows * s->ow;
    for (int64_t n = begin; n < end; n++) {
        const float *gout = j->x + n * s->o * s->positions;
        for (int64_t o = 0; o < s->o; o++)
            memcpy(padded + o * j->plane + border, gout + o * s->positions, (size_t)s->positions * sizeof(float));
        for (int64_t q = 0; q < size; q += wide * CS_LANES) {
            int64_t left = size - q, v = left <= CS_LANES ? 1 : wide;
            int64_t first = q / s->ow, last = (q + v * CS_LANES - 1) / s->ow;
            int64_t low = first >= s->oh ? first - s->oh + 1 : 0, high = last < s->kh ? last + 1 : s->kh;
            cs_tile t = {.b = padded + border + q - low * s->ow,
                         .count = {1, s->o, high - low},
                         .a_step = {0, s->c * taps, s->kw},
                         .b_step = {0, j->plane, -s->ow},
                         .width = v * CS_LANES};
            for (int64_t m = 0; m < all; m += rows) {
                int64_t tall = all - m < rows ? all - m : rows;
                for (int64_t r = 0; r < tall; r++) {
                    t.a[r] = j->w + weight_at[m + r] + low * s->kw;
                    t.out[r] = parts + (m + r) * s->pitch + q;
                }
                YK__ISA_NAME(yk__conv_small_tile)((int)tall, (int)v, &t);
            }
        }
        float *gx = j->out + n * s->c * s->h * s->w;
        for (int64_t c = 0; c < s->c; c++)
            gather(s, gx + c * s->h * s->w, parts + c * s->kw * s->pitch);
    }
}

yk_status yk__conv_small_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                        const yk__view *w)
{
    job j = {.s = cs_shape_of(p, gx, w, gout), .x = gout->data, .w = w->data, .out = gx->data};
    const cs_shape *s = &j.s;
    j.plane = (s->positions + 2 * (s->kh - 1) * s->ow + 3 * CS_LANES - 1) / CS_LANES * CS_LANES;
    j.scratch_floats = s->o * j.plane + s->c * s->kw * s->pitch + 2 * CS_LANES;
    return images_run(device, &j, input_images);
}
