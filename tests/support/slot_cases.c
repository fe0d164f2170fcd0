/*
 * slot_cases.c - the comparisons. The CPU is asked for its plainest instruction set (YOKE_CPU_ISA=base), which fuses no
 * multiply-adds, as the GPU's kernels do not: what both compute by basic operations is then equal to the bit. What a
 * library's function computes (sin, pow, and the f64 ones) is compared within so many units of the last place. Every
 * result is compared with all the memory around it, so that a write beside the view shows.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/convert.h"
#include "device/table.h"
#include "tests/support/slot_cases.h"

enum { C_ORDER, REVERSED, GAPS, LAYOUTS, EXPANDED = LAYOUTS };

/* A view of the host's memory and the same of the GPU's. */
typedef struct pair {
    yk__view cpu, gpu;
    size_t bytes;
} pair;

static const yk_device cuda = {YK_CUDA, 0}, host = {YK_CPU, 0};
static const yk__backend *a, *b; /* the CPU's and the GPU's */

static void fail(slot_report *r, const char *format, ...) YK_PRINTF(2, 3);
static void fail(slot_report *r, const char *format, ...)
{
    if (r->failed)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->text, sizeof(r->text), format, arguments);
    va_end(arguments);
    r->failed = true;
}

/* Whether the call succeeded; if not, its error is the case's. */
static bool done(slot_report *r, const char *what, yk_status status)
{
    if (!status && !yk_last_error())
        return !r->failed;
    fail(r, "%s: %s", what, yk_last_error() ? yk_last_error()->message : "failed without a record");
    yk_clear_error();
    return false;
}

static bool ready(slot_report *r)
{
    a = yk__backend_of(host);
    b = yk__device_check(cuda) ? NULL : yk__backend_of(cuda);
    if (!b)
        done(r, "cuda", yk__error_code());
    return a && b;
}

static uint32_t word(uint32_t seed, uint64_t i)
{
    uint32_t words[4];
    yk__philox((yk__stream){seed, YK__RANDOM_TEST, 1}, i, words);
    return words[0];
}

static bool pair_make(pair *p, slot_report *r, yk_dtype dtype, int ndim, const int64_t *shape, int layout)
{
    int64_t step = layout == GAPS ? 2 : 1, count = 1;
    *p = (pair){.cpu = {.dtype = dtype, .ndim = ndim}};
    for (int i = 0; i < ndim; i++) {
        int d = layout == REVERSED ? i : ndim - 1 - i;
        bool repeated = layout == EXPANDED && d == 0;
        p->cpu.shape[d] = shape[d];
        p->cpu.stride[d] = repeated ? 0 : step;
        if (!repeated)
            step = step * (shape[d] > 0 ? shape[d] : 1) + (layout == GAPS);
    }
    for (int d = 0; d < ndim; d++)
        count = shape[d] == 0 || count == 0 ? 0 : count + (shape[d] - 1) * p->cpu.stride[d];
    p->bytes = (size_t)count * yk_dtype_size(dtype);
    p->gpu = p->cpu;
    p->cpu.data = malloc(p->bytes + 1);
    memset(p->cpu.data, 0x5A, p->bytes);
    return done(r, "allocate", b->allocate(0, p->bytes ? p->bytes : 1, &p->gpu.data)) &&
           done(r, "upload", b->upload(0, p->gpu.data, p->cpu.data, p->bytes));
}

static void pair_free(pair *p)
{
    free(p->cpu.data);
    if (p->gpu.data)
        b->release(0, p->gpu.data, p->bytes ? p->bytes : 1);
}

/* Numbers of all sizes, of both signs, and what is special. */
static double number(uint32_t seed, uint64_t i, yk_dtype dtype)
{
    static const double special[] = {0.0,    -0.0,     1.0,           -1.0,  0.5,    -0.5,   2.0,
                                     NAN,    INFINITY, -INFINITY,     1e-40, -1e-40, 1e38,   -3e38,
                                     5e-324, 16777217, -2147483649.0, 255,   256,    65519.9};
    uint32_t w = word(seed, i), choice = word(seed + 1000, i) % 8;
    double unit = (double)(w >> 8) * 0x1p-23 - 1.0; /* [-1, 1) */
    bool floating = yk_dtype_is_floating(dtype);
    if (choice == 0)
        return special[w % (floating ? 20 : 7)];
    if (!floating)
        return floor(unit * (choice == 1 ? 3e9 : 20));
    return choice == 1 ? ldexp(unit, (int)(w % 200) - 100) : unit * (choice < 5 ? 4 : 90);
}

static bool pair_fill(pair *p, slot_report *r, uint32_t seed)
{
    size_t size = yk_dtype_size(p->cpu.dtype);
    for (size_t i = 0; i < p->bytes / size; i++)
        yk__store_scalar((char *)p->cpu.data + i * size, p->cpu.dtype, number(seed, i, p->cpu.dtype));
    return done(r, "upload", b->upload(0, p->gpu.data, p->cpu.data, p->bytes));
}

static double value_at(const void *memory, yk_dtype dtype, size_t i)
{
    switch (dtype) {
    case YK_F32: return (double)((const float *)memory)[i];
    case YK_F64: return ((const double *)memory)[i];
    case YK_F16: return (double)yk__from_f16(((const uint16_t *)memory)[i]);
    case YK_BF16: return (double)yk__from_bf16(((const uint16_t *)memory)[i]);
    case YK_I64: return (double)((const int64_t *)memory)[i];
    case YK_I32: return ((const int32_t *)memory)[i];
    default: return ((const uint8_t *)memory)[i];
    }
}

/* Distance of x from y in units of y's last place. */
static double ulps(double x, double y, yk_dtype dtype)
{
    if (x == y || (isnan(x) && isnan(y)))
        return 0;
    if (!isfinite(x) || !isfinite(y))
        return INFINITY;
    int digits = dtype == YK_F64 ? 53 : 24, least = dtype == YK_F64 ? -1074 : -149, exponent;
    frexp(y, &exponent);
    return fabs(x - y) / ldexp(1, exponent - digits < least ? least : exponent - digits);
}

/* All of the memory: the view's elements and what lies between them. `room` in units of the last place, 0: to the bit,
 * where any NaN is like another. */
static void compare(slot_report *r, const char *what, const pair *p, double room)
{
    if (r->failed)
        return;
    yk_dtype dtype = p->cpu.dtype;
    size_t size = yk_dtype_size(dtype);
    char *got = malloc(p->bytes + 1);
    if (done(r, "download", b->download(0, got, p->gpu.data, p->bytes))) {
        for (size_t i = 0; i < p->bytes / size; i++) {
            r->compared++;
            if (memcmp(got + i * size, (char *)p->cpu.data + i * size, size) == 0)
                continue;
            double x = value_at(got, dtype, i), y = value_at(p->cpu.data, dtype, i), distance = ulps(x, y, dtype);
            bool zeros = x == 0 && y == 0 && room == 0; /* of two signs */
            if (distance > r->worst)
                r->worst = distance;
            if ((distance > room || zeros || !yk_dtype_is_floating(dtype)) && !(isnan(x) && isnan(y)))
                fail(r,
                     "%s: element %zu of %zu (%s) is %.17g, the CPU has %.17g: %.3g units of the last place, %.3g "
                     "allowed",
                     what, i, p->bytes / size, yk_dtype_name(dtype), x, y, distance, room);
        }
    }
    free(got);
}

static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {4, 0, 2}, {2, 40, 65}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* ---- memory ---- */
static void round_trip(const slot_case *self, slot_report *r)
{
    (void)self;
    static const size_t sizes[] = {1, 3, 256, 4097, (size_t)3 << 20};
    if (!ready(r))
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !r->failed; i++) {
        void *memory = NULL;
        char *from = malloc(sizes[i]), *to = calloc(sizes[i], 1);
        for (size_t k = 0; k < sizes[i]; k++)
            from[k] = (char)word(1, k);
        if (done(r, "allocate", b->allocate(0, sizes[i], &memory))) {
            if (done(r, "upload", b->upload(0, memory, from, sizes[i])) && done(r, "synchronize", b->synchronize(0)) &&
                done(r, "download", b->download(0, to, memory, sizes[i])) && memcmp(from, to, sizes[i]))
                fail(r, "%zu bytes came back different", sizes[i]);
            b->release(0, memory, sizes[i]);
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
    if (!ready(r))
        return;
    enum { N = 1000 };
    float *got = malloc(N * sizeof(float));
    for (int round = 0; round < 20 && !r->failed; round++) {
        yk__storage *x = yk__storage_create(cuda, N * sizeof(float)), *y = yk__storage_create(cuda, N * sizeof(float));
        if (!done(r, "storage", x && y ? YK_OK : YK_ERR_MEMORY))
            break;
        yk__view vx = {.data = x->data, .dtype = YK_F32, .ndim = 1, .shape = {N}, .stride = {1}}, vy = vx;
        vy.data = y->data;
        done(r, "fill", b->fill(0, &vx, round));
        done(r, "unary", b->unary(0, YK__ADD_SCALAR, &vy, &vx, 1, 0));
        yk__storage_release(x);
        yk__storage *z = yk__storage_create(cuda, N * sizeof(float));
        yk__view vz = vx;
        vz.data = z->data;
        done(r, "fill", b->fill(0, &vz, -1));
        done(r, "download", b->download(0, got, vy.data, N * sizeof(float)));
        for (int i = 0; i < N; i++, r->compared++)
            if (got[i] != (float)round + 1)
                fail(r, "round %d: element %d is %g", round, i, (double)got[i]);
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
    for (int dtype = 0; dtype < YK__DTYPES && ready(r) && !r->failed; dtype++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                pair p;
                double value = values[(dtype + shape + layout) % 5];
                if (pair_make(&p, r, (yk_dtype)dtype, 3, shapes[shape], layout) &&
                    done(r, "cpu", a->fill(0, &p.cpu, value)) && done(r, "cuda", b->fill(0, &p.gpu, value)))
                    compare(r, "fill", &p, 0);
                pair_free(&p);
            }
}

static void copy_case(const slot_case *self, slot_report *r)
{
    for (int from = 0; from < YK__DTYPES && ready(r) && !r->failed; from++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS * (LAYOUTS + 1); layout++) {
                pair out = {0}, in = {0};
                if (pair_make(&out, r, (yk_dtype)self->op, 3, shapes[shape], layout % LAYOUTS) &&
                    pair_make(&in, r, (yk_dtype)from, 3, shapes[shape], layout / LAYOUTS) &&
                    pair_fill(&in, r, (uint32_t)(from * 10 + layout)) &&
                    done(r, "cpu", a->copy(0, &out.cpu, &in.cpu)) && done(r, "cuda", b->copy(0, &out.gpu, &in.gpu)))
                    compare(r, yk_dtype_name((yk_dtype)from), &out, 0);
                pair_free(&in);
                pair_free(&out);
            }
}

/* Units of the last place that functions of a library may be apart. */
static double unary_room(int op, yk_dtype dtype)
{
    switch (op) {
    case YK__SIN:
    case YK__COS: return 2; /* great arguments go to the library */
    case YK__LOG1P:
    case YK__EXPM1:
    case YK__ERF: return 4; /* the library's */
    case YK__POW_SCALAR: return dtype == YK_F64 ? 4 : 0;
    case YK__EXP:
    case YK__LOG:
    case YK__TANH:
    case YK__SIGMOID: return dtype == YK_F64 ? 4 : 0;
    case YK__GELU: return dtype == YK_F64 ? 16 : 0;
    default: return 0;
    }
}

/* Whether the CPU takes it; then the GPU must, and else it must refuse alike. */
static bool both(slot_report *r, const char *what, yk_status cpu, yk_status gpu)
{
    if (cpu != gpu)
        fail(r, "%s: status %d, the CPU has %d: %s", what, gpu, cpu, yk_last_error() ? yk_last_error()->message : "");
    yk_clear_error();
    return !cpu && !r->failed;
}

static void unary_case(const slot_case *self, slot_report *r)
{
    static const double parameters[][2] = {{2, 3}, {0.5, 1}, {-1, 1}, {3, -2}, {1.7, 2.5}};
    yk__unary op = (yk__unary)self->op;
    for (int dtype = 0; dtype < YK__DTYPES && ready(r) && !r->failed; dtype++) {
        if (dtype == YK_F16 || dtype == YK_BF16)
            continue;
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
                    yk_status cpu = a->unary(0, op, &out.cpu, &in.cpu, p[0], p[1]);
                    yk_clear_error();
                    if (both(r, yk_dtype_name((yk_dtype)dtype), cpu, b->unary(0, op, &out.gpu, &in.gpu, p[0], p[1])))
                        compare(r, yk_dtype_name((yk_dtype)dtype), &out, unary_room(op, (yk_dtype)dtype));
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
    for (int dtype = 0; dtype < YK__DTYPES && ready(r) && !r->failed; dtype++) {
        if (dtype == YK_F16 || dtype == YK_BF16)
            continue;
        double room = op == YK__POW && dtype == YK_F64 ? 4 : op == YK__GELU_GRAD && dtype == YK_F64 ? 32 : 0;
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS + 1; layout++) {
                pair out = {0}, x = {0}, y = {0};
                double alpha = alphas[(shape + layout) % 3];
                if (pair_make(&out, r, truth ? YK_BOOL : (yk_dtype)dtype, 3, shapes[shape], layout % LAYOUTS) &&
                    pair_make(&x, r, (yk_dtype)dtype, 3, shapes[shape], layout) &&
                    pair_make(&y, r, (yk_dtype)dtype, 3, shapes[shape], LAYOUTS - layout) &&
                    pair_fill(&x, r, (uint32_t)(dtype * 10 + layout)) &&
                    pair_fill(&y, r, (uint32_t)(dtype * 10 + layout + 5))) {
                    yk_status cpu = a->binary(0, op, &out.cpu, &x.cpu, &y.cpu, alpha);
                    yk_clear_error();
                    if (both(r, yk_dtype_name((yk_dtype)dtype), cpu, b->binary(0, op, &out.gpu, &x.gpu, &y.gpu, alpha)))
                        compare(r, yk_dtype_name((yk_dtype)dtype), &out, room);
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
    for (int dtype = 0; dtype < YK__DTYPES && ready(r) && !r->failed; dtype++)
        for (int shape = 0; shape < SHAPES; shape++) {
            pair out = {0}, c = {0}, x = {0}, y = {0};
            if (pair_make(&out, r, (yk_dtype)dtype, 3, shapes[shape], REVERSED) &&
                pair_make(&c, r, YK_BOOL, 3, shapes[shape], EXPANDED) &&
                pair_make(&x, r, (yk_dtype)dtype, 3, shapes[shape], GAPS) &&
                pair_make(&y, r, (yk_dtype)dtype, 3, shapes[shape], C_ORDER) && pair_fill(&c, r, 1) &&
                pair_fill(&x, r, 2) && pair_fill(&y, r, 3) &&
                done(r, "cpu", a->where(0, &out.cpu, &c.cpu, &x.cpu, &y.cpu)) &&
                done(r, "cuda", b->where(0, &out.gpu, &c.gpu, &x.gpu, &y.gpu)))
                compare(r, yk_dtype_name((yk_dtype)dtype), &out, 0);
            pair_free(&y);
            pair_free(&x);
            pair_free(&c);
            pair_free(&out);
        }
}

/* More elements than one round of the grid takes. */
static void large_case(const slot_case *self, slot_report *r)
{
    (void)self;
    pair out = {0}, x = {0}, y = {0};
    const int64_t shape[] = {700, 1001};
    if (ready(r) && pair_make(&out, r, YK_F32, 2, shape, C_ORDER) && pair_make(&x, r, YK_F32, 2, shape, REVERSED) &&
        pair_make(&y, r, YK_F32, 2, shape, C_ORDER) && pair_fill(&x, r, 4) && pair_fill(&y, r, 5) &&
        done(r, "cpu", a->binary(0, YK__MUL, &out.cpu, &x.cpu, &y.cpu, 1)) &&
        done(r, "cuda", b->binary(0, YK__MUL, &out.gpu, &x.gpu, &y.gpu, 1)))
        compare(r, "float32", &out, 0);
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
    COPY(F32), COPY(F64), COPY(F16), COPY(BF16), COPY(I64), COPY(I32), COPY(U8), COPY(BOOL),
    UNARY(NEG), UNARY(ABS), UNARY(EXP), UNARY(LOG), UNARY(SQRT), UNARY(RSQRT), UNARY(RECIPROCAL), UNARY(SIN), UNARY(COS),
    UNARY(TANH), UNARY(SIGMOID), UNARY(RELU), UNARY(GELU), UNARY(SIGN), UNARY(FLOOR), UNARY(CEIL), UNARY(ROUND),
    UNARY(LOGICAL_NOT), UNARY(IS_FINITE), UNARY(ADD_SCALAR), UNARY(MUL_SCALAR), UNARY(POW_SCALAR), UNARY(CLAMP),
    BINARY(ADD), BINARY(SUB), BINARY(MUL), BINARY(DIV), BINARY(POW), BINARY(MAXIMUM), BINARY(MINIMUM), BINARY(EQ),
    BINARY(NE), BINARY(LT), BINARY(LE), BINARY(GT), BINARY(GE), BINARY(AND), BINARY(OR), BINARY(RELU_GRAD),
    BINARY(TANH_GRAD), BINARY(SIGMOID_GRAD), BINARY(GELU_GRAD), BINARY(ABS_GRAD),
    {"where", "all", where_case, 0},
    {"binary", "large", large_case, 0},
    {NULL, NULL, NULL, 0},
};
/* clang-format on */

const slot_case *slot_cases(void)
{
    return cases;
}
