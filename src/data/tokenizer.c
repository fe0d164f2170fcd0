/*
 * tokenizer.c - tokenizers from files: the vocabulary, the merges, the special tokens. Layer: data.
 *
 * A vocabulary spells each byte as a character that can be printed: 33 to 126, 161 to 172 and 174 to 255 as themselves,
 * the others, in order, as U+0100 and on. A token with another character in its text is no spelling of bytes and stands
 * for its text. Source: Radford et al., 2019; PyPI's tokenizers for tokenizer.json.
 */
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "host/file.h"

enum { MOST_TOKENS = 1 << 22, MOST_FILE = 1 << 28 };

/* ---- the object -------------------------------------------------------------------------------------------------- */

static void tokenizer_destroy(void *object)
{
    yk_tokenizer *t = object;
    for (int64_t i = 0; t->tokens && i < t->size; i++) {
        if (t->tokens[i].bytes != (unsigned char *)t->tokens[i].text)
            free(t->tokens[i].bytes);
        free(t->tokens[i].text);
    }
    for (int i = 0; i < t->n_added; i++)
        free(t->added[i].text);
    free(t->added);
    free(t->tokens);
    free(t->slots);
    free(t->merges);
    free(t->name);
    yk__object_free(t);
}

static const yk__type tokenizer_type = {"tokenizer", tokenizer_destroy};

yk_tokenizer *yk_tokenizer_retain(yk_tokenizer *tokenizer)
{
    return yk_object_retain(tokenizer);
}

void yk_tokenizer_release(yk_tokenizer *tokenizer)
{
    yk_object_release(tokenizer);
}

int64_t yk_tokenizer_vocab_size(const yk_tokenizer *tokenizer)
{
    YK__LIVE(tokenizer);
    return tokenizer ? tokenizer->size : 0;
}

/* The slot of a text: that of its id, or the empty one where it would be. */
static uint64_t token_slot(const yk_tokenizer *t, const char *text, size_t size)
{
    uint64_t hash = yk__hash(YK__HASH_BASIS, text, size), slot = (hash ^ hash >> 32) & t->slot_mask;
    for (; t->slots[slot] >= 0; slot = (slot + 1) & t->slot_mask) {
        const char *other = t->tokens[t->slots[slot]].text;
        if (strncmp(other, text, size) == 0 && !other[size])
            break;
    }
    return slot;
}

static int32_t token_find(const yk_tokenizer *t, const char *text, size_t size)
{
    return t->slots[token_slot(t, text, size)];
}

int64_t yk_tokenizer_id_of(const yk_tokenizer *tokenizer, const char *token)
{
    YK__LIVE(tokenizer);
    return tokenizer && token ? token_find(tokenizer, token, strlen(token)) : -1;
}

const char *yk_tokenizer_token_of(const yk_tokenizer *tokenizer, int64_t id)
{
    YK__LIVE(tokenizer);
    return tokenizer && id >= 0 && id < tokenizer->size ? tokenizer->tokens[id].text : NULL;
}

/* ---- spelling of bytes ------------------------------------------------------------------------------------------- */

static bool spells_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* The code point that stands for a byte. */
static int32_t spelling_of(int byte)
{
    int others = 0;
    for (int i = 0; i < byte && !spells_itself(byte); i++)
        others += !spells_itself(i);
    return spells_itself(byte) ? byte : 256 + others;
}

/* The byte of each code point below 512, or -1. */
typedef struct spelling {
    int byte[512];
} spelling;

static spelling spelling_table(void)
{
    spelling s;
    for (int i = 0; i < 512; i++)
        s.byte[i] = -1;
    for (int i = 0; i < 256; i++)
        s.byte[spelling_of(i)] = i;
    return s;
}

/* Sets the bytes of a token from its text. */
static yk_status token_spell(const spelling *s, yk__token *token)
{
    const unsigned char *text = (const unsigned char *)token->text;
    size_t size = strlen(token->text), length;
    unsigned char *bytes = yk__calloc(size + 1, 1);
    if (!bytes)
        return YK_ERR_MEMORY;
    token->size = 0;
    for (size_t at = 0; at < size; at += length) {
        int32_t point = yk__utf8_next(text + at, size - at, &length);
        if (point < 0 || point >= 512 || s->byte[point] < 0) {
            free(bytes);
            token->bytes = (unsigned char *)token->text;
            token->size = (uint32_t)size;
            return YK_OK;
        }
        bytes[token->size++] = (unsigned char)s->byte[point];
    }
    token->bytes = bytes;
    return YK_OK;
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

static const char *quote(const char *text, char to[120])
{
    return yk__escape(text, strlen(text), to, 120);
}

/* Adds a token; the ids may come in any order. */
static yk_status token_add(yk_tokenizer *t, const char *text, json_int_t id)
{
    char quoted[120], other[120];
    if (id < 0 || id >= MOST_TOKENS)
        return yk__fail(YK_ERR_FORMAT, "%s: token '%s' has id %lld; expected 0 to %d", t->name, quote(text, quoted),
                        (long long)id, MOST_TOKENS - 1);
    if (!*text)
        return yk__fail(YK_ERR_FORMAT, "%s: the token with id %lld is empty", t->name, (long long)id);
    if (id >= t->room) {
        int64_t room = id + 1 > 2 * t->room ? id + 1 : 2 * t->room;
        yk__token *tokens = yk__realloc(t->tokens, (size_t)room * sizeof(*tokens));
        if (!tokens)
            return YK_ERR_MEMORY;
        memset(tokens + t->room, 0, (size_t)(room - t->room) * sizeof(*tokens));
        t->tokens = tokens;
        t->room = room;
    }
    t->size = id >= t->size ? id + 1 : t->size;
    if (t->tokens[id].text)
        return yk__fail(YK_ERR_FORMAT, "%s: '%s' and '%s' both have id %lld", t->name, quote(t->tokens[id].text, other),
                        quote(text, quoted), (long long)id);
    t->tokens[id].text = yk__strdup(text);
    return t->tokens[id].text ? YK_OK : YK_ERR_MEMORY;
}

static yk_status vocabulary_read(yk_tokenizer *t, json_t *vocabulary)
{
    const char *text;
    json_t *id;
    char quoted[120];
    if (!json_is_object(vocabulary) || !json_object_size(vocabulary))
        return yk__fail(YK_ERR_FORMAT, "%s: there is no vocabulary; expected an object of tokens and their ids",
                        t->name);
    json_object_foreach(vocabulary, text, id)
    {
        if (!json_is_integer(id))
            return yk__fail(YK_ERR_FORMAT, "%s: the id of token '%s' is no integer", t->name, quote(text, quoted));
        yk_status status = token_add(t, text, json_integer_value(id));
        if (status)
            return status;
    }
    return YK_OK;
}

/* Fills what follows from the tokens: bytes, slots by text, the tokens of single bytes. */
static yk_status vocabulary_index(yk_tokenizer *t)
{
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)t->size)
        slots *= 2;
    t->slots = yk__calloc(slots, sizeof(*t->slots));
    if (!t->slots)
        return YK_ERR_MEMORY;
    t->slot_mask = slots - 1;
    memset(t->slots, 0xFF, slots * sizeof(*t->slots));
    memset(t->byte_ids, 0xFF, sizeof(t->byte_ids));
    spelling s = spelling_table();
    for (int64_t id = 0; id < t->size; id++) {
        yk__token *token = &t->tokens[id];
        if (!token->text)
            continue;
        if (token_spell(&s, token))
            return YK_ERR_MEMORY;
        if (token->size == 1 && token->bytes != (unsigned char *)token->text)
            t->byte_ids[token->bytes[0]] = (int32_t)id;
        t->slots[token_slot(t, token->text, strlen(token->text))] = (int32_t)id;
    }
    return YK_OK;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static yk_status merges_reserve(yk_tokenizer *t, size_t count)
{
    uint64_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    t->merges = yk__calloc(slots, sizeof(*t->merges));
    t->merge_mask = slots - 1;
    return t->merges ? YK_OK : YK_ERR_MEMORY;
}

/* An error of a merge: `origin` is "merges.txt:7" or "tokenizer.json: merge 6". */
__attribute__((format(printf, 2, 3))) static yk_status merge_fail(const char *origin, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    return yk__fail(YK_ERR_FORMAT, "%s: %s", origin, text);
}

/* The merge of rank `rank`. The tables have room for it; a pair that is there twice has the later rank. */
static yk_status merge_add(yk_tokenizer *t, const char *origin, int32_t rank, const char *left, size_t left_size,
                           const char *right, size_t right_size)
{
    char quoted[2][120], whole[256];
    const char *parts[2] = {left, right};
    const size_t sizes[2] = {left_size, right_size};
    int32_t ids[2];
    for (int i = 0; i < 2; i++) {
        ids[i] = token_find(t, parts[i], sizes[i]);
        if (ids[i] < 0)
            return merge_fail(origin, "'%s' is merged here, and is no token of %s",
                              yk__escape(parts[i], sizes[i], quoted[0], sizeof(quoted[0])), t->name);
    }
    char *text = left_size + right_size < sizeof(whole) ? whole : yk__calloc(left_size + right_size, 1);
    if (!text)
        return YK_ERR_MEMORY;
    memcpy(text, left, left_size);
    memcpy(text + left_size, right, right_size);
    int32_t id = token_find(t, text, left_size + right_size);
    if (text != whole)
        free(text);
    if (id < 0)
        return merge_fail(origin, "'%s' and '%s' make a token that is not in %s",
                          yk__escape(left, left_size, quoted[0], sizeof(quoted[0])),
                          yk__escape(right, right_size, quoted[1], sizeof(quoted[1])), t->name);
    uint64_t key = yk__merge_key(ids[0], ids[1]);
    t->merges[yk__merge_slot(t, key)] = (yk__merge){key, rank, id};
    return YK_OK;
}

/* Splits "left right": *left is the length of the left part. False where the line is not two parts with one space
 * between. */
static bool merge_split(const char *line, size_t size, size_t *left)
{
    const char *space = memchr(line, ' ', size);
    *left = space ? (size_t)(space - line) : 0;
    return space && *left && *left + 1 < size && !memchr(space + 1, ' ', size - *left - 1);
}

static yk_status merges_read_text(yk_tokenizer *t, const char *path)
{
    unsigned char *data;
    size_t size, lines = 1;
    yk_status status = yk__file_read(path, MOST_FILE, &data, &size);
    if (status)
        return status;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    status = merges_reserve(t, lines);
    const char *at = (const char *)data, *end = at + size;
    int32_t rank = 0;
    for (int number = 1; !status && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at), left;
        char origin[600], quoted[120];
        length -= length && at[length - 1] == '\r';
        snprintf(origin, sizeof(origin), "%.500s:%d", path, number);
        if (length >= 8 && memcmp(at, "#version", 8) == 0)
            left = 0;
        else if (!length)
            status = stop && stop + 1 < end ? merge_fail(origin, "the line is empty; expected two tokens") : YK_OK;
        else if (!merge_split(at, length, &left))
            status = merge_fail(origin, "'%s' is no merge; expected two tokens with one space between them",
                                yk__escape(at, length, quoted, sizeof(quoted)));
        else
            status = merge_add(t, origin, rank++, at, left, at + left + 1, length - left - 1);
        at = stop ? stop + 1 : end;
    }
    free(data);
    return status;
}

static yk_status merges_read_json(yk_tokenizer *t, json_t *merges)
{
    size_t i;
    json_t *merge;
    if (!json_is_array(merges))
        return yk__fail(YK_ERR_FORMAT, "%s: the model has no list of merges", t->name);
    yk_status status = merges_reserve(t, json_array_size(merges));
    json_array_foreach(merges, i, merge)
    {
        char origin[600];
        snprintf(origin, sizeof(origin), "%.500s: merge %zu", t->name, i);
        size_t left;
        json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        if (status)
            return status;
        if (json_is_string(merge) && merge_split(json_string_value(merge), json_string_length(merge), &left))
            status = merge_add(t, origin, (int32_t)i, json_string_value(merge), left,
                               json_string_value(merge) + left + 1, json_string_length(merge) - left - 1);
        else if (json_array_size(merge) == 2 && json_is_string(a) && json_is_string(b))
            status = merge_add(t, origin, (int32_t)i, json_string_value(a), json_string_length(a), json_string_value(b),
                               json_string_length(b));
        else
            status = merge_fail(origin, "expected two tokens");
    }
    return status;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

static int added_order(const void *a, const void *b)
{
    const yk__added_token *left = a, *right = b;
    return left->size < right->size ? 1 : left->size > right->size ? -1 : strcmp(left->text, right->text);
}

static yk_status added_add(yk_tokenizer *t, const char *text, int64_t id, int pass)
{
    yk__added_token *added = yk__realloc(t->added, (size_t)(t->n_added + 1) * sizeof(*added));
    if (!added)
        return YK_ERR_MEMORY;
    t->added = added;
    added[t->n_added] = (yk__added_token){yk__strdup(text), strlen(text), (int32_t)id, pass};
    return added[t->n_added++].text ? YK_OK : YK_ERR_MEMORY;
}

/* The entries <|...|> of a vocabulary. */
static yk_status added_find(yk_tokenizer *t)
{
    yk_status status = YK_OK;
    for (int64_t id = 0; !status && id < t->size; id++) {
        const char *text = t->tokens[id].text;
        size_t size = text ? strlen(text) : 0;
        if (size > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + size - 2, "|>", 2) == 0)
            status = added_add(t, text, id, 0);
    }
    return status;
}

/* Those of a tokenizer.json, which are added to the vocabulary where they are not in it. */
static yk_status added_read(yk_tokenizer *t, json_t *list)
{
    size_t i;
    json_t *entry;
    char quoted[120];
    json_array_foreach(list, i, entry)
    {
        static const char *const sides[] = {"single_word", "lstrip", "rstrip"};
        const char *text = json_string_value(json_object_get(entry, "content"));
        json_t *id = json_object_get(entry, "id");
        if (!text || !*text || !json_is_integer(id))
            return yk__fail(YK_ERR_FORMAT, "%s: added token %zu has no content or no id", t->name, i);
        for (int k = 0; k < 3; k++) {
            if (json_is_true(json_object_get(entry, sides[k])))
                return yk__fail(YK_ERR_UNSUPPORTED, "%s: added token '%s' has \"%s\", which is not supported", t->name,
                                quote(text, quoted), sides[k]);
        }
        json_int_t number = json_integer_value(id);
        bool there =
            number >= 0 && number < t->size && t->tokens[number].text && strcmp(t->tokens[number].text, text) == 0;
        yk_status status = there ? YK_OK : token_add(t, text, number);
        if (!status)
            status = added_add(t, text, number, json_is_true(json_object_get(entry, "normalized")));
        if (status)
            return status;
    }
    return YK_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The JSON of a file; the caller drops the reference. NULL and an error that names the line. */
static json_t *json_read(const char *path)
{
    unsigned char *data;
    size_t size;
    if (yk__file_read(path, MOST_FILE, &data, &size))
        return NULL;
    json_error_t error;
    json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &error);
    char quoted[120];
    if (!json)
        yk__fail(YK_ERR_FORMAT, "%s:%d: %s", path, error.line, quote(error.text, quoted));
    free(data);
    return json;
}

static bool is_type(json_t *object, const char *type)
{
    const char *found = json_string_value(json_object_get(object, "type"));
    return found && strcmp(found, type) == 0;
}

/* A part of a tokenizer.json that has to be of one type. */
static yk_status part_check(const yk_tokenizer *t, json_t *json, const char *part, const char *type, bool optional)
{
    json_t *object = json_object_get(json, part);
    const char *found = json_string_value(json_object_get(object, "type"));
    char quoted[120];
    if ((optional && (!object || json_is_null(object))) || (*type && is_type(object, type)))
        return YK_OK;
    return yk__fail(YK_ERR_UNSUPPORTED, "%s: the %s is %s%s; expected %s%s", t->name, part,
                    object && !json_is_null(object) ? "of type " : "missing", found ? quote(found, quoted) : "",
                    *type ? type : "none", optional && *type ? " or none" : "");
}

/* Members of a model that change what it makes of a word, and are not supported unless they are null, false or "". */
static yk_status model_check(const yk_tokenizer *t, json_t *model)
{
    static const char *const members[] = {
        "dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "fuse_unk", "ignore_merges"};
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        json_t *value = json_object_get(model, members[i]);
        bool harmless = !value || json_is_null(value) || json_is_false(value) ||
                        (json_is_string(value) && !json_string_length(value)) ||
                        (json_is_number(value) && json_number_value(value) == 0);
        if (!harmless)
            return yk__fail(YK_ERR_UNSUPPORTED, "%s: the model has \"%s\", which is not supported", t->name,
                            members[i]);
    }
    return YK_OK;
}

static yk_status whole_read(yk_tokenizer *t)
{
    json_t *json = json_read(t->name), *model = json_object_get(json, "model"),
           *cut = json_object_get(json, "pre_tokenizer");
    if (!json)
        return yk__error_code();
    yk_status status = YK_OK;
    if (!json_is_object(model))
        status =
            yk__fail(YK_ERR_FORMAT,
                     "%s: there is no \"model\"; expected a tokenizer.json, or vocab.json with merges.txt", t->name);
    if (!status && (json_object_get(model, "type") || !json_object_get(model, "merges")))
        status = part_check(t, json, "model", "BPE", false);
    if (!status)
        status = part_check(t, json, "normalizer", "", true);
    if (!status)
        status = part_check(t, json, "pre_tokenizer", "ByteLevel", false);
    if (!status)
        status = part_check(t, json, "post_processor", "ByteLevel", true);
    if (!status)
        status = part_check(t, json, "decoder", "ByteLevel", true);
    if (!status && json_is_false(json_object_get(cut, "use_regex")))
        status = yk__fail(YK_ERR_UNSUPPORTED,
                          "%s: the pre_tokenizer does not cut (\"use_regex\": false), which is not supported", t->name);
    if (!status)
        status = model_check(t, model);
    if (!status)
        status = vocabulary_read(t, json_object_get(model, "vocab"));
    if (!status)
        status = added_read(t, json_object_get(json, "added_tokens"));
    if (!status)
        status = vocabulary_index(t);
    if (!status)
        status = merges_read_json(t, json_object_get(model, "merges"));
    t->prefix_space = json_is_true(json_object_get(cut, "add_prefix_space"));
    json_decref(json);
    return status;
}

static yk_status pair_read(yk_tokenizer *t, const char *merges)
{
    json_t *json = json_read(t->name);
    if (!json)
        return yk__error_code();
    yk_status status = vocabulary_read(t, json);
    json_decref(json);
    if (!status)
        status = vocabulary_index(t);
    if (!status)
        status = added_find(t);
    return status ? status : merges_read_text(t, merges);
}

/* Reads what `path` is: a folder, a tokenizer.json, or a vocab.json beside `merges`. */
static yk_status tokenizer_read(yk_tokenizer *t, const char *path, const char *merges)
{
    yk_status status = YK_OK;
    char *beside = NULL;
    bool folder = !merges && yk__is_directory(path);
    t->name = folder ? yk__format("%s/tokenizer.json", path) : yk__strdup(path);
    if (!t->name)
        return YK_ERR_MEMORY;
    if (folder && !yk__is_file(t->name)) {
        free(t->name);
        t->name = yk__format("%s/vocab.json", path);
        merges = beside = yk__format("%s/merges.txt", path);
        if (!t->name || !beside)
            status = YK_ERR_MEMORY;
        else if (!yk__is_file(t->name) || !yk__is_file(beside))
            status =
                yk__fail(YK_ERR_NOT_FOUND, "%s: there is no tokenizer.json in it, nor vocab.json and merges.txt", path);
    }
    if (!status)
        status = merges ? pair_read(t, merges) : whole_read(t);
    if (!status && t->n_added)
        qsort(t->added, (size_t)t->n_added, sizeof(*t->added), added_order);
    free(beside);
    return status;
}

yk_tokenizer *yk_tokenizer_load(const char *path, const char *merges)
{
    if (!yk__scope_check("tokenizer_load") || !yk__is_there("tokenizer_load", "path", path))
        return NULL;
    YK__OWN_RECORD;
    yk_tokenizer *t = yk__object_new(&tokenizer_type, sizeof(*t));
    if (t && tokenizer_read(t, path, merges)) {
        tokenizer_destroy(t);
        return NULL;
    }
    return yk__scope_own(t);
}

yk_tokenizer *yk_tokenizer_bytes(void)
{
    if (!yk__scope_check("tokenizer_bytes"))
        return NULL;
    yk_tokenizer *t = yk__object_new(&tokenizer_type, sizeof(*t));
    if (!t)
        return NULL;
    yk_status status = (t->name = yk__strdup("the bytes")) ? merges_reserve(t, 0) : YK_ERR_MEMORY;
    for (int i = 255; !status && i >= 0; i--) { /* from the last, for which room is made for all */
        int32_t point = spelling_of(i);
        char text[3] = {(char)point, 0, 0};
        if (point >= 128)
            text[0] = (char)(0xC0 | point >> 6), text[1] = (char)(0x80 | (point & 0x3F));
        status = token_add(t, text, i);
    }
    if (!status)
        status = vocabulary_index(t);
    if (status) {
        tokenizer_destroy(t);
        return NULL;
    }
    return yk__scope_own(t);
}
