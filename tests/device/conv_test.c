/*
 * conv_test.c - the convolution slots of the CPU against plain float64 loops: shapes, strides of every view, dtypes,
 * and the same bits on one, two and three threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/reference.h"

#include "device/convert.h"
#include "device/table.h"

static const yk_device cpu = {0};

struct shape {
    int64_t n, c, h, w, o, kh, kw, stride[2], padding[2], dilation[2], groups;
};

static const struct shape shapes[] = {
    /* ResNet's layers on small images */
    {3, 3, 32, 32, 64, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1},
    {32, 64, 8, 8, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {5, 64, 8, 8, 128, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1},
    {33, 64, 8, 8, 128, 1, 1, {2, 2}, {0, 0}, {1, 1}, 1},
    {33, 128, 4, 4, 128, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {4, 256, 2, 2, 256, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {33, 256, 2, 2, 64, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1},
    {32, 512, 1, 1, 512, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 3, 16, 16, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    /* first layers whose rows are used as they are: sums in several parts, all strides, few outputs */
    {1, 7, 12, 20, 40, 7, 7, {1, 2}, {3, 3}, {1, 1}, 1},
    {3, 5, 9, 8, 70, 3, 5, {2, 3}, {1, 2}, {1, 1}, 1},
    {2, 12, 9, 20, 5, 3, 3, {2, 1}, {1, 0}, {2, 1}, 1},
    /* first layers that take images of a pixel together, forward and in gradients of weights: blocks of uneven images,
     * parts of rows, more rows than one tile, windows that leave rows out, sums in several parts, groups; dilated ones,
     * taps that are longer than a sum, and gradients of odd channels, which do not */
    {9, 3, 15, 40, 32, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1},
    {35, 2, 6, 9, 48, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {4, 5, 11, 37, 16, 3, 16, {3, 2}, {0, 4}, {1, 1}, 1},
    {17, 3, 14, 12, 64, 2, 3, {5, 1}, {1, 0}, {1, 1}, 1},
    {6, 4, 3, 50, 96, 5, 3, {1, 3}, {4, 2}, {1, 1}, 2},
    {8, 3, 9, 10, 32, 3, 3, {1, 1}, {1, 2}, {1, 2}, 1},
    {8, 3, 9, 10, 40, 3, 3, {2, 1}, {1, 1}, {1, 1}, 1},
    {300, 3, 5, 6, 32, 3, 3, {1, 2}, {1, 1}, {1, 1}, 1},
    {20, 7, 12, 300, 48, 7, 7, {4, 5}, {3, 3}, {1, 1}, 1},
    {5, 3, 8, 9, 70, 1, 2, {1, 1}, {2, 3}, {1, 1}, 1},
    {7, 1, 20, 6, 16, 3, 3, {1, 1}, {5, 1}, {1, 1}, 1},
    {4, 7, 3, 50, 33, 1, 40, {1, 1}, {0, 0}, {1, 1}, 1},
    /* few outputs, whose gradients of x are forward convolutions of gout: paddings up to a window, parts of vectors */
    {5, 35, 9, 11, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {9, 64, 7, 6, 7, 5, 2, {1, 1}, {4, 0}, {1, 1}, 1},
    {4, 16, 6, 8, 1, 1, 7, {1, 1}, {0, 3}, {1, 1}, 1},
    {6, 17, 6, 8, 2, 2, 3, {1, 1}, {2, 3}, {1, 1}, 1},
    /* LeNet's */
    {4, 1, 28, 28, 6, 5, 5, {1, 1}, {0, 0}, {1, 1}, 1},
    {5, 6, 12, 12, 16, 5, 5, {1, 1}, {0, 0}, {1, 1}, 1},
    {3, 3, 32, 32, 6, 5, 5, {1, 1}, {0, 0}, {1, 1}, 1},
    {3, 1, 28, 28, 6, 5, 5, {1, 1}, {2, 2}, {1, 1}, 1},
    /* blocks of rows: maps too large for one block; more images than one block takes */
    {2, 16, 40, 36, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {40, 16, 30, 30, 16, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1},
    {9, 200, 13, 13, 40, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1}, /* of 1 MiB; sums in several parts for one tap */
    {300, 32, 8, 8, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    /* gradients of weights in blocks of rows, some of which the next block needs again; rows and columns that no tap
     * meets, between taps or after the last one; rows in uneven pieces */
    {6, 33, 40, 23, 17, 5, 5, {2, 1}, {3, 2}, {1, 1}, 1},
    {9, 72, 41, 37, 40, 2, 2, {3, 3}, {1, 0}, {1, 1}, 1},
    {20, 16, 70, 30, 16, 1, 1, {4, 3}, {0, 0}, {1, 1}, 1},
    {19, 24, 30, 21, 16, 2, 3, {1, 4}, {6, 1}, {5, 2}, 1},
    {5, 40, 9, 131, 24, 2, 3, {1, 1}, {0, 1}, {1, 1}, 1},
    {1, 64, 61, 50, 48, 3, 2, {2, 3}, {1, 1}, {1, 1}, 1},
    /* one image, odd channels, uneven everything */
    {1, 16, 9, 9, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 17, 5, 7, 19, 3, 2, {1, 2}, {1, 0}, {1, 1}, 1},
    {3, 9, 7, 5, 33, 2, 3, {2, 1}, {0, 2}, {1, 1}, 1},
    {4, 40, 6, 6, 50, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {2, 8, 7, 7, 8, 3, 3, {3, 3}, {2, 3}, {1, 1}, 1},
    {2, 24, 9, 8, 16, 3, 3, {1, 1}, {2, 2}, {2, 2}, 1},
    {2, 5, 11, 10, 7, 3, 3, {2, 3}, {3, 1}, {2, 3}, 1},
    {2, 16, 3, 3, 16, 5, 5, {1, 1}, {3, 3}, {1, 1}, 1},
    {1, 2, 4, 30, 3, 3, 9, {1, 1}, {1, 4}, {1, 1}, 1},
    {2, 200, 3, 3, 20, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    /* padding wider than the image: some taps and some pixels see nothing */
    {2, 16, 1, 2, 16, 3, 3, {2, 2}, {3, 3}, {1, 1}, 1},
    {2, 3, 1, 2, 4, 3, 3, {2, 2}, {3, 3}, {2, 2}, 1},
    /* groups, depthwise */
    {2, 6, 6, 6, 9, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {3, 8, 7, 7, 8, 3, 3, {2, 2}, {1, 1}, {1, 1}, 8},
    {2, 4, 5, 5, 8, 3, 3, {1, 1}, {1, 1}, {2, 2}, 4},
    {2, 64, 4, 4, 96, 1, 1, {1, 1}, {0, 0}, {1, 1}, 2},
    {8, 32, 9, 12, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 32},
    {3, 24, 8, 7, 24, 3, 3, {2, 2}, {1, 1}, {1, 1}, 24},
    {2, 37, 11, 9, 37, 5, 3, {1, 3}, {2, 1}, {1, 1}, 37},
    {1, 16, 13, 10, 16, 3, 3, {2, 1}, {2, 2}, {3, 2}, 16},
    {130, 16, 4, 5, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 16},
    {3, 16, 40, 40, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 16},
    {2, 121, 6, 5, 121, 3, 3, {1, 1}, {1, 1}, {1, 1}, 121},
    {3, 80, 7, 9, 80, 3, 3, {2, 2}, {1, 1}, {1, 1}, 80},
    {3, 160, 6, 40, 160, 3, 3, {1, 1}, {1, 1}, {1, 1}, 160},
    {7, 21, 11, 23, 21, 3, 3, {2, 2}, {0, 1}, {1, 1}, 21},
    {2, 19, 9, 14, 19, 3, 3, {1, 2}, {2, 0}, {1, 1}, 19},
    {3, 16, 10, 140, 16, 3, 3, {3, 1}, {1, 2}, {1, 1}, 16},
    /* windows that slide: images in several shares, windows without a first or a last column, maps of 1 to 5 columns */
    {5, 272, 5, 33, 272, 3, 3, {1, 1}, {1, 1}, {1, 1}, 272},
    {7, 150, 7, 41, 150, 3, 3, {2, 2}, {1, 1}, {1, 1}, 150},
    {3, 35, 5, 3, 35, 3, 3, {1, 1}, {1, 1}, {1, 1}, 35},
    {2, 18, 4, 4, 18, 3, 3, {1, 1}, {2, 2}, {1, 1}, 18},
    {2, 20, 1, 5, 20, 3, 3, {1, 1}, {1, 1}, {1, 1}, 20},
    {2, 16, 2, 5, 16, 3, 3, {2, 2}, {1, 1}, {1, 1}, 16},
    {2, 33, 6, 4, 33, 3, 3, {1, 2}, {0, 1}, {1, 1}, 33},
    {2, 17, 6, 1, 17, 3, 3, {1, 1}, {1, 1}, {1, 1}, 17},
    {3, 40, 5, 14, 40, 3, 3, {1, 1}, {1, 1}, {2, 1}, 40},
    /* pairs of rows, of pixels of 1 KiB and more: odd and even rows, one column to several spans of them, all paddings
     * that leave a tap, parts of vectors */
    {2, 272, 5, 14, 272, 3, 3, {1, 1}, {1, 1}, {1, 1}, 272},
    {3, 263, 4, 7, 263, 3, 3, {1, 1}, {1, 1}, {1, 1}, 263},
    {1, 260, 1, 9, 260, 3, 3, {1, 1}, {1, 1}, {1, 1}, 260},
    {2, 256, 2, 2, 256, 3, 3, {1, 1}, {1, 1}, {1, 1}, 256},
    {2, 256, 6, 1, 256, 3, 3, {1, 1}, {1, 1}, {1, 1}, 256},
    {1, 257, 3, 3, 257, 3, 3, {1, 1}, {0, 0}, {1, 1}, 257},
    {2, 258, 6, 5, 258, 3, 3, {1, 1}, {0, 2}, {1, 1}, 258},
    {1, 273, 1, 2, 273, 3, 3, {1, 1}, {2, 2}, {1, 1}, 273},
    {2, 131, 4, 16, 131, 3, 3, {1, 1}, {2, 1}, {1, 1}, 131}, /* of f64 alone */
    {5, 256, 7, 4, 256, 3, 3, {1, 1}, {2, 0}, {1, 1}, 256},
    /* pixels that are 4 KiB apart */
    {8, 128, 4, 9, 128, 3, 3, {1, 1}, {1, 1}, {1, 1}, 128},
    {4, 256, 3, 14, 256, 3, 3, {2, 2}, {1, 1}, {1, 1}, 256},
    {4, 256, 7, 5, 256, 3, 3, {1, 1}, {0, 2}, {1, 1}, 256},
    {2, 512, 5, 8, 512, 3, 3, {1, 1}, {2, 0}, {1, 1}, 512},
    {8, 128, 61, 9, 128, 3, 3, {1, 1}, {1, 1}, {1, 1}, 128},  /* several bands of rows */
    {4, 256, 61, 5, 256, 3, 3, {1, 1}, {2, 1}, {1, 1}, 256},  /* the same in f32 */
    {4, 256, 25, 50, 256, 3, 3, {1, 1}, {1, 0}, {1, 1}, 256}, /* few vectors at once; sums of several spans of columns
                                                               */
    {128, 264, 3, 5, 264, 3, 3, {1, 1}, {1, 1}, {1, 1}, 264}, /* parts of vectors */
    /* planes in C order, windows of 3 columns: one strip, several, whole and in part; all paddings; fewer rows than a
     * window; sums that are cut, in rows and in strips; images in shares, channels in blocks */
    {3, 5, 6, 16, 5, 3, 3, {1, 1}, {1, 1}, {1, 1}, 5},
    {2, 6, 5, 15, 6, 3, 3, {1, 1}, {1, 0}, {1, 1}, 6},
    {2, 7, 9, 35, 7, 3, 3, {1, 1}, {0, 0}, {1, 1}, 7},
    {1, 3, 5, 33, 3, 3, 3, {1, 1}, {2, 2}, {1, 1}, 3},
    {2, 5, 7, 6, 5, 3, 3, {1, 1}, {2, 0}, {1, 1}, 5},
    {2, 6, 1, 70, 6, 1, 3, {1, 1}, {0, 1}, {1, 1}, 6},
    {2, 4, 3, 34, 4, 1, 3, {1, 1}, {0, 2}, {1, 1}, 4},
    {2, 4, 2, 100, 4, 2, 3, {1, 1}, {1, 0}, {1, 1}, 4},
    {2, 3, 6, 18, 3, 2, 3, {1, 1}, {0, 1}, {1, 1}, 3},
    {3, 3, 1, 9, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {2, 9, 1, 4, 9, 3, 3, {1, 1}, {2, 2}, {1, 1}, 9},
    {1, 2, 2, 17, 2, 3, 3, {1, 1}, {1, 2}, {1, 1}, 2},
    {2, 3, 70, 120, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {1, 2, 3, 4400, 2, 1, 3, {1, 1}, {0, 2}, {1, 1}, 2},
    {40, 3, 5, 8, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {2, 40, 4, 8, 40, 3, 3, {1, 1}, {1, 1}, {1, 1}, 40},
    /* windows of 5 and 7 columns: parts of vectors, rows longer and shorter than what passes together, strides, rows
     * that leave some out, paddings of all of a window, several bands of rows */
    {2, 37, 11, 9, 37, 5, 5, {1, 1}, {2, 2}, {1, 1}, 37},
    {3, 70, 9, 16, 70, 5, 5, {2, 2}, {2, 2}, {1, 1}, 70},
    {2, 130, 8, 5, 130, 7, 7, {1, 1}, {3, 3}, {1, 1}, 130},
    {1, 33, 6, 33, 33, 3, 7, {1, 2}, {1, 3}, {1, 1}, 33},
    {2, 20, 9, 10, 20, 7, 5, {3, 1}, {0, 4}, {2, 1}, 20},
    {2, 18, 4, 6, 18, 5, 5, {1, 1}, {5, 5}, {1, 1}, 18},
    {2, 19, 3, 3, 19, 7, 7, {1, 1}, {3, 3}, {1, 1}, 19},
    {1, 64, 60, 40, 64, 5, 5, {1, 1}, {2, 2}, {1, 1}, 64},
    {2, 16, 7, 9, 16, 5, 5, {1, 1}, {2, 2}, {2, 2}, 16},
    {2, 33, 6, 6, 66, 3, 3, {1, 1}, {1, 1}, {1, 1}, 33},
    {2, 34, 6, 6, 17, 3, 3, {1, 1}, {1, 1}, {1, 1}, 17},
    {5, 64, 7, 9, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 16},
    {3, 40, 9, 7, 40, 3, 3, {2, 2}, {1, 1}, {1, 1}, 10},
    {2, 21, 7, 8, 35, 3, 2, {1, 2}, {1, 0}, {2, 1}, 7},
    {2, 48, 6, 7, 64, 2, 3, {1, 1}, {0, 1}, {1, 1}, 16},
    {3, 30, 5, 6, 18, 3, 3, {2, 1}, {1, 1}, {1, 2}, 6},
    {2, 8, 1, 2, 8, 3, 3, {2, 2}, {3, 3}, {1, 1}, 8},
    {3, 64, 6, 5, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 4},
    {2, 27, 7, 6, 33, 3, 3, {2, 1}, {1, 2}, {1, 2}, 3},
    {2, 40, 5, 6, 60, 3, 3, {1, 1}, {1, 1}, {1, 1}, 2},
    /* groups of 8 to 16 channels: an odd number of them, many rows, long sums */
    {8, 64, 9, 10, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 8},
    {3, 40, 9, 7, 40, 3, 3, {2, 2}, {1, 1}, {1, 1}, 5},
    {40, 16, 6, 7, 16, 3, 3, {1, 2}, {1, 1}, {1, 1}, 2},
    {5, 48, 11, 8, 36, 3, 3, {2, 2}, {1, 1}, {1, 1}, 3},
    {3, 32, 7, 9, 64, 3, 5, {1, 1}, {1, 2}, {1, 1}, 4},
    {2, 32, 9, 9, 32, 7, 5, {1, 1}, {3, 2}, {1, 1}, 4},
    /* as many on both sides, whose gradients of weights turn: strides, images in shares and in blocks, windows of one
     * to seven columns, dilations, parts of vectors */
    {9, 32, 9, 11, 32, 3, 3, {2, 2}, {1, 1}, {1, 1}, 2},
    {3, 48, 8, 13, 48, 3, 3, {1, 2}, {1, 1}, {1, 1}, 3},
    {5, 24, 7, 40, 24, 1, 2, {2, 2}, {0, 1}, {1, 1}, 3},
    {2, 32, 6, 9, 32, 2, 7, {1, 1}, {1, 3}, {1, 1}, 2},
    {2, 16, 9, 8, 16, 3, 5, {2, 1}, {2, 2}, {2, 1}, 2},
    {11, 256, 5, 20, 256, 3, 3, {2, 2}, {1, 1}, {1, 1}, 32},
    {70, 16, 3, 5, 16, 3, 3, {2, 2}, {1, 1}, {1, 1}, 2},
    /* strides: pixels of the gradient of x that share their taps, rows and columns of it that have none, as many images
     * as fill a tile, pixels that are 2 KiB and 4 KiB apart */
    {1, 24, 11, 13, 40, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1},
    {1, 33, 9, 13, 17, 1, 1, {2, 3}, {0, 0}, {1, 1}, 1},
    {3, 20, 12, 17, 36, 5, 4, {3, 3}, {1, 2}, {1, 1}, 1},
    {2, 16, 8, 19, 24, 3, 2, {1, 4}, {1, 0}, {1, 2}, 1},
    {2, 36, 7, 12, 20, 1, 1, {3, 2}, {2, 1}, {1, 1}, 1},
    {9, 18, 11, 9, 40, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1},
    {15, 32, 6, 21, 20, 4, 4, {2, 2}, {1, 1}, {1, 1}, 1},
    {4, 128, 5, 19, 24, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1},
    {1, 512, 5, 9, 33, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {3, 1024, 3, 5, 20, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    /* a few channels more than one vector, dilated */
    {8, 24, 12, 11, 24, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {3, 40, 11, 10, 50, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {1, 33, 17, 16, 64, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {2, 24, 9, 10, 40, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {2, 32, 14, 13, 32, 3, 3, {1, 1}, {2, 2}, {2, 2}, 1},
    {2, 20, 14, 13, 28, 3, 3, {2, 2}, {3, 3}, {3, 3}, 1},
    {0, 16, 8, 8, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 16},
    /* 3 x 3 of stride 1 in tiles of 2 x 2: odd sizes, no padding and more than usual, several blocks of tiles */
    {3, 24, 5, 7, 40, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 32, 6, 9, 49, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1},
    {2, 51, 7, 6, 32, 3, 3, {1, 1}, {2, 2}, {1, 1}, 1},
    {1, 40, 4, 4, 72, 3, 3, {1, 1}, {0, 2}, {1, 1}, 1},
    {2, 64, 33, 21, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {31, 32, 9, 10, 32, 3, 3, {1, 1}, {2, 1}, {1, 1}, 1},
    {1, 32, 5, 520, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 300, 5, 6, 48, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {5, 96, 8, 7, 96, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    /* one tap, a product for each image: of ours and of oneDNN's */
    {9, 40, 12, 13, 24, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {4, 64, 32, 33, 64, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    /* few channels, whose rows are copied: blocks of uneven images, bands, strips across images and pixels, parts of
     * vectors, two panels, every padding, sums of a gradient in several parts */
    {35, 16, 9, 10, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {5, 24, 13, 30, 20, 3, 3, {1, 1}, {0, 2}, {1, 1}, 1},
    {1, 16, 70, 66, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {20, 17, 12, 11, 33, 3, 3, {1, 1}, {2, 0}, {1, 1}, 1},
    {9, 48, 7, 14, 36, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 16, 4, 300, 24, 3, 3, {1, 1}, {1, 2}, {1, 1}, 1},
    /* maps of 2 x 2 that are one tile: odd channels, two blocks, all in one, groups, as the parts of a dilated one; and
     * with other paddings, which are none */
    {20, 40, 2, 2, 49, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {260, 33, 2, 2, 33, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {19, 64, 2, 2, 96, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {25, 64, 2, 2, 96, 3, 3, {1, 1}, {1, 1}, {1, 1}, 2},
    {32, 32, 4, 4, 32, 3, 3, {1, 1}, {2, 2}, {2, 2}, 1},
    {20, 48, 4, 2, 32, 3, 3, {1, 1}, {0, 1}, {1, 1}, 1},
    {20, 32, 2, 2, 48, 3, 3, {1, 1}, {2, 2}, {1, 1}, 1},
    /* dilated, in parts of such tiles: odd parts, windows that begin outside and inside, parts that are too small */
    {2, 32, 21, 13, 40, 3, 3, {1, 1}, {3, 2}, {3, 2}, 1},
    {1, 48, 17, 22, 32, 3, 3, {1, 1}, {0, 4}, {2, 3}, 1},
    {2, 32, 10, 9, 32, 3, 3, {1, 1}, {4, 1}, {2, 1}, 1},
    {3, 32, 9, 8, 64, 3, 3, {1, 1}, {1, 1}, {2, 1}, 1},
    {5, 64, 16, 17, 32, 3, 3, {1, 1}, {1, 2}, {1, 3}, 2},
    /* few outputs of many channels */
    {2, 64, 9, 8, 1, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {1, 33, 7, 6, 3, 5, 5, {1, 1}, {2, 2}, {1, 1}, 1},
    {3, 20, 6, 5, 2, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {4, 16, 9, 9, 7, 3, 3, {2, 2}, {1, 1}, {1, 1}, 1},
    {2, 40, 12, 11, 6, 3, 3, {1, 1}, {2, 2}, {2, 2}, 1},
    {9, 130, 3, 5, 4, 3, 3, {1, 1}, {2, 2}, {1, 1}, 1},
    {1, 17, 6, 21, 5, 1, 3, {2, 1}, {0, 1}, {1, 1}, 1},
    {2, 300, 4, 3, 1, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {3, 8, 2, 2, 1, 3, 3, {2, 2}, {3, 3}, {1, 1}, 1},
    /* tiles of 2 x 2, several groups at once: fewer in the last part, blocks, parts of vectors, a bias across them */
    {2, 160, 10, 13, 160, 3, 3, {1, 1}, {1, 1}, {1, 1}, 10},
    {3, 88, 8, 8, 104, 3, 3, {1, 1}, {0, 2}, {1, 1}, 4},
    {1, 120, 6, 40, 100, 3, 3, {1, 1}, {2, 1}, {1, 1}, 5},
    {9, 48, 12, 6, 64, 3, 3, {1, 1}, {1, 0}, {1, 1}, 2},
    {1, 42, 4, 150, 45, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {2, 84, 8, 7, 93, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {2, 64, 16, 19, 64, 3, 3, {1, 1}, {2, 1}, {2, 1}, 4},
    /* nothing */
    {0, 16, 8, 8, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {0, 3, 8, 8, 5, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
};

enum order { NCHW, NHWC, HWNC, SLICED, EXPANDED, CHOSEN, ORDERS };

REFERENCE static double noise(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u + 0x94D049BB133111EBu;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    /* A float holds it whole. */
    return (double)(float)((double)((z ^ (z >> 31)) >> 40) * 0x1p-23 - 1.0);
}

static int64_t numel(const int64_t shape[4])
{
    return shape[0] * shape[1] * shape[2] * shape[3];
}

static void strides_of(enum order order, const int64_t shape[4], int64_t stride[4])
{
    static const int orders[3][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {2, 3, 0, 1}}; /* outermost first */
    if (order == EXPANDED) {
        memset(stride, 0, 4 * sizeof *stride);
        return;
    }
    int64_t step = order == SLICED ? 2 : 1;
    for (int i = 3; i >= 0; i--) {
        int d = orders[order == SLICED ? 0 : order][i];
        stride[d] = step;
        step *= shape[d] + (order == SLICED);
    }
}

static void *allocate(const int64_t shape[4], const int64_t stride[4], yk_dtype dtype, size_t *bytes)
{
    int64_t last = 0;
    for (int d = 0; d < 4; d++)
        last += (shape[d] - 1) * stride[d];
    *bytes = numel(shape) ? (size_t)(last + 1) * yk_dtype_size(dtype) : 0;
    /* Exactly as long as the view, so that the sanitizers see every step beyond it. */
    void *data = malloc(*bytes ? *bytes : 1);
    assert_non_null(data);
    memset(data, 0xFF, *bytes); /* NaN */
    return data;
}

static yk__view make(yk_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride, void *data)
{
    yk__view v = {.data = data, .dtype = dtype, .ndim = ndim};
    memcpy(v.shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(v.stride, stride, (size_t)ndim * sizeof *stride);
    return v;
}

REFERENCE static int64_t offset(const yk__view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}

REFERENCE static double get(const yk__view *v, int64_t at)
{
    if (v->dtype == YK_BF16)
        return (double)yk__from_bf16(((uint16_t *)v->data)[at]);
    return v->dtype == YK_F32 ? (double)((float *)v->data)[at] : ((double *)v->data)[at];
}

REFERENCE static void set(const yk__view *v, int64_t at, double value)
{
    if (v->dtype == YK_BF16)
        ((uint16_t *)v->data)[at] = yk__to_bf16((float)value);
    else if (v->dtype == YK_F32)
        ((float *)v->data)[at] = (float)value;
    else
        ((double *)v->data)[at] = value;
}

/* A view with the values, given in C order. */
REFERENCE static yk__view holding(yk_dtype dtype, const int64_t shape[4], const int64_t stride[4], const double *values)
{
    size_t bytes;
    yk__view v = make(dtype, 4, shape, stride, allocate(shape, stride, dtype, &bytes));
    int64_t i = 0;
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++)
                for (int64_t d = 0; d < shape[3]; d++)
                    set(&v, offset(&v, a, b, c, d), values[i++]);
    return v;
}

/* Results of the plain loops, each with the sum of the absolute values of what was added. */
struct reference {
    double *x, *w, *gout, *bias;
    double *out, *gx, *gw, *gbias;
    double *out_size, *gx_size, *gw_size, *gbias_size;
};

static double *numbers(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

REFERENCE static void reference_fill(struct reference *r, const struct shape *s, int64_t oh, int64_t ow, bool expanded)
{
    int64_t cg = s->c / s->groups;
    int64_t nx = s->n * s->c * s->h * s->w, nw = s->o * cg * s->kh * s->kw, no = s->n * s->o * oh * ow;
    r->x = numbers(nx), r->w = numbers(nw), r->gout = numbers(no), r->bias = numbers(s->o);
    r->out = numbers(no), r->gx = numbers(nx), r->gw = numbers(nw), r->gbias = numbers(s->o);
    r->out_size = numbers(no), r->gx_size = numbers(nx), r->gw_size = numbers(nw), r->gbias_size = numbers(s->o);
    for (int64_t i = 0; i < nx; i++)
        r->x[i] = expanded ? 0.75 : noise(1, (uint64_t)i);
    for (int64_t i = 0; i < nw; i++)
        r->w[i] = noise(2, (uint64_t)i);
    for (int64_t i = 0; i < no; i++)
        r->gout[i] = expanded ? -1.25 : noise(3, (uint64_t)i);
    for (int64_t i = 0; i < s->o; i++)
        r->bias[i] = noise(4, (uint64_t)i);
}

/* The taps of a window that begins at `begin` that meet one of `pixels` pixels: [*first, *end). */
REFERENCE static void taps_inside(int64_t begin, int64_t dilation, int64_t taps, int64_t pixels, int64_t *first,
                                  int64_t *end)
{
    for (*first = 0; *first < taps && begin + *first * dilation < 0;)
        ++*first;
    for (*end = taps; *end > *first && begin + (*end - 1) * dilation >= pixels;)
        --*end;
}

REFERENCE static void reference_compute(struct reference *r, const struct shape *s, int64_t oh, int64_t ow)
{
    int64_t cg = s->c / s->groups, og = s->o / s->groups;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < s->o; o++)
            for (int64_t y = 0; y < oh; y++)
                for (int64_t x = 0; x < ow; x++) {
                    int64_t at = ((n * s->o + o) * oh + y) * ow + x, ky_first, ky_end, kx_first, kx_end;
                    int64_t top = y * s->stride[0] - s->padding[0], left = x * s->stride[1] - s->padding[1];
                    double sum = 0, size = 0, g = r->gout[at];
                    r->gbias[o] += g;
                    r->gbias_size[o] += fabs(g);
                    taps_inside(top, s->dilation[0], s->kh, s->h, &ky_first, &ky_end);
                    taps_inside(left, s->dilation[1], s->kw, s->w, &kx_first, &kx_end);
                    for (int64_t c = 0; c < cg; c++)
                        for (int64_t ky = ky_first; ky < ky_end; ky++) {
                            int64_t xi =
                                ((n * s->c + o / og * cg + c) * s->h + top + ky * s->dilation[0]) * s->w + left;
                            int64_t wi = ((o * cg + c) * s->kh + ky) * s->kw;
                            for (int64_t kx = kx_first; kx < kx_end; kx++) {
                                int64_t xk = xi + kx * s->dilation[1], wk = wi + kx;
                                double product = r->x[xk] * r->w[wk], to_x = g * r->w[wk], to_w = g * r->x[xk];
                                sum += product;
                                size += fabs(product);
                                r->gx[xk] += to_x;
                                r->gx_size[xk] += fabs(to_x);
                                r->gw[wk] += to_w;
                                r->gw_size[wk] += fabs(to_w);
                            }
                        }
                    r->out[at] = sum;
                    r->out_size[at] = size;
                }
}

static void reference_init(struct reference *r, const struct shape *s, int64_t oh, int64_t ow, bool expanded)
{
    reference_fill(r, s, oh, ow, expanded);
    reference_compute(r, s, oh, ow);
}

static void reference_clear(struct reference *r)
{
    double **all[] = {&r->x,  &r->w,     &r->gout,     &r->bias,    &r->out,     &r->gx,
                      &r->gw, &r->gbias, &r->out_size, &r->gx_size, &r->gw_size, &r->gbias_size};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(*all[i]);
}

REFERENCE static void compare(const char *what, const struct shape *s, int order, const yk__view *v, const double *want,
                              const double *size, const double *bias)
{
    /* Sums of up to some thousand products: the error stays far below what one wrong product would make. */
    double eps = v->dtype == YK_F64 ? 0x1p-53 : 0x1p-24, rounding = v->dtype == YK_BF16 ? 0x1.01p-8 : 0;
    int64_t i = 0;
    for (int64_t a = 0; a < v->shape[0]; a++)
        for (int64_t b = 0; b < v->shape[1]; b++)
            for (int64_t c = 0; c < v->shape[2]; c++)
                for (int64_t d = 0; d < v->shape[3]; d++, i++) {
                    double got = get(v, offset(v, a, b, c, d)), expected = want[i] + (bias ? bias[b] : 0);
                    double allowed = 32 * eps * (size[i] + (bias ? fabs(bias[b]) : 0)) + rounding * fabs(expected);
                    if (!(fabs(got - expected) <= allowed))
                        fail_msg("%s, %s, order %d, x (%d, %d, %d, %d), w (%d, %d, %d, %d), groups %d: at (%d, %d, %d, "
                                 "%d) got %.9g, expected %.9g within %.3g",
                                 what, yk_dtype_name(v->dtype), order, (int)s->n, (int)s->c, (int)s->h, (int)s->w,
                                 (int)s->o, (int)(s->c / s->groups), (int)s->kh, (int)s->kw, (int)s->groups, (int)a,
                                 (int)b, (int)c, (int)d, got, expected, allowed);
                }
}

/* All three directions with x and out (and their gradients) in one order. */
static void check(const struct shape *s, const struct reference *r, yk_dtype dtype, enum order order, int64_t oh,
                  int64_t ow)
{
    const yk__backend *t = yk__backend_of(cpu);
    assert_non_null(t);
    yk__conv2d p = {{s->stride[0], s->stride[1]},
                    {s->padding[0], s->padding[1]},
                    {s->dilation[0], s->dilation[1]},
                    s->groups,
                    false};
    int64_t xs[4] = {s->n, s->c, s->h, s->w}, ws[4] = {s->o, s->c / s->groups, s->kh, s->kw},
            os[4] = {s->n, s->o, oh, ow};
    int64_t xt[4], wt[4], ot[4];
    strides_of(order == CHOSEN ? (s->c < 16 ? NCHW : HWNC) : order, xs, xt);
    if (order == CHOSEN)
        t->conv2d_weight_layout(&p, dtype, ws, wt);
    else
        strides_of(order == EXPANDED ? NCHW : order, ws, wt);
    yk__view x = holding(dtype, xs, xt, r->x), w = holding(dtype, ws, wt, r->w);
    if (order == CHOSEN)
        t->conv2d_layout(&p, &x, &w, os, ot);
    else
        strides_of(order, os, ot);
    yk__view gout = holding(dtype, os, ot, r->gout);
    /* The bias takes every second number. */
    int64_t bs[4] = {1, s->o, 1, 1}, bt[4] = {0, order == SLICED ? 2 : 1, 0, 0};
    yk__view bias4 = holding(dtype, bs, bt, r->bias), bias = make(dtype, 1, &bs[1], &bt[1], bias4.data);
    if (order == EXPANDED) {
        strides_of(NCHW, xs, xt);
        strides_of(NCHW, os, ot);
    }

    double *sum = numbers(numel(ws)), *sum_size = numbers(numel(ws)); /* of the weight and its gradient */
    for (int64_t i = 0; i < numel(ws); i++) {
        sum[i] = r->w[i] + r->gw[i];
        sum_size[i] = fabs(r->w[i]) + r->gw_size[i];
        /* A sum that is not added in place is rounded once more: 2^-8 of it, in units of compare's 32 eps. */
        sum_size[i] += dtype == YK_BF16 ? 0x1p11 * fabs(r->gw[i]) : 0;
    }
    struct {
        const char *what;
        const int64_t *shape, *stride;
        const double *want, *size, *bias;
        yk__view first;
        size_t bytes;
    } results[6] = {{"forward", os, ot, r->out, r->out_size, NULL, {0}, 0},
                    {"forward with bias", os, ot, r->out, r->out_size, r->bias, {0}, 0},
                    {"gradient of the input", xs, xt, r->gx, r->gx_size, NULL, {0}, 0},
                    {"gradient of the weight", ws, wt, r->gw, r->gw_size, NULL, {0}, 0},
                    {"gradient of the bias", bs, bt, r->gbias, r->gbias_size, NULL, {0}, 0},
                    {"gradient added to the weight", ws, wt, sum, sum_size, NULL, {0}, 0}};
    int most = order == CHOSEN || order == NCHW ? 3 : 1;
    for (int threads = 1; threads <= most; threads++) {
        assert_int_equal(yk_set_num_threads(cpu, threads), YK_OK);
        yk__view v[6];
        for (int i = 0; i < 6; i++) {
            size_t bytes;
            void *data = allocate(results[i].shape, results[i].stride, dtype, &bytes);
            v[i] = make(dtype, 4, results[i].shape, results[i].stride, data);
            results[i].bytes = bytes;
        }
        yk__view gbias = make(dtype, 1, &bs[1], &bt[1], v[4].data);
        assert_int_equal(t->conv2d(0, &p, &v[0], &x, &w, NULL), YK_OK);
        assert_int_equal(t->conv2d(0, &p, &v[1], &x, &w, &bias), YK_OK);
        assert_int_equal(t->conv2d_backward_input(0, &p, &v[2], &gout, &w), YK_OK);
        memcpy(v[5].data, w.data, results[5].bytes);
        assert_int_equal(t->conv2d_accumulate_weight(0, &p, &v[5], threads == 2 ? &gbias : NULL, &gout, &x), YK_OK);
        if (threads != 2)
            assert_int_equal(t->conv2d_backward_weight(0, &p, &v[3], &gbias, &gout, &x), YK_OK);
        else
            assert_int_equal(t->conv2d_backward_weight(0, &p, &v[3], NULL, &gout, &x), YK_OK);
        for (int i = 0; i < 6; i++) {
            if (threads == 1) {
                compare(results[i].what, s, order, &v[i], results[i].want, results[i].size, results[i].bias);
                results[i].first = v[i];
                continue;
            }
            if (results[i].bytes && memcmp(v[i].data, results[i].first.data, results[i].bytes))
                fail_msg("%s has other bits on %d threads: x (%d, %d, %d, %d), w (%d, ...)", results[i].what, threads,
                         (int)s->n, (int)s->c, (int)s->h, (int)s->w, (int)s->o);
            free(v[i].data);
        }
    }
    for (int i = 0; i < 6; i++)
        free(results[i].first.data);
    free(sum), free(sum_size);
    free(x.data), free(w.data), free(gout.data), free(bias4.data);
}

static void test_against_loops(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        int64_t oh = (s->h + 2 * s->padding[0] - s->dilation[0] * (s->kh - 1) - 1) / s->stride[0] + 1;
        int64_t ow = (s->w + 2 * s->padding[1] - s->dilation[1] * (s->kw - 1) - 1) / s->stride[1] + 1;
        for (int expanded = 0; expanded < 2; expanded++) {
            struct reference r;
            reference_init(&r, s, oh, ow, expanded);
            for (int order = 0; order < ORDERS; order++)
                if ((order == EXPANDED) == expanded) {
                    check(s, &r, YK_F32, (enum order)order, oh, ow);
                    check(s, &r, YK_F64, (enum order)order, oh, ow);
                }
            reference_clear(&r);
        }
    }
}

/* The smaller shapes with numbers that bf16 holds. */
static void test_bf16_against_loops(void **state)
{
    (void)state;
    const yk__backend *t = yk__backend_of(cpu);
    if (!(t->takes[YK__SLOT_conv2d] & 1u << YK_BF16)) /* gemm_test asks whether it should */
        skip();
    int checked = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        int64_t oh = (s->h + 2 * s->padding[0] - s->dilation[0] * (s->kh - 1) - 1) / s->stride[0] + 1;
        int64_t ow = (s->w + 2 * s->padding[1] - s->dilation[1] * (s->kw - 1) - 1) / s->stride[1] + 1;
        int64_t xs[4] = {s->n, s->c, s->h, s->w}, ws[4] = {s->o, s->c / s->groups, s->kh, s->kw};
        if (s->n * oh * ow * numel(ws) > 6000000)
            continue;
        struct reference r;
        reference_fill(&r, s, oh, ow, false);
        struct {
            double *of;
            int64_t count;
        } values[4] = {{r.x, numel(xs)}, {r.w, numel(ws)}, {r.gout, s->n * s->o * oh * ow}, {r.bias, s->o}};
        for (int v = 0; v < 4; v++)
            for (int64_t j = 0; j < values[v].count; j++)
                values[v].of[j] = (double)yk__from_bf16(yk__to_bf16((float)values[v].of[j]));
        reference_compute(&r, s, oh, ow);
        for (int order = 0; order < ORDERS; order++)
            if (order != EXPANDED)
                check(s, &r, YK_BF16, (enum order)order, oh, ow);
        reference_clear(&r);
        checked++;
    }
    assert_true(checked >= 60);
}

/* A float32 gradient of a weight that sums many products stays close to float64: sums are kept in blocks. */
static void test_long_sums(void **state)
{
    (void)state;
    const yk__backend *t = yk__backend_of(cpu);
    struct shape s = {256, 16, 16, 16, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1};
    struct reference r;
    reference_init(&r, &s, s.h, s.w, false);
    yk__conv2d p = {{1, 1}, {1, 1}, {1, 1}, 1, false};
    int64_t xs[4] = {s.n, s.c, s.h, s.w}, ws[4] = {s.o, s.c, 3, 3}, xt[4], wt[4];
    strides_of(HWNC, xs, xt);
    strides_of(NCHW, ws, wt);
    yk__view x = holding(YK_F32, xs, xt, r.x), gout = holding(YK_F32, xs, xt, r.gout);
    size_t bytes;
    yk__view gw = make(YK_F32, 4, ws, wt, allocate(ws, wt, YK_F32, &bytes));
    assert_int_equal(t->conv2d_backward_weight(0, &p, &gw, NULL, &gout, &x), YK_OK);
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < numel(ws); i++) {
        difference += pow(get(&gw, i) - r.gw[i], 2);
        norm += r.gw[i] * r.gw[i];
    }
    /* 65,536 products summed one after the other would be about 4e-6 away. */
    assert_true(sqrt(difference / norm) < 8e-7);
    free(x.data), free(gout.data), free(gw.data);
    reference_clear(&r);
}

REFERENCE static void expect_like(const char *what, int kind, const yk__view *v, const double *want, const double *size)
{
    int64_t i = 0, special = 0;
    for (int64_t a = 0; a < v->shape[0]; a++)
        for (int64_t b = 0; b < v->shape[1]; b++)
            for (int64_t c = 0; c < v->shape[2]; c++)
                for (int64_t d = 0; d < v->shape[3]; d++, i++) {
                    double got = get(v, offset(v, a, b, c, d));
                    special += !isfinite(want[i]);
                    if (isnan(want[i]) ? !isnan(got)
                                       : got != want[i] && !(fabs(got - want[i]) <= 32 * 0x1p-24 * size[i]))
                        fail_msg("%s, kind %d: at (%d, %d, %d, %d) got %g, expected %g", what, kind, (int)a, (int)b,
                                 (int)c, (int)d, got, want[i]);
                }
    assert_int_equal(special > 0, kind < 3);
}

/*
 * Infinities, NaN, and numbers of which four can be added but not multiplied by the sum of nine weights: where the taps
 * meet them the results are what a direct sum gives, and nowhere else do they show.
 */
static void check_not_finite(int64_t n, int64_t height, int64_t width, int64_t groups, int64_t dilation,
                             enum order order)
{
    const yk__backend *t = yk__backend_of(cpu);
    const int64_t of_group = 32;
    struct shape s = {.n = n, .c = groups * of_group, .h = height, .w = width, .kh = 3, .kw = 3, .groups = groups};
    yk__conv2d p = {
        .stride = {1, 1}, .padding = {dilation, dilation}, .dilation = {dilation, dilation}, .groups = groups};
    s.o = groups == 1 ? 40 : s.c;
    memcpy(s.stride, p.stride, sizeof s.stride);
    memcpy(s.padding, p.padding, sizeof s.padding);
    memcpy(s.dilation, p.dilation, sizeof s.dilation);
    int64_t xs[4] = {s.n, s.c, s.h, s.w}, ws[4] = {s.o, of_group, 3, 3}, os[4] = {s.n, s.o, s.h, s.w};
    int64_t xt[4], wt[4], ot[4];
    strides_of(order, xs, xt);
    strides_of(NCHW, ws, wt);
    strides_of(order, os, ot);
    const double kinds[4] = {INFINITY, -INFINITY, NAN, 0.8e38};
    for (int kind = 0; kind < 4; kind++)
        for (int in_gout = 0; in_gout < 2; in_gout++) {
            struct reference r;
            reference_fill(&r, &s, s.h, s.w, false);
            /* Channel 3 of image 1, in a square of 2 x 2. */
            int64_t channels = in_gout ? s.o : s.c, y = height / 2 - 1, x_at = width / 2 - 1;
            double *map = (in_gout ? r.gout : r.x) + (channels + 3) * s.h * s.w;
            for (int i = 0; i < (kind < 3 ? 1 : 4); i++)
                map[(y + i / 2) * s.w + x_at + i % 2] = kind < 3 ? kinds[kind] : (double)(float)kinds[kind];
            for (int64_t o = 0; o < s.o; o++)
                for (int64_t c = 0; c < of_group; c++)
                    for (int tap = 0; tap < 9 && (in_gout ? o : c) == 3; tap++)
                        r.w[(o * of_group + c) * 9 + tap] = 0.875;
            reference_compute(&r, &s, s.h, s.w);
            yk__view x = holding(YK_F32, xs, xt, r.x), w = holding(YK_F32, ws, wt, r.w);
            yk__view gout = holding(YK_F32, os, ot, r.gout);
            size_t bytes;
            yk__view out = make(YK_F32, 4, os, ot, allocate(os, ot, YK_F32, &bytes));
            yk__view gx = make(YK_F32, 4, xs, xt, allocate(xs, xt, YK_F32, &bytes));
            yk__view gw = make(YK_F32, 4, ws, wt, allocate(ws, wt, YK_F32, &bytes));
            if (in_gout) {
                assert_int_equal(t->conv2d_backward_input(0, &p, &gx, &gout, &w), YK_OK);
                expect_like("gradient of the input", kind, &gx, r.gx, r.gx_size);
            } else {
                assert_int_equal(t->conv2d(0, &p, &out, &x, &w, NULL), YK_OK);
                expect_like("forward", kind, &out, r.out, r.out_size);
            }
            assert_int_equal(t->conv2d_backward_weight(0, &p, &gw, NULL, &gout, &x), YK_OK);
            expect_like("gradient of the weight", kind, &gw, r.gw, r.gw_size);
            memset(gw.data, 0, bytes);
            assert_int_equal(t->conv2d_accumulate_weight(0, &p, &gw, NULL, &gout, &x), YK_OK);
            expect_like("gradient added to zeros", kind, &gw, r.gw, r.gw_size);
            free(x.data), free(w.data), free(gout.data), free(out.data), free(gx.data), free(gw.data);
            reference_clear(&r);
        }
}

static void test_not_finite(void **state)
{
    (void)state;
    check_not_finite(2, 6, 7, 1, 1, HWNC);
    check_not_finite(2, 6, 7, 1, 1, NCHW);
    check_not_finite(2, 12, 14, 1, 2, HWNC);
    check_not_finite(12, 2, 2, 1, 1, HWNC);
    check_not_finite(2, 6, 7, 3, 1, HWNC);
}

/* Errors are those of direct sums: some units in the last place of the largest results, not of the sums of their parts.
 */
static void check_error_of_tiles(int64_t n, int64_t side)
{
    const yk__backend *t = yk__backend_of(cpu);
    struct shape s = {n, 128, side, side, 128, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1};
    struct reference r;
    reference_fill(&r, &s, s.h, s.w, false);
    for (int64_t i = 0; i < s.o * s.c * 9; i++)
        r.w[i] = (double)(float)(r.w[i] * 0.05);
    reference_compute(&r, &s, s.h, s.w);
    yk__conv2d p = {{1, 1}, {1, 1}, {1, 1}, 1, false};
    int64_t xs[4] = {s.n, s.c, s.h, s.w}, ws[4] = {s.o, s.c, 3, 3}, xt[4], wt[4];
    strides_of(HWNC, xs, xt);
    strides_of(NCHW, ws, wt);
    yk__view x = holding(YK_F32, xs, xt, r.x), w = holding(YK_F32, ws, wt, r.w);
    size_t bytes;
    yk__view out = make(YK_F32, 4, xs, xt, allocate(xs, xt, YK_F32, &bytes));
    assert_int_equal(t->conv2d(0, &p, &out, &x, &w, NULL), YK_OK);
    double worst = 0;
    int64_t i = 0;
    for (int64_t a = 0; a < xs[0]; a++)
        for (int64_t b = 0; b < xs[1]; b++)
            for (int64_t c = 0; c < xs[2]; c++)
                for (int64_t d = 0; d < xs[3]; d++, i++)
                    worst = fmax(worst, fabs(get(&out, offset(&out, a, b, c, d)) - r.out[i]));
    if (!(worst < 2e-6))
        fail_msg("maps of %d x %d: largest error %.3g, of results up to about 4", (int)side, (int)side, worst);
    free(x.data), free(w.data), free(out.data);
    reference_clear(&r);
}

static void test_error_of_tiles(void **state)
{
    (void)state;
    check_error_of_tiles(4, 14);
    check_error_of_tiles(64, 2);
}

/* Depthwise planes: what is not finite shows where a tap meets it, and where a tap is outside the image it does not. */
static void test_planes_not_finite(void **state)
{
    (void)state;
    const yk__backend *t = yk__backend_of(cpu);
    const double kinds[3] = {INFINITY, -INFINITY, NAN};
    for (int kind = 0; kind < 3; kind++)
        for (int where = 0; where < 3; where++) /* in x, w, gout */
            for (int64_t width = 7; width <= 40; width += 7) {
                struct shape s = {2, 4, 4, width, 4, 3, 3, {1, 1}, {1, 1}, {1, 1}, 4};
                yk__conv2d p = {{1, 1}, {1, 1}, {1, 1}, 4, false};
                int64_t xs[4] = {s.n, s.c, s.h, s.w}, ws[4] = {s.o, 1, 3, 3}, xt[4], wt[4];
                struct reference r;
                reference_fill(&r, &s, s.h, s.w, false);
                if (where == 1) {
                    r.w[0] = r.w[9 + 2] = r.w[18 + 8] = kinds[kind];
                } else { /* both ends of the first row of one channel, and of the last row of another */
                    double *map = where ? r.gout : r.x, *last = map + 2 * s.h * s.w - s.w;
                    map[0] = map[s.w - 1] = last[0] = last[s.w - 1] = kinds[kind];
                }
                reference_compute(&r, &s, s.h, s.w);
                strides_of(NCHW, xs, xt);
                strides_of(NCHW, ws, wt);
                yk__view x = holding(YK_F32, xs, xt, r.x), w = holding(YK_F32, ws, wt, r.w);
                yk__view gout = holding(YK_F32, xs, xt, r.gout);
                size_t bytes;
                yk__view out = make(YK_F32, 4, xs, xt, allocate(xs, xt, YK_F32, &bytes));
                yk__view gx = make(YK_F32, 4, xs, xt, allocate(xs, xt, YK_F32, &bytes));
                yk__view gw = make(YK_F32, 4, ws, wt, allocate(ws, wt, YK_F32, &bytes));
                assert_int_equal(t->conv2d(0, &p, &out, &x, &w, NULL), YK_OK);
                expect_like("forward", where == 2 ? 3 : kind, &out, r.out, r.out_size);
                assert_int_equal(t->conv2d_backward_input(0, &p, &gx, &gout, &w), YK_OK);
                expect_like("gradient of the input", where == 0 ? 3 : kind, &gx, r.gx, r.gx_size);
                assert_int_equal(t->conv2d_backward_weight(0, &p, &gw, NULL, &gout, &x), YK_OK);
                expect_like("gradient of the weight", where == 1 ? 3 : kind, &gw, r.gw, r.gw_size);
                free(x.data), free(w.data), free(gout.data), free(out.data), free(gx.data), free(gw.data);
                reference_clear(&r);
            }
}

/* Outputs get the memory order that the fast kernels want; weights likewise. */
static void test_layouts(void **state)
{
    (void)state;
    const yk__backend *t = yk__backend_of(cpu);
    yk__conv2d p = {{1, 1}, {1, 1}, {1, 1}, 1, false}, grouped = {{1, 1}, {1, 1}, {1, 1}, 2, false};
    int64_t xs[4] = {8, 64, 4, 4}, ws[4] = {32, 64, 3, 3}, os[4] = {8, 32, 4, 4}, xt[4], wt[4], ot[4];
    strides_of(NCHW, xs, xt);
    t->conv2d_weight_layout(&p, YK_F32, ws, wt);
    yk__view x = make(YK_F32, 4, xs, xt, NULL), w = make(YK_F32, 4, ws, wt, NULL);
    t->conv2d_layout(&p, &x, &w, os, ot);
    const int64_t batch_inner[4] = {32, 1, 4 * 8 * 32, 8 * 32}, taps_outer[4] = {1, 32, 3 * 64 * 32, 64 * 32};
    assert_memory_equal(ot, batch_inner, sizeof ot);
    assert_memory_equal(wt, taps_outer, sizeof wt);
    int64_t gs[4] = {32, 32, 3, 3};
    t->conv2d_weight_layout(&grouped, YK_F32, gs, wt);
    w = make(YK_F32, 4, gs, wt, NULL);
    t->conv2d_layout(&grouped, &x, &w, os, ot);
    const int64_t w_order[4] = {32 * 9, 9, 3, 1};
    assert_memory_equal(ot, batch_inner, sizeof ot);
    assert_memory_equal(wt, w_order, sizeof wt);
    /* Depthwise, and channels that do not fill vectors. */
    yk__conv2d depthwise = {{1, 1}, {1, 1}, {1, 1}, 64, false};
    int64_t ds[4] = {64, 1, 3, 3}, dos[4] = {8, 64, 4, 4};
    strides_of(NCHW, ds, wt);
    w = make(YK_F32, 4, ds, wt, NULL);
    t->conv2d_layout(&depthwise, &x, &w, dos, ot);
    const int64_t of_64[4] = {64, 1, 4 * 8 * 64, 8 * 64}, of_24[4] = {24, 1, 4 * 8 * 24, 8 * 24};
    assert_memory_equal(ot, of_64, sizeof ot);
    /* Depthwise with longer rows: that of the input. */
    int64_t ls[4] = {8, 64, 4, 9}, lt[4];
    for (int order = 0; order < 2; order++) {
        strides_of(order ? HWNC : NCHW, ls, lt);
        yk__view longer = make(YK_F32, 4, ls, lt, NULL);
        t->conv2d_layout(&depthwise, &longer, &w, ls, ot);
        assert_memory_equal(ot, lt, sizeof ot);
    }
    int64_t us[4] = {24, 64, 3, 3}, uos[4] = {8, 24, 4, 4};
    strides_of(NCHW, us, wt);
    w = make(YK_F32, 4, us, wt, NULL);
    t->conv2d_layout(&p, &x, &w, uos, ot);
    assert_memory_equal(ot, of_24, sizeof ot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_loops),  cmocka_unit_test(test_bf16_against_loops),
        cmocka_unit_test(test_long_sums),      cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_error_of_tiles), cmocka_unit_test(test_planes_not_finite),
        cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests_name("conv", tests, NULL, NULL);
}
