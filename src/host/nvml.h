/*
 * nvml.h - what NVIDIA's management library (NVML), a part of the driver, tells of GPUs without starting CUDA. Layer:
 * launch.
 */
#ifndef YOKE_HOST_NVML_H
#define YOKE_HOST_NVML_H

#include <stdbool.h>
#include <stddef.h>

/* The most processes that are kept of a GPU. */
enum { YK__GPU_HOLDERS = 16 };

typedef struct yk__gpu_holder {
    unsigned pid;
    double bytes;  /* below 0: not said */
    char name[32]; /* "" where this process may not see it */
} yk__gpu_holder;

typedef struct yk__gpu {
    char name[96];
    double total, used;                   /* bytes of its memory */
    unsigned pcie_generation, pcie_lanes; /* 0: not said */
    unsigned nvlinks;                     /* that are up */
    int n_holders;                        /* processes that compute there, that are seen from here */
    yk__gpu_holder holders[YK__GPU_HOLDERS];
} yk__gpu;

/* The number of GPUs of the driver, whether or not CUDA_VISIBLE_DEVICES shows them, and its version ("580.95.05"); -1
 * where there is no such library. */
int yk__nvml_count(char version[80]);
/* The reason why NVML, which is there, does not start: as where it is of another version than the driver. NULL where
 * it does, or is not there. */
enum { YK__NVML_PROBLEM = 300 };
const char *yk__nvml_problem(char text[YK__NVML_PROBLEM]);
/* GPU `index`, as nvidia-smi counts, or where `bus` is not NULL the one with this PCI address ("0000:1B:00.0"). False
 * where it is not told. */
bool yk__nvml_gpu(int index, const char *bus, yk__gpu *gpu);
/* A function of the library by its name, for who asks more of GPUs than stands here; NULL where there is no such
 * library or function. The library has been initialised then. */
void *yk__nvml_function(const char *name);
/* "process 4711 (python3) 12.1 GiB, this process 3.0 GiB", the greatest first; "" where none is seen. */
const char *yk__gpu_holders_format(yk__gpu *gpu, char *text, size_t size);
/* The same of the GPU with this PCI address, which the plug-in of CUDA asks for. */
const char *yk__gpu_holders_of(const char *bus, char *text, size_t size);

#endif
