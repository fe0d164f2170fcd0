/* own_kernels_test.c - the slots that a library of NVIDIA's serves (slots_test.c), by our own kernels. */
#include "tests/emulator/run_slots.h"

int main(void)
{
    static const char *const groups[] = {"gemm", "conv2d", "layer", "attention", "lstm", "model", NULL};
    setenv("YOKE_CUDA_LIBRARIES", "0", 1);
    return run_slots(groups);
}
