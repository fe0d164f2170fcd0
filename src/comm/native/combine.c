/*
 * combine.c - the arithmetic of reductions, and copies past the caches. Layer: comm/native.
 *
 * Note [The order of a reduction]
 * The values of ranks 0 to n - 1 are the leaves of a binary tree: level by level, neighbours 2i and 2i + 1 are
 * combined, left with right, and an odd last one goes up unchanged. Five ranks: ((a + b) + (c + d)) + e. The tree
 * depends on n alone, so an element has the same bits on every path, over every transport and wherever it lies in a
 * buffer. f16 and bf16 are widened to f32 at the leaves and rounded once, at the root, where a mean is divided. Which
 * of several NaNs comes out is not promised.
 *
 * The node of level l and index i stands for the ranks from i * 2^l on, 2^l of them or those that are left; the inputs
 * of a reduction are leaves, or the results of such subtrees. The tree is walked as a binary counter counts: an input
 * goes on a stack, and while the top of the stack is a right child, it is combined with the left child below it. What
 * stands on the stack in the end are left children of parents whose right subtree is the rest: they are combined from
 * the right.
 *
 * All is done in blocks that stay in the first-level cache: each input is read once and each output written once,
 * whatever their number.
 */
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/isa.h"
#include "comm/native/combine_isa.h"
#include "comm/native/native.h"

/* Bytes: BLOCK of the widest operand at a time, or less where all of the stack would not fit into STACK. */
enum { BLOCK = 16 << 10, STACK = 32 << 10 };

void yk__native_stream_copy(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    char *d = to;
    const char *s = from;
    size_t head = (size_t)(-(uintptr_t)d & 63);
    if (bytes < head + 64) {
        memcpy(d, s, bytes);
        return;
    }
    memcpy(d, s, head);
    d += head, s += head, bytes -= head;
    for (; bytes >= 64; d += 64, s += 64, bytes -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)s);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(s + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(s + 32));
        __m128i e = _mm_loadu_si128((const __m128i *)(const void *)(s + 48));
        _mm_stream_si128((__m128i *)(void *)d, a);
        _mm_stream_si128((__m128i *)(void *)(d + 16), b);
        _mm_stream_si128((__m128i *)(void *)(d + 32), c);
        _mm_stream_si128((__m128i *)(void *)(d + 48), e);
    }
    memcpy(d, s, bytes);
#else
    memcpy(to, from, bytes);
#endif
}

void yk__native_stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#define LOOPS_OF_SET(isa, A) [YK__LEVEL_##isa] = &yk__combine_##isa,
static const yk__combine_loops *const sets[YK__LEVELS] = {YK__ISAS(LOOPS_OF_SET, )};

/* The plainest form is always built, for a process whose set of kernels cannot be used: it combines without a device.
 */
static const yk__combine_loops *loops(void)
{
    int isa = yk__isa();
    return isa < 0 ? &yk__combine_base : sets[isa];
}

static void divide(yk_dtype dtype, void *out, int64_t n, int by)
{
    if (dtype == YK_F64) {
        double *o = out;
        for (int64_t i = 0; i < n; i++)
            o[i] /= by;
    } else {
        float *o = out, f = (float)by;
        for (int64_t i = 0; i < n; i++)
            o[i] /= f;
    }
}

static yk_status cast(void *to, yk_dtype to_dtype, const void *from, yk_dtype from_dtype, int64_t n)
{
    static const yk_device cpu = {YK_CPU, 0};
    const yk__backend *backend = yk__backend_of(cpu);
    yk__view out = {.data = to, .dtype = to_dtype, .ndim = 1, .shape = {n}, .stride = {1}};
    yk__view in = {.data = (void *)(uintptr_t)from, .dtype = from_dtype, .ndim = 1, .shape = {n}, .stride = {1}};
    return backend ? backend->copy(0, &out, &in) : yk__error_code();
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */
/* Entries on the stack at most: below the topmost stand whole subtrees of different levels. */
static int stack_depth(int ranks)
{
    int depth = 1;
    for (int64_t n = 2; n <= ranks; n *= 2)
        depth++;
    return depth;
}

typedef struct walk {
    const yk__reduction *r;
    yk__combine_fn fn;
    char *stack;        /* memory of the stack's entries, `entry` bytes each */
    size_t entry, size; /* `size`: of an element of the dtype */
    bool half;
} walk;

/*
 * Combines elements [begin, begin + n) of all inputs. *result is where the result is, in the wide dtype: at `last`, if
 * that is not NULL and anything was combined, else on the stack, or the only input itself. Until the last combination,
 * which goes element by element, nothing is written but to the stack: `last` may lie in an input.
 */
static yk_status walk_tree(const walk *w, const char *const *in, int64_t begin, int64_t n, char *last,
                           const char **result)
{
    const yk__reduction *r = w->r;
    const char *value[32];
    int top = 0, left = r->inputs - 1; /* combinations that are left */
    value[0] = in[0];
    for (int i = 0; i < r->inputs; i++) {
        int first = r->subtrees ? r->subtrees[i].first : i, level = r->subtrees ? r->subtrees[i].level : 0;
        const char *from = in[i] + (size_t)begin * (level && w->half ? sizeof(float) : w->size);
        if (w->half && !level) {
            char *to = w->stack + (size_t)top * w->entry;
            yk_status status = cast(to, YK_F32, from, r->dtype, n);
            if (status)
                return status;
            from = to;
        }
        value[top++] = from;
        bool end = i == r->inputs - 1;
        for (int index = first >> level; top > 1 && (end || index & 1); index >>= 1) {
            top--;
            char *to = --left == 0 && last ? last : w->stack + (size_t)(top - 1) * w->entry;
            w->fn(to, value[top - 1], value[top], n);
            value[top - 1] = to;
        }
    }
    *result = value[0];
    return YK_OK;
}

yk_status yk__native_combine(const yk__reduction *r, int outputs, char *const *out, const char *const *in,
                             int64_t count)
{
    _Alignas(64) char block[BLOCK];
    _Alignas(64) char stack[STACK];
    bool half = yk__is_half(r->dtype), divides = r->reduction == YK_OP_MEAN && !r->partial;
    if (r->inputs == 2 && outputs == 1 && !half && !divides && !r->stream) { /* for speed alone: a small operation */
        loops()->combine[r->dtype][r->reduction](out[0], in[0], in[1], count);
        return YK_OK;
    }
    if (r->inputs == 2 && r->ranks == 2 && outputs == 2 && !half && !r->partial && !r->stream) {
        loops()->both[r->dtype][r->reduction](out[0], out[1], in[0], in[1], count); /* Note [Results to two places] */
        return YK_OK;
    }
    size_t size = yk_dtype_size(r->dtype), wide_size = half ? sizeof(float) : size;
    size_t out_size = r->partial ? wide_size : size;
    walk w = {.r = r, .fn = loops()->combine[r->dtype][r->reduction], .stack = stack, .size = size, .half = half};
    int depth = stack_depth(r->ranks) - !half; /* the topmost entry is an input: only if it is widened it takes room */
    for (w.entry = BLOCK; w.entry * (size_t)depth > STACK; w.entry /= 2)
        continue;
    int64_t step = (int64_t)(w.entry / wide_size);
    for (int64_t begin = 0; begin < count; begin += step) {
        int64_t n = count - begin < step ? count - begin : step;
        size_t offset = (size_t)begin * out_size, bytes = (size_t)n * out_size;
        char *to = outputs == 1 && !r->stream ? out[0] + offset : block;
        bool rounds = half && !r->partial;
        char *sum = rounds ? stack : to;
        const char *result;
        yk_status status = walk_tree(&w, in, begin, n, rounds ? NULL : to, &result);
        if (!status && (rounds || divides)) {
            if (result != sum) /* the only input, which stays as it is */
                memcpy(sum, result, (size_t)n * wide_size);
            if (divides)
                divide(yk__native_wide(r->dtype), sum, n, r->ranks);
            if (rounds)
                status = cast(to, r->dtype, sum, YK_F32, n);
            result = to;
        }
        if (status)
            return status;
        for (int o = 0; o < outputs; o++) {
            if (r->stream)
                yk__native_stream_copy(out[o] + offset, result, bytes);
            else if (result != out[o] + offset)
                memcpy(out[o] + offset, result, bytes);
        }
    }
    if (r->stream)
        yk__native_stream_end();
    return YK_OK;
}

yk_status yk__comm_combine(yk_reduce_op op, yk_dtype dtype, int outputs, char *const *out, int inputs,
                           const char *const *in, int64_t count, bool stream)
{
    yk__reduction r = {.reduction = op, .dtype = dtype, .ranks = inputs, .inputs = inputs, .stream = stream};
    return yk__native_combine(&r, outputs, out, in, count);
}
