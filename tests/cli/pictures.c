/*
 * pictures.c - makes small pictures for the scripts: pictures FILE WIDTH HEIGHT RED GREEN BLUE SEED [...], as many as
 * there are sevens of arguments; JPEG where the name ends in .jpg, otherwise PNG. A colour with noise by the seed.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "tests/data/jpeg.h"

enum { ARGUMENTS = 7, NOISE = 24 };

static int write_picture(char **argument)
{
    const char *path = argument[0];
    unsigned width = (unsigned)atoi(argument[1]), height = (unsigned)atoi(argument[2]);
    unsigned noise = (unsigned)atoi(argument[6]) * 2654435761u + 1;
    unsigned char *pixels = malloc(3ul * width * height), *bytes;
    for (unsigned i = 0; pixels && i < 3 * width * height; i++) {
        noise = noise * 1664525u + 1013904223u;
        int value = atoi(argument[3 + i % 3]) + (int)(noise >> 16) % NOISE - NOISE / 2;
        pixels[i] = (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    int failed = !pixels;
    if (!failed && strstr(path, ".jpg")) {
        size_t size = make_jpeg(&bytes, pixels, width, height, 3, JCS_RGB, 95, 0, 1, 1);
        FILE *file = fopen(path, "wb");
        failed = !file || fwrite(bytes, 1, size, file) != size;
        failed |= !file || fclose(file);
        free(bytes);
    } else if (!failed) {
        png_image image = {.version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_RGB};
        failed = !png_image_write_to_file(&image, path, 0, pixels, 0, NULL);
    }
    free(pixels);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i + ARGUMENTS <= argc; i += ARGUMENTS)
        failed |= write_picture(argv + i);
    return failed;
}
