/*
 * ckpt.h - the functions that the verbs of `yoke ckpt` share. Layer: cli.
 */
#ifndef YOKE_CLI_CKPT_CKPT_H
#define YOKE_CLI_CKPT_CKPT_H

#include <jansson.h>

#include <yoke/checkpoint.h>

#include "cli/options.h"

typedef struct ckpt_settings {
    bool json, strip_module;
    const char *paths[2];
} ckpt_settings;

/* Reads a .pt or safetensors file, told apart by content, a training checkpoint's folder, or the newest valid one of a
 * folder of them. *format is "pt", "safetensors" or "training". In the scope. */
yk_value *ckpt_load(const char *path, const char **format);
/* The parameters and buffers of any of these, or of a folder in the form in which models are published, on a device. In
 * the scope; errors name the path. */
yk_state_dict *ckpt_load_weights(const char *path, yk_device device);
/* The same for a file, with the metadata beside them, a dict of texts, or NULL for none. */
yk_state_dict *ckpt_load_described(const char *path, yk_device device, const yk_value **metadata);
/* Writes them as PyTorch's .pt, with metadata as ckpt_save keeps it there. */
yk_status ckpt_save_weights(const char *path, const yk_state_dict *dict, const yk_metadata *metadata);
/* Puts the path in front of the error, unless it begins with it. */
void ckpt_name_file(const char *path);
bool ckpt_is_folder(const char *path);
/* True for a folder with model.safetensors or model.safetensors.index.json that is no training checkpoint. */
bool ckpt_is_published(const char *path);
/* The training checkpoint that a folder is, or the newest valid one in it (*found tells which were passed over; its
 * path is empty for the former); the caller frees. */
char *ckpt_training_folder(const char *path, yk_checkpoint_found *found);
/* Fails unless a file of this name could be written: .pt, .pth, .safetensors or no ending; an error names the
 * endings. */
yk_status ckpt_check_output(const char *path);
/* Writes in the format of the name's ending. *notice tells what that format cannot hold (the caller frees; NULL:
 * nothing is lost). */
yk_status ckpt_save(const char *path, yk_value *value, char **notice);

/* A dict of all leaves under their dotted names; `path` is for messages. In the scope. */
yk_value *ckpt_leaves(const char *path, yk_value *value);
/* A leaf in words: "3", "\"text\"", "4 bytes", "[]"; the caller frees. */
char *ckpt_leaf_text(const yk_value *leaf);
/* A leaf as JSON, tensors as {"dtype", "shape"}. */
json_t *ckpt_leaf_json(const yk_value *leaf);
/* Elements and bytes of all tensors among leaves. */
void ckpt_totals(const yk_value *leaves, int64_t *tensors, int64_t *elements, int64_t *bytes);
/* Prints and frees. */
int ckpt_print_json(json_t *json);
/* Reports the error of the record on stderr, with --json as an object on stdout too, and is the exit code. */
int ckpt_failed(const ckpt_settings *s);

int ckpt_info(const ckpt_settings *s);
int ckpt_verify(const ckpt_settings *s);
int ckpt_convert(const ckpt_settings *s);
int ckpt_diff(const ckpt_settings *s);
int ckpt_strip(const ckpt_settings *s);

#endif
