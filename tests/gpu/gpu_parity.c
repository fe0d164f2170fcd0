/*
 * gpu_parity.c - the loss and every gradient of a network's first step, for a comparison with float64 and with another
 * framework (peer.py): part of gpu_cases.c.
 */
#include <stdio.h>
#include <string.h>

#include <yoke/yoke.h>

#include "tests/gpu/gpu_checks.h"

/* The heads of the transformer block; peer.py has the same. */
enum { HEADS = 4 };

/* The tensor of this name, or NULL. */
static yk_tensor *named(const yk_state_dict *dict, const char *name)
{
    for (int64_t i = 0; i < yk_state_dict_count(dict); i++)
        if (strcmp(yk_state_dict_name(dict, i), name) == 0)
            return yk_state_dict_at(dict, i);
    return NULL;
}

static yk_tensor *normalized(const yk_state_dict *w, yk_tensor *x, const char *weight, const char *bias)
{
    return yk_layer_norm(x, 1, (const int64_t[]){yk_size(x, 2)}, named(w, weight), named(w, bias), 1e-5);
}

/* (N,L,D) to (N,HEADS,L,D/HEADS) */
static yk_tensor *heads_of(yk_tensor *x)
{
    int64_t n = yk_size(x, 0), l = yk_size(x, 1), d = yk_size(x, 2);
    return yk_permute(yk_reshape(x, 4, (const int64_t[]){n, l, HEADS, d / HEADS}), (const int[]){0, 2, 1, 3});
}

/* The mean of the squares of a causal transformer block's output, normalised before attention and before the dense
 * layers (GPT-2's). */
static yk_tensor *block_loss(const yk_state_dict *w, yk_tensor *x)
{
    int64_t n = yk_size(x, 0), l = yk_size(x, 1), d = yk_size(x, 2);
    yk_tensor *all =
        yk_linear(normalized(w, x, "ln1.weight", "ln1.bias"), named(w, "qkv.weight"), named(w, "qkv.bias"));
    yk_tensor *seen = yk_scaled_dot_product_attention(
        heads_of(yk_narrow(all, 2, 0, d)), heads_of(yk_narrow(all, 2, d, d)), heads_of(yk_narrow(all, 2, 2 * d, d)),
        YK_OPTIONS(yk_attention_options, .is_causal = true));
    seen = yk_reshape(yk_permute(seen, (const int[]){0, 2, 1, 3}), 3, (const int64_t[]){n, l, d});
    x = yk_add(x, yk_linear(seen, named(w, "proj.weight"), named(w, "proj.bias")));
    yk_tensor *wide =
        yk_gelu(yk_linear(normalized(w, x, "ln2.weight", "ln2.bias"), named(w, "fc.weight"), named(w, "fc.bias")));
    x = yk_add(x, yk_linear(wide, named(w, "out.weight"), named(w, "out.bias")));
    x = yk_cast(x, yk_tensor_dtype(named(w, "ln1.weight")));
    return yk_mean(yk_mul(x, x));
}

/* True for the weights: all names in the file but the input and the target. */
static bool is_weight(const char *name)
{
    return strcmp(name, "input") != 0 && strcmp(name, "target") != 0;
}

static yk_status run(const char *model, yk_dtype dtype, yk_dtype lower, yk_device device, const char *from,
                     const char *to)
{
    yk_state_dict *file = yk_safetensors_load(from, device), *weights = yk_state_dict_create();
    yk_state_dict *gradients = yk_state_dict_create();
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk_state_dict_count(file) && !status; i++) {
        const char *name = yk_state_dict_name(file, i);
        yk_tensor *x = yk_state_dict_at(file, i);
        if (is_weight(name))
            status = yk_state_dict_add(weights, name, yk_dtype_is_floating(yk_tensor_dtype(x)) ? yk_cast(x, dtype) : x);
    }
    yk_tensor *input = yk_cast(named(file, "input"), dtype), *target = named(file, "target");
    yk_module *net = NULL;
    if (!status && strcmp(model, "block") != 0) {
        int64_t channels = yk_size(input, 1), side = yk_size(input, 2);
        net = yk_model(model,
                       YK_OPTIONS(yk_model_options, .in_channels = channels, .image_size = side, .num_classes = 10));
        net = yk_module_to(yk_module_to_dtype(net, dtype), device);
        status = yk_module_load_state_dict(net, weights, YK_OPTIONS(yk_load_options, .strict = false), NULL);
    }
    for (int64_t i = 0; !net && i < yk_state_dict_count(weights) && !status; i++)
        status = yk_set_requires_grad(yk_state_dict_at(weights, i), true);
    yk_autocast_options options = *YK_OPTIONS(yk_autocast_options, .enabled = lower != dtype);
    yk_autocast before = yk_autocast_begin((yk_device_type)device.type, lower, &options);
    yk_tensor *loss = net ? yk_cross_entropy(yk_forward(net, input), target, NULL) : block_loss(weights, input);
    yk_autocast_end(before);
    if (!status)
        status = yk_backward(loss);
    if (!status)
        status = yk_state_dict_add(gradients, "loss", loss);
    yk_parameters *parameters = net ? yk_module_parameters(net) : NULL;
    int64_t count = net ? yk_parameters_count(parameters) : yk_state_dict_count(weights);
    for (int64_t i = 0; i < count && !status; i++)
        status =
            net ? yk_state_dict_add(gradients, yk_parameters_name(parameters, i),
                                    yk_grad(yk_parameters_at(parameters, i)))
                : yk_state_dict_add(gradients, yk_state_dict_name(weights, i), yk_grad(yk_state_dict_at(weights, i)));
    return status ? status : yk_safetensors_save(to, gradients, NULL);
}

int gpu_parity_run(const char *model, const char *precision, const char *device, const char *from, const char *to)
{
    yk_device where;
    yk_dtype dtype = strcmp(precision, "f64") == 0 ? YK_F64 : YK_F32;
    yk_scope scope = yk_scope_begin();
    if (yk_device_parse(device, &where) ||
        run(model, dtype, strcmp(precision, "bf16") == 0 ? YK_BF16 : dtype, where, from, to))
        return yk_report_error(stderr);
    yk_scope_end(scope);
    return 0;
}
