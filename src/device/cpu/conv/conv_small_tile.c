/*
 * conv_small_tile.c - the register tile of the small convolutions. Layer: device/cpu.
 *
 * All three of them come down to rows of scalars times shared vectors. The sums of a tile stay in registers for the
 * whole of the loops; rows x vectors is chosen so that there are at least 8 independent sums (two multipliers of
 * latency 4), and several multiplications for every load.
 */
#include "device/cpu/conv/conv_small.h"

static inline __attribute__((always_inline)) void tile_run(const int rows, const int vectors, const cs_tile *t)
{
    yk__vf32 sum[CS_ROWS][CS_VECTORS];
    CS_UNROLL
    for (int r = 0; r < rows; r++) {
        CS_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[r][v] = (t->start ? t->start[r] : 0.0f) - (yk__vf32){0};
    }
    int64_t a_step = t->a_step[2], b_step = t->b_step[2];
    for (int64_t i0 = 0; i0 < t->count[0]; i0++) {
        for (int64_t i1 = 0; i1 < t->count[1]; i1++) {
            int64_t at = i0 * t->a_step[0] + i1 * t->a_step[1];
            const float *b = t->b + i0 * t->b_step[0] + i1 * t->b_step[1];
            const float *a[CS_ROWS];
            CS_UNROLL
            for (int r = 0; r < rows; r++)
                a[r] = t->a[r] + at;
            at = 0;
            for (int64_t i2 = t->count[2]; i2 > 0; i2--) {
                yk__vf32 x[CS_VECTORS];
                CS_UNROLL
                for (int v = 0; v < vectors; v++)
                    x[v] = *(const yk__vf32u *)(b + v * CS_LANES);
                CS_UNROLL
                for (int r = 0; r < rows; r++) {
                    yk__vf32 scalar = a[r][at] - (yk__vf32){0};
                    CS_UNROLL
                    for (int v = 0; v < vectors; v++)
                        sum[r][v] += scalar * x[v];
                }
                at += a_step;
                b += b_step;
            }
        }
    }
    int64_t tail = t->width - (vectors - 1) * CS_LANES;
    CS_UNROLL
    for (int r = 0; r < rows; r++) {
        CS_UNROLL
        for (int v = 0; v < vectors - 1; v++)
            *(yk__vf32u *)(t->out[r] + v * CS_LANES) = sum[r][v];
        cs_store_some(t->out[r] + (vectors - 1) * CS_LANES, sum[r][vectors - 1], tail);
    }
}

#define TILE(R, V)                                                                                                     \
    static void tile_##R##_##V(const cs_tile *t)                                                                       \
    {                                                                                                                  \
        tile_run(R, V, t);                                                                                             \
    }
#define TILES_6(V) TILE(1, V) TILE(2, V) TILE(3, V) TILE(4, V) TILE(5, V) TILE(6, V)
#define TILES_8(V) TILES_6(V) TILE(7, V) TILE(8, V)
#define NAMES_6(V) tile_1_##V, tile_2_##V, tile_3_##V, tile_4_##V, tile_5_##V, tile_6_##V
#define NAMES_8(V) NAMES_6(V), tile_7_##V, tile_8_##V

typedef void (*tile_fn)(const cs_tile *t);
TILES_8(1)
#if defined(__AVX512F__)
TILES_8(2)
TILES_8(3)
TILES_6(4)
static const tile_fn tiles[CS_VECTORS][CS_ROWS] = {{NAMES_8(1)}, {NAMES_8(2)}, {NAMES_8(3)}, {NAMES_6(4)}};
#else
TILES_6(2)
static const tile_fn tiles[CS_VECTORS][CS_ROWS] = {{NAMES_8(1)}, {NAMES_6(2)}};
#endif

void YK__ISA_NAME(yk__conv_small_tile)(int rows, int vectors, const cs_tile *t)
{
    tiles[vectors - 1][rows - 1](t);
}
