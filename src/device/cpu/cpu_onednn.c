/*
 * cpu_onednn.c - large f32 matrix products through oneDNN. Layer: device/cpu. Compiled once.
 *
 * oneDNN shares a product among OpenMP threads in a way that depends on their number, and so do the last bits. Here the
 * result is cut into fixed tiles, our own pool takes the tiles, and in each thread oneDNN is set to one thread.
 */
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/cpu_onednn.h"

/* libgomp's, which libdnnl is linked with: the number is a thread's own, and is put back. */
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int count);

/* Rows and columns of a tile, which one thread computes: smaller, and oneDNN packs its operands more often; larger, and
 * there are too few for the threads. Another number may give other last bits. */
enum { TILE = 512 };

typedef struct product {
    yk__sgemm p;
    int64_t columns; /* tiles in a row of tiles */
    atomic_bool failed;
} product;

static void tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    product *work = arg;
    const yk__sgemm *p = &work->p;
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    for (int64_t t = begin; t < end; t++) {
        int64_t i = t / work->columns * TILE, j = t % work->columns * TILE;
        int64_t rows = p->m - i < TILE ? p->m - i : TILE, cols = p->n - j < TILE ? p->n - j : TILE;
        float *c = p->c + i * p->ldc + j;
        for (int64_t r = 0; p->bias && r < rows; r++)
            memcpy(c + r * p->ldc, p->bias + j, (size_t)cols * sizeof(float));
        const float *a = p->a + i * (p->a_transposed ? 1 : p->lda), *b = p->b + j * (p->b_transposed ? p->ldb : 1);
        float beta = p->accumulate || p->bias ? 1 : 0;
        if (dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', rows, cols, p->k, 1, a, p->lda, b,
                       p->ldb, beta, c, p->ldc) != dnnl_success)
            atomic_store(&work->failed, true);
    }
    omp_set_num_threads(before);
}

yk_status yk__onednn_sgemm(int device, const yk__sgemm *p)
{
    product work = {.p = *p, .columns = (p->n + TILE - 1) / TILE};
    int64_t rows = (p->m + TILE - 1) / TILE;
    yk__cpu_parallel(device, rows * work.columns, 1, tiles, &work);
    if (atomic_load(&work.failed))
        return yk__fail(YK_ERR_MEMORY, "matmul: oneDNN refused a product of %lld x %lld x %lld", (long long)p->m,
                        (long long)p->k, (long long)p->n);
    return YK_OK;
}
