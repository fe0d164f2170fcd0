/*
 * print.c - tensors as text, in the form of PyTorch's repr. Layer: tensor.
 *
 * Two passes over the elements that will be shown: the first finds one format and one width for all of them, the
 * second writes. Above `threshold` elements a dimension longer than twice `edgeitems` shows only its edges. A text is
 * made with the options that held when it was begun.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

enum { INDENT = 7 /* tensor( */, ELEMENT = 400, MOST_PRECISION = 60 /* 309 digits, a point and these fit */ };

/* ---- options ---- */

/* Every member is given, so plain braces will do for what a program gets. */
#define PROFILE(name, digits, most, edge)                                                                              \
    {                                                                                                                  \
        .yk__mark = YK__MARK, .profile = (name), .precision = (digits), .threshold = (most), .edgeitems = (edge),      \
        .linewidth = 80                                                                                                \
    }
static const yk_print_options profiles[] = {
    PROFILE("default", 4, 1000, 3),
    PROFILE("short", 2, 1000, 2),
    PROFILE("full", 4, INT64_MAX, 3),
};
static pthread_mutex_t options_lock = PTHREAD_MUTEX_INITIALIZER;
static yk_print_options options = PROFILE("default", 4, 1000, 3);

void yk_get_printoptions(yk_print_options *now)
{
    if (!yk__is_there("get_printoptions", "struct", now))
        return;
    pthread_mutex_lock(&options_lock);
    *now = options;
    pthread_mutex_unlock(&options_lock);
}

yk_status yk_set_printoptions(const yk_print_options *given)
{
    yk_print_options o;
    const yk_print_options *profile = NULL;
    if (YK__OPTIONS_TAKE("set_printoptions", yk_print_options, given ? given : &profiles[0], &o))
        return YK_ERR_ARGUMENT;
    for (size_t i = 0; o.profile && i < sizeof(profiles) / sizeof(profiles[0]); i++)
        if (strcmp(o.profile, profiles[i].profile) == 0)
            profile = &profiles[i];
    if (o.profile && !profile)
        return yk__fail(YK_ERR_ARGUMENT, "set_printoptions: no profile is called %s; there are default, short and full",
                        o.profile);
    if ((o.precision != YK_NOT_GIVEN &&
         yk__check_integer("set_printoptions", "precision", o.precision, 0, MOST_PRECISION)) ||
        (o.threshold != YK_NOT_GIVEN &&
         yk__check_integer("set_printoptions", "threshold", o.threshold, 0, INT64_MAX)) ||
        (o.edgeitems != YK_NOT_GIVEN &&
         yk__check_integer("set_printoptions", "edgeitems", o.edgeitems, 1, INT64_MAX)) ||
        (o.linewidth != YK_NOT_GIVEN && yk__check_integer("set_printoptions", "linewidth", o.linewidth, 1, INT64_MAX)))
        return YK_ERR_ARGUMENT;
    if (o.sci_mode < YK_SCI_AUTO || o.sci_mode > YK_SCI_OFF)
        return yk__fail(YK_ERR_ARGUMENT, "set_printoptions: %d is no sci_mode", (int)o.sci_mode);
    pthread_mutex_lock(&options_lock);
    if (profile)
        options = *profile;
    options.precision = (int)yk__integer_or(o.precision, options.precision);
    options.threshold = yk__integer_or(o.threshold, options.threshold);
    options.edgeitems = yk__integer_or(o.edgeitems, options.edgeitems);
    options.linewidth = yk__integer_or(o.linewidth, options.linewidth);
    options.sci_mode = o.sci_mode;
    pthread_mutex_unlock(&options_lock);
    return YK_OK;
}

/* ---- text ---- */

/* A text that grows; after a failure nothing more is added. */
typedef struct text {
    char *chars;
    size_t length, capacity;
    size_t column; /* of the last line, once suffixes are added */
    bool failed;
} text;

/* The format of every element of one tensor. */
typedef struct style {
    bool floating, whole /* all elements are integers */, scientific, summarised;
    int width, precision;
    int64_t edge, line_width;
} style;

static void append(text *t, const char *chars, size_t length)
{
    if (t->failed)
        return;
    if (t->length + length + 1 > t->capacity) {
        size_t capacity = 2 * (t->length + length + 1);
        char *grown = yk__realloc(t->chars, capacity);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->chars = grown;
        t->capacity = capacity;
    }
    memcpy(t->chars + t->length, chars, length);
    t->length += length;
    t->chars[t->length] = 0;
}

static void append_text(text *t, const char *chars)
{
    append(t, chars, strlen(chars));
}

static void append_repeated(text *t, char c, int count)
{
    for (int i = 0; i < count; i++)
        append(t, &c, 1);
}

static double from_f16(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    double magnitude = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                       : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                      : ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static double from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

static double floating_at(const yk_tensor *x, int64_t offset)
{
    switch ((yk_dtype)x->dtype) {
    case YK_F64: return ((const double *)x->data)[offset];
    case YK_F16: return from_f16(((const uint16_t *)x->data)[offset]);
    case YK_BF16: return from_bf16(((const uint16_t *)x->data)[offset]);
    default: return (double)((const float *)x->data)[offset];
    }
}

/* Writes one element without padding. */
static int element_text(const yk_tensor *x, int64_t offset, const style *s, char buffer[ELEMENT])
{
    switch ((yk_dtype)x->dtype) {
    case YK_BOOL: return snprintf(buffer, ELEMENT, "%s", ((const uint8_t *)x->data)[offset] ? "True" : "False");
    case YK_U8: return snprintf(buffer, ELEMENT, "%d", ((const uint8_t *)x->data)[offset]);
    case YK_I32: return snprintf(buffer, ELEMENT, "%d", ((const int32_t *)x->data)[offset]);
    case YK_I64: return snprintf(buffer, ELEMENT, "%lld", (long long)((const int64_t *)x->data)[offset]);
    default: break;
    }
    double value = floating_at(x, offset);
    if (isnan(value))
        return snprintf(buffer, ELEMENT, "nan"); /* the C library would show its sign */
    if (isinf(value))
        return snprintf(buffer, ELEMENT, value < 0 ? "-inf" : "inf");
    if (s->scientific)
        return snprintf(buffer, ELEMENT, "%.*e", s->precision, value);
    return s->whole ? snprintf(buffer, ELEMENT, "%.0f.", value)
                    : snprintf(buffer, ELEMENT, "%.*f", s->precision, value);
}

/* Position k of those shown of a dimension: all of them, or the two edges. */
static int64_t shown_count(const yk_tensor *x, int dim, const style *s)
{
    return s->summarised && x->shape[dim] > 2 * s->edge ? 2 * s->edge : x->shape[dim];
}

static int64_t shown_index(const yk_tensor *x, int dim, const style *s, int64_t k)
{
    return shown_count(x, dim, s) == x->shape[dim] || k < s->edge ? k : x->shape[dim] - 2 * s->edge + k;
}

/* Facts that the first pass gathers about the finite elements other than zero; PyTorch leaves the rest out of its
 * choice. */
typedef struct range {
    double least, most;
    bool any, fraction;
} range;

static void survey(const yk_tensor *x, int dim, int64_t offset, const style *s, range *r)
{
    if (dim < x->ndim) {
        for (int64_t k = 0; k < shown_count(x, dim, s); k++)
            survey(x, dim + 1, offset + shown_index(x, dim, s, k) * x->stride[dim], s, r);
        return;
    }
    double value = floating_at(x, offset), magnitude = fabs(value);
    if (!isfinite(value) || value == 0)
        return;
    r->least = r->any && r->least < magnitude ? r->least : magnitude;
    r->most = r->any && r->most > magnitude ? r->most : magnitude;
    r->fraction = r->fraction || value != ceil(value);
    r->any = true;
}

static void measure(const yk_tensor *x, int dim, int64_t offset, style *s)
{
    if (dim < x->ndim) {
        for (int64_t k = 0; k < shown_count(x, dim, s); k++)
            measure(x, dim + 1, offset + shown_index(x, dim, s, k) * x->stride[dim], s);
        return;
    }
    if (s->floating) {
        double value = floating_at(x, offset);
        if (!isfinite(value) || value == 0)
            return;
    }
    char buffer[ELEMENT];
    int length = element_text(x, offset, s, buffer);
    s->width = length > s->width ? length : s->width;
}

static style style_of(const yk_tensor *x, const yk_print_options *o)
{
    style s = {.floating = yk_dtype_is_floating((yk_dtype)x->dtype), .whole = true, .width = 1};
    s.precision = o->precision;
    s.edge = o->edgeitems;
    s.line_width = o->linewidth;
    s.summarised = x->numel > o->threshold;
    if (s.floating) {
        range r = {0};
        survey(x, 0, 0, &s, &r);
        s.whole = !r.fraction;
        s.scientific =
            r.any && (o->sci_mode == YK_SCI_AUTO ? r.most / r.least > 1000.0 || r.most > 1.0e8 || r.least < 1.0e-4
                                                 : o->sci_mode == YK_SCI_ON);
    }
    measure(x, 0, 0, &s);
    return s;
}

static void write_element(text *t, const yk_tensor *x, int64_t offset, const style *s)
{
    char buffer[ELEMENT];
    int length = element_text(x, offset, s, buffer);
    append_repeated(t, ' ', s->width - length);
    append(t, buffer, (size_t)length);
}

/* The last dimension: as many elements on a line as fit. */
static void write_row(text *t, const yk_tensor *x, int64_t offset, const style *s, int indent)
{
    int dim = x->ndim - 1;
    int64_t shown = shown_count(x, dim, s), per_line = (s->line_width - indent) / (s->width + 2), column = 0;
    bool gap = shown != x->shape[dim];
    if (per_line < 1)
        per_line = 1;
    append_text(t, "[");
    for (int64_t k = 0; k < shown + gap; k++, column++) {
        if (k && column == per_line) {
            append_text(t, ",\n");
            append_repeated(t, ' ', indent + 1);
            column = 0;
        } else if (k) {
            append_text(t, ", ");
        }
        if (gap && k == s->edge)
            append_text(t, " ...");
        else
            write_element(t, x, offset + shown_index(x, dim, s, gap && k > s->edge ? k - 1 : k) * x->stride[dim], s);
    }
    append_text(t, "]");
}

static void write_dim(text *t, const yk_tensor *x, int dim, int64_t offset, const style *s, int indent)
{
    if (x->ndim == 0) {
        write_element(t, x, offset, s);
        return;
    }
    if (dim == x->ndim - 1) {
        write_row(t, x, offset, s, indent);
        return;
    }
    int64_t shown = shown_count(x, dim, s);
    append_text(t, "[");
    for (int64_t k = 0; k < shown; k++) {
        for (int separators = 0; k && separators < 1 + (k == s->edge && shown != x->shape[dim]); separators++) {
            append_text(t, separators ? "...," : ",");
            append_repeated(t, '\n', x->ndim - dim - 1);
            append_repeated(t, ' ', indent + 1);
        }
        write_dim(t, x, dim + 1, offset + shown_index(x, dim, s, k) * x->stride[dim], s, indent + 1);
    }
    append_text(t, "]");
}

/* Adds ", SUFFIX", on a line of its own where the last one is full. */
static void write_suffix(text *t, int64_t line_width, const char *format, const char *value)
{
    char suffix[300];
    size_t length = (size_t)snprintf(suffix, sizeof(suffix), format, value);
    if ((int64_t)(t->column + length) + 2 > line_width) {
        append_text(t, ",\n");
        append_repeated(t, ' ', INDENT);
        t->column = INDENT + length;
    } else {
        append_text(t, ", ");
        t->column += length + 2;
    }
    append_text(t, suffix);
}

static void write_tensor(text *t, const yk_tensor *x, const yk_tensor *host)
{
    yk_print_options o;
    yk_get_printoptions(&o);
    append_text(t, "tensor(");
    if (x->numel == 0) {
        append_text(t, "[]");
    } else {
        style s = style_of(host, &o);
        write_dim(t, host, 0, 0, &s, INDENT);
    }
    if (t->failed)
        return;
    const char *newline = strrchr(t->chars, '\n');
    t->column = t->length - (newline ? (size_t)(newline - t->chars) + 1 : 0) + 2; /* 2 as PyTorch counts */

    yk_dtype dtype = (yk_dtype)x->dtype;
    yk_device device = yk__device_of(x);
    char shape[200], name[16];
    if (!yk_device_equal(device, (yk_device){0}))
        write_suffix(t, o.linewidth, "device=%s", yk_device_format(device, name));
    if (x->numel == 0 && x->ndim != 1)
        write_suffix(t, o.linewidth, "size=%s", yk_shape_format(x, shape, sizeof(shape)));
    /* A reader sees from the elements that they are i64 or bool; without elements it must be said. */
    if (dtype != YK_F32 && (x->numel == 0 || (dtype != YK_I64 && dtype != YK_BOOL)))
        write_suffix(t, o.linewidth, "dtype=%s", yk_dtype_name(dtype));
    if (yk__grad_fn_name(x))
        write_suffix(t, o.linewidth, "grad_fn=<%s>", yk__grad_fn_name(x));
    else if (yk__wants_grad(x))
        write_suffix(t, o.linewidth, "requires_grad=%s", "True");
    append_text(t, ")");
}

char *yk_to_string(const yk_tensor *x)
{
    YK__LIVE(x);
    if (!yk__is_there("to_string", "tensor", x))
        return NULL;
    yk_tensor *host =
        yk__backend_for(x)->host_memory ? yk_tensor_retain((yk_tensor *)x) : yk__raw_to((yk_tensor *)x, (yk_device){0});
    if (!host)
        return NULL;
    text t = {0};
    write_tensor(&t, x, host);
    yk_tensor_release(host);
    if (t.failed) {
        free(t.chars);
        return NULL;
    }
    return t.chars;
}

yk_status yk_print(FILE *to, const yk_tensor *x)
{
    YK__LIVE(x);
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "print: the tensor is NULL");
    if (!yk__is_there("print", "stream", to))
        return YK_ERR_ARGUMENT;
    char *chars = yk_to_string(x);
    if (!chars)
        return yk__error_code();
    yk_status status = fprintf(to, "%s\n", chars) < 0 ? yk__fail_errno("print") : YK_OK;
    free(chars);
    return status;
}
