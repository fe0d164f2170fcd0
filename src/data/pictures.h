/*
 * pictures.h - the decoders of pictures beside those of image_decode.c, and the check that they share. Layer: data.
 */
#ifndef YOKE_DATA_PICTURES_H
#define YOKE_DATA_PICTURES_H

#include "data/dataset.h"

/* Fails unless a file of `size` bytes can hold a picture of that many pixels (image_decode.c). */
yk_status yk__picture_check_size(const char *format, uint64_t width, uint64_t height, size_t size,
                                 uint64_t pixels_a_byte);
/* Decode a BMP, PGM or PPM, TIFF or WebP file to a u8 (3, H, W) sample (bmp.c, pnm.c, tiff.c, webp.c). */
yk_status yk__bmp_decode(const unsigned char *bytes, size_t size, yk_sample *sample);
yk_status yk__pnm_decode(const unsigned char *bytes, size_t size, yk_sample *sample);
yk_status yk__tiff_decode(const unsigned char *bytes, size_t size, yk_sample *sample);
yk_status yk__webp_decode(const unsigned char *bytes, size_t size, yk_sample *sample);

#endif
