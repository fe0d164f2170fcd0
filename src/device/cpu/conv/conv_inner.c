/*
 * conv_inner.c - maps repacked for the convolutions whose vectors run along channels. Layer: device/cpu.
 *
 * A map in another memory order is copied once to [H][W][N][C], or from there when it is the result, instead of being
 * walked by its strides once for every tap. The copies go through tiles that fit in the first-level cache.
 */
#include "device/cpu/conv/conv.h"
#include "device/cpu/elementwise/transpose.h"
#include "device/cpu/iterate.h"

/* Pixels and channels: with 4 bytes each a cache line. */
enum { TILE = 16 };

struct repack {
    const yk__view *from, *to;
};

/* Repacks one row of one image, TILE channels of TILE pixels at a time, so that both sides see whole cache lines. */
static void repack_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct repack *r = arg;
    const int64_t *shape = r->from->shape;
    size_t size = yk_dtype_size((yk_dtype)r->from->dtype);
    int64_t in[4], out[4], step = (int64_t)size;
    for (int d = 0; d < 4; d++)
        in[d] = r->from->stride[d] * step, out[d] = r->to->stride[d] * step;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t n = piece % shape[0], y = piece / shape[0];
        const char *from = (const char *)r->from->data + n * in[0] + y * in[2];
        char *to = (char *)r->to->data + n * out[0] + y * out[2];
        for (int64_t x0 = 0; x0 < shape[3]; x0 += TILE)
            for (int64_t c0 = 0; c0 < shape[1]; c0 += TILE) {
                int64_t c = shape[1] - c0 < TILE ? shape[1] - c0 : TILE,
                        x = shape[3] - x0 < TILE ? shape[3] - x0 : TILE;
                const char *corner = from + c0 * in[1] + x0 * in[3];
                char *there = to + c0 * out[1] + x0 * out[3];
                /* Too many streams for the processor to foresee: the next tiles are fetched ahead. */
                if (in[1] == step)
                    for (int64_t i = 0; i < x; i++)
                        __builtin_prefetch(corner + (TILE + i) * in[3]);
                else
                    for (int64_t i = 0; i < c; i++)
                        __builtin_prefetch(corner + i * in[1] + 2 * TILE * in[3]);
                if (out[1] == step)
                    for (int64_t i = 0; i < x; i++)
                        __builtin_prefetch(there + (TILE + i) * out[3], 1);
                else
                    for (int64_t i = 0; i < c; i++)
                        __builtin_prefetch(there + i * out[1] + TILE * out[3], 1);
                if (in[3] == step && out[1] == step)
                    yk__transpose(there, out[3], corner, in[1], x, c, size);
                else if (in[1] == step && out[3] == step)
                    yk__transpose(there, out[1], corner, in[3], c, x, size);
                else
                    for (int64_t i = 0; i < x; i++)
                        yk__copy_strided(there + i * out[3], out[1], corner + i * in[3], in[1], size, c);
            }
    }
}

static void repack(int device, const yk__view *to, const yk__view *from)
{
    struct repack r = {from, to};
    yk__cpu_parallel(device, from->shape[0] * from->shape[2], 4, repack_piece, &r);
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
