/*
 * fold_module.c - Unfold and Fold. Layer: nn.
 */
#include "nn/module.h"

typedef struct fold_layer {
    yk_fold_options o;
    int64_t height, width; /* of Fold alone */
} fold_layer;

static yk_tensor *unfold_forward(yk_module *m, yk_tensor *x)
{
    const fold_layer *f = yk_module_data(m);
    return yk_unfold(x, &f->o);
}

static yk_tensor *fold_forward(yk_module *m, yk_tensor *x)
{
    const fold_layer *f = yk_module_data(m);
    return yk_fold(x, f->height, f->width, &f->o);
}

enum { NUMBERS = 48 };

/* "2" for equal numbers, "(2, 3)" for others, as PyTorch prints what it was given. */
static const char *pair_text(const int64_t of[2], char text[NUMBERS])
{
    if (of[0] == of[1])
        snprintf(text, NUMBERS, "%lld", (long long)of[0]);
    else
        snprintf(text, NUMBERS, "(%lld, %lld)", (long long)of[0], (long long)of[1]);
    return text;
}

static void unfold_describe(yk_module *m, char *buffer, size_t size)
{
    const fold_layer *f = yk_module_data(m);
    char kernel[NUMBERS], dilation[NUMBERS], padding[NUMBERS], stride[NUMBERS];
    snprintf(buffer, size, "kernel_size=%s, dilation=%s, padding=%s, stride=%s", pair_text(f->o.kernel, kernel),
             pair_text(f->o.dilation, dilation), pair_text(f->o.padding, padding), pair_text(f->o.stride, stride));
}

static void fold_describe(yk_module *m, char *buffer, size_t size)
{
    const fold_layer *f = yk_module_data(m);
    char sizes[NUMBERS];
    int used = snprintf(buffer, size, "output_size=%s, ", pair_text((int64_t[2]){f->height, f->width}, sizes));
    if (used > 0 && (size_t)used < size)
        unfold_describe(m, buffer + used, size - (size_t)used);
}

static yk_module *fold_layer_create(const yk_module_class *cls, const char *name, fold_layer f)
{
    for (int i = 0; i < 2; i++) {
        if (f.o.kernel[i] < 1 || f.o.dilation[i] < 1 || f.o.padding[i] < 0 || f.o.stride[i] < 1) {
            yk__fail(YK_ERR_ARGUMENT,
                     "%s: kernel %lld, dilation %lld, padding %lld, stride %lld: only padding may be 0", name,
                     (long long)f.o.kernel[i], (long long)f.o.dilation[i], (long long)f.o.padding[i],
                     (long long)f.o.stride[i]);
            return NULL;
        }
    }
    yk_module *m = yk_module_create(cls);
    if (m)
        *(fold_layer *)yk_module_data(m) = f;
    return m;
}

yk_module *yk_unfold_create(const yk_fold_options *options)
{
    static const yk_module_class cls = {
        .name = "Unfold", .data_size = sizeof(fold_layer), .forward = unfold_forward, .describe = unfold_describe};
    fold_layer f = {.height = 0};
    return YK__OPTIONS_TAKE("unfold_create", yk_fold_options, options, &f.o)
               ? NULL
               : fold_layer_create(&cls, "unfold_create", f);
}

yk_module *yk_fold_create(int64_t height, int64_t width, const yk_fold_options *options)
{
    static const yk_module_class cls = {
        .name = "Fold", .data_size = sizeof(fold_layer), .forward = fold_forward, .describe = fold_describe};
    fold_layer f = {.height = height, .width = width};
    if (YK__OPTIONS_TAKE("fold_create", yk_fold_options, options, &f.o) ||
        yk__check_integer("fold_create", "height", height, 1, INT32_MAX) ||
        yk__check_integer("fold_create", "width", width, 1, INT32_MAX))
        return NULL;
    return fold_layer_create(&cls, "fold_create", f);
}
