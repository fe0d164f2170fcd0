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

static yk_module *create_resnet(const yk_model_options *o, bool cifar)
{
    if (o->image_size != YK_NOT_GIVEN && o->image_size < 1) {
        yk__fail(YK_ERR_ARGUMENT, "resnet18: image_size is %lld, it must be at least 1", (long long)o->image_size);
        return NULL;
    }
    return yk_resnet18(YK_OPTIONS(yk_resnet_options, .in_channels = yk__integer_or(o->in_channels, 3),
                                  .num_classes = o->num_classes, .cifar = cifar));
}

static yk_module *create_resnet18(const yk_model_options *o)
{
    return create_resnet(o, false);
}

static yk_module *create_resnet18_cifar(const yk_model_options *o)
{
    return create_resnet(o, true);
}

static const char *const names[] = {"mlp", "lenet", "resnet18", "resnet18-cifar", NULL};
static yk_module *(*const creators[])(const yk_model_options *o) = {create_mlp, create_lenet, create_resnet18,
                                                                    create_resnet18_cifar};
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
    char known[120] = "";
    for (int i = 0; i < MODELS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = yk__nearest(name, names, MODELS);
    yk__fail(YK_ERR_NOT_FOUND, "unknown model \"%s\"%s%s%s (known: %s)", name, nearest ? "; did you mean \"" : "",
             nearest ? nearest : "", nearest ? "\"?" : "", known);
    return NULL;
}
