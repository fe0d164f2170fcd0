/*
 * models.h - declarations that the ready-made models share. Layer: nn.
 */
#ifndef YOKE_NN_MODELS_H
#define YOKE_NN_MODELS_H

#include "nn/module.h"

/* The number, or `fallback` where it is 0; -1 and an error in the name of the model where it is below `least`. */
int64_t yk__model_number(const char *model, const char *what, int64_t number, int64_t least);

#endif
