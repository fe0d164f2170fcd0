/*
 * yoke/text.h - text as numbers: byte-pair encoding, files of tokens, data sets of them.
 *
 * Layer: data. A tokenizer makes ids of text and text of ids. It is made once, never changes, and may be used by
 * several threads at once. Objects made here are owned by the thread's current scope.
 */
#ifndef YOKE_TEXT_H
#define YOKE_TEXT_H

#include <yoke/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- byte-pair encoding ------------------------------------------------------------------------------------------ */
/*
 * Text is cut into words (with the space in front), numbers, runs of signs and runs of white space, as GPT-2 does it;
 * in each piece the pair of neighbours that stands first in the list of merges becomes one token, until none is in the
 * list. It begins with single bytes, so any bytes can be encoded and come back the same: those that are no UTF-8 count
 * as signs. Source: Radford et al., 2019; Sennrich et al., 2016; PyPI's tokenizers (ByteLevel and BPE), whose ids these
 * are on any text.
 */
typedef struct yk_tokenizer yk_tokenizer;

/*
 * Reads a tokenizer: from `path`, a vocab.json, and `merges`, a merges.txt; or, where `merges` is NULL, from a
 * tokenizer.json or a folder that holds one, or the other two. Entries <|...|> of a vocab.json, and the added tokens of
 * a tokenizer.json, are special: found in a text as a whole, before it is cut. A merge of what is not in the
 * vocabulary, two tokens of one id and a tokenizer.json of another kind (WordPiece, another splitting) are errors
 * (YK_ERR_FORMAT, YK_ERR_UNSUPPORTED) that name the file, and the line where it has lines.
 */
YK_API yk_tokenizer *yk_tokenizer_load(const char *path, const char *merges);
/* The tokenizer of the 256 bytes, without merges: an id is a byte. */
YK_API yk_tokenizer *yk_tokenizer_bytes(void);
/* One more than the largest id: the rows that an embedding needs. */
YK_API int64_t yk_tokenizer_vocab_size(const yk_tokenizer *tokenizer) YK_QUESTION;
/* The id of a token as the vocabulary spells it, a space as U+0120 ("\u0120the"); -1 where it is not there. */
YK_API int64_t yk_tokenizer_id_of(const yk_tokenizer *tokenizer, const char *token) YK_QUESTION;
/* That spelling, valid as long as the tokenizer; NULL where no token has the id. */
YK_API const char *yk_tokenizer_token_of(const yk_tokenizer *tokenizer, int64_t id) YK_QUESTION;

typedef struct yk_encode_options {
    bool special YK_DEFAULT(true);          /* false: special tokens in the text are text like any other */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_encode_options;
#define yk_encode_options_DEFAULTS .yk__mark = YK__MARK, .special = true
/* The ids of `size` bytes of text, (tokens) of i64. A byte that the vocabulary has no token for is an error
 * (YK_ERR_NOT_FOUND) that names it and its offset. */
YK_API yk_tensor *yk_tokenizer_encode(const yk_tokenizer *tokenizer, const char *text, size_t size,
                                      const yk_encode_options *options);
/* The bytes of ids (i64 or i32, any shape, in C order), special tokens among them: new memory, which the caller frees,
 * to *text, with a NUL behind it, and their number to *size (may be NULL). The bytes are no UTF-8 where a character was
 * cut. An id without a token is an error (YK_ERR_ARGUMENT). */
YK_API yk_status yk_tokenizer_decode(const yk_tokenizer *tokenizer, yk_tensor *ids, char **text,
                                     size_t *size) YK_MUST_CHECK;

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_tokenizer *yk_tokenizer_retain(yk_tokenizer *tokenizer);
YK_API void yk_tokenizer_release(yk_tokenizer *tokenizer);

/* ---- rows of tokens ---------------------------------------------------------------------------------------------- */
/* A long row of ids: a file that is mapped, or a text that was encoded. */
typedef struct yk_tokens yk_tokens;
typedef enum yk_token_type { YK_TOKENS_U8 = 0, YK_TOKENS_U16 = 1, YK_TOKENS_I32 = 2 } yk_token_type;

/*
 * The ids in a file of little-endian numbers of one type, without a header, or (u16) with the 1,024 bytes that begin
 * with 20240520. It is mapped, not read, and must not change while the object lives. An empty file, one whose size is
 * no multiple of the type's and one shorter than its header says are errors (YK_ERR_FORMAT). Source: nanoGPT, llm.c.
 */
YK_API yk_tokens *yk_token_file(const char *path, yk_token_type type);
/* The text of a file through a tokenizer, or (NULL) its bytes. */
YK_API yk_tokens *yk_token_text(const char *path, const yk_tokenizer *tokenizer);
/* By name: "text:FILE" (through the tokenizer), "u8:FILE", "u16:FILE", "i32:FILE", or "text", 200,000 bytes of small
 * tales that need no file (through the tokenizer, too). Another name is an error that names the nearest. */
YK_API yk_tokens *yk_tokens_open(const char *spec, const yk_tokenizer *tokenizer);
/* The number of ids; id `i`, -1 outside [0, count). */
YK_API int64_t yk_tokens_count(const yk_tokens *tokens) YK_QUESTION;
YK_API int64_t yk_tokens_at(const yk_tokens *tokens, int64_t i) YK_QUESTION;
/* Writes the ids as numbers of a type, without a header. One that the type does not hold is an error (YK_ERR_ARGUMENT)
 * that names it and its position, and no file is written. */
YK_API yk_status yk_tokens_save(const yk_tokens *tokens, const char *path, yk_token_type type) YK_MUST_CHECK;

typedef struct yk_token_blocks_options {
    int64_t block YK_DEFAULT(YK_NOT_GIVEN); /* ids of a sample, at least 1; no default: an error when it is not given */
    int64_t stride YK_DEFAULT(YK_NOT_GIVEN); /* from a sample to the next, at least 1; not given: block */
    /* The part of the row that samples are of, from `begin` up to but not `end`; not given: all. */
    int64_t begin YK_DEFAULT(0), end YK_DEFAULT(YK_NOT_GIVEN);
    /* An id from here on is an error, which names its position, when a sample has it; not given: none is. */
    int64_t vocab_size YK_DEFAULT(YK_NOT_GIVEN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_token_blocks_options;
#define yk_token_blocks_options_DEFAULTS                                                                               \
    .yk__mark = YK__MARK, .block = YK_NOT_GIVEN, .stride = YK_NOT_GIVEN, .end = YK_NOT_GIVEN, .vocab_size = YK_NOT_GIVEN
/*
 * A row of tokens, which is retained, as a data set: sample i has the inputs t[s] to t[s + block - 1] and the targets
 * t[s + 1] to t[s + block], with s = begin + i * stride, both (block) of i64. A part of less than block + 1 ids is an
 * error (YK_ERR_SHAPE).
 */
YK_API yk_dataset *yk_token_blocks(yk_tokens *tokens, const yk_token_blocks_options *options);

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_tokens *yk_tokens_retain(yk_tokens *tokens);
YK_API void yk_tokens_release(yk_tokens *tokens);

#ifdef __cplusplus
}
#endif
#endif
