/*
 * generate.c - text from a language model, a token at a time. Layer: nn.
 *
 * The model sees a window of the tokens, from `begin` on. It grows to n_positions, then begins anew with the last half
 * of them, so that the keys and values that are kept have their positions: with and without them the windows, and so
 * the tokens, are the same.
 */
#include <math.h>
#include <stdlib.h>

#include <yoke/autograd.h>

#include "nn/gpt2.h"
#include "tensor/tensor.h"

typedef struct choice {
    double logit;
    int64_t id;
} choice;

typedef struct generator {
    yk_module *model;
    yk_generate_options options;
    yk_device device;
    int64_t positions, vocab;
    int64_t *ids;               /* room for all */
    int64_t count, begin, seen; /* tokens; the window's first; those that the cache has */
    yk__gpt2_cache cache;
    choice *choices; /* (vocab) */
} generator;

/* The likeliest comes first; of equals the one of the smaller id. */
static int choice_order(const void *a, const void *b)
{
    const choice *left = a, *right = b;
    if (left->logit != right->logit)
        return left->logit > right->logit ? -1 : 1;
    return left->id < right->id ? -1 : 1;
}

/* Chooses among `count` logits, with draw number `step` of the seed. */
static yk_status token_choose(generator *g, const double *logits, int64_t step, int64_t *id)
{
    const yk_generate_options *o = &g->options;
    int64_t best = 0, count = g->vocab;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(logits[i]))
            return yk__fail(YK_ERR_NUMERIC, "gpt2_generate: logit %lld of new token %lld is NaN", (long long)i,
                            (long long)step);
        best = logits[i] > logits[best] ? i : best;
    }
    *id = best;
    if (o->temperature == 0 || isinf(logits[best]))
        return YK_OK;
    for (int64_t i = 0; i < count; i++)
        g->choices[i] = (choice){(logits[i] - logits[best]) / o->temperature, i};
    int64_t most = yk__integer_or(o->top_k, count);
    if (most < count || o->top_p < 1)
        qsort(g->choices, (size_t)count, sizeof(*g->choices), choice_order);
    count = most < count ? most : count;
    double sum = 0, kept = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp(g->choices[i].logit);
    int64_t left = 0;
    while (left < count && (left == 0 || kept < o->top_p * sum))
        kept += exp(g->choices[left++].logit);
    uint32_t words[4];
    yk__philox((yk__stream){o->seed, YK__RANDOM_GENERATE, 0}, (uint64_t)step, words);
    double at = yk__unit_double(words[0], words[1]) * kept;
    int64_t i = 0;
    for (double before = 0; i + 1 < left && (before += exp(g->choices[i].logit)) <= at;)
        i++;
    *id = g->choices[i].id;
    return YK_OK;
}

/* Makes one token more. */
static yk_status token_make(generator *g, int64_t step)
{
    if (g->count - g->begin > g->positions) {
        g->begin = g->count - (g->positions + 1) / 2;
        g->cache.length = 0;
    }
    int64_t from = g->options.cache ? g->begin + g->cache.length : g->begin;
    yk_tensor *window = yk_from_data(g->ids + from, YK_SHAPE(1, g->count - from),
                                     YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = g->device));
    yk_tensor *logits = yk__gpt2_next(g->model, window, g->options.cache ? &g->cache : NULL);
    logits = yk_contiguous(yk_cast(yk_to(logits, (yk_device){YK_CPU, 0}), YK_F64));
    yk_status status = logits ? token_choose(g, yk_tensor_data(logits), step, &g->ids[g->count]) : yk__error_code();
    if (!status) {
        int64_t id = g->ids[g->count++];
        status = g->options.on_token ? g->options.on_token(g->options.user, id) : YK_OK;
        if (status && !yk_last_error())
            status = yk_set_error(status, "gpt2_generate: on_token failed");
    }
    return status;
}

static yk_status tokens_make(generator *g)
{
    yk_status status = g->options.cache ? yk__gpt2_cache_init(g->model, 1, &g->cache) : YK_OK;
    for (int64_t i = 0; !status && i < g->options.max_tokens; i++) {
        yk_scope scope = yk_scope_begin();
        status = token_make(g, i);
        yk_scope_end(scope);
        if (g->options.stop != YK_NOT_GIVEN && g->ids[g->count - 1] == g->options.stop)
            break;
    }
    yk__gpt2_cache_clear(&g->cache);
    return status;
}

static yk_status options_check(const yk_generate_options *o)
{
    static const char what[] = "gpt2_generate";
    yk_status status = yk__check_integer(what, "max_tokens", o->max_tokens, 1, INT32_MAX);
    if (!status)
        status = yk__check_number(what, "temperature", o->temperature, 0, INFINITY);
    if (!status && o->top_k != YK_NOT_GIVEN)
        status = yk__check_integer(what, "top_k", o->top_k, 1, INT32_MAX);
    if (!status && !(o->top_p > 0))
        status = yk__check_positive(what, "top_p", o->top_p);
    if (!status)
        status = yk__check_number(what, "top_p", o->top_p, 0, 1);
    return status;
}

/* Copies the ids that it goes on from. */
static yk_status prompt_take(generator *g, yk_tensor *ids)
{
    char text[200];
    if (ids->ndim != 1 || ids->shape[0] < 1 || (ids->dtype != YK_I64 && ids->dtype != YK_I32))
        return yk__fail(YK_ERR_SHAPE, "gpt2_generate: the ids are %s of %s; expected (T) of int64, T at least 1",
                        yk_shape_format(ids, text, sizeof(text)), yk_dtype_name((yk_dtype)ids->dtype));
    yk_tensor *here = yk_contiguous(yk_cast(yk_to(yk_detach(ids), (yk_device){YK_CPU, 0}), YK_I64));
    const int64_t *data = here ? yk_tensor_data(here) : NULL;
    if (!data)
        return yk__error_code();
    g->ids = yk__calloc((size_t)(ids->shape[0] + g->options.max_tokens), sizeof(*g->ids));
    g->choices = yk__calloc((size_t)g->vocab, sizeof(*g->choices));
    if (!g->ids || !g->choices)
        return YK_ERR_MEMORY;
    for (; g->count < ids->shape[0]; g->count++) {
        g->ids[g->count] = data[g->count];
        if (data[g->count] < 0 || data[g->count] >= g->vocab)
            return yk__fail(YK_ERR_ARGUMENT,
                            "gpt2_generate: id %lld at position %lld is outside of the vocabulary, %lld",
                            (long long)data[g->count], (long long)g->count, (long long)g->vocab);
    }
    return YK_OK;
}

yk_tensor *yk_gpt2_generate(yk_module *m, yk_tensor *ids, const yk_generate_options *options)
{
    YK__LIVE(m);
    YK__LIVE(ids);
    YK__OWN_RECORD;
    generator g = {.model = m};
    if (!yk__scope_check("gpt2_generate") ||
        YK__OPTIONS_TAKE("gpt2_generate", yk_generate_options, options, &g.options) || options_check(&g.options))
        return NULL;
    const yk_gpt2_options *o = yk__gpt2_of("gpt2_generate", m);
    if (!o || !yk__is_there("gpt2_generate", "tensor of ids", ids))
        return NULL;
    g.positions = o->n_positions;
    g.vocab = o->vocab_size;
    g.device = yk_tensor_device(yk_module_get(m, "transformer.wte.weight"));
    bool training = m->training, recorded = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_module_eval(m);
    yk_status status = prompt_take(&g, ids);
    if (!status)
        status = tokens_make(&g);
    yk_module_train(m, training);
    yk_scope_end(scope);
    yk_no_grad_end(recorded);
    yk_tensor *out =
        status ? NULL : yk_from_data(g.ids, YK_SHAPE(g.count), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    free(g.ids);
    free(g.choices);
    return out;
}
