/*
 * libraries.c - see libraries.h. Layer: device/cuda.
 *
 * A library that was opened stays so until the process ends: its kernels may still be queued.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/libraries.h"
#include "host/library_path.h"

static _Atomic int64_t done[CUDA_WORKS][2], timed, replaced, fused[CUDA_FUSIONS];

const char *const cuda_work_names[CUDA_WORKS] = {
    "gemm", "conv2d", "conv2d_backward_input", "conv2d_backward_weight", "attention", "attention_backward"};

static bool is_set(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text && strcmp(text, value) == 0;
}

bool cuda_allows_tf32(void)
{
    return is_set("YOKE_CUDA_TF32", "1");
}

bool cuda_fuses_attention(void)
{
    return !is_set("YOKE_CUDA_FUSED_ATTENTION", "0");
}

/* Opens the library at one place; false where it is not there or lacks a function. */
static bool open_at(const char *path, const cuda_symbol *symbols, int count, char *why)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, CUDA_WHY, "%s", dlerror());
        return false;
    }
    for (int i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address) {
            snprintf(why, CUDA_WHY, "%.300s is there, and has no %s", path, symbols[i].name);
            return false;
        }
        *symbols[i].address = address;
    }
    return true;
}

bool cuda_library_open(const char *file, const cuda_symbol *symbols, int count, char *why)
{
    char path[PATH_MAX], first[CUDA_WHY / 2] = "", next[CUDA_WHY];
    if (is_set("YOKE_CUDA_LIBRARIES", "0")) {
        snprintf(why, CUDA_WHY, "not used: YOKE_CUDA_LIBRARIES=0");
        return false;
    }
    for (int i = 0; cuda_base->library_path(file, i, path, sizeof(path)); i++) {
        if (open_at(path, symbols, count, next))
            return true;
        if (i == 0)
            snprintf(first, sizeof(first), "%.200s", next);
    }
    snprintf(why, CUDA_WHY, "%s; %s", first, YK__LIBRARY_PATH_HELP);
    cuda_base->warn("%s: our own, slower kernels compute in its place", why);
    return false;
}

void *cuda_workspace(int device, size_t bytes, yk__storage **memory)
{
    yk_device where = {YK_CUDA, (int16_t)device};
    char *got = cuda_yoke->workspace_get(where, bytes + CUDA_MALLOC_ALIGNMENT, memory);
    return got ? got + (-(uintptr_t)got & (CUDA_MALLOC_ALIGNMENT - 1)) : NULL;
}

void cuda_count_work(enum cuda_work work, bool by_library)
{
    atomic_fetch_add_explicit(&done[work][by_library], 1, memory_order_relaxed);
}

void cuda_count_timed(void)
{
    atomic_fetch_add_explicit(&timed, 1, memory_order_relaxed);
}

void cuda_count_fused(enum cuda_fusion fusion)
{
    atomic_fetch_add_explicit(&fused[fusion], 1, memory_order_relaxed);
}

static bool is_well(cudaStream_t stream)
{
    enum cudaStreamCaptureMode before = cuda_relaxed_begin(); /* others may record */
    cudaError_t code = cudaStreamQuery(stream);
    cuda_relaxed_end(before);
    if (code == cudaErrorNotReady)
        (void)cudaGetLastError(); /* it is no failure, and kept as one */
    return code == cudaSuccess || code == cudaErrorNotReady;
}

bool cuda_note_replaced(int device, cudaStream_t stream, const char *call, int code, const char *name)
{
    if (cuda_is_captured(stream) || !is_well(stream))
        return false;
    atomic_fetch_add_explicit(&replaced, 1, memory_order_relaxed);
    cuda_base->warn("cuda:%d: %s: %s (%d): another algorithm takes its place", device, call, name, code);
    return true;
}

void yk__cuda_describe(char *text, size_t size)
{
    int at = snprintf(text, size, "%s; %s", cuda_blas_described(), cuda_dnn_described());
    for (int i = 0; i < CUDA_WORKS && at >= 0 && (size_t)at < size; i++)
        at += snprintf(text + at, size - (size_t)at, "; %s: %lld by library, %lld by own kernel", cuda_work_names[i],
                       (long long)atomic_load_explicit(&done[i][1], memory_order_relaxed),
                       (long long)atomic_load_explicit(&done[i][0], memory_order_relaxed));
    if (at >= 0 && (size_t)at < size)
        at += snprintf(text + at, size - (size_t)at, "; plans timed: %lld; algorithms that failed: %lld",
                       (long long)atomic_load_explicit(&timed, memory_order_relaxed),
                       (long long)atomic_load_explicit(&replaced, memory_order_relaxed));
    static const char *const fusions[CUDA_FUSIONS] = {"conv2d with ReLU", "gemm with ReLU", "gemm with sums of rows"};
    for (int i = 0; i < CUDA_FUSIONS && at >= 0 && (size_t)at < size; i++)
        at += snprintf(text + at, size - (size_t)at, "; %s: %lld fused", fusions[i],
                       (long long)atomic_load_explicit(&fused[i], memory_order_relaxed));
}
