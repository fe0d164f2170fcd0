/*
 * tokens.h - rows of tokens from the inside. Layer: data.
 */
#ifndef YOKE_DATA_TOKENS_H
#define YOKE_DATA_TOKENS_H

#include <yoke/text.h>

/* The tokens of a text in memory, of which nothing is kept, as yk_token_text; `name` is for messages. */
yk_tokens *yk__tokens_of_text(const char *name, const char *text, size_t size, const yk_tokenizer *tokenizer);

/* The built-in text, which the caller frees; NULL without memory. */
char *yk__story(size_t *size);

#endif
