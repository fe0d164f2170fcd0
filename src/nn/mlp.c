/*
 * mlp.c - a multi-layer perceptron: fc1, ReLU, fc2, ... Layer: nn.
 */
#include <limits.h>

#include "nn/models.h"

typedef struct mlp {
    double dropout;
} mlp;

static yk_tensor *mlp_forward(yk_module *m, yk_tensor *x)
{
    const mlp *d = yk__module_data(m);
    int64_t layers = yk_module_child_count(m);
    x = yk_flatten(x, 1, -1);
    for (int64_t i = 0; i < layers; i++) {
        yk_module *layer = yk_module_child(m, i);
        x = i + 1 < layers ? yk__scope_own(yk__forward_relu(layer, x)) : yk__forward_part(layer, x);
        if (i + 1 < layers && d->dropout > 0)
            x = yk_dropout(x, d->dropout, yk_module_is_training(m));
    }
    return x;
}

static const yk_module_class mlp_class = {.name = "MLP", .data_size = sizeof(mlp), .forward = mlp_forward};

yk_module *yk_mlp(const yk_mlp_options *options)
{
    static const int64_t one_layer[] = {128};
    yk_mlp_options o;
    if (YK__OPTIONS_TAKE("mlp", yk_mlp_options, options, &o))
        return NULL;
    if (!o.hidden && o.hidden_count == YK_NOT_GIVEN) {
        o.hidden = one_layer;
        o.hidden_count = 1;
    }
    const int64_t *hidden = o.hidden;
    int layers = o.hidden_count;
    if (layers == YK_NOT_GIVEN) {
        yk__fail(YK_ERR_ARGUMENT, "mlp: hidden_count was not given, but hidden was");
        return NULL;
    }
    int64_t in = yk__model_number("mlp", "in_features", o.in_features, 1);
    int64_t classes = yk__model_number("mlp", "num_classes", o.num_classes, 1);
    if (yk__check_integer("mlp", "hidden_count", layers, 0, hidden ? INT_MAX : 0) ||
        yk__check_number("mlp", "dropout", o.dropout, 0, 1))
        return NULL;
    for (int i = 0; i < layers; i++)
        if (yk__check_integer("mlp", "a size in hidden", hidden[i], 1, INT64_MAX))
            return NULL;
    yk_module *m = in > 0 && classes > 0 ? yk_module_create(&mlp_class) : NULL;
    if (!m)
        return NULL;
    ((mlp *)yk_module_data(m))->dropout = o.dropout;
    for (int i = 0; i <= layers; i++) {
        char name[24];
        snprintf(name, sizeof(name), "fc%d", i + 1);
        int64_t out = i < layers ? hidden[i] : classes;
        if (!yk_module_add(m, name, yk_linear_create(in, out, NULL)))
            return NULL;
        in = out;
    }
    return yk_module_check(m);
}
