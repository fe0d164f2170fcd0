/*
 * optimizers.cu - the slots sgd, adam and descend, and those of what changes from step to step. Layer: device/cuda.
 *
 * The formulas are those of device/cpu/elementwise/optim_kernels.c, term by term and without fused multiply-adds, so
 * that both give the same bits. The tensors of a launch, at most 64, are laid end to end; a block takes pieces of them,
 * and finds by a search in which tensor a piece lies. A tensor whose operands are aligned is read and written in packs
 * (packs.h), with the same bits; one whose views are not one run in memory has a launch of its own.
 */
#include "device/cuda/packs.h"

#include "device/cuda/sums.h"
#include "device/optimizer_math.h"
#include "device/optimizer_rules.h"

enum { MOST_TENSORS = 64, PIECE = WALK_THREADS * WALK_ITEMS, OPERANDS = 5 };

/* The tensors that one launch works on: they travel with the launch, which may take 4 KiB. */
typedef struct tensors {
    int count;
    int64_t end[MOST_TENSORS]; /* in pieces, of the tensors up to this one */
    struct {
        char *data[OPERANDS]; /* param, grad, state; NULL for what is not kept */
        int64_t numel;
    } of[MOST_TENSORS];
    uint64_t aligned; /* bit t: all operands of t, for packs */
} tensors;

static YK__DEVICE float root(float x)
{
    return sqrtf(x);
}
static YK__DEVICE double root(double x)
{
    return sqrt(x);
}

/* An update takes param, gradient and states of an element, as `x`, and changes them; it reads and writes those
 * operands k that it says. */
template <typename Number> struct sgd_update {
    typedef Number T;
    T lr, decay, momentum, keep, sign;
    bool first, nesterov;
    YK__DEVICE explicit sgd_update(const yk__update &u)
        : lr((T)u.lr), decay((T)u.weight_decay), momentum((T)u.momentum), keep((T)u.keep),
          sign(u.maximize ? (T)-1 : (T)1), first(u.first), nesterov(u.nesterov)
    {
    }
    YK__DEVICE bool reads(int k) const
    {
        return k < 2 || (k == 2 && momentum != 0 && !first);
    }
    YK__DEVICE bool writes(int k) const
    {
        return k == 0 || (k == 2 && momentum != 0);
    }
    YK__DEVICE void apply(T *x, bool) const
    {
        T p = x[0], d = sign * x[1] + decay * p;
        if (momentum == 0) {
            x[0] = p - lr * d;
        } else if (first) {
            T reach = nesterov ? 1 + momentum : (T)1;
            x[2] = d;
            x[0] = p - lr * (reach * d);
        } else {
            T b = momentum * x[2] + keep * d;
            x[2] = b;
            x[0] = p - lr * (nesterov ? d + momentum * b : b);
        }
    }
};

template <typename Number> struct adam_update {
    typedef Number T;
    T decay, shrink, toward, beta2, rest, eps, step_size, root_scale, sign;
    YK__DEVICE explicit adam_update(const yk__update &u)
        : decay(u.decoupled ? (T)0 : (T)u.weight_decay), shrink(u.decoupled ? (T)u.shrink : (T)1),
          toward((T)(1 - u.beta1)), beta2((T)u.beta2), rest((T)(1 - u.beta2)), eps((T)u.eps), step_size((T)u.step_size),
          root_scale((T)u.root_scale), sign(u.maximize ? (T)-1 : (T)1)
    {
    }
    YK__DEVICE bool reads(int) const
    {
        return true;
    }
    YK__DEVICE bool writes(int k) const
    {
        return k != 1;
    }
    YK__DEVICE void apply(T *x, bool amsgrad) const
    {
        T p = x[0] * shrink, d = sign * x[1] + decay * x[0];
        T mean = x[2] + toward * (d - x[2]), square = beta2 * x[3] + rest * (d * d), greatest = square;
        if (amsgrad) {
            T before = x[4];
            greatest = before > square || before != before ? before : square;
            x[4] = greatest;
        }
        x[2] = mean;
        x[3] = square;
        x[0] = p - step_size * (mean / (root(greatest) * root_scale + eps));
    }
};

/* The rules of optimizer_rules.h in the two dtypes. */
template <typename Number> struct rule_numbers;
#define RULE_NUMBERS(S, Number)                                                                                        \
    template <> struct rule_numbers<Number> {                                                                          \
        yk__rule_##S of;                                                                                               \
        YK__DEVICE explicit rule_numbers(const yk__factors &f) : of(yk__rule_of_##S(&f))                               \
        {                                                                                                              \
        }                                                                                                              \
        YK__DEVICE void apply(yk__rule rule, Number *x, bool with_second, bool with_third) const                       \
        {                                                                                                              \
            yk__rule_apply_##S(rule, &of, x, with_second, with_third);                                                 \
        }                                                                                                              \
    };
RULE_NUMBERS(f32, float)
RULE_NUMBERS(f64, double)

/* All rules are one kernel, which memory bounds: the branch is the same in all threads. */
template <typename Number> struct rule_update {
    typedef Number T;
    rule_numbers<Number> numbers;
    yk__rule rule;
    bool with_second;
    YK__DEVICE explicit rule_update(const yk__factors &f)
        : numbers(f), rule(f.rule), with_second(f.rule != YK__RMSPROP || f.momentum != 0)
    {
    }
    YK__DEVICE bool reads(int) const
    {
        return true;
    }
    YK__DEVICE bool writes(int k) const
    {
        return k != 1;
    }
    YK__DEVICE void apply(T *x, bool with_third) const
    {
        numbers.apply(rule, x, with_second, with_third);
    }
};

/* N elements from `at` on: all operands are read before the first is written. */
template <typename Update, int N>
static YK__DEVICE void update_pack(const Update &update, int64_t at, char *const *data)
{
    typedef typename Update::T T;
    pack<T, N> x[OPERANDS] = {};
    YK__UNROLL for (int k = 0; k < OPERANDS; k++) if (data[k] && update.reads(k)) x[k] =
        *yk__global<pack<T, N>>(reinterpret_cast<pack<T, N> *>(data[k] + at * (int64_t)sizeof(T)));
    YK__UNROLL for (int i = 0; i < N; i++)
    {
        T own[OPERANDS];
        YK__UNROLL for (int k = 0; k < OPERANDS; k++) own[k] = x[k].of[i];
        update.apply(own, data[OPERANDS - 1] != NULL);
        YK__UNROLL for (int k = 0; k < OPERANDS; k++) x[k].of[i] = own[k];
    }
    YK__UNROLL for (int k = 0; k < OPERANDS; k++) if (data[k] && update.writes(k)) *
        yk__global<pack<T, N>>(reinterpret_cast<pack<T, N> *>(data[k] + at * (int64_t)sizeof(T))) = x[k];
}

/* The numbers that a launch computes with: those of the call, or where `state` is there those that are made of it. */
typedef struct plan {
    typedef yk__update numbers;
    yk__update u;
    yk__sgd sgd;
    yk__adam adam;
    bool is_adam;
    const yk__step_state *state;
    const int32_t *skip;
    YK__DEVICE yk__update of(double lr, int64_t step) const
    {
        return is_adam ? yk__update_of_adam(&adam, lr, step) : yk__update_of_sgd(&sgd, lr, step == 1);
    }
} plan;

/* The same of a step by a rule. */
typedef struct rule_plan {
    typedef yk__factors numbers;
    yk__factors u;
    yk__descent descent;
    const yk__step_state *state;
    const int32_t *skip;
    YK__DEVICE yk__factors of(double lr, int64_t step) const
    {
        return yk__factors_of(&descent, lr, step);
    }
} rule_plan;

/* Brings the update's numbers to all threads of the block; false where there is nothing to change. */
template <typename Plan>
static YK__DEVICE bool settle(const Plan &p, yk__block<typename Plan::numbers> shared, typename Plan::numbers *u)
{
    if (p.skip && *yk__global<const int32_t>(p.skip))
        return false;
    *u = p.u;
    if (!p.state)
        return true;
    if (threadIdx.x == 0) {
        yk__global<const yk__step_state> state(p.state);
        double lr = state->lr;
        int64_t step = state->step;
        shared[0] = p.of(lr, step);
    }
    __syncthreads();
    *u = shared[0];
    return true;
}

/* The tensor that a piece is of; *first: the piece's first element there. */
static YK__DEVICE int tensor_of(const tensors &all, int64_t piece, int64_t *first)
{
    int low = 0, high = all.count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (all.end[middle] <= piece)
            low = middle + 1;
        else
            high = middle;
    }
    *first = (piece - (low ? all.end[low - 1] : 0)) * PIECE;
    return low;
}

template <typename Update, typename Plan> YK__KERNEL(WALK_THREADS) update_kernel(Plan p, tensors all)
{
    YK__SHARED(typename Plan::numbers, shared);
    typename Plan::numbers u;
    if (!settle(p, shared, &u))
        return;
    const Update update(u);
    YK__LOOP for (int64_t piece = blockIdx.x; piece < all.end[all.count - 1]; piece += gridDim.x)
    {
        int64_t first;
        int t = tensor_of(all, piece, &first);
        const int n = pack_of<typename Update::T>::N;
        int64_t left = all.of[t].numel - first, to = first + (left < PIECE ? left : (int64_t)PIECE);
        if (all.aligned >> t & 1) {
            YK__LOOP for (int64_t i = first + (int64_t)threadIdx.x * n; i + n <= to; i += WALK_THREADS * n)
                update_pack<Update, n>(update, i, all.of[t].data);
            first += (to - first) / n * n;
        }
        YK__LOOP for (int64_t i = first + threadIdx.x; i < to; i += WALK_THREADS)
            update_pack<Update, 1>(update, i, all.of[t].data);
    }
}

/* One tensor whose views lie in memory in different orders. Operand k of the loop is data[operand[k]]. */
typedef struct strided_tensor {
    yk__loop loop;
    int operand[OPERANDS];
} strided_tensor;

template <typename Update, typename Plan> YK__KERNEL(WALK_THREADS) strided_kernel(Plan p, strided_tensor tensor)
{
    YK__SHARED(typename Plan::numbers, shared);
    typename Plan::numbers u;
    if (!settle(p, shared, &u))
        return;
    const Update update(u);
    int64_t step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < tensor.loop.total; i += step)
    {
        char *data[OPERANDS] = {NULL, NULL, NULL, NULL, NULL};
        for (int k = 0; k < tensor.loop.operands; k++)
            data[tensor.operand[k]] = tensor.loop.data[k] + walk_offset(tensor.loop, k, i);
        update_pack<Update, 1>(update, 0, data);
    }
}

/* The kernel of a plan: for tensors that are one run in memory, and for others. */
template <typename Plan> struct kernels {
    void (*linear)(Plan, tensors);
    void (*strided)(Plan, strided_tensor);
};

static kernels<plan> kernels_of(const plan &p, bool f64)
{
    kernels<plan> adam32 = {update_kernel<adam_update<float>, plan>, strided_kernel<adam_update<float>, plan>};
    kernels<plan> adam64 = {update_kernel<adam_update<double>, plan>, strided_kernel<adam_update<double>, plan>};
    kernels<plan> sgd32 = {update_kernel<sgd_update<float>, plan>, strided_kernel<sgd_update<float>, plan>};
    kernels<plan> sgd64 = {update_kernel<sgd_update<double>, plan>, strided_kernel<sgd_update<double>, plan>};
    return p.is_adam ? f64 ? adam64 : adam32 : f64 ? sgd64 : sgd32;
}

static kernels<rule_plan> kernels_of(const rule_plan &, bool f64)
{
    typedef rule_plan P;
    kernels<P> rule32 = {update_kernel<rule_update<float>, P>, strided_kernel<rule_update<float>, P>};
    kernels<P> rule64 = {update_kernel<rule_update<double>, P>, strided_kernel<rule_update<double>, P>};
    return f64 ? rule64 : rule32;
}

template <typename Plan>
static yk_status launch(int device, const char *name, const Plan &p, const tensors &all, bool f64,
                        const yk__view *first)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || all.count == 0 || all.end[all.count - 1] == 0)
        return status;
    void (*kernel)(Plan, tensors) = kernels_of(p, f64).linear;
    YK__LAUNCH(name, kernel, walk_rows(device, all.end[all.count - 1]), WALK_THREADS, sizeof(typename Plan::numbers),
               stream, p, all);
    return cuda_launched(device, name, 1, &first);
}

template <typename Plan>
static yk_status launch_strided(int device, const char *name, const Plan &p, const yk__view *const *views, int64_t t,
                                bool f64)
{
    strided_tensor tensor;
    const yk__view *present[OPERANDS];
    int operands = 0;
    for (int k = 0; k < OPERANDS; k++) {
        if (views[k]) {
            tensor.operand[operands] = k;
            present[operands++] = &views[k][t];
        }
    }
    yk__loop_init(&tensor.loop, operands, present, false);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || tensor.loop.total == 0)
        return status;
    void (*kernel)(Plan, strided_tensor) = kernels_of(p, f64).strided;
    YK__LAUNCH(name, kernel, walk_blocks(device, tensor.loop.total), WALK_THREADS, sizeof(typename Plan::numbers),
               stream, p, tensor);
    return cuda_launched(device, name, 2, present);
}

/* Appends tensor t to a launch. */
static void append(tensors *all, const yk__view *const *views, int64_t t, int64_t numel)
{
    uintptr_t bits = 0;
    for (int k = 0; k < OPERANDS; k++) {
        all->of[all->count].data[k] = views[k] ? static_cast<char *>(views[k][t].data) : NULL;
        bits |= reinterpret_cast<uintptr_t>(all->of[all->count].data[k]);
    }
    all->aligned = (all->aligned & ~(1ull << all->count)) | (uint64_t)(bits % PACK_BYTES == 0) << all->count;
    all->of[all->count].numel = numel;
    all->end[all->count] = (all->count ? all->end[all->count - 1] : 0) + (numel + PIECE - 1) / PIECE;
    all->count++;
}

/* Updates the tensors of one dtype, in launches of MOST_TENSORS. */
template <typename Plan>
static yk_status run(int device, const char *name, const Plan &p, int64_t count, const yk__view *const *views)
{
    for (int f64 = 0; f64 < 2; f64++) {
        tensors all = {};
        const yk__view *first = NULL;
        for (int64_t t = 0; t < count; t++) {
            int64_t numel;
            if ((views[0][t].dtype == YK_F64) != (f64 == 1))
                continue;
            if (!yk__update_is_linear(views, OPERANDS, t, &numel)) {
                yk_status status = launch_strided(device, name, p, views, t, f64);
                if (status)
                    return status;
                continue;
            }
            first = all.count ? first : &views[0][t];
            append(&all, views, t, numel);
            if (all.count == MOST_TENSORS) {
                yk_status status = launch(device, name, p, all, f64, first);
                if (status)
                    return status;
                all.count = 0;
            }
        }
        yk_status status = launch(device, name, p, all, f64, first);
        if (status)
            return status;
    }
    return YK_OK;
}

yk_status cuda_sgd(int device, const yk__sgd *p, int64_t count, const yk__view *params, const yk__view *grads,
                   const yk__view *momentum)
{
    plan of = {};
    of.sgd = *p, of.state = p->state, of.skip = p->skip;
    of.u = yk__update_of_sgd(p, p->lr, p->first);
    const yk__view *views[OPERANDS] = {params, grads, momentum, NULL, NULL};
    return run(device, "sgd", of, count, views);
}

yk_status cuda_adam(int device, const yk__adam *p, int64_t count, const yk__view *params, const yk__view *grads,
                    const yk__view *mean, const yk__view *square, const yk__view *max_square)
{
    plan of = {};
    of.adam = *p, of.is_adam = true, of.state = p->state, of.skip = p->skip;
    if (!p->state)
        of.u = yk__update_of_adam(p, p->lr, p->step);
    const yk__view *views[OPERANDS] = {params, grads, mean, square, p->amsgrad ? max_square : NULL};
    return run(device, "adam", of, count, views);
}

yk_status cuda_descend(int device, const yk__descent *p, int64_t count, const yk__view *params, const yk__view *grads,
                       const yk__view *first, const yk__view *second, const yk__view *third)
{
    rule_plan of = {};
    of.descent = *p, of.state = p->state, of.skip = p->skip;
    if (!p->state)
        of.u = yk__factors_of(p, p->lr, p->step);
    const yk__view *views[OPERANDS] = {params, grads, first, second, third};
    return run(device, "descend", of, count, views);
}

/* ---- what changes from step to step ---- */

YK__KERNEL(LANES) advance_kernel(yk__step_state *state, const int32_t *skip)
{
    if (threadIdx.x == 0 && !(skip && *yk__global<const int32_t>(skip)))
        yk__global<yk__step_state>(state)->step++;
}

yk_status cuda_step_advance(int device, yk__step_state *state, const int32_t *skip)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    YK__LAUNCH("step_advance", advance_kernel, 1, LANES, 0, stream, state, skip);
    return cuda_launched(device, "step_advance", 0, NULL);
}

/* g *= inverse; true if it was finite. */
template <typename T> static YK__DEVICE bool unscale(T *g, T inverse)
{
    T before = *g;
    *g = before * inverse;
    return before - before == 0; /* NaN of infinity minus itself */
}

/* Any thread that finds something writes the same 1. */
template <typename T> YK__KERNEL(WALK_THREADS) unscale_kernel(tensors all, yk__scale_state *at)
{
    yk__global<yk__scale_state> scale(at);
    T inverse = (T)scale->inverse;
    bool finite = true;
    YK__LOOP for (int64_t piece = blockIdx.x; piece < all.end[all.count - 1]; piece += gridDim.x)
    {
        int64_t first;
        int t = tensor_of(all, piece, &first);
        const int n = pack_of<T>::N;
        int64_t left = all.of[t].numel - first, to = first + (left < PIECE ? left : (int64_t)PIECE);
        yk__global<T> grad(reinterpret_cast<T *>(all.of[t].data[0]));
        if (all.aligned >> t & 1) {
            YK__LOOP for (int64_t i = first + (int64_t)threadIdx.x * n; i + n <= to; i += WALK_THREADS * n)
            {
                yk__global<pack<T, n>> grads(
                    reinterpret_cast<pack<T, n> *>(all.of[t].data[0] + i * (int64_t)sizeof(T)));
                pack<T, n> x = *grads;
                YK__UNROLL for (int k = 0; k < n; k++) finite = unscale(&x.of[k], inverse) && finite;
                *grads = x;
            }
            first += (to - first) / n * n;
        }
        YK__LOOP for (int64_t i = first + threadIdx.x; i < to; i += WALK_THREADS) finite =
            unscale(&grad[i], inverse) && finite;
    }
    if (!finite)
        scale->found = 1;
}

/* Unscales a gradient whose elements are not one run in memory. */
template <typename T> YK__KERNEL(WALK_THREADS) unscale_strided_kernel(yk__loop loop, yk__scale_state *at)
{
    yk__global<yk__scale_state> scale(at);
    T inverse = (T)scale->inverse;
    bool finite = true;
    int64_t step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < loop.total; i += step) finite =
        unscale(&*walk_at<T>(loop, 0, i), inverse) && finite;
    if (!finite)
        scale->found = 1;
}

static yk_status unscale_together(int device, const tensors &all, bool f64, const yk__view *first,
                                  yk__scale_state *scale)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || all.count == 0 || all.end[all.count - 1] == 0)
        return status;
    void (*kernel)(tensors, yk__scale_state *) = f64 ? unscale_kernel<double> : unscale_kernel<float>;
    YK__LAUNCH("unscale", kernel, walk_rows(device, all.end[all.count - 1]), WALK_THREADS, 0, stream, all, scale);
    return cuda_launched(device, "unscale", 1, &first);
}

static yk_status unscale_strided(int device, const yk__view *view, bool f64, yk__scale_state *scale)
{
    yk__loop loop;
    yk__loop_init(&loop, 1, &view, false);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || loop.total == 0)
        return status;
    void (*kernel)(yk__loop, yk__scale_state *) = f64 ? unscale_strided_kernel<double> : unscale_strided_kernel<float>;
    YK__LAUNCH("unscale", kernel, walk_blocks(device, loop.total), WALK_THREADS, 0, stream, loop, scale);
    return cuda_launched(device, "unscale", 1, &view);
}

yk_status cuda_unscale(int device, int64_t count, const yk__view *grads, yk__scale_state *scale)
{
    const yk__view *views[OPERANDS] = {grads, NULL, NULL, NULL, NULL};
    yk_status status = YK_OK;
    for (int f64 = 0; f64 < 2; f64++) {
        tensors all = {};
        const yk__view *first = NULL;
        for (int64_t t = 0; t < count && !status; t++) {
            int64_t numel;
            if ((grads[t].dtype == YK_F64) != (f64 == 1))
                continue;
            if (!yk__update_is_linear(views, 1, t, &numel)) {
                status = unscale_strided(device, &grads[t], f64, scale);
                continue;
            }
            first = all.count ? first : &grads[t];
            append(&all, views, t, numel);
            if (all.count < MOST_TENSORS)
                continue;
            status = unscale_together(device, all, f64, first, scale);
            all.count = 0;
        }
        if (!status)
            status = unscale_together(device, all, f64, first, scale);
    }
    return status;
}

YK__KERNEL(LANES) scale_kernel(yk__scaling p, yk__scale_state *at)
{
    if (threadIdx.x)
        return;
    yk__global<yk__scale_state> scale(at);
    yk__scale_state s = *scale;
    yk__scale_next(&p, &s);
    *scale = s;
}

yk_status cuda_scale_update(int device, const yk__scaling *p, yk__scale_state *scale)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    YK__LAUNCH("scale_update", scale_kernel, 1, LANES, 0, stream, *p, scale);
    return cuda_launched(device, "scale_update", 0, NULL);
}
