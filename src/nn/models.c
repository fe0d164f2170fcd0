/*
 * models.c - the models by name. Layer: nn.
 */
#include <string.h>

#include "nn/models.h"

int64_t yk__model_number(const char *model, const char *what, int64_t number, int64_t least)
{
    if (number >= least && number <= INT32_MAX)
        return number;
    yk__fail(YK_ERR_ARGUMENT, "%s: %s is %lld, it must be at least %lld%s", model, what, (long long)number,
             (long long)least, number > INT32_MAX ? " and below 2^31" : "");
    return -1;
}

yk_module *yk__classifier_linear(int64_t in, int64_t out)
{
    yk_module *m = yk_linear_create(in, out, NULL);
    return m && !yk_init_normal(yk_module_get(m, "weight"), 0, 0.01) && !yk_init_constant(yk_module_get(m, "bias"), 0)
               ? m
               : NULL;
}

static yk_module *create_mlp(const yk_model_options *o)
{
    int64_t channels = yk__model_number("mlp", "in_channels", yk__integer_or(o->in_channels, 1), 1);
    int64_t size = yk__model_number("mlp", "image_size", yk__integer_or(o->image_size, 28), 1);
    if (channels < 0 || size < 0)
        return NULL;
    int64_t features;
    if (__builtin_mul_overflow(channels, size * size, &features)) {
        yk__fail(YK_ERR_ARGUMENT, "mlp: an image of %lld channels and %lld by %lld has more numbers than fit in memory",
                 (long long)channels, (long long)size, (long long)size);
        return NULL;
    }
    return yk_mlp(
        YK_OPTIONS(yk_mlp_options, .in_features = features, .num_classes = yk__integer_or(o->num_classes, 10)));
}

static yk_module *create_lenet(const yk_model_options *o)
{
    return yk_lenet(YK_OPTIONS(yk_lenet_options, .in_channels = yk__integer_or(o->in_channels, 1),
                               .image_size = yk__integer_or(o->image_size, 28),
                               .num_classes = yk__integer_or(o->num_classes, 10)));
}

/* False and an error where the size of images is given and makes no sense. */
static bool check_image_size(const char *name, const yk_model_options *o, int64_t least)
{
    return o->image_size == YK_NOT_GIVEN || yk__model_number(name, "image_size", o->image_size, least) > 0;
}

static yk_module *create_resnet(const char *name, yk_module *(*create)(const yk_resnet_options *),
                                const yk_model_options *o, bool cifar)
{
    return !check_image_size(name, o, 1)
               ? NULL
               : create(YK_OPTIONS(yk_resnet_options, .in_channels = yk__integer_or(o->in_channels, 3),
                                   .num_classes = o->num_classes, .cifar = cifar));
}

static yk_module *create_vgg(const char *name, yk_module *(*create)(const yk_vgg_options *), const yk_model_options *o,
                             bool batch_norm)
{
    return !check_image_size(name, o, 32)
               ? NULL
               : create(YK_OPTIONS(yk_vgg_options, .in_channels = yk__integer_or(o->in_channels, 3),
                                   .num_classes = yk__integer_or(o->num_classes, 1000), .batch_norm = batch_norm));
}

static yk_module *create_mobilenet_v2(const yk_model_options *o)
{
    return !check_image_size("mobilenet_v2", o, 1)
               ? NULL
               : yk_mobilenet_v2(YK_OPTIONS(yk_mobilenet_v2_options, .in_channels = yk__integer_or(o->in_channels, 3),
                                            .num_classes = yk__integer_or(o->num_classes, 1000)));
}

static yk_module *create_efficientnet_b0(const yk_model_options *o)
{
    return !check_image_size("efficientnet_b0", o, 1)
               ? NULL
               : yk_efficientnet_b0(YK_OPTIONS(yk_efficientnet_options,
                                               .in_channels = yk__integer_or(o->in_channels, 3),
                                               .num_classes = yk__integer_or(o->num_classes, 1000)));
}

static yk_module *create_vit_b_16(const yk_model_options *o)
{
    return yk_vit_b_16(YK_OPTIONS(yk_vit_options, .in_channels = yk__integer_or(o->in_channels, 3),
                                  .image_size = yk__integer_or(o->image_size, 224),
                                  .num_classes = yk__integer_or(o->num_classes, 1000)));
}

/* The models that a function and a flag make. */
#define OF_FAMILY(label, call)                                                                                         \
    static yk_module *create_##label(const yk_model_options *o)                                                        \
    {                                                                                                                  \
        return call;                                                                                                   \
    }
OF_FAMILY(resnet18, create_resnet("resnet18", yk_resnet18, o, false))
OF_FAMILY(resnet18_cifar, create_resnet("resnet18", yk_resnet18, o, true))
OF_FAMILY(resnet34, create_resnet("resnet34", yk_resnet34, o, false))
OF_FAMILY(resnet50, create_resnet("resnet50", yk_resnet50, o, false))
OF_FAMILY(resnet101, create_resnet("resnet101", yk_resnet101, o, false))
OF_FAMILY(resnet152, create_resnet("resnet152", yk_resnet152, o, false))
OF_FAMILY(vgg11, create_vgg("vgg11", yk_vgg11, o, false))
OF_FAMILY(vgg11_bn, create_vgg("vgg11", yk_vgg11, o, true))
OF_FAMILY(vgg13, create_vgg("vgg13", yk_vgg13, o, false))
OF_FAMILY(vgg13_bn, create_vgg("vgg13", yk_vgg13, o, true))
OF_FAMILY(vgg16, create_vgg("vgg16", yk_vgg16, o, false))
OF_FAMILY(vgg16_bn, create_vgg("vgg16", yk_vgg16, o, true))
OF_FAMILY(vgg19, create_vgg("vgg19", yk_vgg19, o, false))
OF_FAMILY(vgg19_bn, create_vgg("vgg19", yk_vgg19, o, true))

static const char *const names[] = {"mlp",      "lenet",        "resnet18",        "resnet18-cifar", "resnet34",
                                    "resnet50", "resnet101",    "resnet152",       "vgg11",          "vgg11_bn",
                                    "vgg13",    "vgg13_bn",     "vgg16",           "vgg16_bn",       "vgg19",
                                    "vgg19_bn", "mobilenet_v2", "efficientnet_b0", "vit_b_16",       NULL};
static yk_module *(*const creators[])(const yk_model_options *o) = {
    create_mlp,      create_lenet,        create_resnet18,        create_resnet18_cifar, create_resnet34,
    create_resnet50, create_resnet101,    create_resnet152,       create_vgg11,          create_vgg11_bn,
    create_vgg13,    create_vgg13_bn,     create_vgg16,           create_vgg16_bn,       create_vgg19,
    create_vgg19_bn, create_mobilenet_v2, create_efficientnet_b0, create_vit_b_16};
enum { MODELS = sizeof(creators) / sizeof(creators[0]) };
_Static_assert(sizeof(names) / sizeof(names[0]) == MODELS + 1, "one name for each model");

const char *const *yk_model_names(void)
{
    return names;
}

yk_module *yk_model(const char *name, const yk_model_options *options)
{
    if (!name) {
        yk__fail(YK_ERR_ARGUMENT, "model: the name is NULL");
        return NULL;
    }
    yk_model_options o;
    if (YK__OPTIONS_TAKE("model", yk_model_options, options, &o))
        return NULL;
    for (int i = 0; i < MODELS; i++) {
        if (strcmp(name, names[i]) == 0)
            return creators[i](&o);
    }
    char known[300] = "";
    for (int i = 0; i < MODELS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = yk__nearest(name, names, MODELS);
    yk__fail(YK_ERR_NOT_FOUND, "unknown model \"%s\"%s%s%s (known: %s)", name, nearest ? "; did you mean \"" : "",
             nearest ? nearest : "", nearest ? "\"?" : "", known);
    return NULL;
}
