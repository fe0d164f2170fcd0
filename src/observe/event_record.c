/*
 * event_record.c - records of TensorBoard's event files. Layer: observe.
 *
 * The numbers of fields are those of TensorBoard 2.21's event.proto, summary.proto, tensor.proto and plugin_data.proto.
 */
#include "observe/event_record.h"

#include <float.h>
#include <math.h>

#include <pthread.h>
#include <zlib.h>

enum { BUCKETS = 64, DT_STRING = 7, CLASS_TENSOR = 2 };

/* ---- records ----------------------------------------------------------------------------------------------------- */
static uint32_t crc_table[256];

static void table_make(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        crc_table[i] = crc;
    }
}

uint32_t yk__crc32c(const void *data, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, table_make);
    const unsigned char *bytes = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++)
        crc = crc_table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    return ~crc;
}

/* A checksum of data with checksums in it would be weak, so the format turns each by 15 bits and adds a constant. */
static uint32_t crc_masked(const void *data, size_t size)
{
    uint32_t crc = yk__crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

void yk__record_add(yk__proto *to, yk__proto *data)
{
    size_t begin = to->size;
    yk__proto_fixed(to, data->size, 8);
    if (!to->failed)
        yk__proto_fixed(to, crc_masked(to->data + begin, 8), 4);
    yk__proto_raw(to, data->data, data->size);
    yk__proto_fixed(to, crc_masked(data->data, data->size), 4);
    if (to->failed || data->failed) /* whole records alone */
        to->size = begin;
    free(data->data);
    *data = (yk__proto){0};
}

/* ---- events ------------------------------------------------------------------------------------------------------ */
void yk__record_version(yk__proto *event, double time)
{
    yk__proto_double(event, 1, time);
    yk__proto_text(event, 3, "brain.Event:2");
}

void yk__record_summary(yk__proto *event, double time, int64_t step, yk__proto *value)
{
    yk__proto summary = {0};
    yk__proto_message(&summary, 1, value);
    yk__proto_double(event, 1, time);
    yk__proto_int(event, 2, step);
    yk__proto_message(event, 5, &summary);
}

void yk__record_graph(yk__proto *event, double time, yk__proto *graph)
{
    yk__proto_double(event, 1, time);
    yk__proto_message(event, 4, graph);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */
void yk__board_scalar(yk__proto *value, const char *tag, double number)
{
    yk__proto_text(value, 1, tag);
    yk__proto_float(value, 2, (float)number);
}

/* SummaryMetadata: the plug-in that shows the value, and a message for it. */
static void put_metadata(yk__proto *value, const char *plugin, yk__proto *content, int class)
{
    yk__proto data = {0}, metadata = {0};
    yk__proto_text(&data, 1, plugin);
    if (content)
        yk__proto_message(&data, 2, content);
    yk__proto_message(&metadata, 1, &data);
    if (class)
        yk__proto_int(&metadata, 4, class);
    yk__proto_message(value, 9, &metadata);
}

void yk__board_text(yk__proto *value, const char *tag, const char *text)
{
    yk__proto tensor = {0}, shape = {0}, dimension = {0};
    yk__proto_int(&dimension, 1, 1);
    yk__proto_message(&shape, 2, &dimension);
    yk__proto_int(&tensor, 1, DT_STRING);
    yk__proto_message(&tensor, 2, &shape);
    yk__proto_text(&tensor, 8, text);
    yk__proto_text(value, 1, tag);
    yk__proto_message(value, 8, &tensor);
    put_metadata(value, "text", NULL, CLASS_TENSOR);
}

void yk__board_hparams(yk__proto *value, const char *tag, yk__proto *content)
{
    yk__proto_text(value, 1, tag);
    put_metadata(value, "hparams", content, 0);
}

bool yk__board_histogram(yk__proto *value, const char *tag, const float *numbers, size_t count)
{
    double least = INFINITY, most = -INFINITY, sum = 0, squares = 0, buckets[BUCKETS] = {0};
    size_t finite = 0;
    for (size_t i = 0; i < count; i++) {
        double x = numbers[i];
        if (!isfinite(x))
            continue;
        finite++;
        least = x < least ? x : least;
        most = x > most ? x : most;
        sum += x;
        squares += x * x;
    }
    if (!finite)
        return false;
    double width = (most - least) / BUCKETS;
    for (size_t i = 0; i < count; i++) {
        double x = numbers[i];
        int at = isfinite(x) && width > 0 ? (int)((x - least) / width) : 0;
        if (isfinite(x))
            buckets[at < 0 ? 0 : at >= BUCKETS ? BUCKETS - 1 : at]++;
    }
    /* A bucket reaches from the limit before it to its own; in front there is an empty one that ends at the least. */
    yk__proto histogram = {0}, limits = {0}, counts = {0};
    int used = width > 0 ? BUCKETS : 1;
    yk__proto_double_bits(&limits, least);
    yk__proto_double_bits(&counts, 0);
    for (int i = 0; i < used; i++) {
        yk__proto_double_bits(&limits,
                              i == used - 1 ? (width > 0 ? most : nextafter(most, INFINITY)) : least + width * (i + 1));
        yk__proto_double_bits(&counts, buckets[i]);
    }
    yk__proto_double(&histogram, 1, least);
    yk__proto_double(&histogram, 2, most);
    yk__proto_double(&histogram, 3, (double)finite);
    yk__proto_double(&histogram, 4, sum);
    yk__proto_double(&histogram, 5, squares);
    yk__proto_message(&histogram, 6, &limits);
    yk__proto_message(&histogram, 7, &counts);
    yk__proto_text(value, 1, tag);
    yk__proto_message(value, 5, &histogram);
    return true;
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */
static void put_big_endian(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* A chunk of PNG: length, name, data, and the CRC-32 of the last two. */
static void put_chunk(yk__proto *png, const char *name, const void *data, size_t size)
{
    unsigned char number[4];
    put_big_endian(number, (uint32_t)size);
    yk__proto_raw(png, number, 4);
    size_t begin = png->size;
    yk__proto_raw(png, name, 4);
    yk__proto_raw(png, data, size);
    put_big_endian(number, png->failed ? 0 : yk__crc32(0, png->data + begin, size + 4));
    yk__proto_raw(png, number, 4);
}

bool yk__board_image(yk__proto *value, const char *tag, const unsigned char *pixels, int height, int width,
                     int channels)
{
    static const unsigned char colours[5] = {0, 0, 4, 2, 6}; /* grey, grey with alpha, RGB, RGB with alpha */
    size_t row = (size_t)width * (size_t)channels, size = (row + 1) * (size_t)height;
    uLongf packed = compressBound(size);
    unsigned char head[13] = {0}, *rows = malloc(size), *data = malloc(packed);
    bool fine = rows && data;
    for (int y = 0; fine && y < height; y++) { /* each row has a byte in front: 0, it is as it is */
        rows[(row + 1) * (size_t)y] = 0;
        memcpy(rows + (row + 1) * (size_t)y + 1, pixels + row * (size_t)y, row);
    }
    fine = fine && compress2(data, &packed, rows, size, 3) == Z_OK;
    if (fine) {
        yk__proto png = {0}, image = {0};
        put_big_endian(head, (uint32_t)width);
        put_big_endian(head + 4, (uint32_t)height);
        head[8] = 8; /* bits */
        head[9] = colours[channels];
        yk__proto_raw(&png, "\x89PNG\r\n\x1a\n", 8);
        put_chunk(&png, "IHDR", head, sizeof(head));
        put_chunk(&png, "IDAT", data, packed);
        put_chunk(&png, "IEND", "", 0);
        yk__proto_int(&image, 1, height);
        yk__proto_int(&image, 2, width);
        yk__proto_int(&image, 3, channels);
        yk__proto_message(&image, 4, &png);
        yk__proto_text(value, 1, tag);
        yk__proto_message(value, 4, &image);
    }
    free(rows);
    free(data);
    return fine && !value->failed;
}
