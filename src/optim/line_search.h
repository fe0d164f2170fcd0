/*
 * line_search.h - how far to go along a direction. Layer: optim.
 */
#ifndef YOKE_OPTIM_LINE_SEARCH_H
#define YOKE_OPTIM_LINE_SEARCH_H

#include "optim/optimizer.h"

typedef struct yk__wolfe_search {
    /* Loss, gradient (owned by the scope) and derivative along the direction, `length` of it from the start. */
    yk_status (*measure)(void *user, double length, double *loss, yk_tensor **gradient, double *slope);
    void *user;
    double reach, tolerance; /* the largest element of the direction; no bracket is refined that is shorter */
    int64_t most;            /* evaluations behind the first one */
    /* At the start, and then where the search ended; the length is the first one to try, and then that one. */
    double length, loss, slope;
    yk_tensor *gradient; /* borrowed; in the end owned by the scope */
    int64_t evaluations;
} yk__wolfe_search;

/* Finds a length by the strong Wolfe conditions: the loss is lower by at least 1e-4 of what the derivative at the start
 * promises, and the derivative there at most 0.9 of that. Source: Nocedal and Wright, Numerical Optimization,
 * algorithms 3.5 and 3.6, as torch.optim.LBFGS has them. */
yk_status yk__strong_wolfe(yk__wolfe_search *s);

#endif
