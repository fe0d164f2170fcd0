/*
 * gemm_micro_body.h - the tile kernels of one dtype; included by gemm_micro.c with T (float, double), V and VU (its
 * vectors, aligned and not) and TYPED(name) defined.
 */
#define WIDTH ((int)(sizeof(V) / sizeof(T)))

/* Writes a finished tile where C has strides, an edge, or only some of the columns. */
static __attribute__((noinline)) void TYPED(finish)(const yk__gemm_tile *t, const T *sums, int rows, int width)
{
    T *c = t->c;
    const T *bias = t->bias;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < t->cols; j++) {
            T *to = c + i * t->ldc + j * t->csc;
            T sum = sums[i * width + j];
            if (bias)
                sum += bias[j];
            *to = t->accumulate ? *to + sum : sum;
        }
}

static inline __attribute__((always_inline)) void TYPED(tile)(const yk__gemm_tile *t, const int rows, const int vectors,
                                                              const bool columns, const bool fetching)
{
    V sum[YK__GEMM_ROWS][YK__GEMM_VECTORS];
    const int64_t lda = t->lda, ldb = t->ldb, k = t->k, fetch_step = t->fetch_step;
    YK__UNROLL
    for (int i = 0; i < rows; i++)
        YK__UNROLL
    for (int j = 0; j < vectors; j++)
        sum[i][j] = (V){0};
    if (t->accumulate || t->far) {
        /* The memory that is added to, or written, comes from far away; the products take long enough to fetch it. */
        T *c = t->c;
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            YK__UNROLL
        for (int j = 0; j < vectors; j++)
            __builtin_prefetch(c + i * t->ldc + j * (64 / (int)sizeof(T)), 1);
    }
    for (int64_t s = 0; s < t->n_steps; s++) {
        const T *a = (const T *)t->a + t->steps[s].a;
        const T *b = (const T *)t->b + t->steps[s].b;
        /* Few enough pointers to stay in registers: a row is a base and up to two times lda. */
        const T *r0 = a, *r3 = a + 3 * lda, *r6 = a + 6 * lda, *r9 = a + 9 * lda, *r12 = a + 12 * lda;
        const char *fetch = fetching ? t->fetch + t->steps[s].a * t->fetch_a : NULL;
        YK__UNROLL_K
        for (int64_t l = 0; l < k; l++) {
            if (fetching) {
                __builtin_prefetch(fetch, 0, 2);
                fetch += fetch_step;
            }
            V right[YK__GEMM_VECTORS];
            YK__UNROLL
            for (int j = 0; j < vectors; j++)
                right[j] = *(const VU *)(b + j * WIDTH);
            YK__UNROLL
            for (int i = 0; i < rows; i++) {
                const T *base = i < 3 ? r0 : i < 6 ? r3 : i < 9 ? r6 : i < 12 ? r9 : r12;
                T left = columns ? a[i] : base[i % 3 * lda + l];
                YK__UNROLL
                for (int j = 0; j < vectors; j++)
                    sum[i][j] += left * right[j];
            }
            b += ldb;
            if (columns)
                a += lda;
        }
    }
    if (t->csc == 1 && t->cols == vectors * WIDTH) {
        T *c = t->c;
        if (t->bias) {
            YK__UNROLL
            for (int j = 0; j < vectors; j++) {
                V bias = *(const VU *)((const T *)t->bias + j * WIDTH);
                YK__UNROLL
                for (int i = 0; i < rows; i++)
                    sum[i][j] += bias;
            }
        }
        if (t->accumulate) {
            YK__UNROLL
            for (int i = 0; i < rows; i++)
                YK__UNROLL
            for (int j = 0; j < vectors; j++)
                *(VU *)(c + i * t->ldc + j * WIDTH) += sum[i][j];
        } else {
            YK__UNROLL
            for (int i = 0; i < rows; i++)
                YK__UNROLL
            for (int j = 0; j < vectors; j++)
                *(VU *)(c + i * t->ldc + j * WIDTH) = sum[i][j];
        }
        return;
    }
    T sums[YK__GEMM_ROWS * YK__GEMM_VECTORS * WIDTH];
    YK__UNROLL
    for (int i = 0; i < rows; i++)
        YK__UNROLL
    for (int j = 0; j < vectors; j++)
        *(VU *)(sums + (i * vectors + j) * WIDTH) = sum[i][j];
    TYPED(finish)(t, sums, rows, vectors * WIDTH);
}

#define KERNEL(rows, vectors)                                                                                          \
    static void TYPED(rows_##rows##x##vectors)(const yk__gemm_tile *t)                                                 \
    {                                                                                                                  \
        TYPED(tile)(t, rows, vectors, false, false);                                                                   \
    }                                                                                                                  \
    static void TYPED(columns_##rows##x##vectors)(const yk__gemm_tile *t)                                              \
    {                                                                                                                  \
        TYPED(tile)(t, rows, vectors, true, false);                                                                    \
    }                                                                                                                  \
    static void TYPED(fetching_##rows##x##vectors)(const yk__gemm_tile *t)                                             \
    {                                                                                                                  \
        TYPED(tile)(t, rows, vectors, false, true);                                                                    \
    }
#define ENTRY_ROWS(rows, vectors)     TYPED(rows_##rows##x##vectors),
#define ENTRY_COLUMNS(rows, vectors)  TYPED(columns_##rows##x##vectors),
#define ENTRY_FETCHING(rows, vectors) TYPED(fetching_##rows##x##vectors),
YK__GEMM_EACH_ROWS(KERNEL, 1)
YK__GEMM_EACH_ROWS(KERNEL, 2)
const yk__gemm_kernel TYPED(yk__gemm_kernels)[YK__GEMM_MODES][YK__GEMM_VECTORS][YK__GEMM_ROWS] = {
    {{YK__GEMM_EACH_ROWS(ENTRY_ROWS, 1)}, {YK__GEMM_EACH_ROWS(ENTRY_ROWS, 2)}},
    {{YK__GEMM_EACH_ROWS(ENTRY_COLUMNS, 1)}, {YK__GEMM_EACH_ROWS(ENTRY_COLUMNS, 2)}},
    {{YK__GEMM_EACH_ROWS(ENTRY_FETCHING, 1)}, {YK__GEMM_EACH_ROWS(ENTRY_FETCHING, 2)}},
};

#undef KERNEL
#undef ENTRY_ROWS
#undef ENTRY_COLUMNS
#undef ENTRY_FETCHING
#undef WIDTH
