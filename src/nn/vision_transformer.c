/*
 * vision_transformer.c - vision transformers, ViT-B/16 by default, under torchvision's names. Layer: nn.
 *
 * Patches of the image become tokens by one convolution; a token of its own, whose place is the first, is what the head
 * reads. Each block is norm, attention, sum, norm, two linear layers, sum.
 */
#include <math.h>

#include "nn/models.h"
#include "ops/op.h"

/* ---- a block ----------------------------------------------------------------------------------------------------- */

typedef struct block {
    yk_module *ln_1, *self_attention, *dropout, *ln_2, *mlp;
} block;

static yk_tensor *block_forward(yk_module *m, yk_tensor *x)
{
    const block *d = yk__module_data(m);
    x = yk_add(x, yk__forward_part(d->dropout, yk__forward_part(d->self_attention, yk__forward_part(d->ln_1, x))));
    return yk_add(x, yk__forward_part(d->mlp, yk__forward_part(d->ln_2, x)));
}

static const yk_module_class block_class = {
    .name = "EncoderBlock", .data_size = sizeof(block), .forward = block_forward};

/* Weights of Glorot's, biases that are nearly 0. */
static yk_module *linear_create(int64_t in, int64_t out)
{
    yk_module *m = yk_linear_create(in, out, NULL);
    return m && !yk_init_xavier_uniform(yk_module_get(m, "weight"), 1) &&
                   !yk_init_normal(yk_module_get(m, "bias"), 0, 1e-6)
               ? m
               : NULL;
}

static yk_module *norm_create(int64_t size)
{
    return yk_layer_norm_create(1, &size, YK_OPTIONS(yk_layer_norm_options, .eps = 1e-6));
}

static yk_module *block_create(const yk_vit_options *o)
{
    yk_module *m = yk_module_create(&block_class);
    if (!m)
        return NULL;
    block *d = yk__module_data(m);
    d->ln_1 = yk_module_add(m, "ln_1", norm_create(o->hidden_dim));
    d->self_attention =
        yk_module_add(m, "self_attention",
                      yk_multihead_attention(o->hidden_dim, o->num_heads,
                                             YK_OPTIONS(yk_multihead_attention_options, .dropout = o->attention_dropout,
                                                        .batch_first = true)));
    d->dropout = yk_module_add(m, "dropout", yk_dropout_create(o->dropout));
    d->ln_2 = yk_module_add(m, "ln_2", norm_create(o->hidden_dim));
    yk_module *parts[] = {linear_create(o->hidden_dim, o->mlp_dim), yk_gelu_create(), yk_dropout_create(o->dropout),
                          linear_create(o->mlp_dim, o->hidden_dim), yk_dropout_create(o->dropout)};
    d->mlp = yk_module_add(m, "mlp", yk_sequential_list(parts, 5));
    return yk_module_check(m);
}

/* ---- the encoder ------------------------------------------------------------------------------------------------- */

typedef struct encoder {
    yk_tensor *pos_embedding;
    yk_module *dropout, *layers, *ln;
} encoder;

static yk_tensor *encoder_forward(yk_module *m, yk_tensor *x)
{
    const encoder *d = yk__module_data(m);
    return yk__forward_part(d->ln,
                            yk__forward_part(d->layers, yk__forward_part(d->dropout, yk_add(x, d->pos_embedding))));
}

static yk_tensor *layers_forward(yk_module *m, yk_tensor *x)
{
    for (int64_t i = 0; i < yk_module_child_count(m); i++)
        x = yk__forward_part(yk_module_child(m, i), x);
    return x;
}

static const yk_module_class encoder_class = {
    .name = "Encoder", .data_size = sizeof(encoder), .forward = encoder_forward};
static const yk_module_class layers_class = {.name = "Sequential", .forward = layers_forward};

static yk_module *encoder_create(const yk_vit_options *o, int64_t tokens)
{
    yk_module *m = yk_module_create(&encoder_class);
    if (!m)
        return NULL;
    encoder *d = yk__module_data(m);
    const int64_t shape[3] = {1, tokens, o->hidden_dim};
    d->pos_embedding = yk__module_take_parameter(m, "pos_embedding", yk__module_tensor("vit_b_16", 3, shape, YK_F32));
    if (d->pos_embedding && yk_init_normal(d->pos_embedding, 0, 0.02))
        return NULL;
    d->dropout = yk_module_add(m, "dropout", yk_dropout_create(o->dropout));
    d->layers = yk_module_add(m, "layers", yk_module_create(&layers_class));
    for (int64_t i = 0; i < o->num_layers && d->layers; i++) {
        char name[40];
        snprintf(name, sizeof(name), "encoder_layer_%lld", (long long)i);
        yk_module_add(d->layers, name, block_create(o));
    }
    d->ln = yk_module_add(m, "ln", norm_create(o->hidden_dim));
    return yk_module_check(d->layers) ? yk_module_check(m) : NULL;
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

typedef struct vit {
    yk_tensor *class_token;
    yk_module *conv_proj, *encoder, *heads;
    int64_t channels, size;
} vit;

static yk_tensor *vit_forward(yk_module *m, yk_tensor *x)
{
    const vit *d = yk__module_data(m);
    if (x->ndim != 4 || x->shape[1] != d->channels || x->shape[2] != d->size || x->shape[3] != d->size) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "vit_b_16: input has shape %s, expected (N, %lld, %lld, %lld)",
                 yk_shape_format(x, text, sizeof(text)), (long long)d->channels, (long long)d->size,
                 (long long)d->size);
        return NULL;
    }
    int64_t count = x->shape[0];
    yk_tensor *tokens = yk_transpose(yk_flatten(yk__forward_part(d->conv_proj, x), 2, -1), 1, 2);
    if (!tokens)
        return NULL;
    yk_tensor *first = yk_expand(yk_cast(d->class_token, (yk_dtype)tokens->dtype), 3, (int64_t[]){count, -1, -1});
    x = yk__forward_part(d->encoder, yk_cat((yk_tensor *[]){first, tokens}, 2, 1));
    return yk__forward_part(d->heads, yk_select(x, 1, 0));
}

static const yk_module_class vit_class = {
    .name = "VisionTransformer", .data_size = sizeof(vit), .forward = vit_forward};
static const yk_module_class heads_class = {.name = "Sequential", .forward = layers_forward};

static yk_module *heads_create(const yk_vit_options *o)
{
    yk_module *m = yk_module_create(&heads_class), *head = yk_linear_create(o->hidden_dim, o->num_classes, NULL);
    if (!m || !head || yk_init_constant(yk_module_get(head, "weight"), 0) ||
        yk_init_constant(yk_module_get(head, "bias"), 0))
        return NULL;
    yk_module_add(m, "head", head);
    return yk_module_check(m);
}

static bool check_options(const char *name, const yk_vit_options *o)
{
    const struct {
        const char *name;
        int64_t number;
    } sizes[] = {{"in_channels", o->in_channels}, {"image_size", o->image_size},  {"patch_size", o->patch_size},
                 {"num_layers", o->num_layers},   {"num_heads", o->num_heads},    {"hidden_dim", o->hidden_dim},
                 {"mlp_dim", o->mlp_dim},         {"num_classes", o->num_classes}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (yk__model_number(name, sizes[i].name, sizes[i].number, 1) < 0)
            return false;
    if (yk__check_number(name, "dropout", o->dropout, 0, 1) ||
        yk__check_number(name, "attention_dropout", o->attention_dropout, 0, 1))
        return false;
    if (o->image_size % o->patch_size == 0 && o->hidden_dim % o->num_heads == 0 &&
        o->image_size / o->patch_size <= 30000)
        return true;
    yk__fail(YK_ERR_ARGUMENT,
             "%s: image_size %lld must be a multiple of patch_size %lld, hidden_dim %lld of num_heads "
             "%lld",
             name, (long long)o->image_size, (long long)o->patch_size, (long long)o->hidden_dim,
             (long long)o->num_heads);
    return false;
}

yk_module *yk_vit_b_16(const yk_vit_options *options)
{
    static const char name[] = "vit_b_16";
    yk_vit_options o;
    if (YK__OPTIONS_TAKE(name, yk_vit_options, options, &o) || !check_options(name, &o))
        return NULL;
    yk_module *m = yk_module_create(&vit_class);
    if (!m)
        return NULL;
    vit *d = yk_module_data(m);
    int64_t side = o.image_size / o.patch_size;
    d->channels = o.in_channels;
    d->size = o.image_size;
    d->class_token = yk__module_take_parameter(m, "class_token",
                                               yk__module_tensor(name, 3, (int64_t[]){1, 1, o.hidden_dim}, YK_F32));
    if (d->class_token && yk_init_constant(d->class_token, 0))
        return NULL;
    yk_module *conv = yk_conv2d_create(o.in_channels, o.hidden_dim, o.patch_size,
                                       YK_OPTIONS(yk_conv2d_module_options, .stride = o.patch_size));
    double deviation = sqrt(1 / ((double)o.in_channels * (double)o.patch_size * (double)o.patch_size));
    if (!conv || yk_init_normal(yk_module_get(conv, "weight"), 0, deviation) ||
        yk_init_constant(yk_module_get(conv, "bias"), 0))
        return NULL;
    d->conv_proj = yk_module_add(m, "conv_proj", conv);
    d->encoder = yk_module_add(m, "encoder", encoder_create(&o, side * side + 1));
    d->heads = yk_module_add(m, "heads", heads_create(&o));
    return yk_module_check(m);
}
