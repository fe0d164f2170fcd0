/*
 * yoke/checkpoint.h - tensors to files and back.
 *
 * Layer: checkpoint. The format is safetensors, as the Python package of that name reads and writes it: a header of
 * names, dtypes and shapes, and the elements in C order, little endian. No code is ever run by reading a file.
 */
#ifndef YOKE_CHECKPOINT_H
#define YOKE_CHECKPOINT_H

#include <yoke/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line of text kept in the file beside the tensors; a list ends with a NULL key. */
typedef struct yk_metadata {
    const char *key, *value;
} yk_metadata;

/*
 * Reads every tensor of a safetensors file to `device`, in the order of their data. The dict is owned by the current
 * scope. Dtypes F32, F64, F16, BF16, I64, I32, U8 and BOOL; at most YK_MAX_DIMS dimensions. A file that is
 * damaged, truncated or made to mislead (overlapping ranges, gaps, a header that is too large) is an error that names
 * the file and the tensor; nothing is allocated by what a header claims beyond what the file holds.
 * Source: safetensors.torch.load_file.
 */
YK_API yk_state_dict *yk_safetensors_load(const char *path, yk_device device);

/*
 * Writes the dict, from any device and memory order, to a temporary file beside `path`, which then takes its place:
 * on failure (a full disk) what was at `path` is still there. `metadata` may be NULL. For the same dict and metadata
 * the bytes are those that the Python package writes. Tensors that share memory are written once each.
 * Source: safetensors.torch.save_file.
 */
YK_API yk_status yk_safetensors_save(const char *path, const yk_state_dict *dict,
                                     const yk_metadata *metadata) YK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
