/*
 * upsample_module.c - Upsample, PixelShuffle and PixelUnshuffle. Layer: nn.
 */
#include "nn/module.h"

static yk_tensor *upsample_forward(yk_module *m, yk_tensor *x)
{
    return yk_interpolate(x, yk__module_data(m));
}

/* As PyTorch prints it: one number where all that are given are equal. */
static void upsample_describe(yk_module *m, char *buffer, size_t size)
{
    static const char *const mode[] = {"nearest", "nearest-exact", "linear", "bilinear",
                                       "bicubic", "trilinear",     "area"};
    const yk_upsample_options *o = yk__module_data(m);
    bool sized = o->size[0] != YK_NOT_GIVEN, equal = true;
    char text[3][YK__NUMBER_ROOM];
    int count = 0;
    while (count < 3 && (sized ? o->size[count] > 0 : o->scale_factor[count] > 0)) {
        if (sized)
            snprintf(text[count], sizeof(text[count]), "%lld", (long long)o->size[count]);
        else
            yk__module_number(o->scale_factor[count], text[count]);
        equal = equal && (sized ? o->size[count] == o->size[0] : o->scale_factor[count] == o->scale_factor[0]);
        count++;
    }
    if (equal)
        snprintf(buffer, size, "%s=%s, mode='%s'", sized ? "size" : "scale_factor", text[0], mode[o->mode]);
    else
        snprintf(buffer, size, "%s=(%s, %s%s%s), mode='%s'", sized ? "size" : "scale_factor", text[0], text[1],
                 count > 2 ? ", " : "", count > 2 ? text[2] : "", mode[o->mode]);
}

yk_module *yk_upsample_create(const yk_upsample_options *options)
{
    static const yk_module_class cls = {.name = "Upsample",
                                        .data_size = sizeof(yk_upsample_options),
                                        .forward = upsample_forward,
                                        .describe = upsample_describe};
    yk_upsample_options o;
    if (YK__OPTIONS_TAKE("upsample_create", yk_upsample_options, options, &o))
        return NULL;
    if ((unsigned)o.mode > YK_INTERPOLATE_AREA) {
        yk__fail(YK_ERR_ARGUMENT,
                 "upsample_create: mode %d is none of nearest, nearest-exact, linear, bilinear, "
                 "bicubic, trilinear and area",
                 (int)o.mode);
        return NULL;
    }
    bool sized = o.size[0] != YK_NOT_GIVEN;
    if (sized == (o.scale_factor[0] != YK_NOT_GIVEN) || (sized ? o.size[0] < 1 : !(o.scale_factor[0] > 0))) {
        yk__fail(YK_ERR_ARGUMENT, "upsample_create: size and scale_factor: expected one of them, above 0");
        return NULL;
    }
    yk_module *m = yk_module_create(&cls);
    if (m)
        *(yk_upsample_options *)yk_module_data(m) = o;
    return m;
}

#define SHUFFLE(label, class_name, factor)                                                                             \
    static yk_tensor *label##_forward(yk_module *m, yk_tensor *x)                                                      \
    {                                                                                                                  \
        return yk_##label(x, *(const int64_t *)yk_module_data(m));                                                     \
    }                                                                                                                  \
    static void label##_describe(yk_module *m, char *buffer, size_t size)                                              \
    {                                                                                                                  \
        snprintf(buffer, size, #factor "=%lld", (long long)*(const int64_t *)yk_module_data(m));                       \
    }                                                                                                                  \
    yk_module *yk_##label##_create(int64_t factor)                                                                     \
    {                                                                                                                  \
        static const yk_module_class cls = {.name = class_name,                                                        \
                                            .data_size = sizeof(int64_t),                                              \
                                            .forward = label##_forward,                                                \
                                            .describe = label##_describe};                                             \
        if (yk__check_integer(#label "_create", #factor, factor, 1, INT32_MAX))                                        \
            return NULL;                                                                                               \
        yk_module *m = yk_module_create(&cls);                                                                         \
        if (m)                                                                                                         \
            *(int64_t *)yk_module_data(m) = factor;                                                                    \
        return m;                                                                                                      \
    }
SHUFFLE(pixel_shuffle, "PixelShuffle", upscale_factor)
SHUFFLE(pixel_unshuffle, "PixelUnshuffle", downscale_factor)
