/*
 * tokens.c - long rows of tokens: files of numbers, texts that are encoded, and blocks of them as a data set.
 * Layer: data.
 */
#include <stdlib.h>
#include <string.h>

#include <yoke/text.h>

#include "data/dataset.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "host/file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are taken as they are");

enum { HEADER_BYTES = 1024, HEADER_MAGIC = 20240520, HEADER_VERSION = 1 };

struct yk_tokens {
    yk__object object;
    char *name; /* the path, for messages */
    yk_token_type type;
    int64_t count;
    const unsigned char *data; /* in one of these */
    yk__mapping mapping;
    int32_t *owned;
};

static const struct {
    const char *name;
    size_t size;
    int64_t most;
} types[] = {{"u8", 1, UINT8_MAX}, {"u16", 2, UINT16_MAX}, {"i32", 4, INT32_MAX}};

static void tokens_destroy(void *object)
{
    yk_tokens *tokens = object;
    yk__unmap_file(&tokens->mapping);
    free(tokens->owned);
    free(tokens->name);
    yk__object_free(tokens);
}

static const yk__type tokens_type = {"tokens", tokens_destroy};

yk_tokens *yk_tokens_retain(yk_tokens *tokens)
{
    return yk_object_retain(tokens);
}

void yk_tokens_release(yk_tokens *tokens)
{
    yk_object_release(tokens);
}

static bool type_exists(const char *what, yk_token_type type)
{
    if ((unsigned)type <= YK_TOKENS_I32)
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: %d is no type of tokens; expected YK_TOKENS_U8, _U16 or _I32", what, (int)type);
    return false;
}

static int64_t token_at(const yk_tokens *tokens, int64_t i)
{
    if (tokens->type == YK_TOKENS_U8)
        return tokens->data[i];
    if (tokens->type == YK_TOKENS_U16)
        return ((const uint16_t *)(const void *)tokens->data)[i];
    return ((const int32_t *)(const void *)tokens->data)[i];
}

int64_t yk_tokens_count(const yk_tokens *tokens)
{
    YK__LIVE(tokens);
    return tokens ? tokens->count : 0;
}

int64_t yk_tokens_at(const yk_tokens *tokens, int64_t i)
{
    YK__LIVE(tokens);
    return tokens && i >= 0 && i < tokens->count ? token_at(tokens, i) : -1;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static yk_tokens *tokens_new(const char *path)
{
    yk_tokens *tokens = yk__object_new(&tokens_type, sizeof(*tokens));
    if (tokens && !(tokens->name = yk__strdup(path))) {
        tokens_destroy(tokens);
        return NULL;
    }
    return tokens;
}

/* Finds the ids in the bytes of a file: behind its header, where it has one. */
static yk_status tokens_find(yk_tokens *tokens)
{
    const yk__mapping *m = &tokens->mapping;
    size_t size = types[tokens->type].size, from = 0;
    int32_t header[3] = {0};
    if (tokens->type == YK_TOKENS_U16 && m->size >= HEADER_BYTES)
        memcpy(header, m->data, sizeof(header));
    if (header[0] == HEADER_MAGIC) {
        from = HEADER_BYTES;
        if (header[1] != HEADER_VERSION)
            return yk__fail(YK_ERR_UNSUPPORTED, "%s: the header has version %d; expected %d", tokens->name, header[1],
                            HEADER_VERSION);
        if (header[2] < 0 || (size_t)header[2] != (m->size - from) / size)
            return yk__fail(YK_ERR_FORMAT, "%s: the header says %d tokens, and %zu follow", tokens->name, header[2],
                            (m->size - from) / size);
    }
    if (m->size == from)
        return yk__fail(YK_ERR_FORMAT, "%s: the file has no tokens", tokens->name);
    if ((m->size - from) % size)
        return yk__fail(YK_ERR_FORMAT, "%s: %zu bytes are no multiple of %zu, the size of a %s", tokens->name,
                        m->size - from, size, types[tokens->type].name);
    tokens->data = m->data + from;
    tokens->count = (int64_t)((m->size - from) / size);
    return YK_OK;
}

yk_tokens *yk_token_file(const char *path, yk_token_type type)
{
    if (!yk__scope_check("token_file") || !yk__is_there("token_file", "path", path) || !type_exists("token_file", type))
        return NULL;
    yk_tokens *tokens = tokens_new(path);
    if (!tokens)
        return NULL;
    tokens->type = type;
    if (yk__map_file(path, &tokens->mapping) || tokens_find(tokens)) {
        tokens_destroy(tokens);
        return NULL;
    }
    return yk__scope_own(tokens);
}

yk_tokens *yk__tokens_of_text(const char *name, const char *text, size_t size, const yk_tokenizer *tokenizer)
{
    yk_tokens *tokens = tokens_new(name);
    if (!tokens)
        return NULL;
    yk__ids ids = {0};
    yk_status status = size ? YK_OK : yk__fail(YK_ERR_FORMAT, "%s: there is no text in it", name);
    if (!status && tokenizer) {
        status = yk__encode(tokenizer, name, (const unsigned char *)text, size, true, &ids);
    } else if (!status) {
        ids.data = yk__calloc(size, sizeof(*ids.data));
        status = ids.data ? YK_OK : YK_ERR_MEMORY;
        for (size_t i = 0; !status && i < size; i++)
            ids.data[ids.count++] = (unsigned char)text[i];
    }
    tokens->type = YK_TOKENS_I32;
    tokens->owned = ids.data;
    tokens->data = (const unsigned char *)ids.data;
    tokens->count = (int64_t)ids.count;
    if (status) {
        tokens_destroy(tokens);
        return NULL;
    }
    return yk__scope_own(tokens);
}

yk_tokens *yk_token_text(const char *path, const yk_tokenizer *tokenizer)
{
    YK__LIVE(tokenizer);
    yk__mapping mapping;
    if (!yk__scope_check("token_text") || !yk__is_there("token_text", "path", path) || yk__map_file(path, &mapping))
        return NULL;
    yk_tokens *tokens = yk__tokens_of_text(path, (const char *)mapping.data, mapping.size, tokenizer);
    yk__unmap_file(&mapping);
    return tokens;
}

yk_tokens *yk_tokens_open(const char *spec, const yk_tokenizer *tokenizer)
{
    static const char *const names[] = {"u8", "u16", "i32", "text"}; /* in the order of the types */
    YK__LIVE(tokenizer);
    if (!yk__scope_check("tokens_open") || !yk__is_there("tokens_open", "name", spec))
        return NULL;
    const char *colon = strchr(spec, ':');
    size_t length = colon ? (size_t)(colon - spec) : strlen(spec);
    char name[32];
    snprintf(name, sizeof(name), "%.*s", (int)(length < 31 ? length : 31), spec);
    if (strcmp(spec, "text") == 0) {
        char *story = yk__story(&length);
        yk_tokens *tokens = story ? yk__tokens_of_text("text", story, length, tokenizer) : NULL;
        free(story);
        return tokens;
    }
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        if (!colon || !colon[1]) {
            yk__fail(YK_ERR_ARGUMENT, "tokens_open: '%.60s' names no file; expected %s:FILE", spec, name);
            return NULL;
        }
        return i == 3 ? yk_token_text(colon + 1, tokenizer) : yk_token_file(colon + 1, (yk_token_type)i);
    }
    const char *near = yk__nearest(name, names, 4);
    yk__fail(YK_ERR_NOT_FOUND,
             "tokens_open: '%.60s' is no text%s%s%s; expected text, text:FILE, u8:FILE, u16:FILE or i32:FILE", spec,
             near ? "; did you mean '" : "", near ? near : "", near ? ":'?" : "");
    return NULL;
}

yk_status yk_tokens_save(const yk_tokens *tokens, const char *path, yk_token_type type)
{
    enum { PIECE = 1 << 14 };
    YK__LIVE(tokens);
    if (!yk__is_there("tokens_save", "row of tokens", tokens) || !yk__is_there("tokens_save", "path", path) ||
        !type_exists("tokens_save", type))
        return yk__error_code();
    for (int64_t i = 0; i < tokens->count; i++) {
        int64_t id = token_at(tokens, i);
        if (id < 0 || id > types[type].most)
            return yk__fail(YK_ERR_ARGUMENT,
                            "tokens_save: token %lld at position %lld of %s is outside of %s, 0 to %lld", (long long)id,
                            (long long)i, tokens->name, types[type].name, (long long)types[type].most);
    }
    yk__file_writer *writer = yk__file_create(path);
    yk_status status = writer ? YK_OK : yk__error_code();
    for (int64_t i = 0; !status && i < tokens->count;) {
        int32_t piece[PIECE];
        size_t count = 0;
        for (; count < PIECE && i < tokens->count; count++, i++) {
            int32_t id = (int32_t)token_at(tokens, i); /* the low bytes come first */
            memcpy((char *)piece + count * types[type].size, &id, types[type].size);
        }
        status = yk__file_write(writer, piece, count * types[type].size);
    }
    if (!status)
        return yk__file_commit(writer);
    if (writer)
        yk__file_abort(writer);
    return status;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

typedef struct token_blocks {
    yk_tokens *tokens; /* one reference */
    int64_t block, stride, begin, vocab_size;
} token_blocks;

static void blocks_destroy(void *context)
{
    token_blocks *b = context;
    yk_object_release(b->tokens);
    free(b);
}

static yk_status blocks_get(void *context, int64_t index, yk_sample *sample)
{
    const token_blocks *b = context;
    int64_t from = b->begin + index * b->stride, least = INT64_MAX, most = -1;
    int64_t *input = yk_sample_allocate(sample, YK_I64, 1, &b->block);
    int64_t *target = input ? yk_sample_allocate_at(sample, 1, YK_I64, 1, &b->block) : NULL;
    if (!target)
        return yk__error_code();
    for (int64_t i = 0; i <= b->block; i++) {
        int64_t id = token_at(b->tokens, from + i);
        least = id < least ? id : least;
        most = id > most ? id : most;
        if (i < b->block)
            input[i] = id;
        if (i > 0)
            target[i - 1] = id;
    }
    if (least >= 0 && most < b->vocab_size)
        return YK_OK;
    for (int64_t i = from;; i++) {
        int64_t id = token_at(b->tokens, i);
        if (id < 0 || id >= b->vocab_size)
            return yk__fail(YK_ERR_FORMAT, "%s: token %lld at position %lld is outside of a vocabulary of %lld",
                            b->tokens->name, (long long)id, (long long)i, (long long)b->vocab_size);
    }
}

static void blocks_describe(void *context, int64_t index, char *text, size_t size)
{
    const token_blocks *b = context;
    snprintf(text, size, "%s from token %lld on", b->tokens->name, (long long)(b->begin + index * b->stride));
}

yk_dataset *yk_token_blocks(yk_tokens *tokens, const yk_token_blocks_options *options)
{
    static const char what[] = "token_blocks";
    YK__LIVE(tokens);
    yk_token_blocks_options o;
    if (!yk__scope_check(what) || YK__OPTIONS_TAKE(what, yk_token_blocks_options, options, &o) ||
        !yk__is_there(what, "row of tokens", tokens))
        return NULL;
    if (o.block == YK_NOT_GIVEN) {
        yk__fail(YK_ERR_ARGUMENT, "%s: block, the ids of a sample, is not given", what);
        return NULL;
    }
    o.stride = yk__integer_or(o.stride, o.block);
    o.end = yk__integer_or(o.end, tokens->count);
    o.vocab_size = yk__integer_or(o.vocab_size, (int64_t)INT32_MAX + 1);
    if (yk__check_integer(what, "block", o.block, 1, INT32_MAX) ||
        yk__check_integer(what, "stride", o.stride, 1, INT64_MAX / 2) ||
        yk__check_integer(what, "vocab_size", o.vocab_size, 1, (int64_t)INT32_MAX + 1) ||
        yk__check_integer(what, "end", o.end, 1, tokens->count) || yk__check_integer(what, "begin", o.begin, 0, o.end))
        return NULL;
    if (o.end - o.begin <= o.block) {
        yk__fail(YK_ERR_SHAPE, "%s: %s has %lld tokens from %lld to %lld; a block of %lld needs %lld", what,
                 tokens->name, (long long)(o.end - o.begin), (long long)o.begin, (long long)o.end, (long long)o.block,
                 (long long)o.block + 1);
        return NULL;
    }
    token_blocks *b = yk__calloc(1, sizeof(*b));
    if (!b)
        return NULL;
    *b = (token_blocks){yk_object_retain(tokens), o.block, o.stride, o.begin, o.vocab_size};
    return yk_dataset_create(&(yk_dataset_table){.name = tokens->name,
                                                 .length = (o.end - o.begin - o.block - 1) / o.stride + 1,
                                                 .get = blocks_get,
                                                 .describe = blocks_describe,
                                                 .destroy = blocks_destroy},
                             b, NULL);
}
