/*
 * gemm_vector_body.h - products of a matrix and a vector, and of two vectors, of one dtype. Layer: device/cpu. Included
 * by gemm.c, after gemm_body.h, with T, V, VU and TYPED(name) defined.
 *
 * They read (or write) the matrix once and where it is: there is nothing to pack. An element of the result is summed in
 * the same order whatever the number of threads, and in parts, so that rounding does not grow with the depth.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))

/* Computes `rows` dot products of rows of the matrix and x. */
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

/* part (columns) += `rows` rows of the matrix, each times a number of x. */
static inline __attribute__((always_inline)) void TYPED(add_rows)(const struct vector_product *p, T *part, int64_t at,
                                                                  int64_t columns, int64_t row, const int rows)
{
    const T *m = (const T *)p->matrix + at + row * p->column, *x = (const T *)p->x + row;
    int64_t j = 0;
    for (; j + WIDTH <= columns; j += WIDTH) {
        V sum = *(const VU *)(part + j);
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            sum += x[i] * *(const VU *)(m + i * p->column + j);
        *(VU *)(part + j) = sum;
    }
    if (j < columns) { /* part has whole vectors */
        V sum = *(const VU *)(part + j);
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            sum += x[i] * TYPED(load_some)(m + i * p->column + j, columns - j);
        *(VU *)(part + j) = sum;
    }
}

/* Adds up columns of the matrix, each times a number of x: a few rows at a time, from left to right, in which order
 * memory is fetched ahead; the sums stay in the first-level cache. */
static void TYPED(sums_of_columns)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct vector_product *p = arg;
    enum { COLUMNS = VECTOR_COLUMN_BYTES / sizeof(T) };
    for (int64_t piece = begin; piece < end; piece++) {
        T total[COLUMNS] = {0}, part[COLUMNS] __attribute__((aligned(64)));
        int64_t at = piece * COLUMNS, columns = p->rows - at < COLUMNS ? p->rows - at : COLUMNS;
        for (int64_t row = 0, to; row < p->depth; row = to) {
            to = p->depth - row < VECTOR_DEPTH ? p->depth : row + VECTOR_DEPTH;
            memset(part, 0, sizeof part);
            for (; row + 8 <= to; row += 8)
                TYPED(add_rows)(p, part, at, columns, row, 8);
            for (; row < to; row++)
                TYPED(add_rows)(p, part, at, columns, row, 1);
            for (int64_t j = 0; j < columns; j++)
                total[j] += part[j];
        }
        T *y = (T *)p->y + at * p->y_step;
        for (int64_t j = 0; j < columns; j++) {
            T value = total[j] + (p->bias ? ((const T *)p->bias)[(at + j) * p->bias_step] : 0);
            y[j * p->y_step] = p->accumulate ? y[j * p->y_step] + value : value;
        }
    }
}

/* Computes rows of a product whose depth is one: b times a number, and the bias. */
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
