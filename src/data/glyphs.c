/*
 * glyphs.c - the embedded data set: generated pictures of the ten digits, 28x28, one channel. Layer: data.
 *
 * Every digit has two hand-drawn forms made of line segments. A field of distances to them is computed once; a sample
 * reads it through a random affine map with a bend, turns distance into ink by a random stroke width, draws a stroke or
 * two that belong to no digit, picks two grey levels (light on dark more often than the other way) and adds noise.
 * Turned, moved and inverted digits are what a linear model cannot tell apart and a small convolutional network can.
 *
 * Invariant: a sample is a function of (seed, split, index) in integer arithmetic alone, so it has the same bytes on
 * every machine. Samples are drawn when they are first asked for and kept.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

enum {
    SIDE = 28,
    PIXELS = SIDE * SIDE,
    CLASSES = 10,
    FORMS = 2, /* per digit */
    GRID = 48, /* the field covers GRID x GRID points of the drawings' plane; the drawings lie in its middle */
    FAR = 16 * 16
};

/* The forms: polylines on a plane of 48 x 48, x to the right and y down. '|' in the comments parts polylines; a
 * point with x 0 ends one, two end the form. */
static const unsigned char forms[CLASSES][FORMS][60] = {
    {/* 0 */
     {24, 11, 19, 12, 16, 17, 15, 24, 16, 31, 19, 36, 24, 37, 29, 36, 32, 31, 33, 24, 32, 17, 29, 12, 24, 11},
     {24, 11, 18, 13, 16, 24, 18, 35, 24, 37, 30, 35, 32, 24, 30, 13, 24, 11, 0, 0, 28, 17, 20, 31}},
    {/* 1 */ {18, 16, 25, 11, 25, 37}, {19, 16, 24, 11, 24, 37, 0, 0, 18, 37, 30, 37}},
    {/* 2 */
     {16, 17, 18, 13, 24, 11, 30, 13, 32, 18, 29, 24, 16, 37, 33, 37},
     {16, 15, 22, 11, 29, 12, 32, 17, 30, 22, 22, 28, 16, 34, 18, 37, 23, 34, 28, 36, 33, 34}},
    {/* 3 */
     {16, 14, 20, 11, 28, 12, 31, 17, 28, 22, 22, 24, 29, 26, 32, 31, 29, 36, 20, 37, 16, 34},
     {16, 11, 32, 11, 23, 21, 29, 23, 32, 29, 29, 35, 22, 37, 16, 34}},
    {/* 4 */
     {27, 11, 15, 29, 34, 29, 0, 0, 28, 20, 28, 37},
     {18, 11, 16, 24, 31, 24, 0, 0, 31, 11, 30, 37}},
    {/* 5 */
     {31, 11, 18, 11, 17, 22, 24, 20, 30, 22, 32, 28, 29, 35, 22, 37, 16, 34},
     {32, 11, 17, 11, 17, 23, 31, 23, 31, 37, 16, 37}},
    {/* 6 */
     {30, 12, 23, 12, 17, 20, 16, 29, 19, 36, 25, 37, 31, 34, 32, 28, 28, 23, 21, 24, 17, 29},
     {26, 11, 20, 19, 17, 28, 20, 36, 27, 37, 32, 32, 29, 26, 23, 26, 18, 30}},
    {/* 7 */
     {16, 11, 33, 11, 22, 37},
     {16, 11, 33, 11, 27, 22, 23, 37, 0, 0, 20, 24, 32, 24}},
    {/* 8 */
     {24, 23, 18, 20, 18, 14, 24, 11, 30, 14, 30, 20, 24, 23, 17, 27, 16, 33, 24, 37, 32, 33, 31, 27, 24, 23},
     {31, 14, 25, 11, 18, 13, 19, 20, 29, 27, 32, 33, 26, 37, 17, 35, 17, 28, 29, 19, 31, 14}},
    {/* 9 */
     {31, 20, 27, 25, 20, 25, 16, 19, 18, 13, 25, 11, 31, 14, 32, 21, 30, 31, 24, 37, 18, 36},
     {30, 22, 22, 24, 17, 19, 19, 12, 26, 11, 31, 15, 30, 25, 27, 37}},
};

/* Distance to the form in sixteenths of a unit, at each point of the grid. */
static short fields[CLASSES][FORMS][GRID + 1][GRID + 1];
static pthread_once_t fields_once = PTHREAD_ONCE_INIT;

static int square_root(int value)
{
    int root = 0;
    for (int bit = 1 << 14; bit; bit >>= 1) {
        if ((root + bit) * (root + bit) <= value)
            root += bit;
    }
    return root;
}

/* Lowers the squares of distance, in 1/256 of a unit, by one segment. */
static void add_segment(int squares[GRID][GRID], const unsigned char from[2], const unsigned char to[2])
{
    int ax = 16 * from[0], ay = 16 * from[1], dx = 16 * to[0] - ax, dy = 16 * to[1] - ay;
    int length = dx * dx + dy * dy;
    for (int y = 0; y < GRID; y++) {
        for (int x = 0; x < GRID; x++) {
            int px = 16 * x - ax, py = 16 * y - ay;
            int along = px * dx + py * dy;
            int ex = px, ey = py;
            if (along >= length) {
                ex = px - dx;
                ey = py - dy;
            } else if (along > 0) {
                int part = (int)(((int64_t)along << 12) / length); /* in 1/4096 of the segment */
                ex = px - ((dx * part) >> 12);
                ey = py - ((dy * part) >> 12);
            }
            int square = ex * ex + ey * ey;
            if (square < squares[y][x])
                squares[y][x] = square;
        }
    }
}

static void fields_make(void)
{
    for (int digit = 0; digit < CLASSES; digit++) {
        for (int form = 0; form < FORMS; form++) {
            int squares[GRID][GRID];
            for (int i = 0; i < GRID * GRID; i++)
                squares[i / GRID][i % GRID] = FAR * FAR;
            const unsigned char *point = forms[digit][form];
            for (; point[0] || point[2]; point += 2) {
                if (point[0] && point[2])
                    add_segment(squares, point, point + 2);
            }
            for (int y = 0; y <= GRID; y++) {
                for (int x = 0; x <= GRID; x++) {
                    bool inside = y < GRID && x < GRID;
                    fields[digit][form][y][x] = (short)(inside ? square_root(squares[y][x]) : FAR);
                }
            }
        }
    }
}

/* Random bits of one sample, handed out in order. */
typedef struct dice {
    yk__stream stream;
    uint64_t block;
    uint32_t words[4];
    int left;
} dice;

static uint32_t roll(dice *d)
{
    if (d->left == 0) {
        yk__philox(d->stream, d->block++, d->words);
        d->left = 4;
    }
    return d->words[--d->left];
}

/* A whole number from low to high. */
static int between(dice *d, int low, int high)
{
    return low + (int)(((uint64_t)roll(d) * (uint64_t)(high - low + 1)) >> 32);
}

/* A stroke that belongs to no digit, as ink from 0 to 256. */
static void add_stray(dice *d, short *ink)
{
    int x = between(d, 0, 27 * 256), y = between(d, 0, 27 * 256);
    int dx = between(d, -150, 150), dy = between(d, -150, 150);
    int steps = between(d, 8, 20), level = between(d, 120, 256);
    for (int i = 0; i < steps; i++, x += dx, y += dy) {
        int column = x >> 8, row = y >> 8, fx = x & 255, fy = y & 255;
        if (column < 0 || row < 0 || column >= SIDE - 1 || row >= SIDE - 1)
            continue;
        int weights[4] = {(256 - fx) * (256 - fy), fx * (256 - fy), (256 - fx) * fy, fx * fy};
        for (int k = 0; k < 4; k++) {
            short *at = ink + (row + k / 2) * SIDE + column + k % 2;
            int value = (weights[k] * level) >> 15; /* twice the share, as two steps share a pixel */
            value = value > level ? level : value;
            if (*at < value)
                *at = (short)value;
        }
    }
}

/* Draws one sample into pixels (28 x 28) and returns its label. Each sample owns 2^16 blocks of its stream. */
int yk__glyph_draw(uint64_t seed, uint32_t split, int64_t index, unsigned char *pixels)
{
    pthread_once(&fields_once, fields_make);
    dice d = {.stream = {.key = seed, .purpose = YK__RANDOM_GLYPHS, .epoch = split}, .block = (uint64_t)index << 16};
    int digit = (int)(index % CLASSES);
    const short(*field)[GRID + 1] = fields[digit][between(&d, 0, FORMS - 1)];

    /* The map from the picture to the plane, in 1/1024: turn (cosine by its series), scale, slant. */
    int sine = between(&d, -300, 300), cosine = 1024 - sine * sine / 2048;
    int scale_x = between(&d, 1050, 1750), scale_y = between(&d, 1050, 1500), slant = between(&d, -260, 260);
    int a = cosine * scale_x >> 10, b = -sine * scale_x >> 10;
    int e = sine * scale_y >> 10, f = cosine * scale_y >> 10;
    a += e * slant >> 10;
    b += f * slant >> 10;
    int shift_x = between(&d, -3 * 1024, 3 * 1024), shift_y = between(&d, -3 * 1024, 3 * 1024);
    int bend = between(&d, -12, 12);
    int width = between(&d, 20, 44); /* half of the stroke, in 1/16 of a unit */

    short ink[PIXELS];
    for (int y = 0; y < SIDE; y++) {
        int py = y * 1024 - 13824 - shift_y; /* the middle is at 13.5 */
        int curve = ((py >> 5) * (py >> 5) >> 10) * bend;
        int px = -13824 - shift_x;
        int64_t u0 = ((int64_t)px * a + (int64_t)py * b) / 1024 + 24 * 1024 + curve;
        int64_t v0 = ((int64_t)px * e + (int64_t)py * f) / 1024 + 24 * 1024;
        int u = (int)u0, v = (int)v0;
        for (int x = 0; x < SIDE; x++, u += a, v += e) {
            int column = u >> 10, row = v >> 10;
            int distance = FAR;
            if ((unsigned)column < GRID && (unsigned)row < GRID) {
                int fx = (u & 1023) >> 4, fy = (v & 1023) >> 4;
                int top = field[row][column] * (64 - fx) + field[row][column + 1] * fx;
                int bottom = field[row + 1][column] * (64 - fx) + field[row + 1][column + 1] * fx;
                distance = (top * (64 - fy) + bottom * fy) >> 12;
            }
            int level = (width + 8 - distance) * 12; /* an edge of about one pixel */
            ink[y * SIDE + x] = (short)(level < 0 ? 0 : level > 256 ? 256 : level);
        }
    }
    for (int strays = between(&d, 0, 2); strays > 0; strays--)
        add_stray(&d, ink);

    /* Two grey levels at least 90 apart, the ink the lighter one in three of four. */
    int contrast = between(&d, 90, 200), low = between(&d, 10, 245 - contrast);
    bool inverted = between(&d, 0, 3) == 0;
    int paper = inverted ? low + contrast : low, gain = inverted ? -contrast : contrast;
    int noise = between(&d, 4, 32);
    for (int i = 0; i < PIXELS; i += 4) {
        uint32_t bits = roll(&d);
        for (int k = 0; k < 4; k++, bits >>= 8) {
            int value = paper + (ink[i + k] * gain) / 256 + (((int)(bits & 255) - 128) * noise) / 128;
            pixels[i + k] = (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    return digit;
}

/* ---- the data set ---------------------------------------------------------------------------------------- */
enum { TRAIN_LENGTH = 12000, TEST_LENGTH = 2000 };

typedef struct glyphs {
    uint64_t seed;
    yk_data_split split;
    atomic_uchar *states;  /* per sample: a glyph_state */
    unsigned char *pixels; /* (length, 28, 28) */
} glyphs;
typedef enum glyph_state { GLYPH_NONE, GLYPH_BUSY, GLYPH_READY } glyph_state;

static void glyphs_destroy(void *context)
{
    glyphs *g = context;
    free(g->states);
    free(g->pixels);
    free(g);
}

static yk_status glyphs_get(void *context, int64_t index, yk_sample *sample)
{
    glyphs *g = context;
    const int64_t shape[] = {1, SIDE, SIDE};
    unsigned char *kept = g->pixels + index * PIXELS, found = GLYPH_NONE;
    atomic_uchar *state = &g->states[index];
    yk_sample_label(sample, index % CLASSES);
    if (atomic_load_explicit(state, memory_order_acquire) == GLYPH_READY) {
        yk_sample_view(sample, kept, YK_U8, 3, shape);
    } else if (atomic_compare_exchange_strong(state, &found, GLYPH_BUSY)) {
        yk__glyph_draw(g->seed, g->split, index, kept);
        atomic_store_explicit(state, GLYPH_READY, memory_order_release);
        yk_sample_view(sample, kept, YK_U8, 3, shape);
    } else {
        /* Another worker is drawing it at this moment: drawn again, rather than waited for. */
        unsigned char *own = yk_sample_allocate(sample, YK_U8, 3, shape);
        if (!own)
            return YK_ERR_MEMORY;
        yk__glyph_draw(g->seed, g->split, index, own);
    }
    return YK_OK;
}

static void glyphs_describe(void *context, int64_t index, char *text, size_t size)
{
    const glyphs *g = context;
    snprintf(text, size, "glyphs %s, seed %llu, record %lld", g->split == YK_TEST ? "test" : "train",
             (unsigned long long)g->seed, (long long)index);
}

yk_dataset *yk_glyphs(yk_data_split split, yk_transform *transform, uint64_t seed)
{
    YK__LIVE(transform);
    static const char *const names[CLASSES] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    if (yk__transform_lost(transform) || !yk__scope_check("glyphs"))
        return NULL;
    glyphs *g = yk__calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    int64_t length = split == YK_TEST ? TEST_LENGTH : TRAIN_LENGTH;
    g->seed = seed;
    g->split = split;
    g->states = yk__calloc((size_t)length, sizeof(*g->states));
    g->pixels = g->states ? malloc((size_t)length * PIXELS) : NULL; /* touched, and so paid for, as it is drawn */
    if (!g->pixels) {
        yk__fail_memory((size_t)length * PIXELS);
        glyphs_destroy(g);
        return NULL;
    }
    yk_dataset_table table = {.name = "glyphs",
                              .length = length,
                              .classes = CLASSES,
                              .class_names = names,
                              .get = glyphs_get,
                              .describe = glyphs_describe,
                              .destroy = glyphs_destroy};
    return yk__dataset_of_images(&table, g, transform);
}
