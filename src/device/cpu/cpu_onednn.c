/*
 * cpu_onednn.c - large f32 matrix products through oneDNN. Layer: device/cpu. Compiled once.
 *
 * oneDNN shares a product among OpenMP threads in a way that depends on their number, and so do the last bits. Here the
 * result is cut into fixed tiles, our own pool takes the tiles, and in each thread oneDNN is set to one thread.
 *
 * The library is loaded at the first product that is large enough: it brings libstdc++ and libgomp, whose start costs
 * each process 1.5 ms and 4 MB, and many have no such product. Where it is not there our own kernels compute all.
 * Nothing of it is needed when yoke is built: of its interface two functions are declared here, which 2.6 and 3.x have
 * alike.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "device/backend.h"
#include "device/cpu/cpu.h"
#include "device/cpu/cpu_onednn.h"

/* dnnl_status_t, of which dnnl_success is 0; dnnl_dim_t; the first members of dnnl_version_t. */
typedef int onednn_status;
typedef int64_t onednn_dim;
typedef struct onednn_number {
    int major, minor, patch;
} onednn_number;

/* Debian 13 has the minor version in the library's name, other systems the major one alone. */
enum { LATEST_MINOR = 20 };

static struct {
    onednn_status (*sgemm)(char, char, onednn_dim, onednn_dim, onednn_dim, float, const float *, onednn_dim,
                           const float *, onednn_dim, float, float *, onednn_dim);
    const onednn_number *(*version)(void);
    /* libgomp's, which libdnnl is linked with: the number is a thread's own, and is put back. */
    int (*max_threads)(void);
    void (*set_num_threads)(int count);
    bool there;
} onednn;

static void *library_open(char *name, size_t size)
{
    for (int minor = LATEST_MINOR + 1; minor >= 0; minor--) {
        if (minor > LATEST_MINOR)
            snprintf(name, size, "libdnnl.so.3");
        else
            snprintf(name, size, "libdnnl.so.3.%d", minor);
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library)
            return library;
    }
    snprintf(name, size, "libdnnl.so.2");
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static bool symbol_find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof(symbol)); /* ISO C converts no object pointer to a function's */
    return symbol != NULL;
}

static void load(void)
{
    char name[32];
    void *library = library_open(name, sizeof(name));
    onednn.there = library && symbol_find(library, "dnnl_sgemm", &onednn.sgemm) &&
                   symbol_find(library, "dnnl_version", &onednn.version) &&
                   symbol_find(library, "omp_get_max_threads", &onednn.max_threads) &&
                   symbol_find(library, "omp_set_num_threads", &onednn.set_num_threads);
    const onednn_number *version = onednn.there ? onednn.version() : NULL;
    if (version && version->major == 2 && version->minor < 6) {
        onednn.there = false;
        yk__log(YK_LOG_WARN, "oneDNN is not used: %s is version 2.%d, and 2.6 or later is needed", name,
                version->minor);
    } else if (library && !onednn.there) {
        yk__log(YK_LOG_WARN, "oneDNN is not used: %s lacks a function, or was built without OpenMP", name);
    } else if (!library) {
        yk__log(YK_LOG_INFO,
                "oneDNN (libdnnl.so.3, libdnnl.so.2) is not there: large matrix products are yoke's own, and "
                "round otherwise");
    }
}

bool yk__onednn_there(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return onednn.there;
}

bool yk__onednn_version(int number[3])
{
    const onednn_number *version = yk__onednn_there() ? onednn.version() : NULL;
    if (version)
        number[0] = version->major, number[1] = version->minor, number[2] = version->patch;
    return version != NULL;
}

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
    int before = onednn.max_threads();
    onednn.set_num_threads(1);
    for (int64_t t = begin; t < end; t++) {
        int64_t i = t / work->columns * TILE, j = t % work->columns * TILE;
        int64_t rows = p->m - i < TILE ? p->m - i : TILE, cols = p->n - j < TILE ? p->n - j : TILE;
        float *c = p->c + i * p->ldc + j;
        for (int64_t r = 0; p->bias && r < rows; r++)
            memcpy(c + r * p->ldc, p->bias + j, (size_t)cols * sizeof(float));
        const float *a = p->a + i * (p->a_transposed ? 1 : p->lda), *b = p->b + j * (p->b_transposed ? p->ldb : 1);
        float beta = p->accumulate || p->bias ? 1 : 0;
        if (onednn.sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', rows, cols, p->k, 1, a, p->lda, b,
                         p->ldb, beta, c, p->ldc) != 0)
            atomic_store(&work->failed, true);
    }
    onednn.set_num_threads(before);
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
