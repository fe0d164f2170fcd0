/*
 * kernels.c - times of the CPU's matrix kernels: the convolutions of ResNet-18 at 32 x 32 in the order of the network,
 * each direction, and matrix products next to oneDNN's. One line per layer, a sum at the end.
 * OMP_NUM_THREADS should be the number of threads, for oneDNN.
 *
 * Usage: kernels [batch [threads [f32|f64]]]
 */
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/table.h"

struct layer {
    const char *name;
    int64_t channels, size, out, kernel, stride, padding;
    int times;
    bool first; /* nobody wants the gradient of its input */
};

static const struct layer layers[] = {
    {"conv1", 3, 32, 64, 7, 2, 3, 1, true},           {"layer1 3x3", 64, 8, 64, 3, 1, 1, 4, false},
    {"layer2 3x3/2", 64, 8, 128, 3, 2, 1, 1, false},  {"layer2 1x1/2", 64, 8, 128, 1, 2, 0, 1, false},
    {"layer2 3x3", 128, 4, 128, 3, 1, 1, 3, false},   {"layer3 3x3/2", 128, 4, 256, 3, 2, 1, 1, false},
    {"layer3 1x1/2", 128, 4, 256, 1, 2, 0, 1, false}, {"layer3 3x3", 256, 2, 256, 3, 1, 1, 3, false},
    {"layer4 3x3/2", 256, 2, 512, 3, 2, 1, 1, false}, {"layer4 1x1/2", 256, 2, 512, 1, 2, 0, 1, false},
    {"layer4 3x3", 512, 1, 512, 3, 1, 1, 3, false},
};

/* Processor time: other programs on the machine do not count; with several threads, the wall's. */
static clockid_t clock_id = CLOCK_THREAD_CPUTIME_ID;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(yk_status status)
{
    if (status)
        exit(yk_report_error(stderr));
}

static yk__view view(yk_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride)
{
    yk__view v = {.dtype = dtype, .ndim = ndim};
    size_t n = 1;
    for (int d = 0; d < ndim; d++) {
        v.shape[d] = shape[d];
        v.stride[d] = stride[d];
        n *= (size_t)shape[d];
    }
    if (posix_memalign(&v.data, 64, n * yk_dtype_size(dtype) + 64))
        exit(1);
    for (size_t i = 0; i < n; i++) {
        double value = (double)((i * 2654435761u >> 7) % 2048) / 1024 - 1;
        if (dtype == YK_F32)
            ((float *)v.data)[i] = (float)value;
        else
            ((double *)v.data)[i] = value;
    }
    return v;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the time of one call, in seconds. */
#define MEDIAN(result, call)                                                                                           \
    do {                                                                                                               \
        double times_[31], start_ = seconds();                                                                         \
        call;                                                                                                          \
        double once_ = seconds() - start_;                                                                             \
        int runs_ = once_ > 0.03 ? 5 : once_ > 0.003 ? 11 : 31;                                                        \
        for (int r_ = 0; r_ < runs_; r_++) {                                                                           \
            start_ = seconds();                                                                                        \
            call;                                                                                                      \
            times_[r_] = seconds() - start_;                                                                           \
        }                                                                                                              \
        qsort(times_, (size_t)runs_, sizeof(double), order);                                                           \
        (result) = times_[runs_ / 2];                                                                                  \
    } while (0)

/* Output coordinates times taps that are inside the image, along one axis. */
static int64_t inside(const struct layer *l, int64_t out)
{
    int64_t n = 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < l->kernel; k++) {
            int64_t i = o * l->stride - l->padding + k;
            n += i >= 0 && i < l->size;
        }
    return n;
}

struct product {
    const char *name;
    int64_t m, n, k;
    char a, b; /* 'n': rows in order, 't': the view is of a transposed matrix */
};

static const struct product products[] = {
    {"fc1 of LeNet, forward, batch 4", 4, 120, 256, 'n', 't'},
    {"fc1 to the input", 4, 256, 120, 'n', 'n'},
    {"fc1 to the weight", 120, 256, 4, 't', 'n'},
    {"fc2 forward", 4, 84, 120, 'n', 't'},
    {"fc2 to the weight", 84, 120, 4, 't', 'n'},
    {"fc3 forward", 4, 10, 84, 'n', 't'},
    {"fc1 of LeNet, forward, batch 64", 64, 120, 256, 'n', 't'},
    {"fc1 to the input", 64, 256, 120, 'n', 'n'},
    {"fc1 to the weight", 120, 256, 64, 't', 'n'},
    {"fc of ResNet, forward, batch 32", 32, 1000, 512, 'n', 't'},
    {"fc to the input", 32, 512, 1000, 'n', 'n'},
    {"fc to the weight", 1000, 512, 32, 't', 'n'},
    {"fc of ResNet, forward, batch 256", 256, 1000, 512, 'n', 't'},
    {"fc to the input", 256, 512, 1000, 'n', 'n'},
    {"fc to the weight", 1000, 512, 256, 't', 'n'},
    {"square 512", 512, 512, 512, 'n', 'n'},
    {"square 512, b transposed", 512, 512, 512, 'n', 't'},
    {"square 512, a transposed", 512, 512, 512, 't', 'n'},
    {"square 1024", 1024, 1024, 1024, 'n', 'n'},
    {"square 2048", 2048, 2048, 2048, 'n', 'n'},
    {"square 2048, b transposed", 2048, 2048, 2048, 'n', 't'},
};

static yk__view matrix(yk_dtype dtype, int64_t rows, int64_t cols, char order)
{
    int64_t shape[3] = {1, rows, cols};
    int64_t stride[3] = {rows * cols, order == 't' ? 1 : cols, order == 't' ? rows : 1};
    return view(dtype, 3, shape, stride);
}

/* Our product and oneDNN's, which is the other one at hand. */
static void run_products(const yk__backend *t, yk_dtype dtype)
{
    printf("\n%-34s %14s %12s %12s\n", "product", "m x n x k", "us", "GFLOP/s");
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct product *p = &products[i];
        yk__view a = matrix(dtype, p->m, p->k, p->a), b = matrix(dtype, p->k, p->n, p->b);
        yk__view out = matrix(dtype, p->m, p->n, 'n');
        double work = 2.0 * (double)(p->m * p->n * p->k), time;
        int repeat = (int)(2e7 / work) + 1;
        MEDIAN(time, for (int r = 0; r < repeat; r++) must(t->gemm(0, &out, &a, &b, NULL, false)));
        time /= repeat;
        printf("%-34s %4d x %4d x %4d %9.2f %9.1f", p->name, (int)p->m, (int)p->n, (int)p->k, time * 1e6,
               work / time * 1e-9);
        if (dtype == YK_F32) {
            MEDIAN(time, for (int r = 0; r < repeat; r++) dnnl_sgemm(
                             p->a == 't' ? 'T' : 'N', p->b == 't' ? 'T' : 'N', p->m, p->n, p->k, 1.0f, a.data,
                             p->a == 't' ? p->m : p->k, b.data, p->b == 't' ? p->k : p->n, 0.0f, out.data, p->n));
            time /= repeat;
            printf("   (oneDNN %9.2f %9.1f)", time * 1e6, work / time * 1e-9);
        }
        printf("\n");
        free(a.data);
        free(b.data);
        free(out.data);
    }
}

int main(int argc, char **argv)
{
    int64_t batch = argc > 1 ? atoll(argv[1]) : 256;
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    yk_dtype dtype = argc > 3 && !strcmp(argv[3], "f64") ? YK_F64 : YK_F32;
    if (threads > 1)
        clock_id = CLOCK_MONOTONIC;
    yk_device cpu = {0};
    must(yk_set_num_threads(cpu, threads));
    const yk__backend *t = yk__backend_of(cpu);
    if (!t)
        return yk_report_error(stderr);

    printf("batch %lld, %d thread(s), %s; ms (GFLOP/s of what is not padding)\n", (long long)batch, threads,
           yk_dtype_name(dtype));
    printf("%-14s %s %18s %18s %18s\n", "layer", "x", "forward", "to the input", "to the weight");
    double sum[3] = {0}, flops = 0;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct layer *l = &layers[i];
        int64_t side = (l->size + 2 * l->padding - l->kernel) / l->stride + 1;
        yk__conv2d p = {{l->stride, l->stride}, {l->padding, l->padding}, {1, 1}, 1};
        int64_t xs[4] = {batch, l->channels, l->size, l->size}, ws[4] = {l->out, l->channels, l->kernel, l->kernel};
        int64_t os[4] = {batch, l->out, side, side}, wt[4], ot[4];
        int64_t xt[4] = {l->channels, 1, l->size * batch * l->channels, batch * l->channels};
        int64_t planes[4] = {l->channels * l->size * l->size, l->size * l->size, l->size, 1};
        t->conv2d_weight_layout(&p, dtype, ws, wt);
        yk__view x = view(dtype, 4, xs, l->first ? planes : xt), w = view(dtype, 4, ws, wt);
        t->conv2d_layout(&p, &x, &w, os, ot);
        yk__view out = view(dtype, 4, os, ot);
        double ms[3] = {0};
        MEDIAN(ms[0], must(t->conv2d(0, &p, &out, &x, &w, NULL)));
        if (!l->first)
            MEDIAN(ms[1], must(t->conv2d_backward_input(0, &p, &x, &out, &w)));
        MEDIAN(ms[2], must(t->conv2d_backward_weight(0, &p, &w, NULL, &out, &x)));
        double work = 2.0 * (double)(inside(l, side) * inside(l, side) * batch * l->channels * l->out);
        printf("%-14s %d", l->name, l->times);
        for (int d = 0; d < 3; d++) {
            printf("   %8.3f (%5.1f)", ms[d] * 1e3, ms[d] > 0 ? work / ms[d] * 1e-9 : 0);
            sum[d] += ms[d] * l->times;
            flops += ms[d] > 0 ? work * l->times : 0;
        }
        printf("\n");
        free(x.data);
        free(w.data);
        free(out.data);
    }
    double all = sum[0] + sum[1] + sum[2];
    printf(
        "all            forward %.2f, to the input %.2f, to the weight %.2f: %.2f ms, %.4f ms an image, %.1f GFLOP/s\n",
        sum[0] * 1e3, sum[1] * 1e3, sum[2] * 1e3, all * 1e3, all * 1e3 / (double)batch, flops / all * 1e-9);
    run_products(t, dtype);
    return 0;
}
