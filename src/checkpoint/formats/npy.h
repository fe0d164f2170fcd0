/*
 * npy.h - one array of NumPy's, in a file or in memory. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_NPY_H
#define YOKE_CHECKPOINT_FORMATS_NPY_H

#include "checkpoint/formats/zip.h"

/* The array that a source is, on cpu:0, owned by the scope. */
yk_tensor *yk__npy_read(const yk__source *source);

#endif
