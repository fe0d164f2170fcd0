/*
 * gpu_checks.h - the checks of a GPU by the public functions, beside those of its slots: gradients, recorded steps, two
 * logical devices (gpu_checks.c), and gradients of whole networks for a comparison elsewhere (gpu_parity.c). And where
 * a program was that a signal ended (gpu_stack.c).
 */
#ifndef YOKE_TESTS_GPU_CHECKS_H
#define YOKE_TESTS_GPU_CHECKS_H

#include "tests/support/slot_cases.h"

/* Groups "gradient", "record" and "devices" (which needs two logical devices), ended by one without a name. */
const slot_case *gpu_check_cases(void);

/* The loss and all gradients of a network, from the weights, `input` and `target` of a safetensors file, as another
 * such file. `model`: one of yk_model's, or "block", a transformer block; `precision`: fp32, bf16 or f64. 0, or 1 with
 * a line on stderr. */
int gpu_parity_run(const char *model, const char *precision, const char *device, const char *from, const char *to);

/* A signal that ends the program, and SIGQUIT, print the thread's stack to stderr first. */
void gpu_stack_install(void);

#endif
