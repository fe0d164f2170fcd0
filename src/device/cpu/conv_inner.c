/*
 * conv_inner.c - maps repacked for the convolutions whose vectors run along channels. Layer: device/cpu.
 *
 * A map in another memory order is copied once to [H][W][N][C], or from there when it is the result, instead of being
 * walked by its strides once for every tap. The copies go through tiles that fit in the first-level cache.
 */
#include <string.h>

#include "device/cpu/conv.h"

enum { TILE = 16 };

struct repack {
    const yk__view *from, *to;
};

/* One row of one image: TILE channels of TILE pixels at a time, read along the pixels and written along the channels,
 * or the other way round, so that both sides see whole cache lines. */
#define REPACK_ROW(T)                                                                                                  \
    static void repack_piece_##T(void *arg, int64_t begin, int64_t end, int thread)                                    \
    {                                                                                                                  \
        (void)thread;                                                                                                  \
        const struct repack *r = arg;                                                                                  \
        const int64_t *shape = r->from->shape, *in = r->from->stride, *out = r->to->stride;                            \
        T tile[TILE][TILE];                                                                                            \
        for (int64_t piece = begin; piece < end; piece++) {                                                            \
            int64_t n = piece % shape[0], y = piece / shape[0];                                                        \
            const T *from = (const T *)r->from->data + n * in[0] + y * in[2];                                          \
            T *to = (T *)r->to->data + n * out[0] + y * out[2];                                                        \
            for (int64_t c0 = 0; c0 < shape[1]; c0 += TILE) {                                                          \
                int64_t c1 = shape[1] - c0 < TILE ? shape[1] - c0 : TILE;                                              \
                for (int64_t x0 = 0; x0 < shape[3]; x0 += TILE) {                                                      \
                    int64_t x1 = shape[3] - x0 < TILE ? shape[3] - x0 : TILE;                                          \
                    const T *corner = from + c0 * in[1] + x0 * in[3];                                                  \
                    T *there = to + c0 * out[1] + x0 * out[3];                                                         \
                    if (in[1] == 1) {                                                                                  \
                        for (int64_t x = 0; x < x1; x++)                                                               \
                            for (int64_t c = 0; c < c1; c++)                                                           \
                                tile[c][x] = corner[x * in[3] + c];                                                    \
                        for (int64_t c = 0; c < c1; c++)                                                               \
                            for (int64_t x = 0; x < x1; x++)                                                           \
                                there[c * out[1] + x * out[3]] = tile[c][x];                                           \
                    } else {                                                                                           \
                        for (int64_t c = 0; c < c1; c++)                                                               \
                            for (int64_t x = 0; x < x1; x++)                                                           \
                                tile[x][c] = corner[c * in[1] + x * in[3]];                                            \
                        for (int64_t x = 0; x < x1; x++)                                                               \
                            for (int64_t c = 0; c < c1; c++)                                                           \
                                there[x * out[3] + c * out[1]] = tile[x][c];                                           \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
REPACK_ROW(float)
REPACK_ROW(double)

static void repack(int device, const yk__view *to, const yk__view *from)
{
    struct repack r = {from, to};
    yk__cpu_parallel(device, from->shape[0] * from->shape[2], 4,
                     from->dtype == YK_F32 ? repack_piece_float : repack_piece_double, &r);
}

yk_status yk__conv_inner(int device, const yk__view *v, bool filled, yk__conv_map *map)
{
    map->view = *v;
    map->handle = NULL;
    if (v->stride[1] == 1 || !yk__view_numel(v))
        return YK_OK;
    map->view.data = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                       (size_t)yk__view_numel(v) * yk_dtype_size((yk_dtype)v->dtype), &map->handle);
    if (!map->view.data)
        return yk__error_code();
    yk__conv_inner_strides(v->shape, map->view.stride);
    if (filled)
        repack(device, &map->view, v);
    return YK_OK;
}

void yk__conv_inner_store(int device, const yk__conv_map *map, const yk__view *v)
{
    if (map->handle)
        repack(device, v, &map->view);
}

void yk__conv_inner_release(yk__conv_map *map)
{
    if (map->handle)
        yk__storage_release(map->handle);
    map->handle = NULL;
}
