/* slot_pairs.c - see slot_pairs.h. */
#include <dlfcn.h>
#include <stdarg.h>

#include "tests/support/slot_pairs.h"

static const yk_device cuda = {YK_CUDA, 0}, host = {YK_CPU, 0};
const yk__backend *slot_cpu, *slot_gpu;

void slot_fail(slot_report *r, const char *format, ...)
{
    if (r->failed)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->text, sizeof(r->text), format, arguments);
    va_end(arguments);
    r->failed = true;
}

bool slot_done(slot_report *r, const char *what, yk_status status)
{
    if (!status && !yk_last_error())
        return !r->failed;
    slot_fail(r, "%s: %s", what, yk_last_error() ? yk_last_error()->message : "failed without a record");
    yk_clear_error();
    return false;
}

bool slot_ready(slot_report *r)
{
    slot_cpu = yk__backend_of(host);
    if (!slot_cpu)
        slot_done(r, "cpu", yk__error_code());
    slot_gpu = yk__device_check(cuda) ? NULL : yk__backend_of(cuda);
    if (!slot_gpu)
        slot_done(r, "cuda", yk__error_code());
    return slot_cpu && slot_gpu;
}

void slot_describe(char *text, size_t size)
{
    const char *folder = getenv("YOKE_BACKEND_PATH");
    char path[4200];
    snprintf(path, sizeof(path), "%.4000s/yoke-cuda.so", folder ? folder : ".");
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void (*describe)(char *, size_t) = NULL;
    if (plugin)
        *(void **)&describe = dlsym(plugin, "yk__cuda_describe");
    text[0] = 0;
    if (describe)
        describe(text, size);
    if (plugin)
        dlclose(plugin);
}

long long slot_counted(const char *what)
{
    char text[1000];
    slot_describe(text, sizeof(text));
    const char *at = strstr(text, what);
    return at ? strtoll(at + strlen(what), NULL, 10) : -1;
}

bool slot_uses(const char *library)
{
    return slot_counted(library) > 0; /* its version follows its name */
}

long long slot_work_done(const char *kind, bool by_library)
{
    char text[1000];
    long long library = -1, own = -1;
    slot_describe(text, sizeof(text));
    const char *at = strstr(text, kind);
    if (at)
        sscanf(at + strlen(kind), ": %lld by library, %lld by own", &library, &own);
    return by_library ? library : own;
}

uint32_t slot_word(uint32_t seed, uint64_t i)
{
    uint32_t words[4];
    yk__philox((yk__stream){seed, YK__RANDOM_TEST, 1}, i, words);
    return words[0];
}

bool pair_make(pair *p, slot_report *r, yk_dtype dtype, int ndim, const int64_t *shape, int layout)
{
    int64_t step = layout == GAPS ? 2 : 1, count = 1;
    *p = (pair){.cpu = {.dtype = dtype, .ndim = ndim}};
    for (int i = 0; i < ndim; i++) {
        int d = layout == REVERSED ? i : ndim - 1 - i;
        bool repeated = layout == EXPANDED && d == 0;
        p->cpu.shape[d] = shape[d];
        p->cpu.stride[d] = repeated ? 0 : step;
        if (!repeated)
            step = step * (shape[d] > 0 ? shape[d] : 1) + (layout == GAPS);
    }
    for (int d = 0; d < ndim; d++)
        count = shape[d] == 0 || count == 0 ? 0 : count + (shape[d] - 1) * p->cpu.stride[d];
    p->bytes = (size_t)count * yk_dtype_size(dtype);
    p->gpu = p->cpu;
    p->cpu.data = malloc(p->bytes + 1);
    memset(p->cpu.data, 0x5A, p->bytes);
    return slot_done(r, "allocate", slot_gpu->allocate(0, p->bytes ? p->bytes : 1, &p->gpu.data)) &&
           slot_done(r, "upload", slot_gpu->upload(0, p->gpu.data, p->cpu.data, p->bytes));
}

void pair_free(pair *p)
{
    free(p->cpu.data);
    if (p->gpu.data)
        slot_gpu->release(0, p->gpu.data, p->bytes ? p->bytes : 1);
}

/* A number of any size and sign, or a special one. */
static double number(uint32_t seed, uint64_t i, yk_dtype dtype)
{
    static const double special[] = {0.0,    -0.0,     1.0,           -1.0,  0.5,    -0.5,   2.0,
                                     NAN,    INFINITY, -INFINITY,     1e-40, -1e-40, 1e38,   -3e38,
                                     5e-324, 16777217, -2147483649.0, 255,   256,    65519.9};
    uint32_t w = slot_word(seed, i), choice = slot_word(seed + 1000, i) % 8;
    double unit = (double)(w >> 8) * 0x1p-23 - 1.0; /* [-1, 1) */
    bool floating = yk_dtype_is_floating(dtype);
    if (choice == 0)
        return special[w % (floating ? 20 : 7)];
    if (!floating)
        return floor(unit * (choice == 1 ? 3e9 : 20));
    return choice == 1 ? ldexp(unit, (int)(w % 200) - 100) : unit * (choice < 5 ? 4 : 90);
}

bool pair_fill(pair *p, slot_report *r, uint32_t seed)
{
    size_t size = yk_dtype_size(p->cpu.dtype);
    for (size_t i = 0; i < p->bytes / size; i++)
        yk__store_scalar((char *)p->cpu.data + i * size, p->cpu.dtype, number(seed, i, p->cpu.dtype));
    return slot_done(r, "upload", slot_gpu->upload(0, p->gpu.data, p->cpu.data, p->bytes));
}

double pair_value(const void *memory, yk_dtype dtype, size_t i)
{
    switch (dtype) {
    case YK_F32: return (double)((const float *)memory)[i];
    case YK_F64: return ((const double *)memory)[i];
    case YK_F16: return (double)yk__from_f16(((const uint16_t *)memory)[i]);
    case YK_BF16: return (double)yk__from_bf16(((const uint16_t *)memory)[i]);
    case YK_I64: return (double)((const int64_t *)memory)[i];
    case YK_I32: return ((const int32_t *)memory)[i];
    default: return ((const uint8_t *)memory)[i];
    }
}

/* Appends the number of differences, and the view, to the text of the first. */
static void tell_view(slot_report *r, size_t differ, const pair *p)
{
    size_t at = strlen(r->text);
    at += (size_t)snprintf(r->text + at, sizeof(r->text) - at, "; %zu differ so; shape (", differ);
    for (int d = 0; d < p->cpu.ndim && at < sizeof(r->text); d++)
        at += (size_t)snprintf(r->text + at, sizeof(r->text) - at, d ? ", %lld" : "%lld", (long long)p->cpu.shape[d]);
    for (int d = 0; d < p->cpu.ndim && at < sizeof(r->text); d++)
        at += (size_t)snprintf(r->text + at, sizeof(r->text) - at, d ? ", %lld" : ") strides (%lld",
                               (long long)p->cpu.stride[d]);
    if (at < sizeof(r->text))
        snprintf(r->text + at, sizeof(r->text) - at, ")");
}

/* Distance of x from y in units of y's last place. */
static double ulps(double x, double y, yk_dtype dtype)
{
    if (x == y || (isnan(x) && isnan(y)))
        return 0;
    if (!isfinite(x) || !isfinite(y))
        return INFINITY;
    int digits = dtype == YK_F64 ? 53 : 24, least = dtype == YK_F64 ? -1074 : -149, exponent;
    frexp(y, &exponent);
    return fabs(x - y) / ldexp(1, exponent - digits < least ? least : exponent - digits);
}

/* FNV-1a; of a NaN that it is one, whichever. */
static void add_to_digest(slot_report *r, const char *got, size_t bytes, yk_dtype dtype)
{
    size_t size = yk_dtype_size(dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        bool nan = yk_dtype_is_floating(dtype) && isnan(pair_value(got, dtype, i));
        for (size_t k = 0; k < size; k++)
            r->digest = (r->digest ^ (nan ? 0xFFu : (unsigned char)got[i * size + k])) * 1099511628211u;
    }
}

/* All of the memory: the view's elements and what lies between them. `room` in units of the last place, 0: to the bit,
 * where any NaN is like another. */
void pair_compare(slot_report *r, const char *what, const pair *p, double room)
{
    if (r->failed)
        return;
    yk_dtype dtype = p->cpu.dtype;
    size_t size = yk_dtype_size(dtype);
    char *got = malloc(p->bytes + 1);
    if (slot_done(r, "download", slot_gpu->download(0, got, p->gpu.data, p->bytes))) {
        add_to_digest(r, got, p->bytes, dtype);
        size_t differ = 0;
        for (size_t i = 0; i < p->bytes / size; i++) {
            r->compared++;
            if (memcmp(got + i * size, (char *)p->cpu.data + i * size, size) == 0)
                continue;
            double x = pair_value(got, dtype, i), y = pair_value(p->cpu.data, dtype, i), distance = ulps(x, y, dtype);
            bool zeros = x == 0 && y == 0 && room == 0; /* of two signs */
            if (distance > r->worst)
                r->worst = distance;
            if ((distance > room || zeros || !yk_dtype_is_floating(dtype)) && !(isnan(x) && isnan(y))) {
                differ++;
                slot_fail(r,
                          "%s: element %zu of %zu (%s) is %.17g, the CPU has %.17g: %.3g units of the last place, %.3g "
                          "allowed",
                          what, i, p->bytes / size, yk_dtype_name(dtype), x, y, distance, room);
            }
        }
        if (differ)
            tell_view(r, differ, p);
    }
    free(got);
}

bool slot_both(slot_report *r, const char *what, yk_status cpu, yk_status gpu)
{
    if (cpu != gpu)
        slot_fail(r, "%s: status %d, the CPU has %d: %s", what, gpu, cpu,
                  yk_last_error() ? yk_last_error()->message : "");
    yk_clear_error();
    return !cpu && !r->failed;
}

bool pair_upload(pair *p, slot_report *r)
{
    return slot_done(r, "upload", slot_gpu->upload(0, p->gpu.data, p->cpu.data, p->bytes));
}

bool pair_fill_range(pair *p, slot_report *r, uint32_t seed, double low, double high)
{
    size_t size = yk_dtype_size(p->cpu.dtype);
    for (size_t i = 0; i < p->bytes / size; i++) {
        double x = low + (high - low) * ((double)slot_word(seed, i) * 0x1p-32);
        if (!yk_dtype_is_floating(p->cpu.dtype))
            x = floor(x);
        yk__store_scalar((char *)p->cpu.data + i * size, p->cpu.dtype, x);
    }
    return pair_upload(p, r);
}

void pair_compare_sums(slot_report *r, const char *what, const pair *p, double room)
{
    if (r->failed)
        return;
    yk_dtype dtype = p->cpu.dtype;
    size_t size = yk_dtype_size(dtype), count = p->bytes / size;
    char *got = malloc(p->bytes + 1);
    double greatest = 0;
    size_t differ = 0;
    if (slot_done(r, "download", slot_gpu->download(0, got, p->gpu.data, p->bytes))) {
        add_to_digest(r, got, p->bytes, dtype);
        for (size_t i = 0; i < count; i++) {
            double y = fabs(pair_value(p->cpu.data, dtype, i));
            greatest = y < 1e30 && y > greatest ? y : greatest; /* not what lies in gaps */
        }
        for (size_t i = 0; i < count; i++, r->compared++) {
            double x = pair_value(got, dtype, i), y = pair_value(p->cpu.data, dtype, i);
            bool same = x == y || (isnan(x) && isnan(y));
            if (!same && !(fabs(x - y) <= room * greatest)) {
                differ++;
                slot_fail(r, "%s: element %zu of %zu (%s) is %.9g, the CPU has %.9g: %.3g apart, %.3g allowed", what, i,
                          count, yk_dtype_name(dtype), x, y, fabs(x - y), room * greatest);
            }
        }
        if (differ)
            tell_view(r, differ, p);
    }
    free(got);
}
