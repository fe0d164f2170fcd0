/*
 * conv_planes_body.h - depthwise convolutions along the rows of planes, for one vector type; included by conv_planes.c
 * with T, V, VU (V at any address), M (a choice of lanes), Q (16 bytes of T), FMA_WHERE, LOAD_WHERE, STORE_WHERE, LANES
 * and TYPED(name) defined.
 */
#define WIDTH      ((int64_t)(sizeof(V) / sizeof(T)))
#define TAPS(y, x) YK__UNROLL for (int y = 0; y < ny; y++) YK__UNROLL for (int x = 0; x < 3; x++)

/* Outputs [x, x + WIDTH): those that exist, and that see a column of their windows. */
struct TYPED(edge) {
    int64_t x;
    M exist, sees[3];
};
/* All strips but those that are inside: the first, and up to two at the end. */
struct TYPED(edges) {
    int64_t begin, end; /* of those that are inside */
    int count;
    struct TYPED(edge) of[3];
};

static void TYPED(find_edges)(const struct planes *p, struct TYPED(edges) * edges)
{
    int64_t last = p->columns + p->padding[1] - 2;
    last = last < p->out_columns ? last : p->out_columns;
    edges->begin = p->padding[1] ? WIDTH : 0;
    edges->end = last > edges->begin ? last - (last - edges->begin) % WIDTH : edges->begin;
    edges->count = 0;
    for (int64_t x = 0; x < p->out_columns; x += WIDTH) {
        if (x == edges->begin && edges->end > x)
            x = edges->end;
        if (x >= p->out_columns)
            break;
        struct TYPED(edge) *e = &edges->of[edges->count++];
        e->x = x;
        e->exist = LANES(0, p->out_columns - x);
        for (int64_t k = 0; k < 3; k++) {
            int64_t first = p->padding[1] - k - x, after = p->columns + first;
            e->sees[k] = LANES(first, after < p->out_columns - x ? after : p->out_columns - x);
        }
    }
}

/* Computes outputs [x, x + WIDTH) of all rows: sum[i] is that of the i-th row of those that the current row of the
 * source belongs to, beginning with the one that it completes. */
static inline __attribute__((always_inline)) void TYPED(strip_of)(const struct planes *p, const T *src, T *dst,
                                                                  const V w[3][3], V bias, int64_t x,
                                                                  const struct TYPED(edge) * edge, const int ny)
{
    const int64_t rows = p->rows, columns = p->columns, out_rows = p->out_rows, out_columns = p->out_columns;
    const bool inside = edge == NULL; /* a constant: the function is inlined */
    M sees[3] = {0}, exist = {0};
    if (edge) {
        YK__UNROLL for (int k = 0; k < 3; k++) sees[k] = edge->sees[k];
        exist = edge->exist;
    }
    V sum[3];
    YK__UNROLL for (int i = 0; i < ny; i++) sum[i] = bias;
    int64_t y = p->padding[0] - (ny - 1);
    const T *a = src + x - p->padding[1];
    T *to = dst + x + y * out_columns;
    for (int64_t r = 0; r < rows; r++, y++, a += columns, to += out_columns) {
        YK__UNROLL for (int k = 0; k < 3; k++)
        {
            V v = inside ? (V) * (const VU *)(a + k) : LOAD_WHERE(a + k, sees[k]);
            YK__KEEP(v);
            YK__UNROLL for (int i = 0; i < ny; i++)
            {
                if (inside)
                    sum[i] += v * w[ny - 1 - i][k];
                else
                    sum[i] = FMA_WHERE(sum[i], v, w[ny - 1 - i][k], sees[k]);
            }
        }
        if (y >= 0) {
            if (inside)
                *(VU *)to = sum[0];
            else
                STORE_WHERE(to, sum[0], exist, out_columns - x);
        }
        YK__UNROLL for (int i = 0; i < ny; i++) sum[i] = i + 1 < ny ? sum[i + 1] : bias;
    }
    for (; y < out_rows; y++, to += out_columns) {
        if (inside)
            *(VU *)to = sum[0];
        else
            STORE_WHERE(to, sum[0], exist, out_columns - x);
        YK__UNROLL for (int i = 0; i < ny; i++) sum[i] = i + 1 < ny ? sum[i + 1] : bias;
    }
}

/* Computes the strips [begin, end) of windows of one row, which lie inside: row by row. */
static inline void TYPED(rows_of)(const struct planes *p, const T *src, T *dst, const V w[3], V bias, int64_t begin,
                                  int64_t end)
{
    const V w0 = w[0], w1 = w[1], w2 = w[2];
    for (int64_t y = 0; y < p->rows; y++, dst += p->out_columns, src += p->columns)
        for (int64_t x = begin; x < end; x += WIDTH) {
            const T *a = src + x - p->padding[1];
            *(VU *)(dst + x) = bias + *(const VU *)a * w0 + *(const VU *)(a + 1) * w1 + *(const VU *)(a + 2) * w2;
        }
}

static inline __attribute__((always_inline)) void TYPED(plane_of)(const struct planes *p,
                                                                  const struct TYPED(edges) * edges, int64_t n,
                                                                  int64_t c, const int ny)
{
    const T *src = (const T *)p->src + n * p->src_image + c * p->rows * p->columns;
    T *dst = (T *)p->dst + n * p->dst_image + c * p->out_rows * p->out_columns;
    const T *weights = (const T *)p->w + c * p->w_channel;
    V w[3][3], bias = (V){0} + (p->bias ? ((const T *)p->bias)[c] : 0);
    TAPS(i, k)
    w[i][k] = (V){0} + weights[(p->backward ? ny - 1 - i : i) * p->w_tap[0] + (p->backward ? 2 - k : k) * p->w_tap[1]];
    if (ny == 1)
        TYPED(rows_of)(p, src, dst, w[0], bias, edges->begin, edges->end);
    else
        for (int64_t x = edges->begin; x < edges->end; x += WIDTH)
            TYPED(strip_of)(p, src, dst, w, bias, x, NULL, ny);
    for (int i = 0; i < edges->count; i++)
        TYPED(strip_of)(p, src, dst, w, bias, edges->of[i].x, &edges->of[i], ny);
}

/* Adds one row of x, three vectors, to the sums: `grad` are the rows of gout that its taps belong to, of which those
 * exist that begin with the one `y` above the last. */
#define ROW_SUMS(exists)                                                                                               \
    YK__UNROLL for (int k = 0; k < 3; k++)                                                                             \
    {                                                                                                                  \
        V v = inside ? (V) * (const VU *)(a + k) : LOAD_WHERE(a + k, sees[k]);                                         \
        YK__KEEP(v);                                                                                                   \
        YK__UNROLL for (int i = 0; i < ny; i++)                                                                        \
        {                                                                                                              \
            if (!(exists))                                                                                             \
                continue;                                                                                              \
            if (inside)                                                                                                \
                sum[i][k] += v * grad[i];                                                                              \
            else                                                                                                       \
                sum[i][k] = FMA_WHERE(sum[i][k], v, grad[i], sees[k]);                                                 \
        }                                                                                                              \
    }

/* Adds the products of outputs [x0, x0 + WIDTH) of all rows to the sums of the taps, lane by lane; grad[i] is the row
 * of gout whose tap i meets the current row of x. */
static inline __attribute__((always_inline)) void TYPED(strip_sums_of)(const struct planes *p, const T *x,
                                                                       const T *gout, V sum[3][3], int64_t x0,
                                                                       const struct TYPED(edge) * edge, const int ny)
{
    const int64_t rows = p->rows, columns = p->columns, out_rows = p->out_rows, out_columns = p->out_columns;
    const bool inside = edge == NULL;
    M sees[3] = {0}, exist = {0};
    if (edge) {
        YK__UNROLL for (int k = 0; k < 3; k++) sees[k] = edge->sees[k];
        exist = edge->exist;
    }
    V grad[3];
    YK__UNROLL for (int i = 0; i < ny; i++) grad[i] = (V){0};
    const T *a = x + x0 - p->padding[1], *g = gout + x0;
    int64_t y = 0;
#define NEXT_GRAD()                                                                                                    \
    YK__UNROLL for (int i = ny - 1; i > 0; i--) grad[i] = grad[i - 1];                                                 \
    if (y < out_rows)                                                                                                  \
        grad[0] = inside ? (V) * (const VU *)g : LOAD_WHERE(g, exist);                                                 \
    y++, g += out_columns;
    for (; y < p->padding[0];) { /* rows of gout before the first row of x is their tap 0 */
        NEXT_GRAD()
    }
    int64_t r = 0; /* y == r + padding: the row of gout that grad[0] will be */
    for (; r < rows && y < ny - 1; r++, a += columns) {
        NEXT_GRAD()
        ROW_SUMS(y - 1 - i >= 0 && y - 1 - i < out_rows)
    }
    for (; r < rows && y < out_rows; r++, a += columns) {
        NEXT_GRAD()
        ROW_SUMS(true)
    }
    for (; r < rows; r++, a += columns) {
        NEXT_GRAD()
        ROW_SUMS(y - 1 - i >= 0 && y - 1 - i < out_rows)
    }
#undef NEXT_GRAD
}
#undef ROW_SUMS

/* Sums of the gradient of the weight, over rows as in rows_of. */
static inline void TYPED(rows_sums_of)(const struct planes *p, const T *x, const T *gout, V *totals, int64_t begin,
                                       int64_t end)
{
    for (int64_t y = 0; y < p->rows; y++, x += p->columns, gout += p->out_columns)
        for (int64_t first = begin, last; first < end; first = last) {
            last = end - first > SUM_LENGTH * WIDTH ? first + SUM_LENGTH * WIDTH : end;
            V sum[3] = {{0}};
            for (int64_t i = first; i < last; i += WIDTH) {
                V grad = *(const VU *)(gout + i);
                YK__UNROLL for (int k = 0; k < 3; k++) sum[k] += *(const VU *)(x + i - p->padding[1] + k) * grad;
            }
            YK__UNROLL for (int k = 0; k < 3; k++) totals[k] += sum[k];
        }
}

/* Adds the sums of one plane to the totals of its channel, ny x 3 vectors. */
static inline __attribute__((always_inline)) void TYPED(plane_sums_of)(const struct planes *p,
                                                                       const struct TYPED(edges) * edges, int64_t n,
                                                                       int64_t c, V *totals, const int ny)
{
    const T *x = (const T *)p->src + n * p->src_image + c * p->rows * p->columns;
    const T *gout = (const T *)p->gout + n * p->dst_image + c * p->out_rows * p->out_columns;
    V sum[3][3];
    int64_t products = 0;
    TAPS(i, k) sum[i][k] = (V){0};
    if (ny == 1)
        TYPED(rows_sums_of)(p, x, gout, totals, edges->begin, edges->end);
    else
        for (int64_t x0 = edges->begin; x0 < edges->end; x0 += WIDTH) {
            TYPED(strip_sums_of)(p, x, gout, sum, x0, NULL, ny);
            products += p->rows;
            if (products < SUM_LENGTH)
                continue;
            TAPS(i, k)
            {
                totals[i * 3 + k] += sum[i][k];
                sum[i][k] = (V){0};
            }
            products = 0;
        }
    for (int i = 0; i < edges->count; i++)
        TYPED(strip_sums_of)(p, x, gout, sum, edges->of[i].x, &edges->of[i], ny);
    TAPS(i, k) totals[i * 3 + k] += sum[i][k];
}

static T TYPED(sum_of_lanes)(V v)
{
    union {
        V v;
        Q q[sizeof(V) / sizeof(Q)];
    } u = {v};
    Q sum = u.q[0];
    for (size_t i = 1; i < sizeof(V) / sizeof(Q); i++)
        sum += u.q[i];
    T total = sum[0] + sum[sizeof(Q) / sizeof(T) / 2];
    if (sizeof(Q) / sizeof(T) == 4)
        total += sum[1] + sum[sizeof(Q) / sizeof(T) - 1];
    return total;
}

#define OF_ROWS(ny)                                                                                                    \
    static void TYPED(planes_##ny)(void *arg, int64_t begin, int64_t end, int thread)                                  \
    {                                                                                                                  \
        (void)thread;                                                                                                  \
        const struct planes *p = arg;                                                                                  \
        struct TYPED(edges) edges;                                                                                     \
        TYPED(find_edges)(p, &edges);                                                                                  \
        for (int64_t i = begin; i < end; i++)                                                                          \
            TYPED(plane_of)(p, &edges, i / p->channels, i % p->channels, ny);                                          \
    }                                                                                                                  \
    /* Sums blocks of channels of a share of the images, share after share. */                                         \
    static void TYPED(sums_##ny)(void *arg, int64_t begin, int64_t end, int thread)                                    \
    {                                                                                                                  \
        (void)thread;                                                                                                  \
        const struct planes *p = arg;                                                                                  \
        struct TYPED(edges) edges;                                                                                     \
        TYPED(find_edges)(p, &edges);                                                                                  \
        V totals[MOST_CHANNELS][ny * 3];                                                                               \
        for (int64_t piece = begin; piece < end; piece++) {                                                            \
            int64_t share = piece / p->blocks, c0 = piece % p->blocks * p->block, rest = p->channels - c0;             \
            int64_t count = rest < p->block ? rest : p->block;                                                         \
            memset(totals, 0, (size_t)count * sizeof totals[0]);                                                       \
            for (int64_t n = share * p->n / p->shares; n < (share + 1) * p->n / p->shares; n++)                        \
                for (int64_t c = 0; c < count; c++)                                                                    \
                    TYPED(plane_sums_of)(p, &edges, n, c0 + c, totals[c], ny);                                         \
            T *to = (T *)p->sums + (share * p->channels + c0) * ny * 3;                                                \
            for (int64_t c = 0; c < count; c++)                                                                        \
                for (int k = 0; k < ny * 3; k++)                                                                       \
                    *to++ = TYPED(sum_of_lanes)(totals[c][k]);                                                         \
        }                                                                                                              \
    }
OF_ROWS(1)
OF_ROWS(2)
OF_ROWS(3)
#undef OF_ROWS
#undef TAPS
#undef WIDTH

static const struct kernels TYPED(kernels) = {
    {TYPED(planes_1), TYPED(planes_2), TYPED(planes_3)}, {TYPED(sums_1), TYPED(sums_2), TYPED(sums_3)}, sizeof(V)};
