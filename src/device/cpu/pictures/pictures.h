/*
 * pictures.h - declarations that the files of the kernels for images share. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_PICTURES_PICTURES_H
#define YOKE_DEVICE_CPU_PICTURES_PICTURES_H

#include "device/cpu/cpu.h"

/* The slot `resample` by dot products of bytes. False where the processor has none, or where the image shrinks to less
 * than a quarter: nothing is done then. */
bool YK__ISA_NAME(yk__resample_dot)(const yk__resample *r);

#endif
