/*
 * yoke/onnx.h - networks as ONNX files, which other programs run.
 *
 * Layer: onnx. docs/onnx.md has an example, and the list of what can be exported.
 */
#ifndef YOKE_ONNX_H
#define YOKE_ONNX_H

#include <yoke/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_onnx_options {
    /* n_inputs numbers: the dimension of each input that is the batch, -1 for one that has none. NULL: 0 of all. */
    const int *batch_dims YK_DEFAULT(NULL);
    /* n_inputs and n_outputs names. NULL: "input", "input_1", ...; "output", "output_1", ... */
    const char *const *input_names YK_DEFAULT(NULL);
    const char *const *output_names YK_DEFAULT(NULL);
    int64_t n_outputs YK_DEFAULT(1); /* that the module gives, 1 to 8 */
    /* Weights of 1 KiB and more go to a second file, PATH.data, as they always do where all take more than 2 GiB: no
     * file of ONNX can be larger. The two belong into one folder, and keep their names. */
    bool external_data YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_onnx_options;
#define yk_onnx_options_DEFAULTS .yk__mark = YK__MARK, .n_outputs = 1

/*
 * Writes the module, as it computes in evaluation mode, to an ONNX file (opset 20), whose batch may have any size; all
 * other sizes are those of the inputs. inputs[n_inputs], at most 8, are examples, of a batch of at least 1, NULL where
 * the module allows it: the module is called with batches of 2 and of 3 made of them, and is as before then. What
 * differs between the two calls is the batch. Weights, in their dtype, are in the file (or beside it, external_data)
 * under the names of the state dict. Errors: the module's own; YK_ERR_UNSUPPORTED names an operation that cannot be
 * exported, or that does not follow the batch, YK_ERR_IO a file that cannot be written, which then is not there.
 * Source: torch.onnx.export.
 */
YK_API yk_status yk_onnx_export(yk_module *module, const char *path, yk_tensor *const *inputs, int n_inputs,
                                const yk_onnx_options *options) YK_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
