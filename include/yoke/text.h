/*
 * yoke/text.h - text as numbers: byte-pair encoding.
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

#ifdef __cplusplus
}
#endif
#endif
