/*
 * reductions.cu - the slot reduce. Layer: device/cuda.
 *
 * An output is made by a team of 1 to 256 threads of a block: thread t of n takes elements t, t + n, ... and the
 * threads' states are merged in shared memory, halving by halving. Where a few outputs have many elements each, an
 * output's elements are cut into parts, a team for each, whose states go to a workspace; a second launch merges those.
 * Team and parts follow from the shapes alone, so the order of a sum does, too. Sums of f16, bf16 and f32 are kept in
 * f64, which is rounded once, at the end.
 */
#include "device/cuda/walk.h"

#include "device/cuda/elements.h"

/* EACH: elements of a thread, at least, where a team has more than one. */
enum { THREADS = WALK_THREADS, EACH = 4, COLUMN_TEAM = 8 };
/* Elements that a thread reads before it uses the first: 32 bytes, or 16 elements; half of that where the state takes
 * many registers. */
template <typename T, typename State> struct at_once {
    enum { MOST = sizeof(T) <= 2 ? 16 : 32 / sizeof(T), N = sizeof(State) > 16 ? MOST / 2 : MOST };
};
/* The least elements of a part, along rows and along columns; so many threads fill any GPU there is. */
static const int64_t LEAST_PART = 4096, LEAST_COLUMN_PART = 128, MOST_PARTS = 1024, ENOUGH_THREADS = 1 << 18;

/* The work of a launch. An output's elements are those of `reduced`, from the output's first one in `kept` (operand 0
 * is written, 1 is the first element) on. */
typedef struct reduction {
    yk__loop kept, reduced;
    int64_t parts, part; /* of each output, and the elements of one */
    int team;            /* threads of one part: a power of two */
    bool columns;        /* the outputs lie side by side in memory, and so do a warp's threads */
    bool from_states;    /* the elements are the states that an earlier launch left */
    void *states;        /* (parts, outputs): written where there are several parts, or read */
    double divisor;
} reduction;

/* ---- states: where one starts, how an element goes in, how two are merged, what comes out ---- */
#define STATE(name, T, first, feed, together)                                                                          \
    struct name {                                                                                                      \
        typedef T state;                                                                                               \
        static YK__DEVICE T start()                                                                                    \
        {                                                                                                              \
            return first;                                                                                              \
        }                                                                                                              \
        static YK__DEVICE T add(T s, T x, int64_t)                                                                     \
        {                                                                                                              \
            return feed;                                                                                               \
        }                                                                                                              \
        static YK__DEVICE T merge(T s, T x)                                                                            \
        {                                                                                                              \
            return together;                                                                                           \
        }                                                                                                              \
        static YK__DEVICE T finish(T s, double divisor)                                                                \
        {                                                                                                              \
            return divisor != 0 ? (T)((double)s / divisor) : s;                                                        \
        }                                                                                                              \
    };
STATE(real_sum, double, 0, s + x, s + x)
STATE(real_squares, double, 0, s + x * x, s + x)
STATE(real_product, double, 1, s *x, s *x)
STATE(real_greatest, double, -INFINITY, s != s || s > x ? s : x, s != s || s > x ? s : x)
STATE(real_least, double, INFINITY, s != s || s < x ? s : x, s != s || s < x ? s : x)
STATE(real_any, double, 0, s != 0 || x != 0, s != 0 || x != 0)
STATE(real_all, double, 1, s != 0 && x != 0, s != 0 && x != 0)
STATE(whole_sum, int64_t, 0, (int64_t)((uint64_t)s + (uint64_t)x), (int64_t)((uint64_t)s + (uint64_t)x))
STATE(whole_product, int64_t, 1, (int64_t)((uint64_t)s *(uint64_t)x), (int64_t)((uint64_t)s *(uint64_t)x))
STATE(whole_greatest, int64_t, INT64_MIN, s > x ? s : x, s > x ? s : x)
STATE(whole_least, int64_t, INT64_MAX, s < x ? s : x, s < x ? s : x)
STATE(whole_any, int64_t, 0, s != 0 || x != 0, s != 0 || x != 0)
STATE(whole_all, int64_t, 1, s != 0 && x != 0, s != 0 && x != 0)

/* An extreme and its position: the first of equals, and NaN is beyond all. */
template <typename T> struct extreme {
    T x;
    int64_t at; /* -1: nothing was seen */
};
template <typename T, bool GREATEST> struct extreme_index {
    typedef extreme<T> state;
    static YK__DEVICE state start()
    {
        state s = {0, -1};
        return s;
    }
    static YK__DEVICE state merge(state s, state y)
    {
        if (s.at < 0 || y.at < 0)
            return y.at < 0 ? s : y;
        bool nan = s.x != s.x, other = y.x != y.x;
        if (nan != other)
            return nan ? s : y;
        if (nan || s.x == y.x)
            return s.at < y.at ? s : y;
        return (GREATEST ? s.x > y.x : s.x < y.x) ? s : y;
    }
    /* i is beyond all that s has seen. */
    static YK__DEVICE state add(state s, T x, int64_t i)
    {
        bool beyond = s.at < 0 || (GREATEST ? x > s.x : x < s.x) || (x != x && s.x == s.x);
        state y = {beyond ? x : s.x, beyond ? i : s.at};
        return y;
    }
    static YK__DEVICE int64_t finish(state s, double)
    {
        return s.at;
    }
};

/* The sum of squared distances from the mean, merged without the difference of two large sums (Chan, Golub and LeVeque,
 * 1979). */
struct spread_state {
    double count, mean, squares;
};
struct spread {
    typedef spread_state state;
    static YK__DEVICE state start()
    {
        state s = {0, 0, 0};
        return s;
    }
    static YK__DEVICE state merge(state s, state y)
    {
        state z;
        z.count = s.count + y.count;
        if (s.count == 0 || y.count == 0)
            return s.count == 0 ? y : s;
        double apart = y.mean - s.mean;
        z.mean = (s.count * s.mean + y.count * y.mean) / z.count;
        z.squares = s.squares + y.squares + apart * apart * (s.count * y.count / z.count);
        return z;
    }
    static YK__DEVICE state add(state s, double x, int64_t)
    {
        double apart = x - s.mean;
        s.count += 1;
        s.mean += apart / s.count;
        s.squares += apart * (x - s.mean);
        return s;
    }
    static YK__DEVICE double finish(state s, double divisor)
    {
        return s.squares / divisor;
    }
};

template <typename State, typename In, typename Out, typename T> YK__KERNEL(THREADS) reduce_kernel(reduction r)
{
    typedef typename State::state state;
    typedef const typename In::stored stored;
    enum { AT_ONCE = at_once<stored, state>::N };
    YK__SHARED(state, shared);
    int team = r.team, teams = THREADS / team, thread = (int)threadIdx.x;
    int member = r.columns ? thread / teams : thread % team, mine = r.columns ? thread % teams : thread / team;
    int64_t outputs = r.kept.total, all = outputs * r.parts;
    yk__global<state> states(static_cast<state *>(r.states));
    YK__LOOP for (int64_t first = (int64_t)teams * blockIdx.x; first < all; first += (int64_t)teams * gridDim.x)
    {
        int64_t at = first + mine, output = at % outputs, from = at / outputs * r.part;
        int64_t to = from + r.part < r.reduced.total ? from + r.part : r.reduced.total;
        state s = State::start();
        if (at < all && r.from_states) {
            YK__LOOP for (int64_t i = member; i < r.reduced.total; i += team) s =
                State::merge(s, states[i * outputs + output]);
        } else if (at < all) {
            const char *base = r.kept.data[1] + walk_offset(r.kept, 1, output);
            int64_t i = from + member;
            YK__LOOP for (; i + (AT_ONCE - 1) * team < to; i += AT_ONCE * team)
            {
                typename In::stored x[AT_ONCE];
                for (int k = 0; k < AT_ONCE; k++)
                    x[k] =
                        *yk__global<stored>(reinterpret_cast<stored *>(base + walk_offset(r.reduced, 0, i + k * team)));
                for (int k = 0; k < AT_ONCE; k++)
                    s = State::add(s, (T)In::load(x[k]), i + k * team);
            }
            /* the rest, of which a thread has less than AT_ONCE; always the first of x is used: the code stands once */
            typename In::stored x[AT_ONCE] = {};
            YK__UNROLL for (int k = 0; k < AT_ONCE - 1; k++) if (i + k * team < to) x[k] =
                *yk__global<stored>(reinterpret_cast<stored *>(base + walk_offset(r.reduced, 0, i + k * team)));
            YK__LOOP for (; i < to; i += team)
            {
                s = State::add(s, (T)In::load(x[0]), i);
                YK__UNROLL for (int k = 0; k + 1 < AT_ONCE; k++) x[k] = x[k + 1];
            }
        }
        for (int half = team / 2; half > 0; half /= 2) {
            __syncthreads();
            shared[member * teams + mine] = s;
            __syncthreads();
            if (member < half)
                s = State::merge(s, shared[(member + half) * teams + mine]);
        }
        if (member || at >= all)
            continue;
        if (r.parts > 1)
            states[at] = s;
        else
            *walk_at<typename Out::stored>(r.kept, 0, output) =
                Out::store((typename Out::number)State::finish(s, r.divisor));
    }
}

/* ---- slot reduce ---- */
struct request {
    int device;
    reduction *r;
    const char *name;
    cudaStream_t stream;
    yk_status status;

    template <typename State, typename In, typename Out, typename T> bool with()
    {
        void (*kernel)(reduction) = reduce_kernel<State, In, Out, T>;
        yk__storage *memory = NULL;
        size_t shared = THREADS * sizeof(typename State::state);
        if (r->parts > 1) {
            yk_device where = {YK_CUDA, (int16_t)device};
            size_t bytes = (size_t)(r->parts * r->kept.total) * sizeof(typename State::state);
            r->states = cuda_yoke->workspace_get(where, bytes, &memory);
            status = r->states ? YK_OK : YK_ERR_MEMORY;
            if (status)
                return true;
        }
        launch(kernel, shared);
        if (r->parts > 1) {
            r->reduced.total = r->part = r->parts;
            r->parts = 1;
            r->from_states = true;
            r->columns = false;
            for (r->team = 1; r->team < THREADS && r->team < r->part;)
                r->team *= 2;
            launch(kernel, shared);
            cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
        }
        return true;
    }
    void launch(void (*kernel)(reduction), size_t shared)
    {
        int64_t teams = THREADS / r->team, all = r->kept.total * r->parts;
        YK__LAUNCH(name, kernel, walk_rows(device, (all + teams - 1) / teams), THREADS, shared, stream, *r);
    }
    template <typename In> bool real(yk__reduce op)
    {
        typedef typename In::number number;
        switch (op) {
        case YK__SUM:
        case YK__MEAN: return with<real_sum, In, In, double>();
        case YK__SUM_SQUARES: return with<real_squares, In, In, double>();
        case YK__PROD: return with<real_product, In, In, double>();
        case YK__AMAX: return with<real_greatest, In, In, double>();
        case YK__AMIN: return with<real_least, In, In, double>();
        case YK__ANY: return with<real_any, In, element_bool, double>();
        case YK__ALL: return with<real_all, In, element_bool, double>();
        case YK__VAR: return with<spread, In, In, double>();
        case YK__ARGMAX: return with<extreme_index<number, true>, In, element_i64, number>();
        default: return with<extreme_index<number, false>, In, element_i64, number>();
        }
    }
    template <typename In> bool whole(yk__reduce op)
    {
        switch (op) {
        case YK__SUM: return with<whole_sum, In, element_i64, int64_t>();
        case YK__PROD: return with<whole_product, In, element_i64, int64_t>();
        case YK__AMAX: return with<whole_greatest, In, In, int64_t>();
        case YK__AMIN: return with<whole_least, In, In, int64_t>();
        case YK__ANY: return with<whole_any, In, element_bool, int64_t>();
        case YK__ALL: return with<whole_all, In, element_bool, int64_t>();
        case YK__ARGMAX: return with<extreme_index<int64_t, true>, In, element_i64, int64_t>();
        case YK__ARGMIN: return with<extreme_index<int64_t, false>, In, element_i64, int64_t>();
        default: return false;
        }
    }
};

/* Chooses the team, the parts, and the direction of a warp's threads, by the shape alone. */
static void divide(reduction *r)
{
    int64_t outputs = r->kept.total, elements = r->reduced.total;
    r->columns = outputs > 1 && yk__magnitude(r->kept.stride[0][1]) < yk__magnitude(r->reduced.stride[0][0]);
    int64_t least = r->columns ? LEAST_COLUMN_PART : LEAST_PART,
            team = r->columns ? (int64_t)COLUMN_TEAM : (int64_t)THREADS;
    int64_t wanted = (ENOUGH_THREADS + outputs * team - 1) / (outputs * team);
    r->parts = 1;
    r->part = elements;
    if (wanted > 1 && elements >= 2 * least) {
        r->parts = elements / least < wanted ? elements / least : wanted;
        r->parts = r->parts < MOST_PARTS ? r->parts : MOST_PARTS;
        r->part = (elements + r->parts - 1) / r->parts;
        r->parts = (elements + r->part - 1) / r->part;
    }
    r->team = 1;
    while (r->team < team && r->team * EACH < r->part)
        r->team *= 2;
}

static const char *const names[] = {"sum", "mean",   "prod",   "amax", "amin",          "any",
                                    "all", "argmax", "argmin", "var",  "sum of squares"};

yk_status cuda_reduce(int device, yk__reduce op, const yk__view *out, const yk__view *in, double p0)
{
    /* The dimensions that stay, and those that go. */
    yk__view result = *out, kept = *in, gone = *in;
    int stay = 0, go = 0;
    for (int d = 0; d < in->ndim; d++) {
        if (out->shape[d] == in->shape[d] && in->shape[d] != 1) {
            result.shape[stay] = kept.shape[stay] = in->shape[d];
            result.stride[stay] = out->stride[d];
            kept.stride[stay++] = in->stride[d];
        } else {
            gone.shape[go] = in->shape[d];
            gone.stride[go++] = in->stride[d];
        }
    }
    result.ndim = kept.ndim = stay;
    gone.ndim = go;
    const yk__view *outputs[] = {&result, &kept}, *elements[] = {&gone}, *views[] = {out, in};
    reduction r;
    memset(&r, 0, sizeof(r));
    yk__loop_init(&r.kept, 2, outputs, false);
    yk__loop_init(&r.reduced, 1, elements, true);
    double count = (double)r.reduced.total;
    if (op == YK__MEAN)
        r.divisor = count > 0 ? count : NAN;
    if (op == YK__VAR)
        r.divisor = count - p0 > 0 ? count - p0 : 0;
    request q = {device, &r, names[op], NULL, YK_OK};
    yk_status status = cuda_use(device, &q.stream);
    if (status || r.kept.total == 0)
        return status;
    divide(&r);
    bool there = false;
    switch (in->dtype) {
    case YK_F32: there = q.real<element_f32>(op); break;
    case YK_F64: there = q.real<element_f64>(op); break;
    case YK_F16: there = q.real<element_f16>(op); break;
    case YK_BF16: there = q.real<element_bf16>(op); break;
    case YK_I64: there = q.whole<element_i64>(op); break;
    case YK_I32: there = q.whole<element_i32>(op); break;
    case YK_U8: there = q.whole<element_u8>(op); break;
    case YK_BOOL: there = q.whole<element_bool>(op); break;
    default: break;
    }
    if (q.status)
        return q.status;
    if (!there)
        return cuda_fail(YK_ERR_DTYPE, "%s: not defined for %s", names[op], cuda_yoke->dtype_name(in->dtype));
    return cuda_launched(device, names[op], 2, views);
}
