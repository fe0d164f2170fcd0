/* slot_network_cases.c - reductions, products, normalisation, pooling, convolution: part of slot_cases.c. */
#include "tests/support/slot_pairs.h"

const slot_case slot_network_cases[] = {
    {NULL, NULL, NULL, 0},
};
