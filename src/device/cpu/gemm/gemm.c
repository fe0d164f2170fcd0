/*
 * gemm.c - the matrix product slot. Layer: device/cpu.
 *
 * gemm_bf16.c takes bf16. For the others there are seven algorithms, chosen by shape and strides alone. Matrices of a
 * few numbers are a loop. Some rows times a large B in order of k are computed as the transposed product, so that B is
 * read once, without a copy. Other large products in f32 go to oneDNN, with AVX-512. A dimension of 1 makes it a matrix
 * and a vector, or two vectors (gemm_vector_body.h). Few rows or columns of operands that are both in order of k are
 * dot products. Small products, and those of few rows, use B's rows where they are; all others pack B in panels, a
 * block of k at a time, and take rows of A in blocks that stay in L2. Each element of the result is summed in the same
 * order whatever the number of threads.
 */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/cpu_onednn.h"
#include "device/cpu/gemm/gemm_product.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* k of one block, rows of A in one piece of work: at most 224 KiB of A in f32, which stay in the second-level cache.
 * Sums are cut at BLOCK_DEPTH: another number gives other last bits. */
#define BLOCK_DEPTH 512
#define BLOCK_ROWS  (YK__GEMM_ROWS * 8)
/* Set by the instruction set alone, so that all processes on one kind of processor round alike: with AVX-512 oneDNN's
 * products of transformers and LSTMs are up to 1.7 times as fast as ours; on processors with AVX2 alone they are up to
 * three times slower (bench/notes/README.md). */
#if defined(__AVX512F__)
#define ONEDNN_SERVES 1
#else
#define ONEDNN_SERVES 0
#endif
/* Multiply-adds from which an f32 product goes there: its start costs show below that. And those of all matrices of the
 * call: small networks, whose products are no faster by it (64 x 784 x 128), then do without the 9 MB that it takes. */
#define ONEDNN_WORK  ((int64_t)4 << 20)
#define ONEDNN_WHOLE ((int64_t)16 << 20)
/* Multiply-adds below which a product is not worth a second thread. */
#define SERIAL_WORK (256 * 1024)

struct blocked {
    yk__gemm_product p;
    void *packed;
    char *scratch; /* of each thread: a block of A */
    int64_t scratch_bytes;
    int64_t k0, k1, depth; /* this block of k; the largest */
    int64_t rows, panels, groups;
    bool copy; /* A's rows are copied: they lie so far apart that they would share a few cache sets, or not in order */
};

/* A product made of dot products. The bias of row i and column j is at i * bias_row + j * bias_col. */
struct dot_products {
    yk__gemm_product p;
    int64_t bias_row, bias_col;
};
/* Depth that is summed at a time. */
enum { DOTS_DEPTH = 4096 };
/* Multiply-adds of a product that is a loop of its own: choosing another algorithm would take longer. */
enum { TINY_WORK = 128 };

/* Products of some rows of A and a large B in order of k (run_turned): k of B's columns that are copied to the
 * first-level cache, and from one to the next; products of a sum; bytes of packed A that stay in the second-level
 * cache; rows of A, and bytes of B, from which it was measured to be faster than oneDNN. */
enum { TURNED_DEPTH = 256, TURNED_LD = TURNED_DEPTH + 16, TURNED_SUM = 128, TURNED_BYTES = 512 * 1024 };
enum { TURNED_LEAST_ROWS = 33, TURNED_MOST_ROWS = 64, TURNED_LEAST_BYTES = 16 * 1024 * 1024 };

/* y (rows) = the matrix (rows, depth) times x (depth), dense, and a bias. One of the matrix's strides is 1. */
struct vector_product {
    int64_t rows, depth;
    const void *matrix, *x, *bias; /* bias: NULL or one for each row, bias_step apart */
    void *y;
    int64_t row, column, y_step, bias_step;
    bool accumulate;
};
/* Depth that is summed at a time, of rows; bytes of results that are summed together, where columns are added. */
enum { VECTOR_DEPTH = 4096, VECTOR_COLUMN_BYTES = 4096 };

#if defined(__AVX512F__)
static inline yk__vf32 masked_f32(const float *from, int64_t count)
{
    return (yk__vf32)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}
static inline yk__vf64 masked_f64(const double *from, int64_t count)
{
    return (yk__vf64)_mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), from);
}
#endif

/* The sums of four vectors' elements: always halves, then quarters, and so on. */
static inline void add_up_f32(const yk__vf32 v[4], float total[4])
{
    typedef float quad __attribute__((vector_size(16)));
    union {
        yk__vf32 v;
        quad q[YK__VECTOR_BYTES / 16];
    } u;
    quad s[4];
    for (int j = 0; j < 4; j++) {
        u.v = v[j];
        s[j] = u.q[0];
        for (int i = 1; i < YK__VECTOR_BYTES / 16; i++)
            s[j] += u.q[i];
    }
    quad a = __builtin_shufflevector(s[0], s[1], 0, 4, 1, 5) + __builtin_shufflevector(s[0], s[1], 2, 6, 3, 7);
    quad b = __builtin_shufflevector(s[2], s[3], 0, 4, 1, 5) + __builtin_shufflevector(s[2], s[3], 2, 6, 3, 7);
    quad all = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    memcpy(total, &all, sizeof all);
}

static inline void add_up_f64(const yk__vf64 v[4], double total[4])
{
    for (int j = 0; j < 4; j++) {
        double sum = 0;
        for (int i = 0; i < YK__VECTOR_BYTES / 8; i++)
            sum += v[j][i];
        total[j] = sum;
    }
}

#define TYPED(name)  TYPED_(name)
#define T            float
#define V            yk__vf32
#define VU           yk__vf32u
#define TYPED_(name) name##_f32
#include "device/cpu/gemm/gemm_body.h"

#include "device/cpu/gemm/gemm_vector_body.h"
#undef T
#undef V
#undef VU
#undef TYPED_

#define T            double
#define V            yk__vf64
#define VU           yk__vf64u
#define TYPED_(name) name##_f64
#include "device/cpu/gemm/gemm_body.h"

#include "device/cpu/gemm/gemm_vector_body.h"

/* Computes a matrix times a vector; *taken is false where neither rows nor columns of the matrix are dense. */
static yk_status run_vector(int device, const yk__gemm_product *p, bool f32, bool *taken)
{
    bool of_b = p->m == 1; /* the matrix is B, and A the vector */
    struct vector_product v = {.rows = of_b ? p->n : p->m,
                               .depth = p->k,
                               .matrix = of_b ? p->b : p->a,
                               .x = of_b ? p->a : p->b,
                               .bias = p->bias,
                               .y = p->c,
                               .row = of_b ? p->b_col : p->a_row,
                               .column = of_b ? p->b_k : p->a_k,
                               .y_step = of_b ? p->c_col : p->c_row,
                               .bias_step = of_b,
                               .accumulate = p->accumulate};
    int64_t step = of_b ? p->a_k : p->b_k, size = f32 ? 4 : 8;
    *taken = v.column == 1 || v.row == 1;
    if (!*taken)
        return YK_OK;
    yk__storage *handle = NULL;
    if (step != 1 && p->k > 1) {
        char *dense = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)(p->k * size), &handle);
        if (!dense)
            return yk__error_code();
        for (int64_t l = 0; l < p->k; l++)
            memcpy(dense + l * size, (const char *)v.x + l * step * size, (size_t)size);
        v.x = dense;
    }
    int64_t columns = VECTOR_COLUMN_BYTES / size;
    if (v.column == 1) {
        int64_t grain = SERIAL_WORK / p->k / 4 * 4;
        yk__cpu_parallel(device, v.rows, grain < 4 ? 4 : grain, f32 ? dots_of_rows_f32 : dots_of_rows_f64, &v);
    } else {
        int64_t grain = SERIAL_WORK / p->k / columns;
        yk__cpu_parallel(device, yk__ceil_div(v.rows, columns), grain < 1 ? 1 : grain,
                         f32 ? sums_of_columns_f32 : sums_of_columns_f64, &v);
    }
    if (handle)
        yk__storage_release(handle);
    return YK_OK;
}

static yk_status run_blocked(int device, const yk__gemm_product *p, bool f32)
{
    int64_t size = f32 ? 4 : 8, panel = 2 * YK__VECTOR_BYTES / size;
    struct blocked g = {.p = *p};
    int64_t depths = yk__ceil_div(p->k, BLOCK_DEPTH);
    g.depth = depths ? yk__ceil_div(p->k, depths) : 0;
    g.panels = yk__ceil_div(p->n, panel);
    int64_t blocks = yk__ceil_div(p->m, BLOCK_ROWS);
    g.rows = yk__ceil_div(p->m, blocks);
    blocks = yk__ceil_div(p->m, g.rows);
    g.groups = blocks >= 8 ? 1 : yk__ceil_div(8, blocks);
    /* A piece packs its rows of A, so it should have a few panels to use them on. */
    g.groups = g.groups < g.panels / 4 ? g.groups : g.panels / 4;
    g.groups = g.groups < 1 ? 1 : g.groups;
    g.copy = p->mode == YK__GEMM_A_ROWS && (p->a_k != 1 || (p->a_row * size % 2048 == 0 && p->n > 4 * panel));

    bool serial = p->m * p->n * p->k < SERIAL_WORK;
    int64_t threads = serial ? 1 : yk__cpu_threads(device);
    int64_t own = yk__ceil_div(g.rows + YK__GEMM_ROWS, 1) * (g.depth + 16) * size;
    g.scratch_bytes = yk__ceil_div(own, 64) * 64;
    int64_t packed_bytes = yk__ceil_div(g.panels * panel * g.depth * size, 64) * 64;
    yk__storage *handle;
    g.packed = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                 (size_t)(packed_bytes + threads * g.scratch_bytes), &handle);
    if (!g.packed)
        return yk__error_code();
    g.scratch = (char *)g.packed + packed_bytes;
    yk__range_fn pack = f32 ? pack_piece_f32 : pack_piece_f64, run = f32 ? block_piece_f32 : block_piece_f64;
    do {
        g.k1 = g.k0 + g.depth < p->k ? g.k0 + g.depth : p->k;
        if (serial) {
            pack(&g, 0, g.panels, 0);
            run(&g, 0, blocks * g.groups, 0);
        } else {
            yk__cpu_parallel(device, g.panels, 1, pack, &g);
            yk__cpu_parallel(device, blocks * g.groups, 1, run, &g);
        }
        g.k0 = g.k1;
    } while (g.k0 < p->k);
    yk__storage_release(handle);
    return YK_OK;
}

/* True for few rows or few columns, with both operands in order of k. A dot product ends with the sum of its lanes,
 * which pays where packing B, or lanes of missing columns, would take longer. */
static bool dot_products_pay(const yk__gemm_product *p)
{
    if (p->a_k != 1 || p->b_k != 1 || p->k < 2)
        return false;
    return p->m <= 8 || (p->m <= 14 && p->k >= 128) || (p->n <= 4 && p->k >= 64) || (p->n <= 14 && p->k >= 256);
}

/* Computes dot products of all rows of A and all columns of B; of the fewer of the two four are taken at a time. */
static void run_dot_products(int device, const yk__gemm_product *p, bool f32)
{
    struct dot_products d = {.p = *p, .bias_col = 1};
    if (p->n < p->m) {
        d.p.m = p->n, d.p.n = p->m;
        d.p.a = p->b, d.p.b = p->a;
        d.p.a_row = p->b_col, d.p.b_col = p->a_row;
        d.p.c_row = p->c_col, d.p.c_col = p->c_row;
        d.bias_row = 1, d.bias_col = 0;
    }
    int64_t pieces = yk__ceil_div(d.p.n, 4), grain = SERIAL_WORK / (d.p.m * d.p.k * 4);
    yk__cpu_parallel(device, pieces, grain < 1 ? 1 : grain, f32 ? run_dots_f32 : run_dots_f64, &d);
}

/* Rows of B that are walked side by side, no more than the first-level TLB has entries. */
enum { IN_PLACE_DEPTH = 128 };
/* Multiplies few rows of A and rows of B: see panels_in_place. */
static yk_status run_panels_in_place(int device, const yk__gemm_product *p, bool f32)
{
    int64_t size = f32 ? 4 : 8, panel = 2 * YK__VECTOR_BYTES / size;
    struct blocked g = {.p = *p, .depth = p->k < IN_PLACE_DEPTH ? p->k : IN_PLACE_DEPTH};
    g.scratch_bytes = yk__ceil_div(g.depth * panel * size, 64) * 64;
    yk__storage *handle;
    g.scratch = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                  (size_t)(yk__cpu_threads(device) * g.scratch_bytes), &handle);
    if (!g.scratch)
        return yk__error_code();
    int64_t grain = SERIAL_WORK / (p->m * p->k * panel);
    yk__cpu_parallel(device, yk__ceil_div(p->n, panel), grain < 1 ? 1 : grain,
                     f32 ? panels_in_place_f32 : panels_in_place_f64, &g);
    yk__storage_release(handle);
    return YK_OK;
}

/* True for a batch times the weights of a linear layer, which are read once, from memory: packing them would take as
 * long as reading them, and the packed weights of a whole product do not stay in the cache. */
static bool turned_pays(const yk__gemm_product *p, int64_t size)
{
    return p->m >= TURNED_LEAST_ROWS && p->m <= TURNED_MOST_ROWS && p->b_k == 1 && p->b_col >= p->k && p->c_col == 1 &&
           (p->a_k == 1 || p->a_row == 1) && p->n * p->k * size >= TURNED_LEAST_BYTES && p->k >= TURNED_DEPTH;
}

static yk_status run_turned(int device, const yk__gemm_product *p, bool f32)
{
    int64_t size = f32 ? 4 : 8, panel = 2 * YK__VECTOR_BYTES / size;
    struct blocked g = {.p = *p, .panels = yk__ceil_div(p->m, panel)};
    int64_t depths = yk__ceil_div(p->k * g.panels * panel * size, TURNED_BYTES);
    g.depth = yk__ceil_div(yk__ceil_div(p->k, depths), TURNED_DEPTH) * TURNED_DEPTH;
    g.scratch_bytes = yk__ceil_div(YK__GEMM_ROWS * (TURNED_LD + g.panels * panel) * size, 64) * 64;
    int64_t packed_bytes = g.panels * panel * g.depth * size;
    yk__storage *handle;
    g.packed = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                 (size_t)(packed_bytes + yk__cpu_threads(device) * g.scratch_bytes), &handle);
    if (!g.packed)
        return yk__error_code();
    g.scratch = (char *)g.packed + packed_bytes;
    for (; g.k0 < p->k; g.k0 = g.k1) {
        g.k1 = g.k0 + g.depth < p->k ? g.k0 + g.depth : p->k;
        yk__cpu_parallel(device, g.panels, 1, f32 ? pack_turned_f32 : pack_turned_f64, &g);
        yk__cpu_parallel(device, yk__ceil_div(p->n, YK__GEMM_ROWS), 4, f32 ? turned_piece_f32 : turned_piece_f64, &g);
    }
    yk__storage_release(handle);
    return YK_OK;
}

/* `whole`: multiply-adds of all matrices of the call. */
static yk_status run_product(int device, yk__gemm_product *p, yk_dtype dtype, int64_t whole)
{
    bool f32 = dtype == YK_F32;
    int64_t size = f32 ? 4 : 8;
    if (!p->m || !p->n)
        return YK_OK;
    /* A result in column order is the transposed product in row order. */
    if (p->c_col != 1 && p->c_row == 1 && p->n > 1 && p->m > 1 && !p->bias) {
        *p = (yk__gemm_product){.m = p->n,
                                .n = p->m,
                                .k = p->k,
                                .a = p->b,
                                .b = p->a,
                                .c = p->c,
                                .a_row = p->b_col,
                                .a_k = p->b_k,
                                .b_k = p->a_k,
                                .b_col = p->a_row,
                                .c_row = p->c_col,
                                .c_col = 1,
                                .accumulate = p->accumulate};
    }
    if (dtype == YK_BF16)
        return yk__gemm_bf16(device, p);
    if (p->m * p->n * p->k <= TINY_WORK) {
        if (f32)
            run_tiny_f32(p);
        else
            run_tiny_f64(p);
        return YK_OK;
    }
    if (p->k == 1)
        p->a_k = 1;
    if (p->m == 1 && p->a_k != 1)
        p->a_row = 1;
    if (p->n == 1 && p->b_k != 1)
        p->b_col = 1;
    bool a_plain = (p->a_k == 1 && p->a_row >= p->k) || (p->a_row == 1 && p->a_k >= p->m);
    bool b_plain = (p->b_col == 1 && p->b_k >= p->n) || (p->b_k == 1 && p->b_col >= p->k);
    if (turned_pays(p, size))
        return run_turned(device, p, f32);
    /* Read once, where it is; in rows that begin within a cache line oneDNN is faster. */
    bool few = p->b_col == 1 ? p->m <= YK__GEMM_ROWS && p->b_k * size % 64 == 0 : p->m <= 8;
    if (ONEDNN_SERVES && f32 && !few && a_plain && b_plain && p->c_col == 1 && !(p->bias && p->accumulate) &&
        p->k > 1 && p->m * p->n * p->k >= ONEDNN_WORK && whole >= ONEDNN_WHOLE && yk__onednn_there()) {
        bool a_turned = p->a_k != 1, b_turned = p->b_col != 1;
        return yk__onednn_sgemm(device, &(yk__sgemm){.m = p->m,
                                                     .n = p->n,
                                                     .k = p->k,
                                                     .lda = a_turned ? p->a_k : p->a_row,
                                                     .ldb = b_turned ? p->b_col : p->b_k,
                                                     .ldc = p->c_row,
                                                     .a = p->a,
                                                     .b = p->b,
                                                     .bias = p->bias,
                                                     .c = p->c,
                                                     .a_transposed = a_turned,
                                                     .b_transposed = b_turned,
                                                     .accumulate = p->accumulate});
    }
    p->mode = p->a_k != 1 && p->a_row == 1 ? YK__GEMM_A_COLUMNS : YK__GEMM_A_ROWS;
    bool rows_in_order = p->a_k == 1 || p->a_row == 1;
    if (dot_products_pay(p)) {
        run_dot_products(device, p, f32);
        return YK_OK;
    }
    if (p->k == 1 && p->n >= 16 && p->b_col == 1 && p->c_col == 1) {
        yk__cpu_parallel(device, p->m, yk__ceil_div(SERIAL_WORK, p->n), f32 ? outer_rows_f32 : outer_rows_f64, p);
        return YK_OK;
    }
    if ((p->m == 1 || p->n == 1) && p->k > 1) {
        bool taken;
        yk_status status = run_vector(device, p, f32, &taken);
        if (status || taken)
            return status;
    }
    if (p->b_col == 1 && rows_in_order && p->k <= 2 * BLOCK_DEPTH && (p->m <= 2 * YK__GEMM_ROWS || p->k <= 32) &&
        p->m * p->n * p->k < SERIAL_WORK) {
        yk__storage *handle = NULL;
        void *memory = NULL;
        int64_t lanes = YK__VECTOR_BYTES / size, width = yk__ceil_div(p->n % (2 * lanes), lanes) * lanes;
        if (p->n % lanes && (p->accumulate || p->n < width)) {
            memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)(p->k * 2 * YK__VECTOR_BYTES + 1),
                                       &handle);
            if (!memory)
                return yk__error_code();
        }
        if (f32)
            run_direct_f32(p, memory);
        else
            run_direct_f64(p, memory);
        if (handle)
            yk__storage_release(handle);
        return YK_OK;
    }
    if (p->m <= YK__GEMM_ROWS && p->b_col == 1 && p->c_col == 1 && rows_in_order && p->k > 1)
        return run_panels_in_place(device, p, f32);
    return run_blocked(device, p, f32);
}

struct batch {
    int device;
    const yk__view *out, *a, *b;
    const void *bias;
    bool accumulate;
    yk_error first; /* of the pieces that failed */
    atomic_flag taken;
};

static yk_status run_matrix(const struct batch *s, int64_t i)
{
    const yk__view *out = s->out, *a = s->a, *b = s->b;
    int64_t size = (int64_t)yk_dtype_size(out->dtype);
    yk__gemm_product p = {.m = out->shape[1],
                          .n = out->shape[2],
                          .k = a->shape[2],
                          .a = (const char *)a->data + i * a->stride[0] * size,
                          .b = (const char *)b->data + i * b->stride[0] * size,
                          .c = (char *)out->data + i * out->stride[0] * size,
                          .bias = s->bias,
                          .a_row = a->stride[1],
                          .a_k = a->stride[2],
                          .b_k = b->stride[1],
                          .b_col = b->stride[2],
                          .c_row = out->stride[1],
                          .c_col = out->stride[2],
                          .accumulate = s->accumulate};
    return run_product(s->device, &p, (yk_dtype)out->dtype, out->shape[0] * p.m * p.n * p.k);
}

static void batch_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    struct batch *s = arg;
    for (int64_t i = begin; i < end; i++)
        if (run_matrix(s, i) && !atomic_flag_test_and_set(&s->taken))
            yk__error_take(&s->first);
}

static yk_status gemm(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                      bool accumulate)
{
    struct batch s = {
        .device = device, .out = out, .a = a, .b = b, .accumulate = accumulate, .taken = ATOMIC_FLAG_INIT};
    yk__storage *handle = NULL;
    if (bias) {
        s.bias = bias->data;
        if (bias->stride[0] != 1 && bias->shape[0] > 1) {
            size_t size = yk_dtype_size(bias->dtype);
            char *dense =
                yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)bias->shape[0] * size, &handle);
            if (!dense)
                return yk__error_code();
            for (int64_t i = 0; i < bias->shape[0]; i++)
                memcpy(dense + (size_t)i * size, (const char *)bias->data + i * bias->stride[0] * (int64_t)size, size);
            s.bias = dense;
        }
    }
    int64_t batch = out->shape[0], work = out->shape[1] * out->shape[2] * a->shape[2];
    yk_status status = YK_OK;
    if (batch == 1) {
        status = run_matrix(&s, 0);
    } else if (batch >= 8 || work < SERIAL_WORK) {
        /* Each matrix is computed on one thread. */
        int64_t grain = work ? SERIAL_WORK / work : SERIAL_WORK;
        yk__cpu_parallel(device, batch, grain < 1 ? 1 : grain, batch_piece, &s);
        if (s.first.code) {
            yk__error_put(&s.first);
            status = s.first.code;
        }
    } else {
        for (int64_t i = 0; i < batch && !status; i++)
            status = run_matrix(&s, i);
    }
    if (handle)
        yk__storage_release(handle);
    return status;
}

void YK__ISA_NAME(yk__cpu_fill_gemm)(yk__backend *table)
{
    table->gemm = gemm;
    if (yk__gemm_bf16_there())
        table->takes[YK__SLOT_gemm] |= 1 << YK_BF16;
}
