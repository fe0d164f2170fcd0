/*
 * gemm_vector_body.h - products of a matrix and a vector, and of two vectors, of one dtype. Layer: device/cpu. Included
 * by gemm.c, after gemm_body.h, with T, V, VU and TYPED(name) defined.
 *
 * They read (or write) the matrix once and where it is: there is nothing to pack. An element of the result is summed in
 * the same order whatever the number of threads, and in parts, so that rounding does not grow with the depth.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))

/* rows dot products of rows of the matrix and x. */
static inline __attribute__((always_inline)) void TYPED(vector_dots)(const struct vector_product *p, int64_t row,
                                                                     const int rows)
{
    const T *m = (const T *)p->matrix + row * p->row, *x = p->x;
    T total[4] = {0}, part[4];
    for (int64_t from = 0; from < p->depth; from += VECTOR_DEPTH) {
        int64_t l = from, to = p->depth - from < VECTOR_DEPTH ? p->depth : from + VECTOR_DEPTH;
        V sum[4] = {{0}}, more[4] = {{0}};
        for (; l + 2 * WIDTH <= to; l += 2 * WIDTH) {
            V x0 = *(const VU *)(x + l), x1 = *(const VU *)(x + l + WIDTH);
            YK__UNROLL
            for (int i = 0; i < rows; i++) {
                sum[i] += *(const VU *)(m + i * p->row + l) * x0;
                more[i] += *(const VU *)(m + i * p->row + l + WIDTH) * x1;
            }
        }
        for (; l < to; l += WIDTH) {
            V x0 = TYPED(load_some)(x + l, to - l);
            YK__UNROLL
            for (int i = 0; i < rows; i++)
                sum[i] += TYPED(load_some)(m + i * p->row + l, to - l) * x0;
        }
        YK__UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] += more[i];
        TYPED(add_up)(sum, part);
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            total[i] += part[i];
    }
    for (int i = 0; i < rows; i++) {
        T *y = (T *)p->y + (row + i) * p->y_step;
        T value = total[i] + (p->bias ? ((const T *)p->bias)[(row + i) * p->bias_step] : 0);
        *y = p->accumulate ? *y + value : value;
    }
}

static void TYPED(dots_of_rows)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct vector_product *p = arg;
    int64_t row = begin;
    for (; row + 4 <= end; row += 4)
        TYPED(vector_dots)(p, row, 4);
    for (; row < end; row++)
        TYPED(vector_dots)(p, row, 1);
}

/* Sums of columns of the matrix, each times a number of x: `vectors` vectors of results at a time, the last of `last`
 * lanes. */
static inline __attribute__((always_inline)) void TYPED(vector_columns)(const struct vector_product *p, int64_t at,
                                                                        const int vectors, int64_t last)
{
    const T *x = p->x;
    T *y = (T *)p->y + at * p->y_step;
    V total[VECTOR_COLUMNS] = {{0}};
    for (int64_t from = 0; from < p->depth; from += VECTOR_DEPTH) {
        const T *m = (const T *)p->matrix + at + from * p->column;
        int64_t to = p->depth - from < VECTOR_DEPTH ? p->depth : from + VECTOR_DEPTH;
        V sum[VECTOR_COLUMNS] = {{0}};
        for (int64_t l = from; l < to; l++, m += p->column) {
            YK__UNROLL
            for (int v = 0; v < vectors - 1; v++)
                sum[v] += x[l] * *(const VU *)(m + v * WIDTH);
            sum[vectors - 1] += x[l] * TYPED(load_some)(m + (vectors - 1) * WIDTH, last);
        }
        YK__UNROLL
        for (int v = 0; v < vectors; v++)
            total[v] += sum[v];
    }
    for (int v = 0; v < vectors; v++) {
        int64_t lanes = v < vectors - 1 ? WIDTH : last;
        for (int64_t i = 0; i < lanes; i++) {
            int64_t to = v * WIDTH + i;
            T value = total[v][i] + (p->bias ? ((const T *)p->bias)[(at + to) * p->bias_step] : 0);
            y[to * p->y_step] = p->accumulate ? y[to * p->y_step] + value : value;
        }
    }
}

static void TYPED(sums_of_columns)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct vector_product *p = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t at = piece * VECTOR_COLUMNS * WIDTH, rest = p->rows - at;
        if (rest >= VECTOR_COLUMNS * WIDTH) {
            TYPED(vector_columns)(p, at, VECTOR_COLUMNS, WIDTH);
            continue;
        }
        for (; rest >= 4 * WIDTH; at += 4 * WIDTH, rest -= 4 * WIDTH)
            TYPED(vector_columns)(p, at, 4, WIDTH);
        for (; rest > 0; at += WIDTH, rest -= WIDTH)
            TYPED(vector_columns)(p, at, 1, rest < WIDTH ? rest : WIDTH);
    }
}

/* Rows of a matrix whose depth is one: b times a number, and the bias. */
static void TYPED(outer_rows)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const yk__gemm_product *p = arg;
    const T *b = p->b, *bias = p->bias;
    for (int64_t i = begin; i < end; i++) {
        T a = ((const T *)p->a)[i * p->a_row], *restrict c = (T *)p->c + i * p->c_row;
        if (p->accumulate) {
            for (int64_t j = 0; j < p->n; j++)
                c[j] += a * b[j] + (bias ? bias[j] : 0);
        } else if (bias) {
            for (int64_t j = 0; j < p->n; j++)
                c[j] = a * b[j] + bias[j];
        } else {
            for (int64_t j = 0; j < p->n; j++)
                c[j] = a * b[j];
        }
    }
}

#undef WIDTH
