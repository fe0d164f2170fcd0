/*
 * checks.h - labels and indices that are checked on the GPU. Layer: device/cuda. C and C++.
 *
 * Note [The error record of a device]
 * What a kernel finds wrong cannot be returned by the call that queued it. Each device has a record in its memory: the
 * first operation, in the order of the queue, that is given an index outside its range leaves its lowest row and the
 * value there, and takes no part in what the index would have reached. Whoever next waits for the device (synchronize,
 * and copies to the host) reads the record, empties it and fails with it.
 */
#ifndef YOKE_DEVICE_CUDA_CHECKS_H
#define YOKE_DEVICE_CUDA_CHECKS_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cuda_check { CUDA_CHECK_EMBEDDING = 1, CUDA_CHECK_CROSS_ENTROPY, CUDA_CHECK_INDEX };

struct cuda_record {
    int64_t check;             /* 0: nothing is wrong */
    int64_t row, value, bound; /* row: of CUDA_CHECK_INDEX the dimension */
    const char *name;          /* of the operation, where the check serves several: it lives as long as the program */
};

/* Queues the check that all of index (M), i64 or i32, are in [0, bound), or `ignored`. (checks.cu) */
yk_status cuda_check_indices(int device, enum cuda_check check, const yk__view *index, int64_t bound, int64_t ignored);

#ifdef __cplusplus
}
#endif
#endif
