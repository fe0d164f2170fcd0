/*
 * data_parallel.h - a module of yk_data_parallel from the inside: for its forward and its report. Layer: parallel.
 */
#ifndef YOKE_PARALLEL_DATA_PARALLEL_H
#define YOKE_PARALLEL_DATA_PARALLEL_H

#include "parallel/replicas.h"

/* The work and the times of one device, since the last reset. */
typedef struct yk__device_clock {
    int64_t forwards, samples;
    double forward, wait;
    double backward_before; /* yk__backward_seconds at the reset */
} yk__device_clock;

typedef struct yk__data_parallel {
    yk_module *inner; /* the child */
    yk__replicas *replicas;
    int count, dim;
    yk_device devices[YK__MOST_REPLICAS], output_device;
    yk_scatter_fn scatter;
    void *scatter_user;
    bool no_gather;
    int64_t forwards;
    yk__device_clock clocks[YK__MOST_REPLICAS];
} yk__data_parallel;

/* The data of a module of yk_data_parallel; NULL and an error in the name of `what` for another. */
yk__data_parallel *yk__data_parallel_of(const char *what, yk_module *m);

#endif
