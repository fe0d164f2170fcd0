/*
 * training_value.h - a training checkpoint as one nested value, the way a .pt holds it, and back. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_TRAINING_TRAINING_VALUE_H
#define YOKE_CHECKPOINT_TRAINING_TRAINING_VALUE_H

#include <yoke/checkpoint.h>

/*
 * {"model": ..., "optimizer": PyTorch's form, "scheduler": likewise, "scaler": likewise, "epoch", "step", "yoke": the
 * rest}: what torch.load and PyTorch's load_state_dict take. Every byte was verified. Owned by the current scope.
 */
yk_value *yk__training_to_value(const char *dir);
/*
 * Writes the checkpoint `dir` of such a value; of any other in which weights are found, what can be told from it. What
 * has no place in a training checkpoint is named in *notice (the caller frees; NULL: nothing). A value whose
 * optimizer's parameters cannot be told from the weights' names is an error.
 */
yk_status yk__training_from_value(const char *dir, const yk_value *value, char **notice);

#endif
