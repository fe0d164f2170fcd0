/*
 * slot_cases.c - the comparisons. The CPU is asked for its plainest instruction set (YOKE_CPU_ISA=base), which fuses no
 * multiply-adds, as the GPU's kernels do not: what both compute by basic operations is then equal to the bit. What a
 * library's function computes (sin, pow, and the f64 ones) is compared within so many units of the last place. Every
 * result is compared with all the memory around it, so that a write beside the view shows.
 */
#include "tests/support/slot_pairs.h"

static const yk_device cuda = {YK_CUDA, 0};

static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {4, 0, 2}, {2, 40, 65}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* ---- memory ---- */
static void round_trip(const slot_case *self, slot_report *r)
{
    (void)self;
    static const size_t sizes[] = {1, 3, 256, 4097, (size_t)3 << 20};
    if (!slot_ready(r))
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !r->failed; i++) {
        void *memory = NULL;
        char *from = malloc(sizes[i]), *to = calloc(sizes[i], 1);
        for (size_t k = 0; k < sizes[i]; k++)
            from[k] = (char)slot_word(1, k);
        if (slot_done(r, "allocate", slot_gpu->allocate(0, sizes[i], &memory))) {
            if (slot_done(r, "upload", slot_gpu->upload(0, memory, from, sizes[i])) &&
                slot_done(r, "synchronize", slot_gpu->synchronize(0)) &&
                slot_done(r, "download", slot_gpu->download(0, to, memory, sizes[i])) && memcmp(from, to, sizes[i]))
                slot_fail(r, "%zu bytes came back different", sizes[i]);
            slot_gpu->release(0, memory, sizes[i]);
        }
        r->compared += (long)sizes[i];
        free(from);
        free(to);
    }
}

/* A block that is freed while work on it is queued, and taken again: through the caching allocator. */
static void order_of_reuse(const slot_case *self, slot_report *r)
{
    (void)self;
    if (!slot_ready(r))
        return;
    enum { N = 1000 };
    float *got = malloc(N * sizeof(float));
    for (int round = 0; round < 20 && !r->failed; round++) {
        yk__storage *x = yk__storage_create(cuda, N * sizeof(float)), *y = yk__storage_create(cuda, N * sizeof(float));
        if (!slot_done(r, "storage", x && y ? YK_OK : YK_ERR_MEMORY))
            break;
        yk__view vx = {.data = x->data, .dtype = YK_F32, .ndim = 1, .shape = {N}, .stride = {1}}, vy = vx;
        vy.data = y->data;
        slot_done(r, "fill", slot_gpu->fill(0, &vx, round));
        slot_done(r, "unary", slot_gpu->unary(0, YK__ADD_SCALAR, &vy, &vx, 1, 0));
        yk__storage_release(x);
        yk__storage *z = yk__storage_create(cuda, N * sizeof(float));
        yk__view vz = vx;
        vz.data = z->data;
        slot_done(r, "fill", slot_gpu->fill(0, &vz, -1));
        slot_done(r, "download", slot_gpu->download(0, got, vy.data, N * sizeof(float)));
        for (int i = 0; i < N; i++, r->compared++)
            if (got[i] != (float)round + 1)
                slot_fail(r, "round %d: element %d is %g", round, i, (double)got[i]);
        yk__storage_release(y);
        yk__storage_release(z);
    }
    free(got);
}

/* ---- elementwise ---- */
static void fill_case(const slot_case *self, slot_report *r)
{
    (void)self;
    static const double values[] = {0, 1, -3.5, 1e30, NAN};
    for (int dtype = 0; dtype < YK__DTYPES && slot_ready(r) && !r->failed; dtype++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                pair p;
                double value = values[(dtype + shape + layout) % 5];
                if (pair_make(&p, r, (yk_dtype)dtype, 3, shapes[shape], layout) &&
                    slot_done(r, "cpu", slot_cpu->fill(0, &p.cpu, value)) &&
                    slot_done(r, "cuda", slot_gpu->fill(0, &p.gpu, value)))
                    pair_compare(r, "fill", &p, 0);
                pair_free(&p);
            }
}

static void copy_case(const slot_case *self, slot_report *r)
{
    for (int from = 0; from < YK__DTYPES && slot_ready(r) && !r->failed; from++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS * (LAYOUTS + 1); layout++) {
                pair out = {0}, in = {0};
                if (pair_make(&out, r, (yk_dtype)self->op, 3, shapes[shape], layout % LAYOUTS) &&
                    pair_make(&in, r, (yk_dtype)from, 3, shapes[shape], layout / LAYOUTS) &&
                    pair_fill(&in, r, (uint32_t)(from * 10 + layout)) &&
                    slot_done(r, "cpu", slot_cpu->copy(0, &out.cpu, &in.cpu)) &&
                    slot_done(r, "cuda", slot_gpu->copy(0, &out.gpu, &in.gpu)))
                    pair_compare(r, yk_dtype_name((yk_dtype)from), &out, 0);
                pair_free(&in);
                pair_free(&out);
            }
}

/* The columns of one matrix from four, one of them cast. */
static void copy_parts_case(const slot_case *self, slot_report *r)
{
    enum { PARTS = 4, ROWS = 33 };
    static const int64_t widths[PARTS] = {20, 1, 64, 17};
    static const yk_dtype dtypes[] = {YK_U8, YK_BF16, YK_F32, YK_F64};
    (void)self;
    for (int k = 0; k < 4 * LAYOUTS && slot_ready(r) && !r->failed; k++) {
        pair out = {0}, ins[PARTS];
        yk__view cpu_outs[PARTS], gpu_outs[PARTS], cpu_ins[PARTS], gpu_ins[PARTS];
        int64_t at = 0, whole[2] = {ROWS, 102};
        memset(ins, 0, sizeof(ins));
        bool made = pair_make(&out, r, dtypes[k % 4], 2, whole, k / 4);
        for (int i = 0; i < PARTS && made; i++) {
            int64_t shape[2] = {ROWS, widths[i]}, size = (int64_t)yk_dtype_size(dtypes[k % 4]);
            made = pair_make(&ins[i], r, i == 1 ? YK_F16 : dtypes[k % 4], 2, shape, (k + i) % LAYOUTS) &&
                   pair_fill(&ins[i], r, (uint32_t)(k * PARTS + i));
            cpu_ins[i] = ins[i].cpu, gpu_ins[i] = ins[i].gpu;
            cpu_outs[i] = out.cpu, gpu_outs[i] = out.gpu;
            cpu_outs[i].shape[1] = gpu_outs[i].shape[1] = widths[i];
            cpu_outs[i].data = (char *)out.cpu.data + at * out.cpu.stride[1] * size;
            gpu_outs[i].data = (char *)out.gpu.data + at * out.gpu.stride[1] * size;
            at += widths[i];
        }
        if (made && slot_done(r, "cpu", slot_cpu->copy_parts(0, PARTS, cpu_outs, cpu_ins)) &&
            slot_done(r, "cuda", slot_gpu->copy_parts(0, PARTS, gpu_outs, gpu_ins)))
            pair_compare(r, "copy_parts", &out, 0);
        for (int i = 0; i < PARTS; i++)
            pair_free(&ins[i]);
        pair_free(&out);
    }
}

/* Images of several sizes, with all that a crop may be: inside, beyond each side, of nothing, mirrored. */
static void augment_case(const slot_case *self, slot_report *r)
{
    enum { N = 7, C = 3, OUT_H = 6, OUT_W = 9 };
    static const yk__crop crops[N] = {
        {0, 8, 10, 1, 1, 0},  {240, 6, 9, 0, 0, 1},  {402, 8, 10, -3, 4, 0}, {642, 5, 4, -1, -2, 1},
        {702, 0, 0, 0, 0, 0}, {702, 4, 7, 3, -8, 1}, {786, 9, 12, 9, 0, 0},
    };
    const int64_t bytes[] = {786 + C * 9 * 12}, out_shape[] = {N, C, OUT_H, OUT_W}, list[] = {N, YK__CROP_NUMBERS};
    (void)self;
    for (int k = 0; k < 4 && slot_ready(r) && !r->failed; k++) {
        yk_dtype dtype = k % 2 ? YK_F64 : YK_F32;
        const int64_t table_shape[] = {k / 2 ? C : 1, 256};
        pair out = {0}, images = {0}, windows = {0}, table = {0};
        bool made =
            pair_make(&out, r, dtype, 4, out_shape, C_ORDER) && pair_make(&images, r, YK_U8, 1, bytes, C_ORDER) &&
            pair_make(&windows, r, YK_I64, 2, list, C_ORDER) && pair_make(&table, r, dtype, 2, table_shape, C_ORDER) &&
            pair_fill(&images, r, (uint32_t)k) && pair_fill(&table, r, (uint32_t)k + 10);
        if (made)
            memcpy(windows.cpu.data, crops, sizeof(crops));
        if (made && pair_upload(&windows, r) &&
            slot_done(r, "cpu", slot_cpu->augment(0, &out.cpu, &images.cpu, &windows.cpu, &table.cpu)) &&
            slot_done(r, "cuda", slot_gpu->augment(0, &out.gpu, &images.gpu, &windows.gpu, &table.gpu)))
            pair_compare(r, yk_dtype_name(dtype), &out, 0);
        pair_free(&table);
        pair_free(&windows);
        pair_free(&images);
        pair_free(&out);
    }
}

/* Units of the last place that functions of a library may be apart. */
static double unary_room(int op, yk_dtype dtype)
{
    switch (op) {
    case YK__SIN:
    case YK__COS: return 2; /* great arguments go to the library */
    case YK__TAN: return 6; /* likewise, twice */
    case YK__LOG1P:
    case YK__EXPM1:
    case YK__ERF: return 4; /* the library's */
    case YK__POW_SCALAR: return dtype == YK_F64 ? 4 : 0;
    case YK__ATANH: return 4;
    case YK__ASIN:
    case YK__ACOS:
    case YK__LOG2:
    case YK__LOG10:
    case YK__EXP:
    case YK__LOG:
    case YK__TANH:
    case YK__SIGMOID: return dtype == YK_F64 ? 4 : 0;
    case YK__GELU: return dtype == YK_F64 ? 16 : 0;
    case YK__GELU_TANH:
    case YK__SILU:
    case YK__MISH:
    case YK__LOG_SIGMOID:
    case YK__ELU:
    case YK__SOFTPLUS:
    case YK__SOFTPLUS_SLOPE: return dtype == YK_F64 ? 8 : 0;
    default: return 0;
    }
}

static void unary_case(const slot_case *self, slot_report *r)
{
    static const double parameters[][2] = {{2, 3}, {0.5, 1}, {-1, 1}, {3, -2}, {1.7, 2.5}};
    yk__unary op = (yk__unary)self->op;
    for (int dtype = 0; dtype < YK__DTYPES && slot_ready(r) && !r->failed; dtype++) {
        yk_dtype result = op == YK__LOGICAL_NOT || op == YK__IS_FINITE ? YK_BOOL : (yk_dtype)dtype;
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS + 1; layout++) {
                pair out = {0}, in = {0};
                const double *p = parameters[(shape + layout) % 5];
                if (op == YK__POW_SCALAR && !yk_dtype_is_floating((yk_dtype)dtype) && p[0] != floor(p[0]))
                    p = parameters[0];
                if (pair_make(&out, r, result, 3, shapes[shape], layout == EXPANDED ? C_ORDER : LAYOUTS - 1 - layout) &&
                    pair_make(&in, r, (yk_dtype)dtype, 3, shapes[shape], layout) &&
                    pair_fill(&in, r, (uint32_t)(dtype * 10 + layout))) {
                    yk_status cpu = slot_cpu->unary(0, op, &out.cpu, &in.cpu, p[0], p[1]);
                    yk_clear_error();
                    if (slot_both(r, yk_dtype_name((yk_dtype)dtype), cpu,
                                  slot_gpu->unary(0, op, &out.gpu, &in.gpu, p[0], p[1])))
                        pair_compare(r, yk_dtype_name((yk_dtype)dtype), &out, unary_room(op, (yk_dtype)dtype));
                }
                pair_free(&in);
                pair_free(&out);
            }
    }
}

static void binary_case(const slot_case *self, slot_report *r)
{
    static const double alphas[] = {1, -2, 0.75};
    yk__binary op = (yk__binary)self->op;
    bool truth = op >= YK__EQ && op <= YK__OR;
    for (int dtype = 0; dtype < YK__DTYPES && slot_ready(r) && !r->failed; dtype++) {
        bool activation = op >= YK__GELU_GRAD && op < YK__ABS_GRAD;
        double room = op == YK__POW && dtype == YK_F64 ? 4 : activation && dtype == YK_F64 ? 32 : 0;
        if (op == YK__KL_DIV && dtype == YK_F64)
            room = 1 << 24; /* its terms cancel out */
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS + 1; layout++) {
                pair out = {0}, x = {0}, y = {0};
                double alpha = alphas[(shape + layout) % 3];
                if (pair_make(&out, r, truth ? YK_BOOL : (yk_dtype)dtype, 3, shapes[shape], layout % LAYOUTS) &&
                    pair_make(&x, r, (yk_dtype)dtype, 3, shapes[shape], layout) &&
                    pair_make(&y, r, (yk_dtype)dtype, 3, shapes[shape], LAYOUTS - layout) &&
                    pair_fill(&x, r, (uint32_t)(dtype * 10 + layout)) &&
                    pair_fill(&y, r, (uint32_t)(dtype * 10 + layout + 5))) {
                    yk_status cpu = slot_cpu->binary(0, op, &out.cpu, &x.cpu, &y.cpu, alpha);
                    yk_clear_error();
                    if (slot_both(r, yk_dtype_name((yk_dtype)dtype), cpu,
                                  slot_gpu->binary(0, op, &out.gpu, &x.gpu, &y.gpu, alpha)))
                        pair_compare(r, yk_dtype_name((yk_dtype)dtype), &out, room);
                }
                pair_free(&y);
                pair_free(&x);
                pair_free(&out);
            }
    }
}

static void where_case(const slot_case *self, slot_report *r)
{
    (void)self;
    for (int dtype = 0; dtype < YK__DTYPES && slot_ready(r) && !r->failed; dtype++)
        for (int shape = 0; shape < SHAPES; shape++) {
            pair out = {0}, c = {0}, x = {0}, y = {0};
            if (pair_make(&out, r, (yk_dtype)dtype, 3, shapes[shape], REVERSED) &&
                pair_make(&c, r, YK_BOOL, 3, shapes[shape], EXPANDED) &&
                pair_make(&x, r, (yk_dtype)dtype, 3, shapes[shape], GAPS) &&
                pair_make(&y, r, (yk_dtype)dtype, 3, shapes[shape], C_ORDER) && pair_fill(&c, r, 1) &&
                pair_fill(&x, r, 2) && pair_fill(&y, r, 3) &&
                slot_done(r, "cpu", slot_cpu->where(0, &out.cpu, &c.cpu, &x.cpu, &y.cpu)) &&
                slot_done(r, "cuda", slot_gpu->where(0, &out.gpu, &c.gpu, &x.gpu, &y.gpu)))
                pair_compare(r, yk_dtype_name((yk_dtype)dtype), &out, 0);
            pair_free(&y);
            pair_free(&x);
            pair_free(&c);
            pair_free(&out);
        }
}

/* A tensor with more elements than one round of the grid takes. */
static void large_case(const slot_case *self, slot_report *r)
{
    (void)self;
    pair out = {0}, x = {0}, y = {0};
    const int64_t shape[] = {700, 1001};
    if (slot_ready(r) && pair_make(&out, r, YK_F32, 2, shape, C_ORDER) &&
        pair_make(&x, r, YK_F32, 2, shape, REVERSED) && pair_make(&y, r, YK_F32, 2, shape, C_ORDER) &&
        pair_fill(&x, r, 4) && pair_fill(&y, r, 5) &&
        slot_done(r, "cpu", slot_cpu->binary(0, YK__MUL, &out.cpu, &x.cpu, &y.cpu, 1)) &&
        slot_done(r, "cuda", slot_gpu->binary(0, YK__MUL, &out.gpu, &x.gpu, &y.gpu, 1)))
        pair_compare(r, "float32", &out, 0);
    pair_free(&y);
    pair_free(&x);
    pair_free(&out);
}

/* clang-format off */
#define UNARY(op)  {"unary", #op, unary_case, YK__##op}
#define BINARY(op) {"binary", #op, binary_case, YK__##op}
#define COPY(to)   {"copy", #to, copy_case, YK_##to}
static const slot_case cases[] = {
    {"memory", "round_trip", round_trip, 0},
    {"memory", "order_of_reuse", order_of_reuse, 0},
    {"fill", "all", fill_case, 0},
    {"copy_parts", "all", copy_parts_case, 0},
    {"augment", "all", augment_case, 0},
    COPY(F32), COPY(F64), COPY(F16), COPY(BF16), COPY(I64), COPY(I32), COPY(U8), COPY(BOOL),
    UNARY(NEG), UNARY(ABS), UNARY(EXP), UNARY(LOG), UNARY(SQRT), UNARY(RSQRT), UNARY(RECIPROCAL), UNARY(SIN), UNARY(COS),
    UNARY(TANH), UNARY(LOG1P), UNARY(EXPM1), UNARY(ERF), UNARY(SIGMOID), UNARY(RELU), UNARY(GELU), UNARY(GELU_TANH), UNARY(SILU),
    UNARY(MISH), UNARY(LOG_SIGMOID), UNARY(HARDSWISH), UNARY(HARDSIGMOID), UNARY(LEAKY_RELU), UNARY(ELU),
    UNARY(SOFTPLUS), UNARY(SOFTPLUS_SLOPE), UNARY(THRESHOLD), UNARY(HARDSHRINK),
    UNARY(SOFTSHRINK), UNARY(SIGN), UNARY(FLOOR), UNARY(CEIL), UNARY(ROUND),
    UNARY(LOGICAL_NOT), UNARY(IS_FINITE), UNARY(ADD_SCALAR), UNARY(MUL_SCALAR), UNARY(POW_SCALAR), UNARY(CLAMP),
    BINARY(ADD), BINARY(SUB), BINARY(MUL), BINARY(DIV), BINARY(POW), BINARY(MAXIMUM), BINARY(MINIMUM), BINARY(ATAN2), BINARY(FLOOR_DIVIDE), BINARY(TRUNC_DIVIDE), BINARY(REMAINDER),
    BINARY(FMOD), BINARY(EQ),
    BINARY(NE), BINARY(LT), BINARY(LE), BINARY(GT), BINARY(GE), BINARY(AND), BINARY(OR), BINARY(RELU_GRAD),
    BINARY(TANH_GRAD), BINARY(SIGMOID_GRAD), BINARY(GELU_GRAD), BINARY(GELU_TANH_GRAD), BINARY(SILU_GRAD),
    BINARY(MISH_GRAD), BINARY(LOG_SIGMOID_GRAD), BINARY(HARDSWISH_GRAD), BINARY(HARDSIGMOID_GRAD),
    BINARY(LEAKY_RELU_GRAD), BINARY(ELU_GRAD), BINARY(THRESHOLD_GRAD), BINARY(SHRINK_GRAD),
    BINARY(SMOOTH_L1), BINARY(SMOOTH_L1_GRAD), BINARY(KL_DIV), BINARY(ABS_GRAD),
    {"where", "all", where_case, 0},
    {"binary", "large", large_case, 0},
    {NULL, NULL, NULL, 0},
};
/* clang-format on */

const slot_case *slot_cases(void)
{
    static slot_case all[200];
    const slot_case *const lists[] = {
        cases,           slot_training_cases, slot_network_cases, slot_index_cases, slot_model_cases,
        slot_pack_cases, slot_norm_cases};
    size_t n = 0;
    for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
        for (const slot_case *c = lists[l]; c->name && n + 1 < sizeof(all) / sizeof(all[0]); c++)
            all[n++] = *c;
    all[n] = (slot_case){0};
    return all;
}
