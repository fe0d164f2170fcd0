/*
 * gpt2.h - GPT-2 with keys and values that are kept, for generating. Layer: nn.
 */
#ifndef YOKE_NN_GPT2_H
#define YOKE_NN_GPT2_H

#include "nn/module.h"

/* The keys and values of the tokens so far, of each layer. */
typedef struct yk__gpt2_cache {
    int64_t layers, batch, room; /* room: tokens */
    int64_t length;              /* of them, those that are there */
    yk_tensor **keys, **values; /* (batch, heads, room, n_embd / heads) of each layer, in the scope they were made in */
} yk__gpt2_cache;

/* The options that a model was made with; NULL and an error in the name of `what` where it is no GPT-2. */
const yk_gpt2_options *yk__gpt2_of(const char *what, const yk_module *m);
/* An empty cache for `batch` rows; the arrays are freed by clear, the tensors by the scope. */
yk_status yk__gpt2_cache_init(yk_module *m, int64_t batch, yk__gpt2_cache *cache);
void yk__gpt2_cache_clear(yk__gpt2_cache *cache);
/*
 * The logits of the last token of each row, (N, vocab_size): of ids (N, T), which follow those of the cache. With a
 * cache that is not empty T is 1. Without a gradient; in evaluation mode.
 */
yk_tensor *yk__gpt2_next(yk_module *m, yk_tensor *ids, yk__gpt2_cache *cache /* NULL: none */);

#endif
