/*
 * tokenizer.h - a tokenizer from the inside: its tables, where text is cut, and what becomes of a piece. Layer: data.
 */
#ifndef YOKE_DATA_TOKENIZER_H
#define YOKE_DATA_TOKENIZER_H

#include <yoke/text.h>

#include "base/core.h"

/* A token. Texts and bytes are memory of its own; text NULL: no token has this id. */
typedef struct yk__token {
    char *text;           /* as the vocabulary spells it */
    unsigned char *bytes; /* that it stands for; `text` itself where that is no spelling of bytes */
    uint32_t size;        /* of bytes */
} yk__token;

/* An entry of the table of merges; key 0 is an empty one, as no pair of ids has it: ids are stored plus 1. */
typedef struct yk__merge {
    uint64_t key; /* left + 1 in the upper half, right + 1 */
    int32_t rank, id;
} yk__merge;

/* A token that is found in the text as a whole. */
typedef struct yk__added_token {
    char *text;
    size_t size;
    int32_t id;
    int pass; /* 0, or 1: looked for between those of pass 0 */
} yk__added_token;

enum { YK__ADDED_PASSES = 2 };

struct yk_tokenizer {
    yk__object object;
    char *name;        /* of the vocabulary's file, for messages */
    int64_t size;      /* largest id + 1 */
    yk__token *tokens; /* (size), in memory for `room` */
    int64_t room;
    int32_t *slots; /* ids by the hash of their text, -1: empty; a power of two of them, mask + 1 */
    uint64_t slot_mask;
    yk__merge *merges; /* likewise by key */
    uint64_t merge_mask;
    int32_t byte_ids[256];  /* -1: the vocabulary has no token for it */
    yk__added_token *added; /* longest first */
    int n_added;
    bool prefix_space; /* a piece between special tokens gets a space in front where it has none */
};

/* ---- words (pretokenize.c) ------------------------------------------------------------------------------------ */
/* The bytes of the first piece of a text, which has one at least. */
size_t yk__word_length(const unsigned char *text, size_t size);
/* One character of `size` bytes, at least 1: its code point, or -1 for a byte that begins no UTF-8; its bytes to
 * *length. */
int32_t yk__utf8_next(const unsigned char *text, size_t size, size_t *length);

/* ---- encoding (encode.c) -------------------------------------------------------------------------------------- */
typedef struct yk__ids {
    int32_t *data; /* the caller frees */
    size_t count, capacity;
} yk__ids;
/* Appends the ids of a text. `what` is for messages. */
yk_status yk__encode(const yk_tokenizer *tokenizer, const char *what, const unsigned char *text, size_t size,
                     bool special, yk__ids *ids);
uint64_t yk__merge_slot(const yk_tokenizer *tokenizer, uint64_t key);
static inline uint64_t yk__merge_key(int32_t left, int32_t right)
{
    return (uint64_t)(left + 1) << 32 | (uint64_t)(right + 1);
}

#endif
