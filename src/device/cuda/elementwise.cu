/*
 * elementwise.cu - the slots unary, binary and where. Layer: device/cuda.
 *
 * The expressions of device/elementwise_ops.h: in f32, and in f16 and bf16 where the operands allow packs (packs.h),
 * each is a kernel; else the other dtypes have one kernel for all unary and one for all binary operations, which
 * chooses when it runs. All threads choose alike, and compiling them one by one takes minutes.
 */
#include "device/cuda/walk.h"

#include "device/cuda/elements.h"
#include "device/cuda/packs.h"

/* ---- one operation on an element; the struct is copied to the GPU with the launch ---- */
#define UNARY_STRUCT(name, In, Out, expression)                                                                        \
    struct unary_##name {                                                                                              \
        typedef In in;                                                                                                 \
        typedef Out out;                                                                                               \
        In p0, p1;                                                                                                     \
        unary_##name(int, const double *p) : p0((In)p[0]), p1((In)p[1])                                                \
        {                                                                                                              \
        }                                                                                                              \
        YK__DEVICE Out operator()(In x) const                                                                          \
        {                                                                                                              \
            return (Out)(expression);                                                                                  \
        }                                                                                                              \
    };
/* clang-format off */
#define UNARY_F32(op, expression) UNARY_STRUCT(op##_f32, float, float, expression)
YK__REAL_UNARY(UNARY_F32, YK__F32)
YK__REAL_UNARY_WITH_CALLS(UNARY_F32, YK__F32)
UNARY_STRUCT(not_f32, float, uint8_t, x == 0)
UNARY_STRUCT(not_f64, double, uint8_t, x == 0)
UNARY_STRUCT(not_i64, int64_t, uint8_t, x == 0)
UNARY_STRUCT(not_i32, int32_t, uint8_t, x == 0)
UNARY_STRUCT(not_u8, uint8_t, uint8_t, x == 0)
UNARY_STRUCT(finite_f32, float, uint8_t, fabsf(x) <= FLT_MAX)
UNARY_STRUCT(finite_f64, double, uint8_t, fabs(x) <= DBL_MAX)
/* clang-format on */

#define CHOICE(op, expression)                                                                                         \
    case YK__##op: return (out)(expression);
struct unary_f64 {
    typedef double in;
    typedef double out;
    int kernel;
    double p0, p1;
    unary_f64(int chosen, const double *p) : kernel(chosen), p0(p[0]), p1(p[1])
    {
    }
    YK__DEVICE double operator()(double x) const
    {
        switch (kernel) {
            YK__REAL_UNARY(CHOICE, YK__F64) YK__REAL_UNARY_WITH_CALLS(CHOICE, YK__F64) default : return 0;
        }
    }
};
#define CHOICE_F32(op, expression)                                                                                     \
    case YK__##op: return (float)(expression);
/* The operations of f16 and bf16: computed in float, rounded once. */
template <typename Element, typename F32> struct unary_rounded {
    typedef typename Element::stored in;
    typedef typename Element::stored out;
    F32 op;
    unary_rounded(int chosen, const double *p) : op(chosen, p)
    {
    }
    YK__DEVICE out operator()(in x) const
    {
        return Element::store(op(Element::load(x)));
    }
};
template <typename Element> struct unary_half {
    typedef typename Element::stored in;
    typedef typename Element::stored out;
    int kernel;
    float p0, p1;
    unary_half(int chosen, const double *p) : kernel(chosen), p0((float)p[0]), p1((float)p[1])
    {
    }
    YK__DEVICE float of(float x) const
    {
        switch (kernel) {
            YK__REAL_UNARY(CHOICE_F32, YK__F32) YK__REAL_UNARY_WITH_CALLS(CHOICE_F32, YK__F32) default : return 0;
        }
    }
    YK__DEVICE out operator()(in x) const
    {
        return Element::store(of(Element::load(x)));
    }
};
template <typename Element, typename Op> struct unary_half_truth {
    typedef typename Element::stored in;
    typedef uint8_t out;
    Op op;
    unary_half_truth(int chosen, const double *p) : op(chosen, p)
    {
    }
    YK__DEVICE uint8_t operator()(in x) const
    {
        return op(Element::load(x));
    }
};
template <typename In> struct unary_whole {
    typedef In in;
    typedef In out;
    int kernel;
    int64_t p0, p1;
    unary_whole(int chosen, const double *p) : kernel(chosen), p0(YK__TO_I64(p[0])), p1(YK__TO_I64(p[1]))
    {
    }
    YK__DEVICE In operator()(In element) const
    {
        int64_t x = element;
        switch (kernel) {
            YK__WHOLE_UNARY(CHOICE)
        default: return 0;
        }
    }
};

#define BINARY_F32(op, expression)                                                                                     \
    struct binary_##op##_f32 {                                                                                         \
        typedef float in;                                                                                              \
        typedef float out;                                                                                             \
        float alpha;                                                                                                   \
        binary_##op##_f32(int, double given) : alpha((float)given)                                                     \
        {                                                                                                              \
        }                                                                                                              \
        YK__DEVICE float operator()(float x, float y) const                                                            \
        {                                                                                                              \
            return (float)(expression);                                                                                \
        }                                                                                                              \
    };
YK__REAL_BINARY(BINARY_F32, YK__F32)
struct binary_f64 {
    typedef double in;
    typedef double out;
    int kernel;
    double alpha;
    binary_f64(int chosen, double given) : kernel(chosen), alpha(given)
    {
    }
    YK__DEVICE double operator()(double x, double y) const
    {
        switch (kernel) {
            YK__REAL_BINARY(CHOICE, YK__F64)
        default: return 0;
        }
    }
};
template <typename Element, typename F32> struct binary_rounded {
    typedef typename Element::stored in;
    typedef typename Element::stored out;
    F32 op;
    binary_rounded(int chosen, double given) : op(chosen, given)
    {
    }
    YK__DEVICE out operator()(in x, in y) const
    {
        return Element::store(op(Element::load(x), Element::load(y)));
    }
};
template <typename Element> struct binary_half {
    typedef typename Element::stored in;
    typedef typename Element::stored out;
    int kernel;
    float alpha;
    binary_half(int chosen, double given) : kernel(chosen), alpha((float)given)
    {
    }
    YK__DEVICE float of(float x, float y) const
    {
        switch (kernel) {
            YK__REAL_BINARY(CHOICE_F32, YK__F32)
        default: return 0;
        }
    }
    YK__DEVICE out operator()(in x, in y) const
    {
        return Element::store(of(Element::load(x), Element::load(y)));
    }
};
template <typename In> struct binary_whole {
    typedef In in;
    typedef In out;
    int kernel;
    int64_t alpha;
    binary_whole(int chosen, double given) : kernel(chosen), alpha(YK__TO_I64(given))
    {
    }
    YK__DEVICE In operator()(In a, In b) const
    {
        int64_t x = a, y = b;
        switch (kernel) {
            YK__WHOLE_BINARY(CHOICE)
        default: return 0;
        }
    }
};
template <typename In> struct binary_truth {
    typedef In in;
    typedef uint8_t out;
    int kernel;
    binary_truth(int chosen, double) : kernel(chosen)
    {
    }
    YK__DEVICE uint8_t operator()(In x, In y) const
    {
        switch (kernel) {
            YK__TRUTH_BINARY(CHOICE)
        default: return 0;
        }
    }
};

template <typename Element> struct binary_half_truth {
    typedef typename Element::stored in;
    typedef uint8_t out;
    binary_truth<float> op;
    binary_half_truth(int chosen, double given) : op(chosen, given)
    {
    }
    YK__DEVICE uint8_t operator()(in x, in y) const
    {
        return op(Element::load(x), Element::load(y));
    }
};

/* The operations that a dtype has. */
#define THERE(op, expression) case YK__##op:
static bool has_whole_unary(int kernel)
{
    switch (kernel) {
        YK__WHOLE_UNARY(THERE) return true;
    default: return false;
    }
}
static bool has_whole_binary(int kernel)
{
    switch (kernel) {
        YK__WHOLE_BINARY(THERE) return true;
    default: return false;
    }
}
#define NOTHING(f) f
static bool has_real_unary(int kernel)
{
    switch (kernel) {
        YK__REAL_UNARY(THERE, NOTHING) YK__REAL_UNARY_WITH_CALLS(THERE, NOTHING) return true;
    default: return false;
    }
}
static bool has_real_binary(int kernel)
{
    switch (kernel) {
        YK__REAL_BINARY(THERE, NOTHING) return true;
    default: return false;
    }
}
static bool is_truth(int kernel)
{
    switch (kernel) {
        YK__TRUTH_BINARY(THERE) return true;
    default: return false;
    }
}

/* ---- kernels ---- */
/* A thread reads four elements, a block's width apart, before it uses the first. Then always the first of x is used, so
 * that the code of what may be all operations of a dtype stands once. */
template <typename Op> YK__KERNEL(WALK_THREADS) unary_kernel(Op op, yk__loop loop)
{
    int64_t tile = WALK_THREADS * WALK_ITEMS, step = tile * gridDim.x;
    YK__LOOP for (int64_t first = tile * blockIdx.x + threadIdx.x; first < loop.total; first += step)
    {
        typename Op::in x[WALK_ITEMS] = {};
        YK__UNROLL for (int u = 0; u < WALK_ITEMS; u++) if (first + u * WALK_THREADS < loop.total) x[u] =
            *walk_at<const typename Op::in>(loop, 1, first + u * WALK_THREADS);
        YK__LOOP for (int64_t i = first; i < first + tile && i < loop.total; i += WALK_THREADS)
        {
            *walk_at<typename Op::out>(loop, 0, i) = op(x[0]);
            YK__UNROLL for (int u = 0; u + 1 < WALK_ITEMS; u++) x[u] = x[u + 1];
        }
    }
}

template <typename Op> YK__KERNEL(WALK_THREADS) binary_kernel(Op op, yk__loop loop)
{
    typedef const typename Op::in in;
    int64_t tile = WALK_THREADS * WALK_ITEMS, step = tile * gridDim.x;
    YK__LOOP for (int64_t first = tile * blockIdx.x + threadIdx.x; first < loop.total; first += step)
    {
        typename Op::in x[WALK_ITEMS] = {}, y[WALK_ITEMS] = {};
        YK__UNROLL for (int u = 0; u < WALK_ITEMS; u++)
        {
            if (first + u * WALK_THREADS < loop.total) {
                x[u] = *walk_at<in>(loop, 1, first + u * WALK_THREADS);
                y[u] = *walk_at<in>(loop, 2, first + u * WALK_THREADS);
            }
        }
        YK__LOOP for (int64_t i = first; i < first + tile && i < loop.total; i += WALK_THREADS)
        {
            *walk_at<typename Op::out>(loop, 0, i) = op(x[0], y[0]);
            YK__UNROLL for (int u = 0; u + 1 < WALK_ITEMS; u++) x[u] = x[u + 1], y[u] = y[u + 1];
        }
    }
}

template <typename Op> YK__KERNEL(WALK_THREADS) unary_packs_kernel(Op op, packed_loop packed)
{
    map_packs<typename Op::out, typename Op::in, pack_of<typename Op::in>::N>(packed, op);
}

template <typename Op> YK__KERNEL(WALK_THREADS) binary_packs_kernel(Op op, packed_loop packed)
{
    map_packs<typename Op::out, typename Op::in, typename Op::in, pack_of<typename Op::in>::N>(packed, op);
}

template <typename T> YK__KERNEL(WALK_THREADS) where_kernel(yk__loop loop)
{
    int64_t step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < loop.total; i += step) *
        walk_at<T>(loop, 0, i) =
        *walk_at<const uint8_t>(loop, 1, i) ? *walk_at<const T>(loop, 2, i) : *walk_at<const T>(loop, 3, i);
}

/* The same by packs of out, a and b, with as many bytes of the condition. */
template <typename T> YK__KERNEL(WALK_THREADS) where_packs_kernel(packed_loop packed)
{
    enum { N = pack_of<T>::N };
    int64_t packs = packed.loop.total / N, step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < packs; i += step)
    {
        int64_t at[4];
        walk_offsets<4>(packed.loop, i * N, at);
        pack<uint8_t, N> condition = load_pack<uint8_t, N>(packed, 1, at[1]);
        pack<T, N> x = load_pack<T, N>(packed, 2, at[2]), y = load_pack<T, N>(packed, 3, at[3]);
        YK__UNROLL for (int k = 0; k < N; k++) x.of[k] = condition.of[k] ? x.of[k] : y.of[k];
        store_pack<T, N>(packed, at[0], x);
    }
    int64_t rest = packs * N + threadIdx.x;
    if (blockIdx.x == 0 && rest < packed.loop.total)
        *walk_at<T>(packed.loop, 0, rest) = *walk_at<const uint8_t>(packed.loop, 1, rest)
                                                ? *walk_at<const T>(packed.loop, 2, rest)
                                                : *walk_at<const T>(packed.loop, 3, rest);
}

/* ---- slots ---- */
struct unary_call {
    int device, kernel;
    const double *p;
    const yk__loop *loop;
    const char *name;
    cudaStream_t stream = NULL;
    template <typename Op> bool launch() const
    {
        if (loop->total) /* else there is nothing to do, but the operation must be there */
            YK__LAUNCH(name, unary_kernel<Op>, walk_blocks(device, loop->total), WALK_THREADS, 0, stream, Op(kernel, p),
                       *loop);
        return true;
    }
    /* Launches the kernel by packs; false where the operands allow none. */
    template <typename Op> bool launch_packs() const
    {
        const int64_t n = pack_of<typename Op::in>::N;
        const size_t size[] = {sizeof(typename Op::out), sizeof(typename Op::in)};
        packed_loop packed;
        if (!pack_loop(&packed, *loop, size, n))
            return false;
        if (loop->total)
            YK__LAUNCH(name, unary_packs_kernel<Op>, pack_blocks(device, loop->total, PACKS * n), WALK_THREADS, 0,
                       stream, Op(kernel, p), packed);
        return true;
    }
};

struct binary_call {
    int device, kernel;
    double alpha;
    const yk__loop *loop;
    const char *name;
    cudaStream_t stream = NULL;
    template <typename Op> bool launch() const
    {
        if (loop->total)
            YK__LAUNCH(name, binary_kernel<Op>, walk_blocks(device, loop->total), WALK_THREADS, 0, stream,
                       Op(kernel, alpha), *loop);
        return true;
    }
    template <typename Op> bool launch_packs() const
    {
        const int64_t n = pack_of<typename Op::in>::N;
        const size_t size[] = {sizeof(typename Op::out), sizeof(typename Op::in), sizeof(typename Op::in)};
        packed_loop packed;
        if (!pack_loop(&packed, *loop, size, n))
            return false;
        if (loop->total)
            YK__LAUNCH(name, binary_packs_kernel<Op>, pack_blocks(device, loop->total, n), WALK_THREADS, 0, stream,
                       Op(kernel, alpha), packed);
        return true;
    }
    /* Launches the kernel by packs where the operands allow them. */
    template <typename Op> bool launch_any() const
    {
        return launch_packs<Op>() || launch<Op>();
    }
};

/* Launches the kernel of an operation and a dtype; false where there is none. */
/* clang-format off */
#define UNARY_CASE(op, expression) case YK__##op: return call.launch<unary_##op##_f32>();
#define UNARY_PACKS(op, expression) case YK__##op: return call.launch_packs<unary_##op##_f32>();
#define UNARY_ROUNDED_PACKS(op, expression) case YK__##op: return call.launch_packs<unary_rounded<Element, unary_##op##_f32>>();
/* clang-format on */
template <typename Element> static bool launch_unary_half(const unary_call &call)
{
    switch (call.kernel) {
        YK__REAL_UNARY(UNARY_ROUNDED_PACKS, YK__F32)
    default: return false;
    }
}
/* Launches an operation by packs; false where the operands allow none, or the operation has no such kernel. */
static bool launch_unary_packs(const unary_call &call, yk_dtype dtype)
{
    if (dtype == YK_F16)
        return launch_unary_half<element_f16>(call);
    if (dtype == YK_BF16)
        return launch_unary_half<element_bf16>(call);
    if (dtype != YK_F32)
        return false;
    switch (call.kernel) {
        YK__REAL_UNARY(UNARY_PACKS, YK__F32)
    default: return false;
    }
}

static bool launch_unary(const unary_call &call, yk_dtype dtype)
{
    if (call.kernel == YK__LOGICAL_NOT) {
        switch (dtype) {
        case YK_F32: return call.launch<unary_not_f32>();
        case YK_F64: return call.launch<unary_not_f64>();
        case YK_F16: return call.launch<unary_half_truth<element_f16, unary_not_f32>>();
        case YK_BF16: return call.launch<unary_half_truth<element_bf16, unary_not_f32>>();
        case YK_I64: return call.launch<unary_not_i64>();
        case YK_I32: return call.launch<unary_not_i32>();
        case YK_U8:
        case YK_BOOL: return call.launch<unary_not_u8>();
        default: return false;
        }
    }
    if (call.kernel == YK__IS_FINITE)
        return dtype == YK_F32    ? call.launch<unary_finite_f32>()
               : dtype == YK_F64  ? call.launch<unary_finite_f64>()
               : dtype == YK_F16  ? call.launch<unary_half_truth<element_f16, unary_finite_f32>>()
               : dtype == YK_BF16 ? call.launch<unary_half_truth<element_bf16, unary_finite_f32>>()
                                  : false;
    switch (dtype) {
    case YK_F32:
        switch (call.kernel) {
            YK__REAL_UNARY(UNARY_CASE, YK__F32) YK__REAL_UNARY_WITH_CALLS(UNARY_CASE, YK__F32) default : return false;
        }
    case YK_F64: return has_real_unary(call.kernel) && call.launch<unary_f64>();
    case YK_F16: return has_real_unary(call.kernel) && call.launch<unary_half<element_f16>>();
    case YK_BF16: return has_real_unary(call.kernel) && call.launch<unary_half<element_bf16>>();
    case YK_I64: return has_whole_unary(call.kernel) && call.launch<unary_whole<int64_t>>();
    case YK_I32: return has_whole_unary(call.kernel) && call.launch<unary_whole<int32_t>>();
    case YK_U8: return has_whole_unary(call.kernel) && call.launch<unary_whole<uint8_t>>();
    default: return false;
    }
}

/* clang-format off */
#define BINARY_CASE(op, expression) case YK__##op: return call.launch<binary_##op##_f32>();
#define BINARY_PACKS(op, expression) case YK__##op: return call.launch_packs<binary_##op##_f32>();
#define BINARY_ROUNDED_PACKS(op, expression) case YK__##op: return call.launch_packs<binary_rounded<Element, binary_##op##_f32>>();
/* clang-format on */
template <typename Element> static bool launch_binary_half(const binary_call &call)
{
    switch (call.kernel) {
        YK__REAL_BINARY(BINARY_ROUNDED_PACKS, YK__F32)
    default: return false;
    }
}
static bool launch_binary_packs(const binary_call &call, yk_dtype dtype)
{
    if (dtype == YK_F16)
        return launch_binary_half<element_f16>(call);
    if (dtype == YK_BF16)
        return launch_binary_half<element_bf16>(call);
    if (dtype != YK_F32)
        return false;
    switch (call.kernel) {
        YK__REAL_BINARY(BINARY_PACKS, YK__F32)
    default: return false;
    }
}

static bool launch_binary(const binary_call &given, yk_dtype dtype)
{
    binary_call call = given;
    if (dtype == YK_BOOL && !is_truth(call.kernel)) {
        bool sum = call.kernel == YK__ADD || call.kernel == YK__PLUS || call.kernel == YK__MAXIMUM;
        if (!sum && call.kernel != YK__MUL && call.kernel != YK__MINIMUM)
            return false;
        call.kernel = sum ? YK__OR : YK__AND;
    }
    if (is_truth(call.kernel)) {
        switch (dtype) {
        case YK_F32: return call.launch_any<binary_truth<float>>();
        case YK_F64: return call.launch_any<binary_truth<double>>();
        case YK_F16: return call.launch_any<binary_half_truth<element_f16>>();
        case YK_BF16: return call.launch_any<binary_half_truth<element_bf16>>();
        case YK_I64: return call.launch_any<binary_truth<int64_t>>();
        case YK_I32: return call.launch_any<binary_truth<int32_t>>();
        case YK_U8:
        case YK_BOOL: return call.launch_any<binary_truth<uint8_t>>();
        default: return false;
        }
    }
    switch (dtype) {
    case YK_F32:
        switch (call.kernel) {
            YK__REAL_BINARY(BINARY_CASE, YK__F32)
        default: return false;
        }
    case YK_F64: return has_real_binary(call.kernel) && call.launch<binary_f64>();
    case YK_F16: return has_real_binary(call.kernel) && call.launch<binary_half<element_f16>>();
    case YK_BF16: return has_real_binary(call.kernel) && call.launch<binary_half<element_bf16>>();
    case YK_I64: return has_whole_binary(call.kernel) && call.launch_any<binary_whole<int64_t>>();
    case YK_I32: return has_whole_binary(call.kernel) && call.launch_any<binary_whole<int32_t>>();
    case YK_U8: return has_whole_binary(call.kernel) && call.launch<binary_whole<uint8_t>>();
    default: return false;
    }
}

yk_status cuda_unary(int device, yk__unary op, const yk__view *out, const yk__view *in, double p0, double p1)
{
    const yk__view *views[] = {out, in};
    const double p[] = {p0, p1};
    yk__loop loop;
    yk__loop_init(&loop, 2, views, false);
    unary_call call = {device, yk__unary_kernel(op, in->dtype, p0), p, &loop, yk__unary_name(op), NULL};
    yk_status status = cuda_use(device, &call.stream);
    if (status)
        return status;
    if (!launch_unary_packs(call, in->dtype) && !launch_unary(call, in->dtype))
        return cuda_fail(YK_ERR_DTYPE, "%s: not defined for %s", call.name, cuda_yoke->dtype_name(in->dtype));
    return loop.total ? cuda_launched(device, call.name, 2, views) : YK_OK;
}

yk_status cuda_binary(int device, yk__binary op, const yk__view *out, const yk__view *a, const yk__view *b,
                      double alpha)
{
    const yk__view *views[] = {out, a, b};
    yk__loop loop;
    yk__loop_init(&loop, 3, views, false);
    binary_call call = {device, yk__binary_kernel(op, alpha), alpha, &loop, yk__binary_name(op), NULL};
    yk_status status = cuda_use(device, &call.stream);
    if (status)
        return status;
    if (!launch_binary_packs(call, a->dtype) && !launch_binary(call, a->dtype))
        return cuda_fail(YK_ERR_DTYPE, "%s: not defined for %s", call.name, cuda_yoke->dtype_name(a->dtype));
    return loop.total ? cuda_launched(device, call.name, 3, views) : YK_OK;
}

template <typename T> static void launch_where(int device, const yk__loop &loop, cudaStream_t stream)
{
    const size_t size[] = {sizeof(T), 1, sizeof(T), sizeof(T)};
    const int64_t n = pack_of<T>::N;
    packed_loop packed;
    if (pack_loop(&packed, loop, size, n))
        YK__LAUNCH("where", where_packs_kernel<T>, pack_blocks(device, loop.total, n), WALK_THREADS, 0, stream, packed);
    else
        YK__LAUNCH("where", where_kernel<T>, walk_blocks(device, loop.total), WALK_THREADS, 0, stream, loop);
}

yk_status cuda_where(int device, const yk__view *out, const yk__view *condition, const yk__view *a, const yk__view *b)
{
    const yk__view *views[] = {out, condition, a, b};
    yk__loop loop;
    yk__loop_init(&loop, 4, views, false);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || loop.total == 0)
        return status;
    switch (yk__size_of(out->dtype)) {
    case 1: launch_where<uint8_t>(device, loop, stream); break;
    case 2: launch_where<uint16_t>(device, loop, stream); break;
    case 4: launch_where<uint32_t>(device, loop, stream); break;
    default: launch_where<uint64_t>(device, loop, stream); break;
    }
    return cuda_launched(device, "where", 4, views);
}
