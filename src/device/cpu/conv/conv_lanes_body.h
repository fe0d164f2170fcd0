/*
 * conv_lanes_body.h - the convolutions of small groups of one dtype; included by conv_lanes.c with T, V, VU (V at any
 * address), I (an integer as wide as T) and TYPED(name) defined.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))

#include "device/cpu/conv/conv_depthwise_body.h"
#include "device/cpu/conv/conv_strips_body.h"

#include "device/cpu/conv/conv_bands_body.h"

typedef I TYPED(lane_indices) __attribute__((vector_size(sizeof(V))));

/* Lane i of the result is lane index[i] of x. */
static inline V TYPED(permute)(V x, TYPED(lane_indices) index)
{
#if defined(__AVX512F__)
    return _Generic((T)0, float
                    : (V)_mm512_permutexvar_ps((__m512i)index, (__m512)x), double
                    : (V)_mm512_permutexvar_pd((__m512i)index, (__m512d)x));
#else
#if defined(__AVX2__)
    if (sizeof(T) == 4)
        return (V)_mm256_permutevar8x32_ps((__m256)x, (__m256i)index);
#endif
    V out = x; /* all of it is overwritten; not every compiler sees that */
    for (int64_t i = 0; i < WIDTH; i++)
        out[i] = x[index[i]];
    return out;
#endif
}

static TYPED(lane_indices) TYPED(first_indices)(const struct lanes *l)
{
    TYPED(lane_indices) index = {0};
    for (int64_t i = 0; i < l->per_block * l->cd; i++)
        index[i] = (I)(i / l->cd * l->cs);
    return index;
}

/* Channels [at, at + count) of `of`: those of the groups in one block. */
static inline int64_t TYPED(block_lanes)(const struct lanes *l, int64_t block, int64_t channels)
{
    int64_t groups = l->groups - block * l->per_block;
    return (groups < l->per_block ? groups : l->per_block) * channels;
}

/* Packs the weights: for each tap that is used and each source channel of a group, a vector; after them all the
 * biases. */
static void TYPED(pack_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct map *m = arg;
    const struct lanes *l = &m->lanes;
    int64_t taps = m->taps[0] * m->taps[1], per_block = m->y.slots * m->x.slots * l->cs * WIDTH;
    /* Depthwise: rows of the taps of a channel, which are transposed. */
    bool rows =
        l->cs == 1 && l->cd == 1 && m->y.slots * m->x.slots == taps && m->w_tap[1] == 1 && m->w_tap[0] == m->taps[1];
    for (int64_t block = begin; block < end; block++) {
        T *to = (T *)m->packed + block * per_block;
        int64_t lanes = TYPED(block_lanes)(l, block, l->cd);
        if (rows)
            TYPED(yk__gemm_pack)(to, (const T *)m->w + block * WIDTH * m->w_g, taps, 1, lanes, m->w_g, WIDTH);
        for (int64_t ky = 0; ky < m->taps[0] && !rows; ky++)
            for (int64_t kx = 0; kx < m->taps[1]; kx++) {
                if (m->y.slot[ky] < 0 || m->x.slot[kx] < 0)
                    continue;
                const T *w = (const T *)m->w + ky * m->w_tap[0] + kx * m->w_tap[1] + block * l->per_block * m->w_g;
                for (int64_t s = 0; s < l->cs; s++, to += WIDTH) {
                    T *at = to;
                    for (const T *of_group = w; at < to + lanes; of_group += m->w_g)
                        for (int64_t of = 0; of < l->cd; of++) {
                            int64_t turned = of + s < l->cd ? of + s : of + s - l->cd;
                            *at++ = of_group[(m->turned ? turned : of) * m->w_d + (m->turned ? of : s) * m->w_s];
                        }
                    while (at < to + WIDTH)
                        *at++ = 0;
                }
            }
        to = (T *)m->packed + l->blocks * per_block + block * WIDTH;
        for (int64_t i = 0; i < WIDTH; i++)
            to[i] = m->bias && i < lanes ? ((const T *)m->bias)[block * l->per_block * l->cd + i] : 0;
    }
}

/* Computes `rows` pixels of one block, whose source channels are taken as `from` says. */
static inline __attribute__((always_inline)) void TYPED(tile_of)(const struct tile *t, const int rows,
                                                                 const enum channels from, const bool whole)
{
    V sum[MOST_ROWS];
    TYPED(lane_indices) first = *(const TYPED(lane_indices) *)t->first;
    YK__UNROLL for (int r = 0; r < rows; r++)
    {
        sum[r] = *(const V *)t->bias;
        __builtin_prefetch((const T *)t->dst + r * t->ldc + WIDTH, 1); /* the next block's */
    }
    for (int64_t i = 0; i < t->n_steps; i++) {
        const T *a = (const T *)t->src + t->steps[i].a;
        const V *w = (const V *)((const T *)t->w + t->steps[i].b);
        for (int64_t s = 0; s < (from == EACH_LANE ? 1 : t->cs); s++) {
            TYPED(lane_indices) index = first + (I)s;
            V weights = w[s];
            YK__UNROLL for (int r = 0; r < rows; r++)
            {
                if (from == ONE_GROUP) {
                    sum[r] += a[r * t->lda + s] * weights;
                    continue;
                }
                V x = whole ? (V) * (const VU *)(a + r * t->lda) : TYPED(yk__load_part)(a + r * t->lda, t->load);
                sum[r] += (from == PERMUTED ? TYPED(permute)(x, index) : x) * weights;
            }
        }
    }
    T *to = t->dst;
    YK__UNROLL for (int r = 0; r < rows; r++)
    {
        if (whole && t->store == WIDTH)
            *(VU *)(to + r * t->ldc) = sum[r];
        else
            TYPED(yk__store_part)(to + r * t->ldc, sum[r], t->store);
    }
}

#define TILE_FROM(rows, from)                                                                                          \
    if (whole)                                                                                                         \
        TYPED(tile_of)(t, rows, from, true);                                                                           \
    else                                                                                                               \
        TYPED(tile_of)(t, rows, from, false);
#define TILE(rows)                                                                                                     \
    static void TYPED(tile_##rows)(const struct tile *t, enum channels from, bool whole)                               \
    {                                                                                                                  \
        switch (from) {                                                                                                \
        case EACH_LANE: TILE_FROM(rows, EACH_LANE) break;                                                              \
        case ONE_GROUP: TILE_FROM(rows, ONE_GROUP) break;                                                              \
        default: TILE_FROM(rows, PERMUTED)                                                                             \
        }                                                                                                              \
    }
TILE(8)
TILE(4)
TILE(2)
TILE(1)
#undef TILE
#undef TILE_FROM

/* turns[k] is the permutation that brings the channel k further in its group to each lane; with `back`, the channel k
 * before. */
static void TYPED(find_turns)(const struct lanes *l, TYPED(lane_indices) turns[MOST_TURNS], bool back)
{
    for (int64_t k = 0; k < l->cd; k++)
        for (int64_t i = 0; i < WIDTH; i++) {
            int64_t first = i / l->cd * l->cd;
            turns[k][i] = (I)(first + l->cd > WIDTH ? i : first + (i - first + (back ? l->cd - k : k)) % l->cd);
        }
}

/* Computes `rows` pixels of one block, with rotated sums: lane i of sum k is the part of channel i in the channel k
 * further. */
static inline __attribute__((always_inline)) void TYPED(turned_tile_of)(const struct tile *t, const int rows,
                                                                        const bool whole)
{
    const TYPED(lane_indices) *back = t->first;
    V out[3];
    YK__UNROLL for (int r = 0; r < rows; r++)
    {
        out[r] = *(const V *)t->bias;
        __builtin_prefetch((const T *)t->dst + r * t->ldc + WIDTH, 1);
    }
    V sum[3][TURNS];
    YK__UNROLL for (int r = 0; r < rows; r++) YK__UNROLL for (int k = 0; k < TURNS; k++) sum[r][k] = (V){0};
    for (int64_t i = 0; i < t->n_steps; i++) {
        const T *a = (const T *)t->src + t->steps[i].a;
        const V *w = (const V *)((const T *)t->w + t->steps[i].b);
        V x[3];
        YK__UNROLL for (int r = 0; r < rows; r++) x[r] =
            whole ? (V) * (const VU *)(a + r * t->lda) : TYPED(yk__load_part)(a + r * t->lda, t->load);
        YK__UNROLL for (int k = 0; k < TURNS; k++)
        {
            V weights = w[k];
            YK__KEEP(weights);
            YK__UNROLL for (int r = 0; r < rows; r++) sum[r][k] += x[r] * weights;
        }
    }
    YK__UNROLL for (int k = 0; k < TURNS; k++)
    {
        TYPED(lane_indices) index = back[k];
        YK__UNROLL for (int r = 0; r < rows; r++) out[r] += TYPED(permute)(sum[r][k], index);
    }
    T *to = t->dst;
    YK__UNROLL for (int r = 0; r < rows; r++)
    {
        if (whole)
            *(VU *)(to + r * t->ldc) = out[r];
        else
            TYPED(yk__store_part)(to + r * t->ldc, out[r], t->store);
    }
}

#define TURNED_TILE(rows)                                                                                              \
    static void TYPED(turned_tile_##rows)(const struct tile *t)                                                        \
    {                                                                                                                  \
        if (t->store == WIDTH)                                                                                         \
            TYPED(turned_tile_of)(t, rows, true);                                                                      \
        else                                                                                                           \
            TYPED(turned_tile_of)(t, rows, false);                                                                     \
    }
TURNED_TILE(3)
TURNED_TILE(2)
TURNED_TILE(1)
#undef TURNED_TILE

/* Computes rows as run_rows does, with rotated sums: some pixels of a block, then those of the next one. */
static void TYPED(run_turned)(const struct map *m, struct tile *t, int64_t rows, const T *src, T *dst)
{
    const struct lanes *l = &m->lanes;
    int64_t per_block = m->y.slots * m->x.slots * l->cs * WIDTH;
    for (int64_t done = 0; done < rows; done += TURN_PIXELS)
        for (int64_t block = 0; block < l->blocks; block++) {
            int64_t at = block * l->per_block * l->cs, end = rows - done < TURN_PIXELS ? rows : done + TURN_PIXELS;
            t->w = (const T *)m->packed + block * per_block;
            t->bias = (const T *)m->packed + l->blocks * per_block + block * WIDTH;
            t->load = t->store = TYPED(block_lanes)(l, block, l->cs);
            for (int64_t row = done, now; row < end; row += now) {
                t->src = src + row * t->lda + at;
                t->dst = dst + row * t->ldc + at;
                now = end - row < TURN_TAPS ? end - row : TURN_TAPS;
                switch (now) {
                case 3: TYPED(turned_tile_3)(t); break;
                case 2: TYPED(turned_tile_2)(t); break;
                default: TYPED(turned_tile_1)(t);
                }
            }
        }
}

/* Computes `rows` pixels of `vectors` blocks that are whole, depthwise. */
static inline __attribute__((always_inline)) void TYPED(depthwise_of)(const struct tile *t, const int rows,
                                                                      const int vectors)
{
    V sum[DEPTHWISE_ROWS][DEPTHWISE_VECTORS];
    YK__UNROLL for (int r = 0; r < rows; r++) YK__UNROLL for (int v = 0; v < vectors; v++) sum[r][v] =
        ((const V *)t->bias)[v];
    /* The last tap's source and the destination are new to the caches, and in streams too short for the processor to
     * foresee. */
    const T *ahead = (const T *)t->src + t->ahead;
    T *to = t->dst;
    if (t->fetch) {
        YK__UNROLL for (int r = 0; r < rows; r++) YK__UNROLL for (int v = 0; v < vectors; v++)
        {
            __builtin_prefetch(ahead + r * t->lda + v * WIDTH);
            __builtin_prefetch(to + (AHEAD + r) * t->ldc + v * WIDTH, 1);
        }
    }
    for (int64_t i = 0; i < t->n_steps; i++) {
        const T *a = (const T *)t->src + t->steps[i].a;
        const T *w = (const T *)t->w + t->steps[i].b;
        YK__UNROLL for (int v = 0; v < vectors; v++)
        {
            V weights = *(const V *)(w + v * t->w_block);
            YK__UNROLL for (int r = 0; r < rows; r++) sum[r][v] += *(const VU *)(a + r * t->lda + v * WIDTH) * weights;
        }
    }
    YK__UNROLL for (int r = 0; r < rows; r++) YK__UNROLL for (int v = 0; v < vectors; v++) *
        (VU *)(to + r * t->ldc + v * WIDTH) = sum[r][v];
}

#define DEPTHWISE(rows, vectors)                                                                                       \
    static void TYPED(depthwise_##rows##x##vectors)(const struct tile *t)                                              \
    {                                                                                                                  \
        TYPED(depthwise_of)(t, rows, vectors);                                                                         \
    }
DEPTHWISE(4, 1)
DEPTHWISE(4, 2)
DEPTHWISE(1, 1)
DEPTHWISE(1, 2)
#if DEPTHWISE_VECTORS == 4
DEPTHWISE(4, 4)
DEPTHWISE(1, 4)
#endif
#undef DEPTHWISE

/* Computes rows as run_rows does, but depthwise: a few pixels with all their blocks, then the same pixels of the next
 * of `images`, then the next few, so that memory is read and written in order. */
static void TYPED(run_depthwise)(const struct map *m, struct tile *t, int64_t images, int64_t rows, const T *src,
                                 T *dst)
{
    const struct lanes *l = &m->lanes;
    int64_t per_block = m->y.slots * m->x.slots * WIDTH, blocks = l->groups / WIDTH, rest = l->groups % WIDTH;
    const T *bias = (const T *)m->packed + l->blocks * per_block;
    t->w_block = per_block;
    t->fetch = l->groups * (int64_t)sizeof(T) < FETCH_BYTES;
    t->ahead = t->n_steps ? t->steps[t->n_steps - 1].a + AHEAD * t->lda : 0;
    t->load = t->store = rest;
    for (int64_t done = 0, count; done < rows; done += count) {
        count = rows - done >= DEPTHWISE_ROWS ? DEPTHWISE_ROWS : 1;
        bool high = count == DEPTHWISE_ROWS;
        for (int64_t n = 0; n < images; n++) {
            t->src = src + done * t->lda + n * m->src_stride[0];
            t->dst = dst + done * t->ldc + n * m->dst_stride[0];
            t->w = m->packed;
            t->bias = bias;
            for (int64_t block = 0, wide; block < blocks; block += wide) {
                switch (blocks - block) {
                default:
#if DEPTHWISE_VECTORS == 4
                    wide = 4;
                    (high ? TYPED(depthwise_4x4) : TYPED(depthwise_1x4))(t);
                    break;
                case 3:
#endif
                case 2:
                    wide = 2;
                    (high ? TYPED(depthwise_4x2) : TYPED(depthwise_1x2))(t);
                    break;
                case 1: wide = 1; (high ? TYPED(depthwise_4x1) : TYPED(depthwise_1x1))(t);
                }
                t->src = (const T *)t->src + wide * WIDTH;
                t->dst = (T *)t->dst + wide * WIDTH;
                t->w = (const T *)t->w + wide * per_block;
                t->bias = (const T *)t->bias + wide * WIDTH;
            }
            if (rest)
                (high ? TYPED(tile_4) : TYPED(tile_1))(t, EACH_LANE, false);
        }
    }
}

/* Computes pixels that share their steps: all blocks of a few, then the next few. */
static void TYPED(run_rows)(const struct map *m, struct tile *t, int64_t rows, const T *src, T *dst)
{
    const struct lanes *l = &m->lanes;
    if (l->cs == 1 && l->cd == 1) {
        TYPED(run_depthwise)(m, t, 1, rows, src, dst);
        return;
    }
    if (m->turned) {
        TYPED(run_turned)(m, t, rows, src, dst);
        return;
    }
    enum channels of = l->per_block == 1 ? ONE_GROUP : PERMUTED;
    int64_t per_block = m->y.slots * m->x.slots * l->cs * WIDTH, channels = l->groups * l->cs;
    const T *bias = (const T *)m->packed + l->blocks * per_block;
    for (int64_t done = 0, count; done < rows; done += count) {
        int64_t rest = rows - done;
        count = rest >= 8 ? 8 : rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
        for (int64_t block = 0; block < l->blocks; block++) {
            int64_t from = block * l->per_block * l->cs;
            t->src = src + done * t->lda + from;
            t->dst = dst + done * t->ldc + block * l->per_block * l->cd;
            t->w = (const T *)m->packed + block * per_block;
            t->bias = bias + block * WIDTH;
            t->load = TYPED(block_lanes)(l, block, l->cs);
            t->store = TYPED(block_lanes)(l, block, l->cd);
            bool whole = from + WIDTH <= channels;
            switch (count) {
            case 8: TYPED(tile_8)(t, of, whole); break;
            case 4: TYPED(tile_4)(t, of, whole); break;
            case 2: TYPED(tile_2)(t, of, whole); break;
            default: TYPED(tile_1)(t, of, whole); break;
            }
        }
    }
}

/* Computes destination row y, images [n0, n1). */
static void TYPED(run_row)(const struct map *m, int64_t y, int64_t n0, int64_t n1, yk__gemm_step *steps,
                           const void *first)
{
    int64_t n = n1 - n0;
    struct tile t = {.cs = m->lanes.cs, .steps = steps, .first = first};
    const yk__conv_link *ly = m->y.links + m->y.first[y];
    int64_t count_y = m->y.first[y + 1] - m->y.first[y];
    for (int64_t x = 0, run; x < m->x.size; x += run) {
        int64_t step;
        run = yk__conv_run(&m->x, x, &step);
        bool joined = n == m->n && (run == 1 || step * m->src_stride[2] == n * m->src_stride[0]) &&
                      m->dst_stride[2] == n * m->dst_stride[0];
        bool depthwise = m->lanes.cs == 1 && m->lanes.cd == 1;
        bool slides = depthwise && run > 1 && count_y && m->src_stride[2] * (int64_t)sizeof(T) % SAME_SETS;
        bool by_image = !joined && !slides && n >= run && (!depthwise || run < DEPTHWISE_ROWS);
        if (by_image)
            run = 1;
        const yk__conv_link *lx = m->x.links + m->x.first[x];
        int64_t count_x = m->x.first[x + 1] - m->x.first[x];
        t.n_steps = 0;
        for (int64_t i = 0; i < count_y; i++)
            for (int64_t j = 0; j < count_x; j++) {
                /* The taps go from the first source to the last; in the gradient of the input they descend with the
                 * taps. */
                const yk__conv_link *of_y = &ly[m->backward ? count_y - 1 - i : i];
                const yk__conv_link *of_x = &lx[m->backward ? count_x - 1 - j : j];
                steps[t.n_steps++] =
                    (yk__gemm_step){of_y->src * m->src_stride[1] + of_x->src * m->src_stride[2],
                                    (m->y.slot[of_y->tap] * m->x.slots + m->x.slot[of_x->tap]) * m->lanes.cs * WIDTH};
            }
        const T *src = (const T *)m->src + n0 * m->src_stride[0];
        T *dst = (T *)m->dst + n0 * m->dst_stride[0] + y * m->dst_stride[1] + x * m->dst_stride[2];
        if (slides && count_x == 3) {
            struct TYPED(slide) slide = TYPED(make_slide)(count_y, steps[0].a, steps[1].a, steps[count_y > 1 ? 3 : 0].a,
                                                          step * m->src_stride[2], m->src_stride[0]);
            t.w_block = m->y.slots * m->x.slots * WIDTH;
            int64_t done = slide.step ? TYPED(run_slides)(m, &t, slide, n, run, src + steps[0].a, dst) : 0;
            if (done) { /* one that is left finds its taps anew */
                run = done;
                continue;
            }
        }
        if (by_image || joined) {
            t.lda = m->src_stride[0];
            t.ldc = m->dst_stride[0];
            TYPED(run_rows)(m, &t, n * run, src, dst);
            continue;
        }
        t.lda = step * m->src_stride[2];
        t.ldc = m->dst_stride[2];
        if (depthwise) {
            TYPED(run_depthwise)(m, &t, n, run, src, dst);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            TYPED(run_rows)(m, &t, run, src + i * m->src_stride[0], dst + i * m->dst_stride[0]);
    }
}

static void TYPED(run_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct map *m = arg;
    yk__gemm_step *steps = m->steps + (int64_t)thread * m->taps[0] * m->taps[1];
    TYPED(lane_indices) first = TYPED(first_indices)(&m->lanes), back[MOST_TURNS];
    if (m->turned)
        TYPED(find_turns)(&m->lanes, back, true);
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t n0 = piece / m->rows * m->block_n, n1 = n0 + m->block_n < m->n ? n0 + m->block_n : m->n;
        if (m->strips.applies)
            TYPED(run_strip)(m, piece % m->rows * 2, n0, n1);
        else
            TYPED(run_row)(m, piece % m->rows, n0, n1, steps, m->turned ? back : &first);
    }
}

/* Adds the products of `rows` pixels to `count` sums of one block. */
static inline __attribute__((always_inline)) void TYPED(sums_of)(const struct grad *g, const T *x, int64_t lda,
                                                                 const T *gout, int64_t ldg, int64_t rows,
                                                                 const struct sum *list, T *to, const int64_t block,
                                                                 const int count, const bool permuted, const bool whole,
                                                                 TYPED(lane_indices) first)
{
    const struct lanes *l = &g->lanes;
    int64_t load = TYPED(block_lanes)(l, block, l->cs), lanes = TYPED(block_lanes)(l, block, l->cd);
    V sum[MOST_SUMS];
    const T *from[MOST_SUMS];
    TYPED(lane_indices) index[MOST_SUMS];
    YK__UNROLL for (int i = 0; i < count; i++)
    {
        sum[i] = (V){0};
        from[i] = x + list[i].a;
        index[i] = first + (I)list[i].s;
    }
    for (int64_t r = 0; r < rows; r++) {
        V right = whole ? (V) * (const VU *)(gout + r * ldg) : TYPED(yk__load_part)(gout + r * ldg, lanes);
        YK__UNROLL for (int i = 0; i < count; i++)
        {
            V left = whole ? (V) * (const VU *)(from[i] + r * lda) : TYPED(yk__load_part)(from[i] + r * lda, load);
            sum[i] += (permuted ? TYPED(permute)(left, index[i]) : left) * right;
        }
    }
    YK__UNROLL for (int i = 0; i < count; i++) * (V *)(to + list[i].at * WIDTH) += sum[i];
}

#define SUMS(count)                                                                                                    \
    static void TYPED(sums_##count)(const struct grad *g, const T *x, int64_t lda, const T *gout, int64_t ldg,         \
                                    int64_t rows, const struct sum *list, T *to, int64_t block, bool permuted,         \
                                    bool whole, TYPED(lane_indices) first)                                             \
    {                                                                                                                  \
        if (permuted && whole)                                                                                         \
            TYPED(sums_of)(g, x, lda, gout, ldg, rows, list, to, block, count, true, true, first);                     \
        else if (permuted)                                                                                             \
            TYPED(sums_of)(g, x, lda, gout, ldg, rows, list, to, block, count, true, false, first);                    \
        else if (whole)                                                                                                \
            TYPED(sums_of)(g, x, lda, gout, ldg, rows, list, to, block, count, false, true, first);                    \
        else                                                                                                           \
            TYPED(sums_of)(g, x, lda, gout, ldg, rows, list, to, block, count, false, false, first);                   \
    }
SUMS(9)
SUMS(6)
SUMS(4)
SUMS(1)
#undef SUMS

/* Sums over pixels of gout that share their list of `count` sums. */
static void TYPED(sum_rows)(const struct grad *g, const T *x, int64_t lda, const T *gout, int64_t ldg, int64_t rows,
                            const struct sum *list, int64_t count, T *sums, TYPED(lane_indices) first)
{
    const struct lanes *l = &g->lanes;
    bool permuted = l->cs > 1 || l->cd > 1;
    for (int64_t done = 0; done < rows; done += g->chunk) {
        int64_t now = rows - done < g->chunk ? rows - done : g->chunk;
        for (int64_t block = 0; block < l->blocks; block++) {
            int64_t from = block * l->per_block * l->cs, to = block * l->per_block * l->cd;
            const T *left = x + done * lda + from, *right = gout + done * ldg + to;
            T *mine = sums + block * g->block_size;
            bool whole = from + WIDTH <= l->groups * l->cs && to + WIDTH <= l->groups * l->cd;
            for (int64_t i = 0; i < count;) {
                const struct sum *some = list + i;
                if (count - i >= 9) {
                    TYPED(sums_9)(g, left, lda, right, ldg, now, some, mine, block, permuted, whole, first);
                    i += 9;
                } else if (count - i >= 6) {
                    TYPED(sums_6)(g, left, lda, right, ldg, now, some, mine, block, permuted, whole, first);
                    i += 6;
                } else if (count - i >= 4) {
                    TYPED(sums_4)(g, left, lda, right, ldg, now, some, mine, block, permuted, whole, first);
                    i += 4;
                } else {
                    TYPED(sums_1)(g, left, lda, right, ldg, now, some, mine, block, permuted, whole, first);
                    i += 1;
                }
            }
        }
    }
}

/* Adds the products of the pixels to `count` taps of one block, TURNS sums each: lane i of sum k of a tap is channel i
 * of x times the channel of gout that turns[k] brings there. */
static inline __attribute__((always_inline)) void TYPED(turned_of)(const T *x, const T *gout, const struct pixels *p,
                                                                   const struct sum *list, T *to, int64_t lanes,
                                                                   const TYPED(lane_indices) * turns, const int count,
                                                                   const bool whole)
{
    V sum[3][TURNS];
    YK__UNROLL for (int i = 0; i < count; i++) YK__UNROLL for (int k = 0; k < TURNS; k++) sum[i][k] = (V){0};
    for (int64_t o = 0; o < p->outer; o++, x += p->x_outer, gout += p->gout_outer) {
        const T *b = gout, *a[3];
        YK__UNROLL for (int i = 0; i < count; i++) a[i] = x + list[i].a;
        for (int64_t j = 0, at = 0; j < p->inner; j++, at += p->x_inner, b += p->gout_inner) {
            V right = whole ? (V) * (const VU *)b : TYPED(yk__load_part)(b, lanes), left[3];
            YK__KEEP(right);
            __builtin_prefetch(b + WIDTH, 0, 2);
            YK__UNROLL for (int i = 0; i < count; i++)
            {
                left[i] = whole ? (V) * (const VU *)(a[i] + at) : TYPED(yk__load_part)(a[i] + at, lanes);
                __builtin_prefetch(a[i] + at + WIDTH, 0, 2);
            }
            YK__UNROLL for (int k = 0; k < TURNS; k++)
            {
                V turned = TYPED(permute)(right, turns[k]);
                YK__UNROLL for (int i = 0; i < count; i++) sum[i][k] += left[i] * turned;
            }
        }
    }
    YK__UNROLL for (int i = 0; i < count; i++) YK__UNROLL for (int k = 0; k < TURNS; k++) *
        (V *)(to + (list[i].at + k) * WIDTH) += sum[i][k];
}

#define TURNED(count)                                                                                                  \
    static void TYPED(turned_##count)(const T *x, const T *gout, const struct pixels *p, const struct sum *list,       \
                                      T *to, int64_t lanes, const TYPED(lane_indices) * turns)                         \
    {                                                                                                                  \
        if (lanes == WIDTH)                                                                                            \
            TYPED(turned_of)(x, gout, p, list, to, lanes, turns, count, true);                                         \
        else                                                                                                           \
            TYPED(turned_of)(x, gout, p, list, to, lanes, turns, count, false);                                        \
    }
TURNED(3)
TURNED(2)
TURNED(1)
#undef TURNED

/* Sums with rotated gout as sum_rows does, of `run` pixels of each of n images, with a list of taps. */
static void TYPED(sum_turned)(const struct grad *g, const T *x, int64_t step, const T *gout, int64_t n, int64_t run,
                              const struct sum *list, int64_t count, T *sums, const TYPED(lane_indices) * turns)
{
    const struct lanes *l = &g->lanes;
    const bool by_image = g->gout_stride[0] < g->gout_stride[2];
    struct pixels p = {.x_inner = g->x_stride[0],
                       .gout_inner = g->gout_stride[0],
                       .x_outer = step * g->x_stride[2],
                       .gout_outer = g->gout_stride[2]},
                  some = p;
    int64_t inner = n, outer = run;
    if (!by_image) {
        some.x_inner = p.x_outer, some.gout_inner = p.gout_outer;
        some.x_outer = p.x_inner, some.gout_outer = p.gout_inner;
        inner = run, outer = n;
    }
    const int64_t most_inner = inner < g->chunk ? inner : g->chunk, most_outer = g->chunk / most_inner;
    for (int64_t o = 0; o < outer; o += most_outer)
        for (int64_t i = 0; i < inner; i += most_inner) {
            some.inner = inner - i < most_inner ? inner - i : most_inner;
            some.outer = outer - o < most_outer ? outer - o : most_outer;
            const T *left = x + o * some.x_outer + i * some.x_inner;
            const T *right = gout + o * some.gout_outer + i * some.gout_inner;
            for (int64_t block = 0; block < l->blocks; block++) {
                int64_t from = block * l->per_block * l->cs, lanes = TYPED(block_lanes)(l, block, l->cs);
                for (int64_t k = 0; k < l->cs; k += TURNS) {
                    T *to = sums + block * g->block_size + k * WIDTH;
                    for (int64_t t = 0, now; t < count; t += now) {
                        now = count - t < TURN_TAPS ? count - t : TURN_TAPS;
                        switch (now) {
                        case 3:
                            TYPED(turned_3)(left + from, right + from, &some, list + t, to, lanes, turns + k);
                            break;
                        case 2:
                            TYPED(turned_2)(left + from, right + from, &some, list + t, to, lanes, turns + k);
                            break;
                        default: TYPED(turned_1)(left + from, right + from, &some, list + t, to, lanes, turns + k);
                        }
                    }
                }
            }
        }
}

/* Sums over row y of gout, of the images [n0, n1). */
static void TYPED(sum_row)(const struct grad *g, int64_t y, int64_t n0, int64_t n1, struct sum *list, T *sums,
                           TYPED(lane_indices) first, const TYPED(lane_indices) * turns)
{
    const yk__conv_link *ly = g->y.links + g->y.first[y];
    int64_t count_y = g->y.first[y + 1] - g->y.first[y], taps_x = g->gw.shape[3], cs = g->lanes.cs, n = n1 - n0;
    for (int64_t x = 0, run; x < g->xs.size; x += run) {
        int64_t step, count = 0;
        run = yk__conv_run(&g->xs, x, &step);
        bool joined = run == 1 || (n == g->n && step * g->x_stride[2] == n * g->x_stride[0] &&
                                   g->gout_stride[2] == n * g->gout_stride[0]);
        const yk__conv_link *lx = g->xs.links + g->xs.first[x];
        int64_t count_x = g->xs.first[x + 1] - g->xs.first[x];
        const T *gout = (const T *)g->gout + n0 * g->gout_stride[0] + y * g->gout_stride[1] + x * g->gout_stride[2];
        const T *from = (const T *)g->x + n0 * g->x_stride[0];
        for (int64_t i = 0; i < count_y; i++)
            for (int64_t j = 0; j < count_x; j++)
                for (int64_t s = 0; s < (g->turned ? 1 : cs); s++)
                    list[count++] = (struct sum){ly[i].src * g->x_stride[1] + lx[j].src * g->x_stride[2], s,
                                                 (ly[i].tap * taps_x + lx[j].tap) * cs + s};
        if (cs == 1 && g->lanes.cd == 1 && taps_x == 3 && count_x == 3 && count_y) {
            struct TYPED(slide) slide = TYPED(make_slide)(count_y, list[0].a, list[1].a, list[count_y > 1 ? 3 : 0].a,
                                                          step * g->x_stride[2], g->x_stride[0]);
            int64_t done =
                slide.step ? TYPED(sum_slides)(g, slide, n, run, from + list[0].a, gout, sums + list[0].at * WIDTH) : 0;
            if (done) { /* one that is left finds its taps anew */
                run = done;
                continue;
            }
        }
        if (g->turned) {
            TYPED(sum_turned)(g, from, step, gout, n, run, list, count, sums, turns);
            continue;
        }
        if (joined) {
            TYPED(sum_rows)(g, from, g->x_stride[0], gout, g->gout_stride[0], n * run, list, count, sums, first);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            TYPED(sum_rows)
        (g, from + i * g->x_stride[0], step * g->x_stride[2], gout + i * g->gout_stride[0], g->gout_stride[2], run,
         list, count, sums, first);
    }
}

/* Sums over a share: some rows of gout of some images. Shares that follow each other have the same images and the next
 * rows, which need in part the same rows of x. */
static void TYPED(share_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct grad *g = arg;
    struct sum *list = g->list + (int64_t)thread * g->gw.shape[2] * g->gw.shape[3] * g->lanes.cs;
    TYPED(lane_indices) first = TYPED(first_indices)(&g->lanes), turns[MOST_TURNS];
    if (g->turned)
        TYPED(find_turns)(&g->lanes, turns, false);
    for (int64_t share = begin; share < end; share++) {
        T *sums = (T *)g->sums + share * g->share_size;
        int64_t of_images = share / g->row_shares, of_rows = share % g->row_shares;
        int64_t n0 = of_images * g->n / g->image_shares, n1 = (of_images + 1) * g->n / g->image_shares;
        memset(sums, 0, (size_t)g->share_size * sizeof(T));
        for (int64_t y = of_rows * g->rows / g->row_shares; y < (of_rows + 1) * g->rows / g->row_shares; y++)
            if (g->strips.applies)
                TYPED(sum_strip)(g, 2 * y, n0, n1, sums);
            else
                TYPED(sum_row)(g, y, n0, n1, list, sums, first, turns);
    }
}

/* Adds the shares of some blocks in order and writes them with the strides of gw. */
static void TYPED(total_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct grad *g = arg;
    const struct lanes *l = &g->lanes;
    int64_t shares = g->image_shares * g->row_shares;
    for (int64_t block = begin; block < end; block++) {
        int64_t lanes = TYPED(block_lanes)(l, block, l->cd);
        const T *sums = (const T *)g->sums + block * g->block_size;
        for (int64_t ky = 0; ky < g->gw.shape[2]; ky++)
            for (int64_t kx = 0; kx < g->gw.shape[3]; kx++)
                for (int64_t s = 0; s < l->cs; s++, sums += WIDTH) {
                    T *gw = (T *)g->gw.data + block * l->per_block * l->cd * g->gw.stride[0] + ky * g->gw.stride[2] +
                            kx * g->gw.stride[3];
                    V total = {0};
                    for (int64_t share = 0; share < shares; share++)
                        total += *(const V *)(sums + share * g->share_size);
                    if (!g->turned) {
                        for (int64_t i = 0; i < lanes; i++)
                            gw[i * g->gw.stride[0] + s * g->gw.stride[1]] = total[i];
                        continue;
                    }
                    /* Rotated sums: `of` is the channel of x, and s the distance from it to gout's. */
                    for (int64_t i = 0; i < lanes; i += l->cd)
                        for (int64_t of = 0; of < l->cd; of++) {
                            int64_t to = of + s < l->cd ? of + s : of + s - l->cd;
                            gw[(i + to) * g->gw.stride[0] + of * g->gw.stride[1]] = total[i + of];
                        }
                }
    }
}

#undef WIDTH
