/* cpu_onednn.h - oneDNN's matrix product. Layer: device/cpu. */
#ifndef YOKE_DEVICE_CPU_ONEDNN_H
#define YOKE_DEVICE_CPU_ONEDNN_H

#include "device/table.h"

/* C (m, n) = A (m, k) B (k, n) [+ bias], or += where asked (then without bias). Rows of C lie ldc apart; those of A
 * lda, or its columns where it is transposed; B likewise. */
typedef struct yk__sgemm {
    int64_t m, n, k, lda, ldb, ldc;
    const float *a, *b, *bias; /* bias: n numbers next to each other, or NULL */
    float *c;
    bool a_transposed, b_transposed, accumulate;
} yk__sgemm;

/* True where oneDNN can be loaded; the log says once why not. Any thread. */
bool yk__onednn_there(void);
/* Computes the product by oneDNN; only where yk__onednn_there. The same bits for any number of threads. */
yk_status yk__onednn_sgemm(int device, const yk__sgemm *p);

#endif
