/*
 * window_maxima.c - the slot window_maxima. Layer: device/cpu.
 *
 * Windows begin wherever their list says, so elements are compared one by one: those of a row of windows along the last
 * axis, then the next element of each.
 */
#include "device/cpu/iterate.h"

typedef struct maxima_job {
    const yk__view *which, *x, *from;
    const int64_t *windows, *kernel;
} maxima_job;

/* The first maximum, or first NaN, of windows in C order: some at a time, without a branch, whose way would be
 * anybody's guess. */
enum { TOGETHER = 64 };
#define ROW_MAXIMA(S, T)                                                                                               \
    static void row_maxima_##S(const maxima_job *job, int64_t row)                                                     \
    {                                                                                                                  \
        const int64_t depth = job->x->shape[1], height = job->x->shape[2], width = job->x->shape[3];                   \
        const int64_t *w = job->windows, *k = job->kernel, all = w[0] + w[1] + w[2];                                   \
        const T *x = (const T *)job->x->data + row * depth * height * width;                                           \
        const int64_t *from = (const int64_t *)job->from->data + row * all, *columns = from + w[0] + w[1];             \
        int64_t *which = (int64_t *)job->which->data + row * w[0] * w[1] * w[2];                                       \
        for (int64_t line = 0; line < w[0] * w[1]; line++)                                                             \
            for (int64_t first = 0; first < w[2]; first += TOGETHER, which += TOGETHER) {                              \
                int64_t n = w[2] - first < TOGETHER ? w[2] - first : TOGETHER, position[TOGETHER];                     \
                int64_t corner = (from[line / w[1]] * height + from[w[0] + line % w[1]]) * width;                      \
                T most[TOGETHER];                                                                                      \
                for (int64_t l = 0; l < n; l++) {                                                                      \
                    position[l] = corner + columns[first + l];                                                         \
                    most[l] = x[position[l]];                                                                          \
                }                                                                                                      \
                for (int64_t e = 1; e < k[0] * k[1] * k[2]; e++) {                                                     \
                    int64_t start = corner + (e / (k[1] * k[2]) * height + e / k[2] % k[1]) * width + e % k[2];        \
                    T nan = 0;                                                                                         \
                    for (int64_t l = 0; l < n; l++) {                                                                  \
                        int64_t at = start + columns[first + l];                                                       \
                        T value = x[at], before = most[l];                                                             \
                        most[l] = value > before ? value : before;                                                     \
                        position[l] = value > before ? at : position[l];                                               \
                        nan += value - value; /* infinities are looked at again, too */                                \
                    }                                                                                                  \
                    for (int64_t l = 0; nan != nan && l < n; l++) {                                                    \
                        int64_t at = start + columns[first + l];                                                       \
                        if (x[at] != x[at] && most[l] == most[l]) {                                                    \
                            most[l] = x[at];                                                                           \
                            position[l] = at;                                                                          \
                        }                                                                                              \
                    }                                                                                                  \
                }                                                                                                      \
                memcpy(which, position, (size_t)n * sizeof(*which));                                                   \
                which -= TOGETHER - n;                                                                                 \
            }                                                                                                          \
    }
ROW_MAXIMA(f32, float)
ROW_MAXIMA(f64, double)

static void maxima_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const maxima_job *job = arg;
    for (int64_t row = begin; row < end; row++)
        (job->x->dtype == YK_F32 ? row_maxima_f32 : row_maxima_f64)(job, row);
}

static yk_status window_maxima(int device, const yk__view *which, const yk__view *x, const yk__view *from,
                               const int64_t windows[3], const int64_t kernel[3])
{
    const int64_t *at = from->data;
    for (int64_t row = 0; row < x->shape[0]; row++)
        for (int axis = 0; axis < 3; axis++)
            for (int64_t i = 0; i < windows[axis]; i++, at++)
                if (*at < 0 || *at > x->shape[1 + axis] - kernel[axis])
                    return yk__fail(YK_ERR_ARGUMENT,
                                    "fractional_max_pool: window %lld of row %lld begins at %lld of %lld elements: "
                                    "random_samples must be at least 0 and below 1",
                                    (long long)i, (long long)row, (long long)*at, (long long)x->shape[1 + axis]);
    maxima_job job = {which, x, from, windows, kernel};
    int64_t elements = windows[0] * windows[1] * windows[2] * kernel[0] * kernel[1] * kernel[2];
    yk__cpu_parallel(device, x->shape[0], YK__GRAIN / (elements + 1) + 1, maxima_piece, &job);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_window_maxima)(yk__backend *table)
{
    table->window_maxima = window_maxima;
}
