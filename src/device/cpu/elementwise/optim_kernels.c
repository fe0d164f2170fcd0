/*
 * optim_kernels.c - the slots sgd, adam and descend. Layer: device/cpu.
 *
 * The formulas are torch.optim.SGD, Adam and AdamW's, in the dtype of the parameters; optimizer_rules.h has the others.
 * The tensors of a call whose views are dense with equal strides are laid end to end and shared out in one parallel
 * range; others go through the loop of iterate.h one by one.
 */
#include <math.h>

#include "device/cpu/iterate.h"
#include "device/optimizer_math.h"
#include "device/optimizer_rules.h"

/* param, grad, and the state: momentum, or mean, square and max_square. NULL for state that is not kept. */
typedef void (*update_fn)(const void *numbers, int64_t n, char *const *data);

#define SGD(S, T)                                                                                                      \
    static void sgd_##S(const void *numbers, int64_t n, char *const *data)                                             \
    {                                                                                                                  \
        const yk__update *u = numbers;                                                                                 \
        T *p = (T *)data[0], *m = (T *)data[2];                                                                        \
        const T *g = (const T *)data[1];                                                                               \
        T lr = (T)u->lr, decay = (T)u->weight_decay, momentum = (T)u->momentum, keep = (T)u->keep;                     \
        T sign = u->maximize ? -1 : 1;                                                                                 \
        if (momentum == 0) {                                                                                           \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                p[i] -= lr * (sign * g[i] + decay * p[i]);                                                             \
            }                                                                                                          \
        } else if (u->first) {                                                                                         \
            T reach = u->nesterov ? 1 + momentum : 1;                                                                  \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                T d = sign * g[i] + decay * p[i];                                                                      \
                m[i] = d;                                                                                              \
                p[i] -= lr * (reach * d);                                                                              \
            }                                                                                                          \
        } else if (u->nesterov) {                                                                                      \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                T d = sign * g[i] + decay * p[i], b = momentum * m[i] + keep * d;                                      \
                m[i] = b;                                                                                              \
                p[i] -= lr * (d + momentum * b);                                                                       \
            }                                                                                                          \
        } else {                                                                                                       \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                T d = sign * g[i] + decay * p[i], b = momentum * m[i] + keep * d;                                      \
                m[i] = b;                                                                                              \
                p[i] -= lr * b;                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }
SGD(f32, float)
SGD(f64, double)

#define ADAM(S, T, root)                                                                                               \
    static void adam_##S(const void *numbers, int64_t n, char *const *data)                                            \
    {                                                                                                                  \
        const yk__update *u = numbers;                                                                                 \
        T *p = (T *)data[0], *m = (T *)data[2], *v = (T *)data[3], *top = (T *)data[4];                                \
        const T *g = (const T *)data[1];                                                                               \
        T decay = u->decoupled ? 0 : (T)u->weight_decay, shrink = u->decoupled ? (T)u->shrink : 1;                     \
        T toward = (T)(1 - u->beta1), beta2 = (T)u->beta2, rest = (T)(1 - u->beta2), eps = (T)u->eps;                  \
        T step_size = (T)u->step_size, root_scale = (T)u->root_scale, sign = u->maximize ? -1 : 1;                     \
        if (top) {                                                                                                     \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                T x = p[i] * shrink, d = sign * g[i] + decay * p[i];                                                   \
                T mean = m[i] + toward * (d - m[i]), square = beta2 * v[i] + rest * (d * d);                           \
                T greatest = top[i] > square || top[i] != top[i] ? top[i] : square;                                    \
                m[i] = mean;                                                                                           \
                v[i] = square;                                                                                         \
                top[i] = greatest;                                                                                     \
                p[i] = x - step_size * (mean / (root(greatest) * root_scale + eps));                                   \
            }                                                                                                          \
        } else {                                                                                                       \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                T x = p[i] * shrink, d = sign * g[i] + decay * p[i];                                                   \
                T mean = m[i] + toward * (d - m[i]), square = beta2 * v[i] + rest * (d * d);                           \
                m[i] = mean;                                                                                           \
                v[i] = square;                                                                                         \
                p[i] = x - step_size * (mean / (root(square) * root_scale + eps));                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
ADAM(f32, float, sqrtf)
ADAM(f64, double, sqrt)

/* A loop by one rule, with second and third state or without. */
#define RULE_LOOP(S, T, rule, with_second, with_third)                                                                 \
    YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                    \
    {                                                                                                                  \
        T x[5] = {p[i], g[i], a[i], (with_second) ? b[i] : 0, (with_third) ? c[i] : 0};                                \
        yk__rule_apply_##S(rule, &f, x, with_second, with_third);                                                      \
        p[i] = x[0];                                                                                                   \
        a[i] = x[2];                                                                                                   \
        if (with_second)                                                                                               \
            b[i] = x[3];                                                                                               \
        if (with_third)                                                                                                \
            c[i] = x[4];                                                                                               \
    }
#define RULES(S, T)                                                                                                    \
    static void rules_##S(const void *numbers, int64_t n, char *const *data)                                           \
    {                                                                                                                  \
        const yk__factors *factors = numbers;                                                                          \
        const yk__rule_##S f = yk__rule_of_##S(factors);                                                               \
        T *p = (T *)data[0], *a = (T *)data[2], *b = (T *)data[3], *c = (T *)data[4];                                  \
        const T *g = (const T *)data[1];                                                                               \
        switch (factors->rule) {                                                                                       \
        case YK__RMSPROP:                                                                                              \
            if (b && c)                                                                                                \
                RULE_LOOP(S, T, YK__RMSPROP, true, true)                                                               \
            else if (b)                                                                                                \
                RULE_LOOP(S, T, YK__RMSPROP, true, false)                                                              \
            else if (c)                                                                                                \
                RULE_LOOP(S, T, YK__RMSPROP, false, true)                                                              \
            else                                                                                                       \
                RULE_LOOP(S, T, YK__RMSPROP, false, false)                                                             \
            break;                                                                                                     \
        case YK__ADAGRAD: RULE_LOOP(S, T, YK__ADAGRAD, false, false) break;                                            \
        case YK__ADADELTA: RULE_LOOP(S, T, YK__ADADELTA, true, false) break;                                           \
        case YK__ADAMAX: RULE_LOOP(S, T, YK__ADAMAX, true, false) break;                                               \
        case YK__NADAM: RULE_LOOP(S, T, YK__NADAM, true, false) break;                                                 \
        default: RULE_LOOP(S, T, YK__RADAM, true, false) break;                                                        \
        }                                                                                                              \
    }
RULES(f32, float)
RULES(f64, double)

/* ---- one call for all tensors ---- */

/* MAX_LINEAR: tensors that share one call of the thread pool; with more there are several calls. OPERANDS: parameter,
 * gradient and three states. */
enum { MAX_LINEAR = 256, OPERANDS = 5 };

typedef struct group {
    const void *numbers; /* a yk__update or yk__factors, as fn takes it */
    update_fn fn;
    const yk__view *const *views; /* OPERANDS arrays of one view per tensor, NULL for those that are not there */
    size_t size;
    int64_t count;
    int64_t tensor[MAX_LINEAR], end[MAX_LINEAR]; /* linear tensors laid end to end: which, and where each ends */
} group;

static void linear_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const group *g = arg;
    int64_t low = 0, high = g->count - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (g->end[middle] <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (int64_t i = low; begin < end; i++) {
        int64_t start = i ? g->end[i - 1] : 0, stop = g->end[i] < end ? g->end[i] : end;
        char *data[OPERANDS];
        for (int k = 0; k < OPERANDS; k++)
            data[k] = g->views[k] ? (char *)g->views[k][g->tensor[i]].data + (begin - start) * (int64_t)g->size : NULL;
        if (stop > begin)
            g->fn(g->numbers, stop - begin, data);
        begin = stop;
    }
}

static void run_linear(int device, group *g)
{
    if (g->count)
        yk__cpu_parallel(device, g->end[g->count - 1], YK__GRAIN, linear_piece, g);
    g->count = 0;
}

/* A run of strided operands: through buffers, which hold the missing operands' positions too. */
static void strided_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const group *g = context;
    char buffer[OPERANDS][YK__APPLY_CHUNK * 8] __attribute__((aligned(64)));
    for (int64_t i = 0; i < n; i += YK__APPLY_CHUNK) {
        int64_t m = n - i < YK__APPLY_CHUNK ? n - i : YK__APPLY_CHUNK, size = (int64_t)g->size;
        char *operand[OPERANDS];
        for (int k = 0, at = 0; k < OPERANDS; k++) {
            operand[k] = g->views[k] ? buffer[k] : NULL;
            if (!g->views[k])
                continue;
            yk__copy_strided(buffer[k], size, data[at] + i * stride[at], stride[at], g->size, m);
            at++;
        }
        g->fn(g->numbers, m, operand);
        for (int k = 0, at = 0; k < OPERANDS; k++) {
            if (!g->views[k])
                continue;
            if (k != 1)
                yk__copy_strided(data[at] + i * stride[at], stride[at], buffer[k], size, g->size, m);
            at++;
        }
    }
}

static void updates_run(int device, const void *numbers, update_fn f32, update_fn f64, int64_t count,
                        const yk__view *const *views)
{
    group g;
    g.numbers = numbers;
    g.views = views;
    for (int k = 0; k < 2; k++) { /* f32, then f64: a group may hold both */
        yk_dtype dtype = k ? YK_F64 : YK_F32;
        g.fn = k ? f64 : f32;
        g.size = yk_dtype_size(dtype);
        g.count = 0;
        for (int64_t t = 0; t < count; t++) {
            int64_t numel;
            if (views[0][t].dtype != dtype)
                continue;
            if (yk__update_is_linear(g.views, OPERANDS, t, &numel)) {
                g.tensor[g.count] = t;
                g.end[g.count] = numel + (g.count ? g.end[g.count - 1] : 0);
                if (++g.count == MAX_LINEAR)
                    run_linear(device, &g);
                continue;
            }
            const yk__view *present[OPERANDS];
            int operands = 0;
            for (int o = 0; o < OPERANDS; o++)
                if (views[o])
                    present[operands++] = &views[o][t];
            yk__loop loop;
            yk__loop_init(&loop, operands, present, false);
            yk__loop_run(device, &loop, YK__GRAIN, strided_run, &g);
        }
        run_linear(device, &g);
    }
}

/* The memory of this device is the host's: state in it is read at once. */
static yk_status sgd(int device, const yk__sgd *p, int64_t count, const yk__view *params, const yk__view *grads,
                     const yk__view *momentum)
{
    if (p->skip && *p->skip)
        return YK_OK;
    yk__update u = yk__update_of_sgd(p, p->state ? p->state->lr : p->lr, p->state ? p->state->step == 1 : p->first);
    const yk__view *views[OPERANDS] = {params, grads, momentum, NULL, NULL};
    updates_run(device, &u, sgd_f32, sgd_f64, count, views);
    return YK_OK;
}

static yk_status adam(int device, const yk__adam *p, int64_t count, const yk__view *params, const yk__view *grads,
                      const yk__view *mean, const yk__view *square, const yk__view *max_square)
{
    if (p->skip && *p->skip)
        return YK_OK;
    yk__update u = yk__update_of_adam(p, p->state ? p->state->lr : p->lr, p->state ? p->state->step : p->step);
    const yk__view *views[OPERANDS] = {params, grads, mean, square, p->amsgrad ? max_square : NULL};
    updates_run(device, &u, adam_f32, adam_f64, count, views);
    return YK_OK;
}

static yk_status descend(int device, const yk__descent *p, int64_t count, const yk__view *params, const yk__view *grads,
                         const yk__view *first, const yk__view *second, const yk__view *third)
{
    if (p->skip && *p->skip)
        return YK_OK;
    yk__factors f = yk__factors_of(p, p->state ? p->state->lr : p->lr, p->state ? p->state->step : p->step);
    const yk__view *views[OPERANDS] = {params, grads, first, second, third};
    updates_run(device, &f, rules_f32, rules_f64, count, views);
    return YK_OK;
}

/* ---- what changes from step to step ---- */

static yk_status step_advance(int device, yk__step_state *state, const int32_t *skip)
{
    (void)device;
    state->step += !(skip && *skip);
    return YK_OK;
}

typedef struct unscaling {
    float inverse;
    bool f64;
    atomic_int found;
} unscaling;

#define UNSCALE(T, greatest)                                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        T *x = (T *)(data[0] + i * stride[0]), g = *x;                                                                 \
        bad |= !(g >= -greatest && g <= greatest);                                                                     \
        *x = g * (T)u->inverse;                                                                                        \
    }
static void unscale_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    unscaling *u = (unscaling *)(uintptr_t)context;
    int bad = 0;
    if (u->f64)
        UNSCALE(double, DBL_MAX)
    else
        UNSCALE(float, FLT_MAX)
    if (bad)
        atomic_store_explicit(&u->found, 1, memory_order_relaxed);
}

static yk_status unscale(int device, int64_t count, const yk__view *grads, yk__scale_state *scale)
{
    unscaling u = {.inverse = scale->inverse};
    for (int64_t t = 0; t < count; t++) {
        const yk__view *view = &grads[t];
        yk__loop loop;
        u.f64 = view->dtype == YK_F64;
        yk__loop_init(&loop, 1, &view, false);
        yk__loop_run(device, &loop, YK__GRAIN, unscale_run, &u);
    }
    scale->found |= atomic_load(&u.found);
    return YK_OK;
}

static yk_status scale_update(int device, const yk__scaling *p, yk__scale_state *scale)
{
    (void)device;
    yk__scale_next(p, scale);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_optim)(yk__backend *table)
{
    table->sgd = sgd;
    table->adam = adam;
    table->descend = descend;
    table->step_advance = step_advance;
    table->unscale = unscale;
    table->scale_update = scale_update;
}
