/*
 * webp.c - WebP files to (3, H, W) bytes, by libwebp, which is loaded at the first one. Layer: data.
 *
 * Nothing else needs the library, so it is none of the build's, and its few functions are declared here; their
 * interface has not changed since libwebp.so.6. Alpha is dropped, as PIL's convert("RGB") does.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "data/dataset.h"
#include "data/pictures.h"
#include "device/table.h"

static struct {
    int (*info)(const unsigned char *bytes, size_t size, int *width, int *height);
    unsigned char *(*decode)(const unsigned char *bytes, size_t size, unsigned char *to, size_t room, int stride);
} webp;

static bool symbol_find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof(symbol)); /* ISO C converts no object pointer to a function's */
    return symbol != NULL;
}

static void load(void)
{
    static const char *const names[] = {"libwebp.so.7", "libwebp.so.6", "libwebp.so"};
    void *library = NULL;
    for (int i = 0; i < 3 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library || !symbol_find(library, "WebPGetInfo", &webp.info) ||
        !symbol_find(library, "WebPDecodeRGBInto", &webp.decode))
        webp.info = NULL;
}

yk_status yk__webp_decode(const unsigned char *bytes, size_t size, yk_sample *sample)
{
    enum { MOST_EXPANSION = 1 << 27 }; /* one colour takes some bytes, however large it is */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int width = 0, height = 0;
    pthread_once(&once, load);
    if (!webp.info)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "a WebP file: libwebp.so.7 reads those, and is not on this machine (Debian: "
                        "libwebp7)");
    if (!webp.info(bytes, size, &width, &height) || width < 1 || height < 1)
        return yk__fail(YK_ERR_FORMAT, "bad WebP: the header is damaged, or not whole");
    yk_status status = yk__picture_check_size("bad WebP", (uint64_t)width, (uint64_t)height, size, MOST_EXPANSION);
    if (status)
        return status;
    size_t row = (size_t)width * 3, plane = (size_t)width * (size_t)height;
    unsigned char *pixels = yk__buffer_get(&sample->worker->rows, plane * 3);
    if (!pixels)
        return YK_ERR_MEMORY;
    if (!webp.decode(bytes, size, pixels, plane * 3, (int)row))
        return yk__fail(YK_ERR_FORMAT, "bad WebP: the data are damaged or not whole, or it is an animation");
    unsigned char *to = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){3, height, width});
    if (!to)
        return YK_ERR_MEMORY;
    for (int64_t y = 0; y < height; y++)
        yk__backend_of((yk_device){0})->split_pixels(pixels + (size_t)y * row, width, to + y * width, (int64_t)plane);
    return YK_OK;
}
