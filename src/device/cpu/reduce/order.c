/*
 * order.c - the slots argsort and scan, which work along one dimension. Layer: device/cpu.
 *
 * Elements become unsigned keys of the same order, which are sorted with their positions, eight bits at a time from the
 * lowest (radix sort), so that equal ones stay in order; a short line by insertion. Keys count from the least of a line
 * on, so that whole numbers near each other have few bits, and share a word with their positions where both fit. Where
 * only the first k are asked for, they are selected: of a buffer the first k stay whenever it is full, and what is not
 * below the last of them never enters it. The lines are shared by the threads.
 *
 * Scans go down lines that lie side by side in memory together, a row of SCAN_COLUMNS sums at a time.
 */
#include <math.h>

#include "device/cpu/iterate.h"

/* The lines along one dimension: the other dimensions are the loop's. */
typedef struct lines {
    yk__loop loop;                        /* out, x at the beginning of each line */
    int64_t length, out_stride, x_stride; /* bytes */
    int64_t first;                        /* argsort: how many of the sorted line are asked for */
    yk_dtype dtype;
    bool flipped; /* descending, or reverse */
    yk__scan op;
} lines;

static lines lines_of(const yk__view *out, const yk__view *x, int dim, bool flipped)
{
    yk__view first[2] = {*out, *x};
    lines l = {.dtype = x->dtype, .flipped = flipped, .length = 1};
    if (x->ndim) {
        l.length = x->shape[dim];
        l.out_stride = out->stride[dim] * (int64_t)yk_dtype_size(out->dtype);
        l.x_stride = x->stride[dim] * (int64_t)yk_dtype_size(x->dtype);
        first[0].shape[dim] = first[1].shape[dim] = 1;
    }
    const yk__view *views[] = {&first[0], &first[1]};
    yk__loop_init(&l.loop, 2, views, false);
    return l;
}

static int64_t lines_per_piece(const lines *l)
{
    return l->length >= YK__GRAIN ? 1 : YK__GRAIN / l->length;
}

/* ---- argsort ---- */

typedef struct entry {
    uint64_t key;
    int64_t at;
} entry;

/* SHORT: entries up to which insertion is used in place of a radix sort, whose tables cost the same for any number.
 * DIGITS: values of a byte. COUNTS: tables in turns, for a number in memory that was just added to is waited for. KEYS:
 * made at a time; a block of them without one that belongs to the first k is skipped. */
enum { SHORT = 40, DIGITS = 256, COUNTS = 2, KEYS = 64 };

/* A key with the order of the numbers: NaN after everything, -0 as 0; integers with their sign bit inverted. */
static inline uint64_t key_f32(float value)
{
    uint32_t bits;
    value = value == 0 ? 0 : value;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t key = bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
    return value != value ? UINT32_MAX : key;
}

static inline uint64_t key_f64(double value)
{
    uint64_t bits;
    value = value == 0 ? 0 : value;
    memcpy(&bits, &value, sizeof(bits));
    uint64_t key = bits ^ ((uint64_t)((int64_t)bits >> 63) | (uint64_t)1 << 63);
    return value != value ? UINT64_MAX : key;
}

#define KEYS_OF(T, KEY)                                                                                                \
    if (stride == (int64_t)sizeof(T)) {                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T v = ((const T *)x)[i];                                                                                   \
            to[i] = (KEY) ^ turn;                                                                                      \
        }                                                                                                              \
    } else {                                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T v = *(const T *)(x + i * stride);                                                                        \
            to[i] = (KEY) ^ turn;                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    break;

/* The keys of n elements; `turn` has ones in all bits of a key where the order is descending. */
static void keys_of(yk_dtype dtype, const char *x, int64_t stride, int64_t n, uint64_t turn, uint64_t *to)
{
    switch (dtype) {
    case YK_F32: KEYS_OF(float, key_f32(v))
    case YK_F64: KEYS_OF(double, key_f64(v))
    case YK_I64: KEYS_OF(int64_t, (uint64_t)v ^ ((uint64_t)1 << 63))
    case YK_I32: KEYS_OF(int32_t, (uint32_t)v ^ 0x80000000u)
    case YK_BOOL: KEYS_OF(uint8_t, v != 0)
    default: KEYS_OF(uint8_t, v)
    }
}

/* n of T sorted by `bits` bits of KEY(x) from `shift` on, at `from` or at `to`. */
#define SORT(name, T, KEY)                                                                                             \
    static T *name(T *from, T *to, int64_t n, int shift, int bits)                                                     \
    {                                                                                                                  \
        if (n <= SHORT) {                                                                                              \
            for (int64_t i = 1; i < n; i++) {                                                                          \
                T e = from[i];                                                                                         \
                int64_t j = i;                                                                                         \
                for (; j > 0 && KEY(from[j - 1]) > KEY(e); j--)                                                        \
                    from[j] = from[j - 1];                                                                             \
                from[j] = e;                                                                                           \
            }                                                                                                          \
            return from;                                                                                               \
        }                                                                                                              \
        for (int end = shift + bits; shift < end; shift += 8) {                                                        \
            int64_t counts[COUNTS][DIGITS] = {0}, *count = counts[0], sum = 0, i = 0;                                  \
            bool same = false; /* a digit that all have */                                                             \
            for (; i + COUNTS <= n; i += COUNTS)                                                                       \
                for (int c = 0; c < COUNTS; c++)                                                                       \
                    counts[c][KEY(from[i + c]) >> shift & 255]++;                                                      \
            for (; i < n; i++)                                                                                         \
                count[KEY(from[i]) >> shift & 255]++;                                                                  \
            for (int k = 0; k < DIGITS; k++) {                                                                         \
                int64_t here = 0;                                                                                      \
                for (int c = 0; c < COUNTS; c++)                                                                       \
                    here += counts[c][k];                                                                              \
                count[k] = sum;                                                                                        \
                sum += here;                                                                                           \
                same = same || here == n;                                                                              \
            }                                                                                                          \
            if (same)                                                                                                  \
                continue;                                                                                              \
            for (i = 0; i < n; i++)                                                                                    \
                to[count[KEY(from[i]) >> shift & 255]++] = from[i];                                                    \
            T *swap = from;                                                                                            \
            from = to;                                                                                                 \
            to = swap;                                                                                                 \
        }                                                                                                              \
        return from;                                                                                                   \
    }
#define KEY_OF_ENTRY(e) ((e).key)
#define KEY_OF_WORD(w)  (w)
SORT(sort_entries, entry, KEY_OF_ENTRY)
SORT(sort_words, uint64_t, KEY_OF_WORD)

/* The memory for sorting, for one thread or with room for all. */
typedef struct sorting {
    const lines *l;
    entry *scratch; /* `room` for each thread */
    int64_t room;
} sorting;

static inline uint64_t least_of(const uint64_t *key, int64_t n)
{
    uint64_t least = key[0];
    for (int64_t i = 1; i < n; i++)
        least = key[i] < least ? key[i] : least;
    return least;
}

/* The first l->first of a line, sorted, in a, which has `room` entries, at least KEYS more, and as many for scratch.
 * Few are inserted one by one where they belong. */
static const entry *select_first(const lines *l, const char *x, uint64_t turn, int bytes, entry *a, int64_t room)
{
    entry *b = a + room;
    uint64_t key[KEYS], limit = UINT64_MAX;
    int64_t count = 0, first = l->first;
    bool full = false;
    for (int64_t k = 0; k < l->length; k += KEYS) {
        int64_t n = l->length - k < KEYS ? l->length - k : KEYS;
        keys_of(l->dtype, x + k * l->x_stride, l->x_stride, n, turn, key);
        if (full && least_of(key, n) >= limit)
            continue;
        if (first <= SHORT) {
            for (int64_t i = 0; i < n; i++) {
                if (full && key[i] >= limit)
                    continue;
                int64_t at = full ? first - 1 : count++;
                for (; at > 0 && a[at - 1].key > key[i]; at--)
                    a[at] = a[at - 1];
                a[at] = (entry){key[i], k + i};
                full = count == first;
                limit = a[count - 1].key;
            }
            continue;
        }
        if (count + n > room) {
            entry *sorted = sort_entries(a, b, count, 0, 8 * bytes);
            b = sorted == a ? b : a;
            a = sorted;
            count = first;
            limit = a[count - 1].key;
            full = true;
        }
        for (int64_t i = 0; i < n; i++) {
            a[count] = (entry){key[i], k + i};
            count += !full || key[i] < limit;
        }
    }
    return first <= SHORT ? a : sort_entries(a, b, count, 0, 8 * bytes);
}

/* Bits that values up to `most` take. */
static inline int bits_of(uint64_t most)
{
    return most ? 64 - __builtin_clzll(most) : 0;
}

/* The first l->first of a line, of which all is sorted. Keys count from the least one on, so that few bits are sorted
 * where they are near each other; with the position after it a key is one word where both fit. `scratch` has room for
 * two entries of each element. */
static void sort_all(const lines *l, const char *x, uint64_t turn, int bytes, entry *scratch, char *out)
{
    const int64_t n = l->length, step = l->x_stride;
    const int position_bits = bits_of((uint64_t)n - 1);
    uint64_t key[KEYS], least = 0, most = bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * bytes)) - 1;
    if (n > SHORT) {
        uint64_t low = UINT64_MAX, high = 0;
        for (int64_t k = 0; k < n; k += KEYS) {
            int64_t some = n - k < KEYS ? n - k : KEYS;
            keys_of(l->dtype, x + k * step, step, some, turn, key);
            for (int64_t j = 0; j < some; j++) {
                low = key[j] < low ? key[j] : low;
                high = key[j] > high ? key[j] : high;
            }
        }
        least = low, most = high - low;
    }
    const int bits = bits_of(most);
    if (bits + position_bits <= 64) {
        uint64_t *word = (uint64_t *)scratch;
        for (int64_t k = 0; k < n; k += KEYS) {
            int64_t some = n - k < KEYS ? n - k : KEYS;
            keys_of(l->dtype, x + k * step, step, some, turn, key);
            for (int64_t j = 0; j < some; j++)
                word[k + j] = (key[j] - least) << position_bits | (uint64_t)(k + j);
        }
        word = sort_words(word, word + n, n, position_bits, bits);
        for (int64_t k = 0; k < l->first; k++)
            *(int64_t *)(out + k * l->out_stride) = (int64_t)(word[k] & (((uint64_t)1 << position_bits) - 1));
        return;
    }
    for (int64_t k = 0; k < n; k += KEYS) {
        int64_t some = n - k < KEYS ? n - k : KEYS;
        keys_of(l->dtype, x + k * step, step, some, turn, key);
        for (int64_t j = 0; j < some; j++)
            scratch[k + j] = (entry){key[j] - least, k + j};
    }
    const entry *sorted = sort_entries(scratch, scratch + n, n, 0, bits);
    for (int64_t k = 0; k < l->first; k++)
        *(int64_t *)(out + k * l->out_stride) = sorted[k].at;
}

static void sort_run(const sorting *s, int64_t n, char *const *data, const int64_t *stride)
{
    const lines *l = s->l;
    int bytes = (int)yk_dtype_size(l->dtype);
    uint64_t mask = bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * bytes)) - 1, turn = l->flipped ? mask : 0;
    for (int64_t i = 0; i < n; i++) {
        const char *x = data[1] + i * stride[1];
        char *out = data[0] + i * stride[0];
        if (s->room >= l->length) {
            sort_all(l, x, turn, bytes, s->scratch, out);
            continue;
        }
        const entry *sorted = select_first(l, x, turn, bytes, s->scratch, s->room);
        for (int64_t k = 0; k < l->first; k++)
            *(int64_t *)(out + k * l->out_stride) = sorted[k].at;
    }
}

static void sort_lines(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    sort_run(context, n, data, stride);
}

static void sort_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const sorting *s = arg;
    sorting c = {s->l, s->scratch + 2 * s->room * thread, s->room};
    yk__loop_job job = {&s->l->loop, sort_lines, &c};
    yk__loop_piece(&job, begin, end, thread);
}

static yk_status argsort(int device, const yk__view *index, const yk__view *x, int dim, bool descending)
{
    lines l = lines_of(index, x, dim, descending);
    l.first = x->ndim ? index->shape[dim] : 1;
    if (l.loop.total == 0 || l.first == 0)
        return YK_OK;
    int64_t grain = lines_per_piece(&l);
    int threads = l.loop.total > grain ? yk__cpu_threads(device) : 1;
    yk__storage *handle = NULL;
    sorting s = {.l = &l, .room = l.first < l.length / 4 ? 2 * l.first + KEYS : l.length};
    s.room = s.room < l.length ? s.room : l.length;
    s.scratch = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                  2 * (size_t)s.room * (size_t)threads * sizeof(entry), &handle);
    if (!s.scratch)
        return yk__error_code();
    if (threads == 1)
        sort_piece(&s, 0, l.loop.total, 0);
    else
        yk__cpu_parallel(device, l.loop.total, grain, sort_piece, &s);
    yk__storage_release(handle);
    return YK_OK;
}

/* ---- scan ---- */

/* Lines side by side that are scanned together: enough for whole cache lines of each row, few enough for their sums to
 * stay in the first-level cache. Other lines: as many as keep the adder busy, whose sums do not wait for each other. */
enum { SCAN_COLUMNS = 256, SCAN_LINES = 4 };

#define SCAN(S, T, Sum, combine)                                                                                       \
    static void S##_rows(const lines *l, char *out_row, const char *x_row, int64_t n)                                  \
    {                                                                                                                  \
        Sum sum[SCAN_COLUMNS];                                                                                         \
        for (int64_t k = 0; k < l->length; k++) {                                                                      \
            int64_t row = l->flipped ? l->length - 1 - k : k;                                                          \
            const T *x = (const T *)(x_row + row * l->x_stride);                                                       \
            T *out = (T *)(out_row + row * l->out_stride);                                                             \
            if (k == 0)                                                                                                \
                YK__INDEPENDENT for (int64_t j = 0; j < n; j++)                                                        \
                {                                                                                                      \
                    sum[j] = (Sum)x[j];                                                                                \
                    out[j] = x[j];                                                                                     \
                }                                                                                                      \
            else                                                                                                       \
                YK__INDEPENDENT for (int64_t j = 0; j < n; j++)                                                        \
                {                                                                                                      \
                    sum[j] = sum[j] combine(Sum) x[j];                                                                 \
                    out[j] = (T)sum[j];                                                                                \
                }                                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void S##_some(const lines *l, int n, char *out, const char *x, const int64_t *stride)                \
    {                                                                                                                  \
        int64_t x_step = l->flipped ? -l->x_stride : l->x_stride;                                                      \
        int64_t out_step = l->flipped ? -l->out_stride : l->out_stride;                                                \
        x += l->flipped ? (l->length - 1) * l->x_stride : 0;                                                           \
        out += l->flipped ? (l->length - 1) * l->out_stride : 0;                                                       \
        Sum sum[SCAN_LINES];                                                                                           \
        for (int j = 0; j < n; j++) {                                                                                  \
            sum[j] = (Sum) * (const T *)(x + j * stride[1]);                                                           \
            *(T *)(out + j * stride[0]) = (T)sum[j];                                                                   \
        }                                                                                                              \
        for (int64_t k = 1; k < l->length; k++) {                                                                      \
            T next[SCAN_LINES];                                                                                        \
            for (int j = 0; j < n; j++)                                                                                \
                next[j] = *(const T *)(x + k * x_step + j * stride[1]);                                                \
            for (int j = 0; j < n; j++) {                                                                              \
                sum[j] = sum[j] combine(Sum) next[j];                                                                  \
                *(T *)(out + k * out_step + j * stride[0]) = (T)sum[j];                                                \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void S(const lines *l, int64_t n, char *out, const char *x, const int64_t *stride)                          \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        if (n > 1 && stride[0] == (int64_t)sizeof(T) && stride[1] == (int64_t)sizeof(T))                               \
            for (int64_t m; i < n; i += m) {                                                                           \
                m = n - i < SCAN_COLUMNS ? n - i : SCAN_COLUMNS;                                                       \
                S##_rows(l, out + i * stride[0], x + i * stride[1], m);                                                \
            }                                                                                                          \
        for (; i + SCAN_LINES <= n; i += SCAN_LINES)                                                                   \
            S##_some(l, SCAN_LINES, out + i * stride[0], x + i * stride[1], stride);                                   \
        for (; i < n; i++)                                                                                             \
            S##_some(l, 1, out + i * stride[0], x + i * stride[1], stride);                                            \
    }
SCAN(cumsum_f32, float, double, +)
SCAN(cumsum_f64, double, double, +)
SCAN(cumsum_i64, uint64_t, uint64_t, +)
SCAN(cumprod_f32, float, double, *)
SCAN(cumprod_f64, double, double, *)
SCAN(cumprod_i64, uint64_t, uint64_t, *)

static void scan_lines(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const lines *l = context;
    bool adds = l->op == YK__CUMSUM;
    switch (l->dtype) {
    case YK_F32: (adds ? cumsum_f32 : cumprod_f32)(l, n, data[0], data[1], stride); break;
    case YK_F64: (adds ? cumsum_f64 : cumprod_f64)(l, n, data[0], data[1], stride); break;
    default: (adds ? cumsum_i64 : cumprod_i64)(l, n, data[0], data[1], stride);
    }
}

static yk_status scan(int device, yk__scan op, const yk__view *out, const yk__view *x, int dim, bool reverse)
{
    lines l = lines_of(out, x, dim, reverse);
    l.op = op;
    int64_t grain = lines_per_piece(&l);
    if (l.loop.stride[0][0] == (int64_t)yk_dtype_size(out->dtype) && grain < SCAN_COLUMNS)
        grain = SCAN_COLUMNS;
    yk__loop_run(device, &l.loop, grain, scan_lines, &l);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_order)(yk__backend *table)
{
    table->argsort = argsort;
    table->scan = scan;
}
