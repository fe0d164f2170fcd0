/*
 * index_targets.h - index tensors as operands of a loop, which reading (index.c) and writing (index_put.c) share:
 * offsets, their check, rows, short lines. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_INDEX_INDEX_TARGETS_H
#define YOKE_DEVICE_CPU_INDEX_INDEX_TARGETS_H

#include <stdatomic.h>

#include "device/cpu/elementwise/row_copy.h"
#include "device/cpu/iterate.h"

/* BLOCK: offsets in a buffer of 4 KiB on the stack. FUSED: beside the output and x, all operands that a loop can have.
 * */
enum { BLOCK = 512, FUSED = 3 };

/* The index tensors of a call as operands of a loop, after the output and x. */
typedef struct targets {
    int count;
    bool wrap, checked;               /* checked: all are inside */
    int64_t size[FUSED], step[FUSED]; /* step: bytes of x */
    size_t element;
    atomic_bool *bad;
    /* index_put */
    bool accumulate, shared; /* shared: only the targets with the first index in [low, high) are this thread's */
    yk_dtype dtype;
    int64_t low, high;
} targets;

static inline int64_t wrapped(int64_t v, int64_t size)
{
    return v + ((v >> 63) & size);
}

/* The offset of an index. Far outside of its dimension the product does not fit in 64 bits: unsigned, it wraps around,
 * and nothing is read there. */
static inline int64_t offset_of(int64_t v, int64_t size, int64_t step)
{
    return (int64_t)((uint64_t)wrapped(v, size) * (uint64_t)step);
}

static inline int64_t sum_of(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* Computes the offsets of n elements; true if all indices are inside. */
static inline bool offsets(const targets *p, int64_t n, char *const *index, const int64_t *stride, int64_t *to)
{
    uint64_t outside = 0;
    for (int k = 0; k < p->count; k++) {
        int64_t size = p->size[k], step = p->step[k];
        uint64_t below = p->wrap ? (uint64_t)size : 0, room = (uint64_t)size + below;
        if (stride[k] == (int64_t)sizeof(int64_t)) {
            const int64_t *from = (const int64_t *)index[k];
            if (k == 0) {
                for (int64_t i = 0; i < n; i++) {
                    outside |= (uint64_t)from[i] + below >= room;
                    to[i] = offset_of(from[i], size, step);
                }
            } else {
                for (int64_t i = 0; i < n; i++) {
                    outside |= (uint64_t)from[i] + below >= room;
                    to[i] = sum_of(to[i], offset_of(from[i], size, step));
                }
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                int64_t v = *(const int64_t *)(index[k] + i * stride[k]);
                outside |= (uint64_t)v + below >= room;
                to[i] = sum_of(k ? to[i] : 0, offset_of(v, size, step));
            }
        }
    }
    return outside == 0;
}

/* True if no index tensor moves along a run. */
static inline bool is_fixed(const targets *p, const int64_t *index_stride)
{
    for (int k = 0; k < p->count; k++)
        if (index_stride[k] != 0)
            return false;
    return true;
}

/* True if the index itself is the position in x, along a run: one index tensor, everything else dense or fixed. */
static inline bool is_direct(const targets *p, int64_t other_stride, int64_t x_stride, int64_t index_stride)
{
    int64_t element = (int64_t)p->element;
    return p->count == 1 && p->step[0] == element && other_stride == element && x_stride == 0 &&
           index_stride == (int64_t)sizeof(int64_t);
}

/* Element i of a row of x where the index itself is the position. */
#define AT_INDEX(i) row[wrap ? wrapped(index[i], size) : index[i]]

/* True if each index tensor moves along the outer one of two dimensions alone: then rows of x are moved. */
static inline bool is_rows(const targets *p, const yk__loop *loop)
{
    return loop->ndim == 2 && is_fixed(p, loop->stride[0] + 2);
}

typedef void (*row_fn)(const targets *p, int64_t n, char *x, int64_t x_stride, char *other, int64_t other_stride);

/* Computes elements [begin, end) of such a loop: rows and, at both ends, parts of some. False at an index outside; rows
 * before it in its block have not been done then. */
static inline __attribute__((always_inline)) bool rows_piece(const yk__loop *loop, const targets *p, int64_t begin,
                                                             int64_t end, row_fn fn)
{
    const int64_t width = loop->shape[0], *inner = loop->stride[0], *outer = loop->stride[1];
    int64_t offset[BLOCK];
    while (begin < end) {
        int64_t row = begin / width, column = begin % width, rows = column ? 0 : (end - begin) / width;
        int64_t n = rows ? width : width - column < end - begin ? width - column : end - begin;
        rows = rows == 0 ? 1 : rows < BLOCK ? rows : BLOCK;
        char *data[2 + FUSED];
        for (int k = 0; k < 2 + p->count; k++)
            data[k] = loop->data[k] + row * outer[k] + column * inner[k];
        if (!offsets(p, rows, data + 2, outer + 2, offset))
            return false;
        int64_t ahead = yk__rows_ahead(n * (int64_t)p->element);
        for (int64_t r = 0; r < rows; r++) {
            if (r + ahead < rows)
                yk__fetch_row(data[1] + (r + ahead) * outer[1] + offset[r + ahead], n * (int64_t)p->element);
            fn(p, n, data[1] + r * outer[1] + offset[r], inner[1], data[0] + r * outer[0], inner[0]);
        }
        begin += rows == 1 ? n : rows * width;
    }
    return true;
}

/* ---- short lines ---- */

/* Elements along a dimension that has few: the lines of x, of the index and of the other operand follow each other, so
 * that a call for each line would weigh more than its elements. */
enum { SHORT_LINE = 64 };

typedef struct short_lines {
    const yk__loop *loop;
    const targets *at;
} short_lines;

static inline bool is_short_lines(const targets *p, const yk__loop *loop)
{
    return loop->ndim == 2 && loop->shape[0] <= SHORT_LINE && !p->wrap && !p->shared &&
           is_direct(p, loop->stride[0][0], loop->stride[0][1], loop->stride[0][2]);
}

/* `lines` of n elements each, of which 2, 3 and 4 are constants. */
#define LINES(T, EACH)                                                                                                 \
    {                                                                                                                  \
        if (n == 2)                                                                                                    \
            LINES_OF(T, 2, EACH)                                                                                       \
        else if (n == 3)                                                                                               \
            LINES_OF(T, 3, EACH)                                                                                       \
        else if (n == 4)                                                                                               \
            LINES_OF(T, 4, EACH)                                                                                       \
        else                                                                                                           \
            LINES_OF(T, n, EACH)                                                                                       \
        return;                                                                                                        \
    }
#define LINES_OF(T, N, EACH)                                                                                           \
    for (int64_t r = 0; r < lines; r++, x += step[1], other += step[0], index += step[2]) {                            \
        T *row = (T *)x, *line = (T *)other;                                                                           \
        const int64_t *at = (const int64_t *)index;                                                                    \
        for (int64_t i = 0; i < N; i++) {                                                                              \
            EACH;                                                                                                      \
        }                                                                                                              \
    }

/* ---- index_targets.c, once for each instruction set ---- */

#define yk__indices_inside YK__ISA_NAME(yk__indices_inside)
#define yk__indices_fail   YK__ISA_NAME(yk__indices_fail)
#define yk__indices_check  YK__ISA_NAME(yk__indices_check)
#define yk__index_operands YK__ISA_NAME(yk__index_operands)

/* True if all n indices are inside their dimension: from -`below` on, `room` of them. */
bool yk__indices_inside(const int64_t *index, int64_t n, uint64_t below, uint64_t room);
/* The error of the first index, in C order, that is outside. */
yk_status yk__indices_fail(const yk__indices *p);
/* Checks all of them, before anything is written. */
yk_status yk__indices_check(int device, const yk__indices *p);
/*
 * Fills in the operands of the loop over `shape_of` (the output, or the value) and x: views[2] and on. More than FUSED
 * index tensors, which are checked then, become one of elements of x in *scratch.
 */
yk_status yk__index_operands(int device, const yk__view *shape_of, const yk__indices *p, targets *to, yk__view *sum,
                             const yk__view **views, yk__storage **scratch);

/* The slot of index_put.c, which index.c puts into the table. */
yk_status YK__ISA_NAME(yk__cpu_index_put)(int device, const yk__view *x, const yk__view *value, const yk__indices *p,
                                          bool accumulate);

#endif
