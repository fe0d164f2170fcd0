/*
 * gpt2.c - GPT-2: token and position embeddings, blocks of attention and a two-layer network, each after a layer norm
 * and added to its input, and the embedding once more as the output layer. Layer: nn.
 *
 * Names, shapes and the order in memory of the parameters are those of the published checkpoints, so that these are
 * loaded as they are. Their linear layers, "Conv1D", have the weight as (in, out).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/autograd.h>

#include "nn/gpt2.h"
#include "nn/models.h"
#include "tensor/tensor.h"

/* ---- a linear layer whose weight is (in, out) -------------------------------------------------------------------- */

typedef struct conv1d {
    yk_tensor *weight, *bias;
} conv1d;

static yk_tensor *conv1d_forward(yk_module *m, yk_tensor *x)
{
    conv1d *d = yk__module_data(m);
    return yk_linear(x, yk_transpose(d->weight, 0, 1), d->bias);
}

static void conv1d_describe(yk_module *m, char *buffer, size_t size)
{
    conv1d *d = yk__module_data(m);
    snprintf(buffer, size, "nf=%lld, nx=%lld", (long long)yk_size(d->weight, 1), (long long)yk_size(d->weight, 0));
}

static const yk_module_class conv1d_class = {
    .name = "Conv1D", .data_size = sizeof(conv1d), .forward = conv1d_forward, .describe = conv1d_describe};

static yk_module *conv1d_create(int64_t in, int64_t out, double deviation)
{
    yk_module *m = yk_module_create(&conv1d_class);
    if (!m)
        return NULL;
    conv1d *d = yk__module_data(m);
    d->weight = yk__module_take_parameter(m, "weight", yk__module_tensor("gpt2", 2, (int64_t[]){in, out}, YK_F32));
    d->bias = yk__module_take_parameter(m, "bias", yk__module_tensor("gpt2", 1, &out, YK_F32));
    if (!yk_module_check(m) || yk_init_normal(d->weight, 0, deviation) || yk_init_constant(d->bias, 0))
        return NULL;
    return m;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

typedef struct gpt2_attention {
    int64_t heads;
    double dropout;
    yk_module *c_attn, *c_proj;
} gpt2_attention;

/* Part `which` of query, key and value, x (N, T, 3 * C), as heads: (N, heads, T, C / heads). */
static yk_tensor *gpt2_heads(const gpt2_attention *d, yk_tensor *x, int which)
{
    if (!x)
        return NULL;
    int64_t n = x->shape[0], t = x->shape[1], c = x->shape[2] / 3;
    x = yk_reshape(yk_narrow(x, 2, which * c, c), YK_SHAPE(n, t, d->heads, c / d->heads));
    return yk_transpose(x, 1, 2);
}

/* Appends to the kept keys or values, (N, heads, room, size), and gives all that are there now. */
static yk_tensor *gpt2_keep(yk_tensor *kept, yk_tensor *x, int64_t length)
{
    int64_t more = x ? x->shape[2] : 0;
    if (!yk_copy_(yk_narrow(kept, 2, length, more), x))
        return NULL;
    return yk_narrow(kept, 2, 0, length + more);
}

/* `layer` of the cache, where there is one. */
static yk_tensor *gpt2_attend(yk_module *m, yk_tensor *x, const yk__gpt2_cache *cache, int64_t layer)
{
    const gpt2_attention *d = yk__module_data(m);
    yk_tensor *qkv = yk__forward_part(d->c_attn, x);
    yk_tensor *q = gpt2_heads(d, qkv, 0), *k = gpt2_heads(d, qkv, 1), *v = gpt2_heads(d, qkv, 2);
    if (!v)
        return NULL;
    int64_t n = x->shape[0], t = x->shape[1], c = x->shape[2];
    if (cache) {
        k = gpt2_keep(cache->keys[layer], k, cache->length);
        v = gpt2_keep(cache->values[layer], v, cache->length);
    }
    yk_tensor *y = yk_scaled_dot_product_attention(
        q, k, v,
        YK_OPTIONS(yk_attention_options, .is_causal = t > 1, .dropout_p = m->training && !cache ? d->dropout : 0));
    return yk__forward_part(d->c_proj, yk_reshape(yk_transpose(y, 1, 2), YK_SHAPE(n, t, c)));
}

static yk_tensor *gpt2_attention_forward(yk_module *m, yk_tensor *x)
{
    return gpt2_attend(m, x, NULL, 0);
}

static const yk_module_class gpt2_attention_class = {
    .name = "GPT2Attention", .data_size = sizeof(gpt2_attention), .forward = gpt2_attention_forward};

static yk_module *gpt2_attention_create(const yk_gpt2_options *o, double last)
{
    yk_module *m = yk_module_create(&gpt2_attention_class);
    if (!m)
        return NULL;
    gpt2_attention *d = yk__module_data(m);
    d->heads = o->n_head;
    d->dropout = o->dropout;
    d->c_attn = yk_module_add(m, "c_attn", conv1d_create(o->n_embd, 3 * o->n_embd, 0.02));
    d->c_proj = yk_module_add(m, "c_proj", conv1d_create(o->n_embd, o->n_embd, last));
    return yk_module_check(m);
}

/* ---- a block ----------------------------------------------------------------------------------------------------- */

typedef struct gpt2_mlp {
    yk_module *c_fc, *c_proj;
} gpt2_mlp;

static yk_tensor *gpt2_mlp_forward(yk_module *m, yk_tensor *x)
{
    const gpt2_mlp *d = yk__module_data(m);
    return yk__forward_part(d->c_proj, yk_gelu_tanh(yk__forward_part(d->c_fc, x)));
}

static const yk_module_class gpt2_mlp_class = {
    .name = "GPT2MLP", .data_size = sizeof(gpt2_mlp), .forward = gpt2_mlp_forward};

static yk_module *gpt2_mlp_create(const yk_gpt2_options *o, double last)
{
    yk_module *m = yk_module_create(&gpt2_mlp_class);
    if (!m)
        return NULL;
    gpt2_mlp *d = yk__module_data(m);
    d->c_fc = yk_module_add(m, "c_fc", conv1d_create(o->n_embd, 4 * o->n_embd, 0.02));
    d->c_proj = yk_module_add(m, "c_proj", conv1d_create(4 * o->n_embd, o->n_embd, last));
    return yk_module_check(m);
}

typedef struct gpt2_block {
    double dropout;
    yk_module *ln_1, *attn, *ln_2, *mlp;
} gpt2_block;

static yk_tensor *gpt2_block_run(yk_module *m, yk_tensor *x, const yk__gpt2_cache *cache, int64_t layer)
{
    const gpt2_block *d = yk__module_data(m);
    yk_tensor *y = yk__forward_part(d->ln_1, x);
    y = cache ? gpt2_attend(d->attn, y, cache, layer) : yk__forward_part(d->attn, y);
    x = yk_add(x, yk_dropout(y, d->dropout, m->training));
    return yk_add(x, yk_dropout(yk__forward_part(d->mlp, yk__forward_part(d->ln_2, x)), d->dropout, m->training));
}

static yk_tensor *gpt2_block_forward(yk_module *m, yk_tensor *x)
{
    return gpt2_block_run(m, x, NULL, 0);
}

static const yk_module_class gpt2_block_class = {
    .name = "GPT2Block", .data_size = sizeof(gpt2_block), .forward = gpt2_block_forward};

static yk_module *gpt2_norm_create(const yk_gpt2_options *o)
{
    return yk_layer_norm_create(1, &o->n_embd, YK_OPTIONS(yk_layer_norm_options, .eps = o->layer_norm_epsilon));
}

static yk_module *gpt2_block_create(const yk_gpt2_options *o)
{
    yk_module *m = yk_module_create(&gpt2_block_class);
    if (!m)
        return NULL;
    gpt2_block *d = yk__module_data(m);
    double last = 0.02 / sqrt(2 * (double)o->n_layer); /* of what is added to the input */
    d->dropout = o->dropout;
    d->ln_1 = yk_module_add(m, "ln_1", gpt2_norm_create(o));
    d->attn = yk_module_add(m, "attn", gpt2_attention_create(o, last));
    d->ln_2 = yk_module_add(m, "ln_2", gpt2_norm_create(o));
    d->mlp = yk_module_add(m, "mlp", gpt2_mlp_create(o, last));
    return yk_module_check(m);
}

/* ---- the stack of blocks ----------------------------------------------------------------------------------------- */

typedef struct gpt2_stack {
    int64_t positions;
    double dropout;
    bool checkpointing;
    yk_module *wte, *wpe, *h, *ln_f;
} gpt2_stack;

static yk_tensor *gpt2_stack_run(yk_module *m, yk_tensor *ids, const yk__gpt2_cache *cache)
{
    const gpt2_stack *d = yk__module_data(m);
    char text[200];
    int64_t from = cache ? cache->length : 0;
    if (ids->ndim != 2 || ids->shape[1] < 1 || from + ids->shape[1] > d->positions) {
        yk__fail(YK_ERR_SHAPE, "gpt2: the tokens have shape %s; expected (N, T), T from 1 to n_positions, %lld",
                 yk_shape_format(ids, text, sizeof(text)), (long long)d->positions);
        return NULL;
    }
    yk_tensor *at = yk_arange((double)from, (double)(from + ids->shape[1]), 1,
                              YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(ids)));
    yk_tensor *x = yk_add(yk__forward_part(d->wte, ids), yk__forward_part(d->wpe, at));
    x = yk_dropout(x, d->dropout, m->training);
    bool checkpoints = d->checkpointing && m->training && yk_grad_enabled();
    if (!cache && !checkpoints)
        return yk__forward_part(d->ln_f, yk__forward_part(d->h, x));
    for (int64_t i = 0; x && i < yk_module_child_count(d->h); i++) {
        yk_module *block = yk_module_child(d->h, i);
        x = cache ? gpt2_block_run(block, x, cache, i) : yk_checkpoint_forward(block, x);
    }
    return yk__forward_part(d->ln_f, x);
}

static yk_tensor *gpt2_stack_forward(yk_module *m, yk_tensor *ids)
{
    return gpt2_stack_run(m, ids, NULL);
}

static const yk_module_class gpt2_stack_class = {
    .name = "GPT2Model", .data_size = sizeof(gpt2_stack), .forward = gpt2_stack_forward};

static yk_module *gpt2_blocks_create(const yk_gpt2_options *o)
{
    yk_module *h = yk_sequential_list(NULL, 0);
    for (int64_t i = 0; h && i < o->n_layer; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%lld", (long long)i);
        if (!yk_module_add(h, name, gpt2_block_create(o)))
            return NULL;
    }
    return h;
}

static yk_module *gpt2_stack_create(const yk_gpt2_options *o)
{
    yk_module *m = yk_module_create(&gpt2_stack_class);
    if (!m)
        return NULL;
    gpt2_stack *d = yk__module_data(m);
    d->positions = o->n_positions;
    d->dropout = o->dropout;
    d->checkpointing = o->gradient_checkpointing;
    d->wte = yk_module_add(m, "wte", yk_embedding_create(o->vocab_size, o->n_embd, NULL));
    d->wpe = yk_module_add(m, "wpe", yk_embedding_create(o->n_positions, o->n_embd, NULL));
    d->h = yk_module_add(m, "h", gpt2_blocks_create(o));
    d->ln_f = yk_module_add(m, "ln_f", gpt2_norm_create(o));
    if (!yk_module_check(m) || yk_init_normal(yk_module_get(m, "wte.weight"), 0, 0.02) ||
        yk_init_normal(yk_module_get(m, "wpe.weight"), 0, 0.02))
        return NULL;
    return m;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

typedef struct gpt2 {
    yk_gpt2_options options;
    yk_module *transformer, *lm_head;
} gpt2;

static yk_tensor *gpt2_logits(const gpt2 *d, yk_tensor *x)
{
    return d->lm_head ? yk__forward_part(d->lm_head, x)
                      : yk_linear(x, yk_module_get(d->transformer, "wte.weight"), NULL);
}

static yk_tensor *gpt2_forward(yk_module *m, yk_tensor *ids)
{
    const gpt2 *d = yk__module_data(m);
    return gpt2_logits(d, yk__forward_part(d->transformer, ids));
}

static const yk_module_class gpt2_class = {
    .name = "GPT2LMHeadModel", .data_size = sizeof(gpt2), .forward = gpt2_forward};

yk_module *yk_gpt2(const yk_gpt2_options *options)
{
    static const char what[] = "gpt2";
    yk_gpt2_options o;
    if (YK__OPTIONS_TAKE(what, yk_gpt2_options, options, &o) ||
        yk__check_integer(what, "vocab_size", o.vocab_size, 1, INT32_MAX) ||
        yk__check_integer(what, "n_positions", o.n_positions, 1, INT32_MAX) ||
        yk__check_integer(what, "n_embd", o.n_embd, 1, 1 << 20) ||
        yk__check_integer(what, "n_layer", o.n_layer, 1, 4096) ||
        yk__check_integer(what, "n_head", o.n_head, 1, 1 << 20) || yk__check_number(what, "dropout", o.dropout, 0, 1) ||
        yk__check_positive(what, "layer_norm_epsilon", o.layer_norm_epsilon))
        return NULL;
    if (o.n_embd % o.n_head) {
        yk__fail(YK_ERR_ARGUMENT, "gpt2: n_embd is %lld, which n_head, %lld, does not divide", (long long)o.n_embd,
                 (long long)o.n_head);
        return NULL;
    }
    yk_module *m = yk_module_create(&gpt2_class);
    if (!m)
        return NULL;
    gpt2 *d = yk_module_data(m);
    d->options = o;
    d->transformer = yk_module_add(m, "transformer", gpt2_stack_create(&o));
    if (!o.tied)
        d->lm_head = yk_module_add(
            m, "lm_head", yk_linear_create(o.n_embd, o.vocab_size, YK_OPTIONS(yk_linear_options, .bias = false)));
    if (!yk_module_check(m) || (!o.tied && yk_init_normal(yk_module_get(d->lm_head, "weight"), 0, 0.02)))
        return NULL;
    return m;
}

const yk_gpt2_options *yk__gpt2_of(const char *what, const yk_module *m)
{
    if (!yk__module_usable(what, m))
        return NULL;
    if (m->cls == &gpt2_class)
        return &((const gpt2 *)m->data)->options;
    yk__fail(YK_ERR_ARGUMENT, "%s: the module is a %s; expected one of yk_gpt2", what, m->shown_name);
    return NULL;
}

/* ---- tokens one by one ------------------------------------------------------------------------------------------- */

yk_status yk__gpt2_cache_init(yk_module *m, int64_t batch, yk__gpt2_cache *cache)
{
    const gpt2 *d = yk_module_data(m);
    const yk_gpt2_options *o = &d->options;
    const yk_tensor *weight = yk_module_get(d->transformer, "wte.weight");
    *cache = (yk__gpt2_cache){.layers = o->n_layer, .batch = batch, .room = o->n_positions};
    cache->keys = yk__calloc((size_t)o->n_layer, sizeof(*cache->keys));
    cache->values = yk__calloc((size_t)o->n_layer, sizeof(*cache->values));
    if (!cache->keys || !cache->values)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < o->n_layer; i++) {
        yk_tensor_options options =
            *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)weight->dtype, .device = yk__device_of(weight));
        cache->keys[i] = yk_zeros(YK_SHAPE(batch, o->n_head, o->n_positions, o->n_embd / o->n_head), &options);
        cache->values[i] = yk_zeros(YK_SHAPE(batch, o->n_head, o->n_positions, o->n_embd / o->n_head), &options);
        if (!cache->keys[i] || !cache->values[i])
            return yk__error_code();
    }
    return YK_OK;
}

void yk__gpt2_cache_clear(yk__gpt2_cache *cache)
{
    free(cache->keys);
    free(cache->values);
    *cache = (yk__gpt2_cache){0};
}

yk_tensor *yk__gpt2_next(yk_module *m, yk_tensor *ids, yk__gpt2_cache *cache)
{
    const gpt2 *d = yk_module_data(m);
    yk_tensor *x = gpt2_stack_run(d->transformer, ids, cache);
    if (!x)
        return NULL;
    if (cache)
        cache->length += x->shape[1];
    return gpt2_logits(d, yk_select(x, 1, x->shape[1] - 1));
}

/* ---- published checkpoints --------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t n_embd, n_layer, n_head;
} sizes[] = {
    {"gpt2", 768, 12, 12}, {"gpt2-medium", 1024, 24, 16}, {"gpt2-large", 1280, 36, 20}, {"gpt2-xl", 1600, 48, 25}};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

yk_status yk_gpt2_named(const char *name, yk_gpt2_options *options)
{
    if (!yk__is_there("gpt2_named", "name", name) || !yk__is_there("gpt2_named", "place for the options", options))
        return yk__error_code();
    const char *names[SIZES];
    for (int i = 0; i < SIZES; i++) {
        names[i] = sizes[i].name;
        if (strcmp(name, names[i]) == 0) {
            *options = *YK_OPTIONS(yk_gpt2_options, .n_embd = sizes[i].n_embd, .n_layer = sizes[i].n_layer,
                                   .n_head = sizes[i].n_head);
            return YK_OK;
        }
    }
    const char *near = yk__nearest(name, names, SIZES);
    return yk__fail(YK_ERR_NOT_FOUND,
                    "gpt2_named: there is no '%.60s'%s%s%s; expected gpt2, gpt2-medium, gpt2-large or gpt2-xl", name,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* The name of the published size that is nearest to a width and a depth. */
static const char *gpt2_nearest(int64_t n_embd, int64_t n_layer)
{
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i < SIZES; i++) {
        double distance =
            fabs(log((double)n_embd / (double)sizes[i].n_embd)) + fabs(log((double)n_layer / (double)sizes[i].n_layer));
        if (distance < least)
            least = distance, best = i;
    }
    return sizes[best].name;
}

/* The name of a tensor of a checkpoint as the module has it; NULL: the module has no such thing. */
static char *gpt2_rename(const char *name, bool bare, bool tied)
{
    size_t size = strlen(name);
    const char *dot = strrchr(name, '.');
    bool mask = size > 10 && (strcmp(name + size - 10, ".attn.bias") == 0); /* of which queries look at which keys */
    mask |= dot && strcmp(dot, ".masked_bias") == 0;
    if (mask || (tied && strcmp(name, "lm_head.weight") == 0))
        return NULL;
    return bare && strcmp(name, "lm_head.weight") != 0 ? yk__format("transformer.%s", name) : yk__strdup(name);
}

/* The sizes that a checkpoint's tensors have. */
static bool gpt2_sizes_of(const yk_state_dict *dict, bool bare, yk_gpt2_options *o)
{
    const char *prefix = bare ? "" : "transformer.";
    char name[64];
    snprintf(name, sizeof(name), "%swte.weight", prefix);
    int64_t at = yk_state_dict_find(dict, name);
    const yk_tensor *wte = at < 0 ? NULL : yk__state_dict_at(dict, at);
    snprintf(name, sizeof(name), "%swpe.weight", prefix);
    at = yk_state_dict_find(dict, name);
    const yk_tensor *wpe = at < 0 ? NULL : yk__state_dict_at(dict, at);
    if (!wte || !wpe || wte->ndim != 2 || wpe->ndim != 2 || wte->shape[1] != wpe->shape[1])
        return false;
    o->vocab_size = wte->shape[0];
    o->n_embd = wte->shape[1];
    o->n_positions = wpe->shape[0];
    for (o->n_layer = 0; o->n_layer < 4096; o->n_layer++) {
        snprintf(name, sizeof(name), "%sh.%lld.ln_1.weight", prefix, (long long)o->n_layer);
        if (yk_state_dict_find(dict, name) < 0)
            break;
    }
    return o->n_layer > 0;
}

static bool gpt2_is_bare(const yk_state_dict *dict)
{
    return yk_state_dict_find(dict, "wte.weight") >= 0;
}

yk_status yk_gpt2_sizes(const yk_state_dict *dict, yk_gpt2_options *options)
{
    YK__LIVE(dict);
    if (!yk__is_there("gpt2_sizes", "state dict", dict) ||
        !yk__is_there("gpt2_sizes", "place for the options", options))
        return yk__error_code();
    yk_gpt2_options o = *YK_OPTIONS(yk_gpt2_options);
    if (!gpt2_sizes_of(dict, gpt2_is_bare(dict), &o))
        return yk__fail(YK_ERR_NOT_FOUND,
                        "gpt2_sizes: there is no GPT-2 in it: no wte.weight, wpe.weight and h.0.ln_1.weight, with "
                        "\"transformer.\" in front or without");
    o.n_head = o.n_embd % 64 ? 1 : o.n_embd / 64;
    o.tied = yk_state_dict_find(dict, "lm_head.weight") < 0;
    *options = o;
    return YK_OK;
}

yk_status yk_gpt2_load_state_dict(yk_module *m, const yk_state_dict *dict)
{
    static const char what[] = "gpt2_load_state_dict";
    YK__LIVE(m);
    YK__LIVE(dict);
    const yk_gpt2_options *o = yk__gpt2_of(what, m);
    yk_gpt2_options found = *YK_OPTIONS(yk_gpt2_options);
    if (!o || !yk__is_there(what, "state dict", dict))
        return yk__error_code();
    bool bare = gpt2_is_bare(dict);
    if (gpt2_sizes_of(dict, bare, &found) && (found.vocab_size != o->vocab_size || found.n_embd != o->n_embd ||
                                              found.n_layer != o->n_layer || found.n_positions != o->n_positions))
        return yk__fail(YK_ERR_SHAPE,
                        "%s: the checkpoint has n_embd %lld, n_layer %lld, n_positions %lld, vocab_size %lld, and the "
                        "model %lld, %lld, %lld, %lld; the published size nearest to the checkpoint is %s",
                        what, (long long)found.n_embd, (long long)found.n_layer, (long long)found.n_positions,
                        (long long)found.vocab_size, (long long)o->n_embd, (long long)o->n_layer,
                        (long long)o->n_positions, (long long)o->vocab_size, gpt2_nearest(found.n_embd, found.n_layer));
    yk_scope scope = yk_scope_begin();
    yk_state_dict *renamed = yk_state_dict_create();
    yk_status status = renamed ? YK_OK : yk__error_code();
    int64_t count = yk__state_dict_count(dict);
    for (int64_t i = 0; !status && i < count; i++) {
        char *name = gpt2_rename(yk__state_dict_name(dict, i), bare, o->tied);
        if (name)
            status = yk_state_dict_add(renamed, name, yk__state_dict_at(dict, i));
        free(name);
    }
    if (!status)
        status = yk_module_load_state_dict(m, renamed, NULL, NULL);
    yk_scope_end(scope);
    return status;
}
