/*
 * sparse.c - a training step on a table of 1,000,000 rows, of which 4,096 are looked up: SGD and SparseAdam by rows,
 * and SGD by the gradient of all elements. Prints lines of name, value and unit, separated by tabs;
 * bench/peer_sparse.py prints PyTorch's under the same names.
 *
 * Usage: sparse [steps]        default: 100
 */
#include <stdio.h>
#include <stdlib.h>

#include <yoke/yoke.h>

#include "base/core.h"

enum { ROWS = 1000000, WIDTH = 64, BATCH = 4096, MOST = 10000 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(const char *name, bool sparse, bool adam, int steps)
{
    static double times[MOST];
    yk_scope all = yk_scope_begin();
    yk_module *m = yk_embedding_create(ROWS, WIDTH, YK_OPTIONS(yk_embedding_options, .sparse = sparse));
    yk_parameters *p = yk_module_parameters(m);
    yk_optimizer *o = adam ? yk_sparse_adam(p, YK_OPTIONS(yk_sparse_adam_options, .lr = 0.01))
                           : yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.01));
    for (int i = -3; i < steps && !yk_last_error(); i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = yk_randint(0, ROWS, YK_SHAPE(BATCH), NULL);
        double begin = yk__now();
        yk_optimizer_zero_grad(o);
        if (yk_backward(yk_sum(yk_square(yk_forward(m, x)))) || yk_optimizer_step(o))
            break;
        times[i < 0 ? 0 : i] = yk__now() - begin;
        yk_scope_end(scope);
    }
    yk_scope_end(all);
    qsort(times, (size_t)steps, sizeof(*times), by_size);
    printf("%s, median\t%.4g\tms\n%s, least\t%.4g\tms\n", name, times[steps / 2] * 1e3, name, times[0] * 1e3);
    return yk_report_error(stderr);
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    if (argc > 2 || steps < 1 || steps > MOST) {
        fprintf(stderr, "usage: sparse [steps (1 to %d)]\n", MOST);
        return 2;
    }
    return measure("SGD by rows", true, false, steps) || measure("SparseAdam", true, true, steps) ||
           measure("SGD, all elements", false, false, steps > 10 ? 10 : steps);
}
