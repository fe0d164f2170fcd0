/*
 * library_path.h - where a vendor's library (cuBLASLt, cuDNN, NCCL) may lie. Layer: host.
 */
#ifndef YOKE_HOST_LIBRARY_PATH_H
#define YOKE_HOST_LIBRARY_PATH_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The `i`-th place to open `file` ("libcudnn.so.9") from, in `path`; false behind the last. They are, in order: the
 * folders of YOKE_LIBRARY_PATH (separated by colons), the bare name, which the loader looks up as ever
 * (LD_LIBRARY_PATH, ld.so.cache), $CUDA_HOME, $CONDA_PREFIX/lib, the wheels that PyTorch brings (nvidia/NAME/lib,
 * torch/lib) in the environments of $VIRTUAL_ENV, $CONDA_PREFIX, of the first python3 on the path and of each that its
 * links lead to, of the user and of the system, and /usr/local/cuda where CUDA_HOME is not set. All but the bare name
 * are files that are there.
 */
bool yk__library_path(const char *file, int i, char *path, size_t size);

/* The advice of errors where there is none. */
#define YK__LIBRARY_PATH_HELP                                                                                          \
    "nor is it in $CUDA_HOME (or /usr/local/cuda) or in PyTorch's wheels of $VIRTUAL_ENV or python3; "                 \
    "YOKE_LIBRARY_PATH=FOLDER:... says "                                                                               \
    "where"

#endif
