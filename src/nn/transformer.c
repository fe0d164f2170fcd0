/*
 * transformer.c - the layers of a transformer's encoder and decoder, stacks of them, and the whole. Layer: nn.
 *
 * The two layers are one struct: a decoder's has a second attention, to the encoder's result, and a norm and a dropout
 * for it. Each part is a residual: x + dropout(f(x)), whose norm comes after the sum, or before f where norm_first.
 */
#include <math.h>
#include <string.h>

#include "nn/module.h"
#include "ops/op.h"

/* ---- one layer --------------------------------------------------------------------------------------------------- */

/* The options that both layers have, and the maskings of their attentions. */
typedef struct layer_options {
    const char *name; /* of the constructor */
    int64_t d_model, nhead, dim_feedforward;
    double dropout, layer_norm_eps;
    yk_function activation;
    bool batch_first, norm_first, bias, is_causal, memory_is_causal, decodes;
} layer_options;

enum { MOST_PARTS = 3 };
typedef struct layer {
    yk_module *self_attn, *multihead_attn, *linear1, *dropout, *linear2, *norm[MOST_PARTS], *dropouts[MOST_PARTS];
    layer_options o;
} layer;

/* The inputs of a decoder's layer; an encoder's has three. */
enum { TGT, MEMORY, TGT_MASK, MEMORY_MASK, TGT_PADDING, MEMORY_PADDING, INPUTS };
enum { SRC, SRC_MASK, SRC_PADDING, ENCODER_INPUTS };

static yk_tensor *feed_forward(const layer *d, yk_tensor *x)
{
    yk_tensor *y = d->o.activation ? d->o.activation(yk__forward_part(d->linear1, x))
                                   : yk__scope_own(yk__forward_relu(d->linear1, x));
    return yk__forward_part(d->linear2, yk__forward_part(d->dropout, y));
}

/* The part of this number: an attention, to `memory` if that is there, or the feed-forward network of no attention. */
static yk_tensor *run_part(const layer *d, int part, yk_tensor *x, yk_module *attention, yk_tensor *memory,
                           yk_tensor *padding, yk_tensor *mask)
{
    yk_tensor *y = d->o.norm_first ? yk__forward_part(d->norm[part], x) : x, *out = y;
    if (!y)
        return NULL;
    if (!attention)
        out = feed_forward(d, y);
    else if (yk_forward_list(attention, (yk_tensor *[]){y, memory ? memory : y, memory ? memory : y, padding, mask}, 5,
                             &out, 1))
        return NULL;
    x = yk_add(x, yk__forward_part(d->dropouts[part], out));
    return d->o.norm_first ? x : yk__forward_part(d->norm[part], x);
}

static yk_status encoder_layer_forward(yk_module *m, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    const layer *d = yk__module_data(m);
    if (n_inputs < 1 || n_inputs > ENCODER_INPUTS || !in[SRC] || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT,
                        "transformer_encoder_layer: %d inputs for %d outputs; expected src [, src_mask [, "
                        "src_key_padding_mask]] for one",
                        n_inputs, n_outputs);
    yk_tensor *mask = n_inputs > SRC_MASK ? in[SRC_MASK] : NULL,
              *padding = n_inputs > SRC_PADDING ? in[SRC_PADDING] : NULL;
    out[0] = run_part(d, 0, in[SRC], d->self_attn, NULL, padding, mask);
    out[0] = out[0] ? run_part(d, 1, out[0], NULL, NULL, NULL, NULL) : NULL;
    return yk__status_of(out[0]);
}

static yk_status decoder_layer_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **out,
                                       int n_outputs)
{
    const layer *d = yk__module_data(m);
    if (n_inputs < 2 || n_inputs > INPUTS || !inputs[TGT] || !inputs[MEMORY] || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT,
                        "transformer_decoder_layer: %d inputs for %d outputs; expected tgt, memory [, tgt_mask [, "
                        "memory_mask [, tgt_key_padding_mask [, memory_key_padding_mask]]]] for one",
                        n_inputs, n_outputs);
    yk_tensor *in[INPUTS] = {NULL};
    memcpy(in, inputs, sizeof(in[0]) * (size_t)n_inputs);
    out[0] = run_part(d, 0, in[TGT], d->self_attn, NULL, in[TGT_PADDING], in[TGT_MASK]);
    if (out[0])
        out[0] = run_part(d, 1, out[0], d->multihead_attn, in[MEMORY], in[MEMORY_PADDING], in[MEMORY_MASK]);
    out[0] = out[0] ? run_part(d, 2, out[0], NULL, NULL, NULL, NULL) : NULL;
    return yk__status_of(out[0]);
}

static const yk_module_class encoder_layer_class = {
    .name = "TransformerEncoderLayer", .data_size = sizeof(layer), .forward_list = encoder_layer_forward};
static const yk_module_class decoder_layer_class = {
    .name = "TransformerDecoderLayer", .data_size = sizeof(layer), .forward_list = decoder_layer_forward};

static yk_module *norm_create(const layer_options *o)
{
    return yk_layer_norm_create(1, &o->d_model,
                                YK_OPTIONS(yk_layer_norm_options, .eps = o->layer_norm_eps, .bias = o->bias));
}

static yk_module *attention_create(const layer_options *o, bool causal)
{
    return yk_multihead_attention(o->d_model, o->nhead,
                                  YK_OPTIONS(yk_multihead_attention_options, .dropout = o->dropout, .bias = o->bias,
                                             .batch_first = o->batch_first, .is_causal = causal));
}

static yk_status check_layer(const layer_options *o)
{
    const int64_t most = INT32_MAX;
    if (yk__check_integer(o->name, "d_model", o->d_model, 1, most) ||
        yk__check_integer(o->name, "nhead", o->nhead, 1, most) ||
        yk__check_integer(o->name, "dim_feedforward", o->dim_feedforward, 1, most) ||
        yk__check_number(o->name, "dropout", o->dropout, 0, 1) ||
        yk__check_number(o->name, "layer_norm_eps", o->layer_norm_eps, 0, INFINITY))
        return yk__error_code();
    if (o->d_model % o->nhead)
        return yk__fail(YK_ERR_ARGUMENT, "%s: d_model %lld is no multiple of nhead %lld", o->name,
                        (long long)o->d_model, (long long)o->nhead);
    return YK_OK;
}

static yk_module *layer_create(const layer_options *o)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"}, *const drops[] = {"dropout1", "dropout2",
                                                                                      "dropout3"};
    yk_module *m = check_layer(o) ? NULL : yk_module_create(o->decodes ? &decoder_layer_class : &encoder_layer_class);
    if (!m)
        return NULL;
    layer *d = yk__module_data(m);
    const yk_linear_options *linear = YK_OPTIONS(yk_linear_options, .bias = o->bias);
    int parts = o->decodes ? 3 : 2;
    d->o = *o;
    if (d->o.activation == yk_relu)
        d->o.activation = NULL;
    d->self_attn = yk_module_add(m, "self_attn", attention_create(o, o->is_causal));
    if (o->decodes)
        d->multihead_attn = yk_module_add(m, "multihead_attn", attention_create(o, o->memory_is_causal));
    d->linear1 = yk_module_add(m, "linear1", yk_linear_create(o->d_model, o->dim_feedforward, linear));
    d->dropout = yk_module_add(m, "dropout", yk_dropout_create(o->dropout));
    d->linear2 = yk_module_add(m, "linear2", yk_linear_create(o->dim_feedforward, o->d_model, linear));
    for (int i = 0; i < parts; i++)
        d->norm[i] = yk_module_add(m, norms[i], norm_create(o));
    for (int i = 0; i < parts; i++)
        d->dropouts[i] = yk_module_add(m, drops[i], yk_dropout_create(o->dropout));
    return yk_module_check(m);
}

yk_module *yk_transformer_encoder_layer(int64_t d_model, int64_t nhead,
                                        const yk_transformer_encoder_layer_options *options)
{
    yk_transformer_encoder_layer_options o;
    if (YK__OPTIONS_TAKE("transformer_encoder_layer", yk_transformer_encoder_layer_options, options, &o))
        return NULL;
    return layer_create(&(layer_options){.name = "transformer_encoder_layer",
                                         .d_model = d_model,
                                         .nhead = nhead,
                                         .dim_feedforward = o.dim_feedforward,
                                         .dropout = o.dropout,
                                         .layer_norm_eps = o.layer_norm_eps,
                                         .activation = o.activation,
                                         .batch_first = o.batch_first,
                                         .norm_first = o.norm_first,
                                         .bias = o.bias,
                                         .is_causal = o.is_causal});
}

yk_module *yk_transformer_decoder_layer(int64_t d_model, int64_t nhead,
                                        const yk_transformer_decoder_layer_options *options)
{
    yk_transformer_decoder_layer_options o;
    if (YK__OPTIONS_TAKE("transformer_decoder_layer", yk_transformer_decoder_layer_options, options, &o))
        return NULL;
    return layer_create(&(layer_options){.name = "transformer_decoder_layer",
                                         .d_model = d_model,
                                         .nhead = nhead,
                                         .dim_feedforward = o.dim_feedforward,
                                         .dropout = o.dropout,
                                         .layer_norm_eps = o.layer_norm_eps,
                                         .activation = o.activation,
                                         .batch_first = o.batch_first,
                                         .norm_first = o.norm_first,
                                         .bias = o.bias,
                                         .is_causal = o.tgt_is_causal,
                                         .memory_is_causal = o.memory_is_causal,
                                         .decodes = true});
}

/* ---- stacks of layers -------------------------------------------------------------------------------------------- */

static yk_status list_forward(yk_module *m, yk_tensor *const *in, int n_inputs, yk_tensor **out, int n_outputs)
{
    (void)in, (void)n_inputs, (void)out, (void)n_outputs;
    return yk__fail(YK_ERR_ARGUMENT, "%s: a list of modules has no forward of its own", m->shown_name);
}

static const yk_module_class list_class = {.name = "ModuleList", .forward_list = list_forward};

typedef struct stack {
    yk_module *layers, *norm;
} stack;

/* Every layer with the inputs after the first as they are, then the norm. */
static yk_status stack_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **out, int n_outputs)
{
    const stack *d = yk__module_data(m);
    yk_tensor *in[INPUTS] = {NULL};
    if (n_inputs < 1 || n_inputs > INPUTS || !inputs[0] || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d inputs for %d outputs; expected those of its layers for one",
                        m->shown_name, n_inputs, n_outputs);
    memcpy(in, inputs, sizeof(in[0]) * (size_t)n_inputs);
    for (int64_t i = 0; i < yk_module_child_count(d->layers); i++) {
        yk_tensor *next;
        if (yk_forward_list(yk_module_child(d->layers, i), in, n_inputs, &next, 1))
            return yk__error_code();
        in[0] = next;
    }
    out[0] = d->norm ? yk__forward_part(d->norm, in[0]) : in[0];
    return yk__status_of(out[0]);
}

static const yk_module_class encoder_class = {
    .name = "TransformerEncoder", .data_size = sizeof(stack), .forward_list = stack_forward};
static const yk_module_class decoder_class = {
    .name = "TransformerDecoder", .data_size = sizeof(stack), .forward_list = stack_forward};

/* A layer of the same options with the same values, dtypes, device and mode. */
static yk_module *layer_copy(yk_module *from)
{
    const layer *d = yk__module_data(from);
    yk_module *m = layer_create(&d->o);
    yk_parameters *old = yk_module_parameters(from), *made = yk_module_parameters(m);
    yk_tensor *first = yk__parameters_at(old, 0);
    if (!m || !first || !made || !yk_module_to_dtype(m, (yk_dtype)first->dtype) ||
        !yk_module_to(m, yk__device_of(first)) || yk_module_load_state_dict(m, yk_module_state_dict(from), NULL, NULL))
        return NULL;
    yk_module_train(m, from->training);
    for (int64_t i = 0; i < yk__parameters_count(made); i++)
        if (yk_set_requires_grad(yk__parameters_at(made, i), yk__parameters_at(old, i)->requires_grad))
            return NULL;
    return m;
}

/* `count` layers, copies of `from` or made with its options, `o`. */
static yk_module *stack_create(const yk_module_class *cls, yk_module *from, const layer_options *o, int64_t count,
                               yk_module *norm)
{
    yk_module *m = yk_module_create(cls);
    stack *d = m ? yk__module_data(m) : NULL;
    yk_module *list = m ? yk_module_add(m, "layers", yk_module_create(&list_class)) : NULL;
    if (!list)
        return NULL;
    d->layers = list;
    for (int64_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%lld", (long long)i);
        yk_scope scope = yk_scope_begin();
        bool added = yk_module_add(list, name, from ? layer_copy(from) : layer_create(o)) != NULL;
        yk_scope_end(scope);
        if (!added)
            return NULL;
    }
    if (norm)
        d->norm = yk_module_add(m, "norm", norm);
    return yk_module_check(m);
}

static yk_module *stack_of(const char *what, const yk_module_class *cls, const yk_module_class *of, yk_module *from,
                           int64_t count, yk_module *norm)
{
    if (!yk__is_there(what, "layer", from) || !yk__module_usable(what, from) ||
        (norm && !yk__module_usable(what, norm)) || yk__check_integer(what, "num_layers", count, 1, INT32_MAX))
        return NULL;
    if (from->cls == of)
        return stack_create(cls, from, NULL, count, norm);
    yk__fail(YK_ERR_ARGUMENT, "%s: the layer is a %s, expected a %s", what, from->shown_name, of->name);
    return NULL;
}

yk_module *yk_transformer_encoder(yk_module *encoder_layer, int64_t num_layers, yk_module *norm)
{
    YK__LIVE(encoder_layer);
    YK__LIVE(norm);
    return stack_of("transformer_encoder", &encoder_class, &encoder_layer_class, encoder_layer, num_layers, norm);
}

yk_module *yk_transformer_decoder(yk_module *decoder_layer, int64_t num_layers, yk_module *norm)
{
    YK__LIVE(decoder_layer);
    YK__LIVE(norm);
    return stack_of("transformer_decoder", &decoder_class, &decoder_layer_class, decoder_layer, num_layers, norm);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

typedef struct transformer {
    yk_module *encoder, *decoder;
} transformer;

static yk_status transformer_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **out,
                                     int n_outputs)
{
    enum { FROM, TO, FROM_MASK, TO_MASK, BETWEEN_MASK, FROM_PADDING, TO_PADDING, BETWEEN_PADDING, ALL };
    const transformer *d = yk__module_data(m);
    if (n_inputs < 2 || n_inputs > ALL || !inputs[FROM] || !inputs[TO] || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT,
                        "transformer: %d inputs for %d outputs; expected src, tgt [, src_mask [, tgt_mask [, "
                        "memory_mask [, src_key_padding_mask [, tgt_key_padding_mask [, memory_key_padding_mask]]]]]] "
                        "for one",
                        n_inputs, n_outputs);
    yk_tensor *in[ALL] = {NULL}, *memory;
    memcpy(in, inputs, sizeof(in[0]) * (size_t)n_inputs);
    if (yk_forward_list(d->encoder, (yk_tensor *[]){in[FROM], in[FROM_MASK], in[FROM_PADDING]}, ENCODER_INPUTS, &memory,
                        1))
        return yk__error_code();
    return yk_forward_list(
        d->decoder, (yk_tensor *[]){in[TO], memory, in[TO_MASK], in[BETWEEN_MASK], in[TO_PADDING], in[BETWEEN_PADDING]},
        INPUTS, out, 1);
}

static const yk_module_class transformer_class = {
    .name = "Transformer", .data_size = sizeof(transformer), .forward_list = transformer_forward};

yk_module *yk_transformer(const yk_transformer_options *options)
{
    yk_transformer_options o;
    if (YK__OPTIONS_TAKE("transformer", yk_transformer_options, options, &o))
        return NULL;
    layer_options encoder = {.name = "transformer",
                             .d_model = o.d_model,
                             .nhead = o.nhead,
                             .dim_feedforward = o.dim_feedforward,
                             .dropout = o.dropout,
                             .layer_norm_eps = o.layer_norm_eps,
                             .activation = o.activation,
                             .batch_first = o.batch_first,
                             .norm_first = o.norm_first,
                             .bias = o.bias,
                             .is_causal = o.src_is_causal};
    layer_options decoder = encoder;
    decoder.decodes = true;
    decoder.is_causal = o.tgt_is_causal;
    decoder.memory_is_causal = o.memory_is_causal;
    if (check_layer(&encoder) ||
        yk__check_integer("transformer", "num_encoder_layers", o.num_encoder_layers, 0, INT32_MAX) ||
        yk__check_integer("transformer", "num_decoder_layers", o.num_decoder_layers, 0, INT32_MAX))
        return NULL;
    yk_module *m = yk_module_create(&transformer_class);
    if (!m)
        return NULL;
    transformer *d = yk_module_data(m);
    d->encoder = yk_module_add(
        m, "encoder", stack_create(&encoder_class, NULL, &encoder, o.num_encoder_layers, norm_create(&encoder)));
    d->decoder = yk_module_add(
        m, "decoder", stack_create(&decoder_class, NULL, &decoder, o.num_decoder_layers, norm_create(&decoder)));
    yk_parameters *parameters = yk_module_check(m) ? yk_module_parameters(m) : NULL;
    for (int64_t i = 0; i < yk__parameters_count(parameters); i++) {
        yk_tensor *x = yk__parameters_at(parameters, i);
        if (x->ndim > 1 && yk_init_xavier_uniform(x, 1))
            return NULL;
    }
    return parameters ? m : NULL;
}

yk_tensor *yk_generate_square_subsequent_mask(int64_t size, const yk_tensor_options *options)
{
    if (yk__check_integer("generate_square_subsequent_mask", "size", size, 0, INT32_MAX))
        return NULL;
    yk_tensor *full = yk_full(2, (int64_t[]){size, size}, -INFINITY, options);
    return full ? yk_triu(full, 1) : NULL;
}
