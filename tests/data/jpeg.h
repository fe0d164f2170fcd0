/* jpeg.h - JPEG files for the data tests, written by libjpeg. */
#ifndef YOKE_TESTS_DATA_JPEG_H
#define YOKE_TESTS_DATA_JPEG_H

#include <stdio.h>

#include <jpeglib.h>

/* Interleaved pixels as a JPEG file that the caller frees; its size. There are `across` x `down` brightnesses to each
 * colour. */
static inline size_t make_jpeg(unsigned char **to, const unsigned char *pixels, unsigned width, unsigned height,
                               int components, J_COLOR_SPACE space, int quality, bool progressive, int across, int down)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned long size = 0;
    *to = NULL;
    jpeg_mem_dest(&info, to, &size);
    info.image_width = width;
    info.image_height = height;
    info.input_components = components;
    info.in_color_space = space;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    info.comp_info[0].h_samp_factor = across;
    info.comp_info[0].v_samp_factor = down;
    if (progressive)
        jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < height) {
        JSAMPROW row = (JSAMPROW)pixels + info.next_scanline * width * (unsigned)components;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return size;
}

#endif
