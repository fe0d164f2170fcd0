/*
 * line_search.c - the strong Wolfe conditions. Layer: optim.
 *
 * Lengths grow until two of them, the bracket, have a good one between them; then the bracket shrinks around it. A new
 * length is the minimum of the cubic through losses and derivatives at two points. A point holds a reference to its
 * gradient. The least and largest of two are Python's min and max, which give the first one where one is NaN: a loss
 * that is NaN takes PyTorch's way.
 */
#include "optim/line_search.h"

#include <math.h>

typedef struct point {
    double length, loss, slope;
    yk_tensor *gradient; /* retained */
} point;

static double least(double a, double b)
{
    return b < a ? b : a;
}

static double most(double a, double b)
{
    return b > a ? b : a;
}

/* *to becomes another reference to the point. */
static void point_set(point *to, const point *from)
{
    yk_tensor_retain(from->gradient);
    yk_tensor_release(to->gradient);
    *to = *from;
}

static yk_status point_measure(yk__wolfe_search *s, double length, point *p)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *gradient = NULL;
    point measured = {.length = length};
    yk_status status = s->measure(s->user, length, &measured.loss, &gradient, &measured.slope);
    measured.gradient = status ? NULL : gradient;
    if (!status)
        point_set(p, &measured);
    s->evaluations++;
    yk_scope_end(scope);
    return status ? status : yk__error_code();
}

/* The minimum of the cubic through two points, in [low, high]; its middle where there is none. */
static double interpolate(const point *a, const point *b, double low, double high)
{
    double d1 = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->length - b->length);
    double square = d1 * d1 - a->slope * b->slope;
    if (!(square >= 0))
        return (low + high) / 2;
    double d2 = sqrt(square);
    double at = a->length <= b->length
                    ? b->length - (b->length - a->length) * ((b->slope + d2 - d1) / (b->slope - a->slope + 2 * d2))
                    : a->length - (a->length - b->length) * ((a->slope + d2 - d1) / (a->slope - b->slope + 2 * d2));
    return least(most(at, low), high);
}

/* Too little is gained at p, by the derivative at the start. */
static bool too_high(const point *start, const point *p)
{
    return p->loss > start->loss + 1e-4 * p->length * start->slope;
}

static bool flat_enough(const point *start, const point *p)
{
    return fabs(p->slope) <= -0.9 * start->slope;
}

/* Lengths from the first one on, until ends[] are a bracket; *found where the last one, ends[0], is right already. *p
 * is the first, measured. */
static yk_status bracket(yk__wolfe_search *s, const point *start, point *p, point ends[2], int64_t *n, bool *found)
{
    point before = {.gradient = NULL};
    yk_status status = YK_OK;
    point_set(&before, start);
    for (; *n < s->most && !status; ++*n) {
        bool beyond = too_high(start, p) || (*n > 1 && p->loss >= before.loss);
        *found = !beyond && flat_enough(start, p);
        if (*found) {
            point_set(&ends[0], p);
            point_set(&ends[1], p);
            break;
        }
        if (beyond || p->slope >= 0) {
            point_set(&ends[0], &before);
            point_set(&ends[1], p);
            break;
        }
        double next = interpolate(&before, p, p->length + 0.01 * (p->length - before.length), p->length * 10);
        point_set(&before, p);
        status = point_measure(s, next, p);
    }
    if (!status && *n == s->most) {
        point_set(&ends[0], start);
        point_set(&ends[1], p);
    }
    yk_tensor_release(before.gradient);
    return status;
}

/* A length inside the bracket, which is not near its ends twice in a row. */
static double choose(const point ends[2], bool *near)
{
    double low = least(ends[0].length, ends[1].length), high = most(ends[0].length, ends[1].length);
    double length = interpolate(&ends[0], &ends[1], low, high), margin = 0.1 * (high - low);
    if (!(least(high - length, length - low) < margin)) {
        *near = false;
        return length;
    }
    if (!*near && !(length >= high || length <= low)) {
        *near = true;
        return length;
    }
    *near = false;
    return fabs(length - high) < fabs(length - low) ? high - margin : low + margin;
}

/* Shrinks the bracket; *low is the end with the lower loss. */
static yk_status shrink(yk__wolfe_search *s, const point *start, point ends[2], int64_t n, int *low)
{
    point p = {.gradient = NULL};
    bool near = false, found = false;
    yk_status status = YK_OK;
    for (; !found && n < s->most && !status; n++) {
        if (fabs(ends[1].length - ends[0].length) * s->reach < s->tolerance)
            break;
        status = point_measure(s, choose(ends, &near), &p);
        if (status)
            break;
        if (too_high(start, &p) || p.loss >= ends[*low].loss) {
            point_set(&ends[1 - *low], &p);
            *low = ends[0].loss <= ends[1].loss ? 0 : 1;
            continue;
        }
        found = flat_enough(start, &p);
        if (!found && p.slope * (ends[1 - *low].length - ends[*low].length) >= 0)
            point_set(&ends[1 - *low], &ends[*low]);
        point_set(&ends[*low], &p);
    }
    yk_tensor_release(p.gradient);
    return status;
}

yk_status yk__strong_wolfe(yk__wolfe_search *s)
{
    const point start = {.length = 0, .loss = s->loss, .slope = s->slope, .gradient = s->gradient};
    point p = {.gradient = NULL}, ends[2] = {{.gradient = NULL}, {.gradient = NULL}};
    int64_t n = 0;
    bool found = false;
    s->evaluations = 0;
    yk_status status = point_measure(s, s->length, &p);
    if (!status)
        status = bracket(s, &start, &p, ends, &n, &found);
    int low = ends[0].loss <= ends[1].loss ? 0 : 1;
    if (!status && !found)
        status = shrink(s, &start, ends, n, &low);
    if (!status) {
        s->length = ends[low].length;
        s->loss = ends[low].loss;
        s->gradient = yk_tensor_retain(ends[low].gradient);
        yk__scope_own(s->gradient);
    }
    yk_tensor_release(p.gradient);
    yk_tensor_release(ends[0].gradient);
    yk_tensor_release(ends[1].gradient);
    return status;
}
