/*
 * encode.c - ids of text and text of ids. Layer: data.
 *
 * A word begins as a list of the tokens of its bytes. The pairs of neighbours that may merge are in a heap, by rank and
 * then by position; the least becomes one token, which makes two new pairs. An entry of the heap is out of date where
 * the pair at its position has another rank now. That takes n log n steps, however long a word is (a run of a million
 * spaces is one).
 *
 * Most words of a text were there before. Their ids are in the output then, and are copied: a table of words points to
 * the place in the text where a word was first, and to its ids.
 */
#include <stdlib.h>
#include <string.h>

#include <yoke/autograd.h>
#include <yoke/ops.h>

#include "base/hash.h"
#include "data/tokenizer.h"
#include "tensor/tensor.h"

enum { LONGEST_REMEMBERED = 64, FIRST_WORDS = 1 << 10, MOST_WORDS = 1 << 20 };
static const size_t LONGEST_WORD = (size_t)1 << 31;

typedef struct symbol {
    int32_t id, before, next; /* positions, -1 at the ends; id -1: it became part of the one before it */
} symbol;

typedef struct word {
    const unsigned char *text; /* NULL: an empty entry */
    uint32_t size, hash, count;
    size_t ids; /* where its ids begin in the output */
} word;

typedef struct encoder {
    const yk_tokenizer *tokenizer;
    const char *what;
    const unsigned char *begin; /* of the text */
    yk__ids *ids;
    symbol *symbols;
    size_t symbols_room;
    uint64_t *heap; /* rank in the upper half, position */
    size_t heap_count, heap_room;
    word *words;
    size_t word_count, word_room; /* room: a power of two */
    unsigned char *spaced;        /* the text with spaces in front of its pieces; NULL: not wanted */
    size_t spaced_size;
} encoder;

uint64_t yk__merge_slot(const yk_tokenizer *tokenizer, uint64_t key)
{
    uint64_t slot = (key * UINT64_C(0x9E3779B97F4A7C15) >> 40) & tokenizer->merge_mask;
    while (tokenizer->merges[slot].key && tokenizer->merges[slot].key != key)
        slot = (slot + 1) & tokenizer->merge_mask;
    return slot;
}

/* ---- one word ---------------------------------------------------------------------------------------------------- */

static void heap_push(encoder *e, uint64_t entry)
{
    size_t at = e->heap_count++;
    for (; at && e->heap[(at - 1) / 2] > entry; at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = entry;
}

static uint64_t heap_pop(encoder *e)
{
    uint64_t least = e->heap[0], last = e->heap[--e->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < e->heap_count; at = child) {
        child += child + 1 < e->heap_count && e->heap[child + 1] < e->heap[child];
        if (e->heap[child] >= last)
            break;
        e->heap[at] = e->heap[child];
    }
    e->heap[at] = last;
    return least;
}

/* The merge of a symbol with the next one; NULL: there is none. */
static const yk__merge *merge_at(const encoder *e, int32_t at)
{
    const symbol *left = &e->symbols[at];
    if (left->id < 0 || left->next < 0)
        return NULL;
    const yk__merge *merge =
        &e->tokenizer->merges[yk__merge_slot(e->tokenizer, yk__merge_key(left->id, e->symbols[left->next].id))];
    return merge->key ? merge : NULL;
}

static void pair_push(encoder *e, int32_t at)
{
    const yk__merge *merge = at < 0 ? NULL : merge_at(e, at);
    if (merge)
        heap_push(e, (uint64_t)merge->rank << 32 | (uint32_t)at);
}

static yk_status encoder_reserve(encoder *e, size_t size)
{
    if (size > LONGEST_WORD)
        return yk__fail(YK_ERR_ARGUMENT, "%s: a word has %zu bytes, more than 2^31", e->what, size);
    if (e->symbols_room < size) {
        symbol *symbols = yk__realloc(e->symbols, 2 * size * sizeof(*symbols));
        if (!symbols)
            return YK_ERR_MEMORY;
        e->symbols = symbols, e->symbols_room = 2 * size;
    }
    if (e->heap_room < 3 * size) { /* a pair for each neighbours at first, two more for each merge */
        uint64_t *heap = yk__realloc(e->heap, 6 * size * sizeof(*heap));
        if (!heap)
            return YK_ERR_MEMORY;
        e->heap = heap, e->heap_room = 6 * size;
    }
    return YK_OK;
}

static yk_status ids_reserve(yk__ids *ids, size_t more)
{
    if (ids->count + more <= ids->capacity)
        return YK_OK;
    size_t capacity = 2 * ids->capacity > ids->count + more ? 2 * ids->capacity : ids->count + more + 256;
    int32_t *data = yk__realloc(ids->data, capacity * sizeof(*data));
    if (!data)
        return YK_ERR_MEMORY;
    ids->data = data, ids->capacity = capacity;
    return YK_OK;
}

static yk_status encode_word(encoder *e, const unsigned char *text, size_t size)
{
    yk_status status = encoder_reserve(e, size);
    if (!status)
        status = ids_reserve(e->ids, size);
    if (status)
        return status;
    for (size_t i = 0; i < size; i++) {
        int32_t id = e->tokenizer->byte_ids[text[i]];
        if (id < 0)
            return yk__fail(YK_ERR_NOT_FOUND, "%s: byte 0x%02X at offset %zu of the text has no token in %s", e->what,
                            text[i], e->spaced ? (size_t)0 : (size_t)(text + i - e->begin), e->tokenizer->name);
        e->symbols[i] = (symbol){id, (int32_t)i - 1, i + 1 < size ? (int32_t)i + 1 : -1};
    }
    e->heap_count = 0;
    for (size_t i = 0; i + 1 < size; i++)
        pair_push(e, (int32_t)i);
    while (e->heap_count) {
        uint64_t entry = heap_pop(e);
        int32_t at = (int32_t)(uint32_t)entry;
        const yk__merge *merge = merge_at(e, at);
        if (!merge || (uint64_t)merge->rank != entry >> 32)
            continue;
        symbol *left = &e->symbols[at], *right = &e->symbols[left->next];
        left->id = merge->id;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0)
            e->symbols[left->next].before = at;
        pair_push(e, left->before);
        pair_push(e, at);
    }
    for (int32_t at = 0; at >= 0; at = e->symbols[at].next)
        e->ids->data[e->ids->count++] = e->symbols[at].id;
    return YK_OK;
}

/* ---- words that were there before -------------------------------------------------------------------------------- */

/* The entry of a word, or the empty one where it would be. */
static word *word_find(const encoder *e, const unsigned char *text, size_t size, uint32_t hash)
{
    size_t at = hash & (e->word_room - 1);
    for (;; at = (at + 1) & (e->word_room - 1)) {
        word *w = &e->words[at];
        if (!w->text || (w->hash == hash && w->size == size && memcmp(w->text, text, size) == 0))
            return w;
    }
}

static yk_status words_grow(encoder *e)
{
    size_t room = e->word_room;
    word *old = e->words, *words = yk__calloc(room ? 2 * room : FIRST_WORDS, sizeof(*words));
    if (!words)
        return YK_ERR_MEMORY;
    e->words = words;
    e->word_room = room ? 2 * room : FIRST_WORDS;
    for (size_t i = 0; i < room; i++) {
        if (old[i].text)
            *word_find(e, old[i].text, old[i].size, old[i].hash) = old[i];
    }
    free(old);
    return YK_OK;
}

static yk_status encode_piece(encoder *e, const unsigned char *text, size_t size)
{
    if (size > LONGEST_REMEMBERED)
        return encode_word(e, text, size);
    if (2 * e->word_count >= e->word_room && e->word_room < MOST_WORDS && words_grow(e))
        return YK_ERR_MEMORY;
    uint64_t bits = yk__hash(YK__HASH_BASIS, text, size);
    uint32_t hash = (uint32_t)(bits ^ bits >> 32);
    word *w = word_find(e, text, size, hash);
    size_t from = e->ids->count;
    if (w->text) {
        if (ids_reserve(e->ids, w->count))
            return YK_ERR_MEMORY;
        memcpy(e->ids->data + from, e->ids->data + w->ids, w->count * sizeof(*e->ids->data));
        e->ids->count += w->count;
        return YK_OK;
    }
    yk_status status = encode_word(e, text, size);
    if (!status && 2 * e->word_count < e->word_room) {
        *w = (word){text, (uint32_t)size, hash, (uint32_t)(e->ids->count - from), from};
        e->word_count++;
    }
    return status;
}

/* A text without special tokens. */
static yk_status encode_plain(encoder *e, const unsigned char *text, size_t size)
{
    if (e->spaced && size && text[0] != ' ') {
        unsigned char *to = e->spaced + e->spaced_size;
        to[0] = ' ';
        memcpy(to + 1, text, size);
        text = to;
        e->spaced_size += ++size;
    }
    while (size) {
        size_t length = yk__word_length(text, size);
        yk_status status = encode_piece(e, text, length);
        if (status)
            return status;
        text += length, size -= length;
    }
    return YK_OK;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* The longest added token of a pass at the beginning of a text; NULL: there is none. */
static const yk__added_token *added_at(const yk_tokenizer *t, int pass, const unsigned char *text, size_t size)
{
    for (int i = 0; i < t->n_added; i++) {
        const yk__added_token *a = &t->added[i];
        if (a->pass == pass && a->size <= size && a->text[0] == (char)*text && memcmp(a->text, text, a->size) == 0)
            return a;
    }
    return NULL;
}

/* A text between the added tokens of the passes before this one. */
static yk_status encode_between(encoder *e, int pass, const unsigned char *text, size_t size)
{
    const yk_tokenizer *t = e->tokenizer;
    while (pass < YK__ADDED_PASSES) { /* a pass that has no tokens is passed over */
        bool first[256] = {false}, any = false;
        for (int i = 0; i < t->n_added; i++) {
            if (t->added[i].pass == pass)
                any = first[(unsigned char)t->added[i].text[0]] = true;
        }
        size_t from = 0;
        for (size_t at = 0; any && at < size;) {
            const yk__added_token *a = first[text[at]] ? added_at(t, pass, text + at, size - at) : NULL;
            if (!a) {
                at++;
                continue;
            }
            yk_status status = encode_between(e, pass + 1, text + from, at - from);
            if (!status)
                status = ids_reserve(e->ids, 1);
            if (status)
                return status;
            e->ids->data[e->ids->count++] = a->id;
            from = at += a->size;
        }
        text += from, size -= from;
        pass++;
    }
    return encode_plain(e, text, size);
}

yk_status yk__encode(const yk_tokenizer *tokenizer, const char *what, const unsigned char *text, size_t size,
                     bool special, yk__ids *ids)
{
    encoder e = {.tokenizer = tokenizer, .what = what, .begin = text, .ids = ids};
    yk_status status = YK_OK;
    if (tokenizer->prefix_space) {
        e.spaced = yk__calloc(2 * size + 1, 1);
        status = e.spaced ? YK_OK : YK_ERR_MEMORY;
    }
    if (!status)
        status = encode_between(&e, special ? 0 : YK__ADDED_PASSES, text, size);
    free(e.spaced);
    free(e.symbols);
    free(e.heap);
    free(e.words);
    return status;
}

/* ---- the public calls -------------------------------------------------------------------------------------------- */

yk_tensor *yk_tokenizer_encode(const yk_tokenizer *tokenizer, const char *text, size_t size,
                               const yk_encode_options *options)
{
    YK__LIVE(tokenizer);
    yk_encode_options o;
    if (!yk__scope_check("tokenizer_encode") || YK__OPTIONS_TAKE("tokenizer_encode", yk_encode_options, options, &o) ||
        !yk__is_there("tokenizer_encode", "tokenizer", tokenizer) ||
        (size && !yk__is_there("tokenizer_encode", "text", text)))
        return NULL;
    yk__ids ids = {0};
    yk_tensor *x = NULL;
    if (!yk__encode(tokenizer, "tokenizer_encode", (const unsigned char *)text, size, o.special, &ids)) {
        yk_tensor *narrow = yk_from_data(ids.data ? ids.data : &(int32_t){0}, YK_SHAPE((int64_t)ids.count),
                                         YK_OPTIONS(yk_tensor_options, .dtype = YK_I32));
        x = yk_cast(narrow, YK_I64);
    }
    free(ids.data);
    return x;
}

yk_status yk_tokenizer_decode(const yk_tokenizer *tokenizer, yk_tensor *ids, char **text, size_t *size)
{
    YK__LIVE(tokenizer);
    YK__LIVE(ids);
    if (!yk__is_there("tokenizer_decode", "tokenizer", tokenizer) || !yk__is_there("tokenizer_decode", "tensor", ids) ||
        !yk__is_there("tokenizer_decode", "place for the text", text))
        return yk__error_code();
    *text = NULL;
    if (ids->dtype != YK_I64 && ids->dtype != YK_I32)
        return yk__fail(YK_ERR_DTYPE, "tokenizer_decode: the ids are %s; expected int64 or int32",
                        yk_dtype_name(ids->dtype));
    yk_scope scope = yk_scope_begin();
    yk_tensor *here = yk_contiguous(yk_cast(yk_to(yk_detach(ids), (yk_device){YK_CPU, 0}), YK_I64));
    yk_status status = here ? YK_OK : yk__error_code();
    int64_t count = here ? yk_numel(here) : 0;
    const int64_t *data = here ? here->data : NULL;
    size_t total = 0;
    for (int64_t i = 0; !status && i < count; i++) {
        if (data[i] < 0 || data[i] >= tokenizer->size || !tokenizer->tokens[data[i]].text)
            status = yk__fail(YK_ERR_ARGUMENT, "tokenizer_decode: id %lld at position %lld has no token; %s has %lld",
                              (long long)data[i], (long long)i, tokenizer->name, (long long)tokenizer->size);
        else
            total += tokenizer->tokens[data[i]].size;
    }
    char *to = status ? NULL : yk__calloc(total + 1, 1);
    if (!status && !to)
        status = YK_ERR_MEMORY;
    *text = to;
    for (int64_t i = 0; !status && i < count; i++) {
        const yk__token *token = &tokenizer->tokens[data[i]];
        memcpy(to, token->bytes, token->size);
        to += token->size;
    }
    if (!status && size)
        *size = total;
    yk_scope_end(scope);
    return status;
}
