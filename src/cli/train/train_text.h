/*
 * train_text.h - `yoke train` on text. Layer: cli.
 */
#ifndef YOKE_CLI_TRAIN_TRAIN_TEXT_H
#define YOKE_CLI_TRAIN_TRAIN_TEXT_H

#include <yoke/text.h>

#include "cli/train/train.h"

/* True for data of text: "text", "text:FILE", "u8:FILE" and their like. */
bool train_is_text(const char *spec);
/* The training and test sets, and the sizes of the network. */
yk_status train_open_text(train_job *r);
/* The network with new weights, in the scope. */
yk_module *train_text_network(const train_job *r);
/* The tokenizer of a path, or of the bytes for NULL; in the scope. */
yk_tokenizer *train_text_tokenizer(const char *path);
/* Writes the weights and what `yoke generate` has to know, in the format of the name's ending. */
yk_status train_text_save(const char *path, yk_module *net, const yk_gpt2_options *options, const char *tokenizer);
/*
 * A GPT-2 without dropout, with the weights of a file that train_text_save wrote, of a training checkpoint or of a
 * published folder, and its sizes. heads: 0 takes what the path tells, else heads are 64 wide. *tokenizer: the path
 * that the file names, freed by the caller, or NULL; `tokenizer` may be NULL. In the scope.
 */
yk_module *train_text_load(const char *path, yk_device device, int64_t heads, yk_gpt2_options *sizes, char **tokenizer);
/* Targets of (N, T) as (N * T), outputs (N, T, V) as (N * T, V); others as they are. */
yk_tensor *train_text_flat(yk_tensor *x, bool output);

#endif
