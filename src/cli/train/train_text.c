/*
 * train_text.c - `yoke train` on text: tokens in blocks, and a GPT-2 that says what follows. Layer: cli.
 *
 * The last part of the tokens is held out for the test, so that the two have no block in common. The loss and the
 * accuracy are means over tokens.
 */
#include "cli/train/train_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "cli/ckpt/ckpt.h"
#include "data/dataset.h"
#include "host/file.h"

static const double DEFAULT_SPLIT = 0.1;

bool train_is_text(const char *spec)
{
    static const char *const prefixes[] = {"text:", "u8:", "u16:", "i32:"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        if (strncmp(spec, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return strcmp(spec, "text") == 0;
}

yk_tokenizer *train_text_tokenizer(const char *path)
{
    return path ? yk_tokenizer_load(path, NULL) : yk_tokenizer_bytes();
}

/* The network's sizes: what is given, or those of a small one. */
static yk_status choose_sizes(train_job *r, int64_t vocabulary)
{
    const settings *s = r->set;
    yk_gpt2_options *o = &r->data.gpt2;
    *o = *YK_OPTIONS(yk_gpt2_options, .vocab_size = vocabulary, .n_positions = s->block, .n_layer = s->n_layer,
                     .n_embd = s->n_embd, .dropout = s->dropout, .gradient_checkpointing = s->gradient_checkpointing);
    o->n_head = s->n_head ? s->n_head : s->n_embd % 64 ? 1 : s->n_embd / 64;
    if (o->n_embd % o->n_head)
        return yk_set_error(YK_ERR_ARGUMENT, "--n-head %" PRId64 " does not divide --n-embd %" PRId64, o->n_head,
                            o->n_embd);
    return YK_OK;
}

yk_status train_open_text(train_job *r)
{
    const settings *s = r->set;
    yk_tokenizer *tokenizer = train_text_tokenizer(s->tokenizer);
    yk_tokens *tokens = tokenizer ? yk_tokens_open(s->data, tokenizer) : NULL;
    int64_t vocabulary = yk_tokenizer_vocab_size(tokenizer), count = yk_tokens_count(tokens), largest = -1;
    if (!tokens)
        return yk__error_code();
    /* Without a tokenizer the ids of a file of numbers make the vocabulary. */
    for (int64_t i = 0; !s->tokenizer && i < count; i++)
        largest = yk_tokens_at(tokens, i) > largest ? yk_tokens_at(tokens, i) : largest;
    vocabulary = largest >= vocabulary ? largest + 1 : vocabulary;
    yk_status status = choose_sizes(r, vocabulary);
    if (status)
        return status;
    double split = isnan(s->val_split) ? DEFAULT_SPLIT : s->val_split;
    bool tested = !s->no_eval || !isnan(s->val_split);
    int64_t held = tested ? (int64_t)(split * (double)count) : 0;
    held = tested && held <= s->block ? s->block + 1 : held; /* one block at least */
    if (count - held <= s->block)
        return yk_set_error(YK_ERR_FORMAT,
                            "%s has %" PRId64 " tokens; a --block of %" PRId64 " to train on%s needs %" PRId64, s->data,
                            count, s->block, tested ? " and one to test on" : "", held + s->block + 1);
    yk_token_blocks_options o =
        *YK_OPTIONS(yk_token_blocks_options, .block = s->block, .end = count - held, .vocab_size = vocabulary);
    r->data.train_set = yk_token_blocks(tokens, &o);
    if (tested) {
        train_say(r, "held out for the test: the last %" PRId64 " of %" PRId64 " tokens (--val-split)\n", held, count);
        o.begin = o.end;
        o.end = count;
        r->data.test_set = s->no_eval ? NULL : yk_token_blocks(tokens, &o);
    }
    r->data.form.model = yk__strdup(s->model);
    return r->data.form.model ? yk__error_code() : YK_ERR_MEMORY;
}

yk_module *train_text_network(const train_job *r)
{
    return yk_gpt2(&r->data.gpt2);
}

yk_tensor *train_text_flat(yk_tensor *x, bool output)
{
    if (!x || yk_ndim(x) != (output ? 3 : 2) || (!output && yk_tensor_dtype(x) != YK_I64)) /* but probabilities */
        return x;
    return output ? yk_reshape(x, YK_SHAPE(yk_size(x, 0) * yk_size(x, 1), yk_size(x, 2)))
                  : yk_reshape(x, YK_SHAPE(yk_numel(x)));
}

yk_status train_text_save(const char *path, yk_module *net, const yk_gpt2_options *options, const char *tokenizer)
{
    char heads[24];
    size_t length = strlen(path);
    snprintf(heads, sizeof(heads), "%" PRId64, options->n_head);
    const yk_metadata all[] = {{"format", "pt"},
                               {"model", "gpt2"},
                               {"n_head", heads},
                               {tokenizer ? "tokenizer" : NULL, tokenizer},
                               {NULL, NULL}};
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_module_state_dict(net);
    bool pt =
        (length > 3 && strcmp(path + length - 3, ".pt") == 0) || (length > 4 && strcmp(path + length - 4, ".pth") == 0);
    yk_status status = pt ? ckpt_save_weights(path, dict, all) : yk_safetensors_save(path, dict, all);
    yk_scope_end(scope);
    return status;
}

/* ---- from files -------------------------------------------------------------------------------------------------- */

/* A file of JSON in a folder; *json is NULL where there is none. */
static yk_status read_json(const char *folder, const char *name, json_t **json)
{
    char *path = yk__format("%s/%s", folder, name);
    unsigned char *data;
    size_t size;
    *json = NULL;
    if (!path)
        return YK_ERR_MEMORY;
    yk_status status = YK_OK;
    if (yk__is_file(path)) {
        status = yk__file_read(path, 1 << 24, &data, &size);
        json_error_t error;
        *json = status ? NULL : json_loadb((const char *)data, size, JSON_DISABLE_EOF_CHECK, &error);
        if (!status)
            free(data);
        if (!status && !*json)
            status = yk__fail(YK_ERR_FORMAT, "%s:%d: %s", path, error.line, error.text);
    }
    free(path);
    return status;
}

/* The number of heads that the config.json of a published folder tells, where there is one. */
static yk_status read_config(const char *path, int64_t *heads)
{
    json_t *json;
    yk_status status = read_json(path, "config.json", &json);
    *heads = json_integer_value(json_object_get(json, "n_head"));
    json_decref(json);
    return status;
}

/* The number of heads in the settings of the run that wrote a training checkpoint: "2 layers, 128, 4 heads". */
static yk_status read_settings(const char *path, int64_t *heads)
{
    yk_checkpoint_found found;
    char *dir = ckpt_training_folder(path, &found);
    json_t *json;
    yk_status status = dir ? read_json(dir, "state.json", &json) : yk__error_code();
    free(dir);
    if (status)
        return status;
    const char *network = json_string_value(json_object_get(json_object_get(json, "settings"), "network"));
    if (network && sscanf(network, "%*d layers, %*d, %" SCNd64 " heads", heads) != 1)
        *heads = 0;
    json_decref(json);
    return YK_OK;
}

static const char *metadata_text(const yk_value *metadata, const char *key)
{
    const yk_value *value = metadata ? yk_value_get(metadata, key) : NULL;
    return yk_value_kind_of(value) == YK_VALUE_STRING ? yk_value_as_string(value) : NULL;
}

/* The number of heads that a path tells beside its weights; 0 where nothing does. */
static yk_status read_heads(const char *path, int64_t *heads)
{
    *heads = 0;
    return ckpt_is_published(path) ? read_config(path, heads)
           : ckpt_is_folder(path)  ? read_settings(path, heads)
                                   : YK_OK;
}

yk_module *train_text_load(const char *path, yk_device device, int64_t heads, yk_gpt2_options *sizes, char **tokenizer)
{
    int64_t heads_there;
    const yk_value *metadata = NULL;
    yk_state_dict *dict = read_heads(path, &heads_there) ? NULL : ckpt_load_described(path, device, &metadata);
    const char *text = dict ? metadata_text(metadata, "n_head") : NULL;
    const char *named = dict && tokenizer ? metadata_text(metadata, "tokenizer") : NULL;
    if (tokenizer)
        *tokenizer = named ? yk__strdup(named) : NULL;
    if (!dict || (named && !*tokenizer))
        return NULL;
    if (yk_gpt2_sizes(dict, sizes)) {
        ckpt_name_file(path);
        return NULL;
    }
    heads_there = text ? strtoll(text, NULL, 10) : heads_there;
    sizes->n_head = heads ? heads : heads_there > 0 ? heads_there : sizes->n_head;
    if (sizes->n_embd % sizes->n_head) {
        yk__fail(YK_ERR_ARGUMENT, "%s: %" PRId64 " heads do not divide n_embd, %" PRId64, path, sizes->n_head,
                 sizes->n_embd);
        return NULL;
    }
    sizes->dropout = 0;
    yk_module *net = yk_module_to(yk_gpt2(sizes), device);
    return net && !yk_gpt2_load_state_dict(net, dict) ? net : NULL;
}
