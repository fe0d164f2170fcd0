/*
 * models.h - declarations that the ready-made models share. Layer: nn.
 */
#ifndef YOKE_NN_MODELS_H
#define YOKE_NN_MODELS_H

#include "nn/module.h"

/* The number, or `fallback` where it is 0; -1 and an error in the name of the model where it is below `least`. */
int64_t yk__model_number(const char *model, const char *what, int64_t number, int64_t least);

/* A linear layer as classifiers of torchvision's have it: weights of deviation 0.01, biases 0. */
yk_module *yk__classifier_linear(int64_t in, int64_t out);

#endif
