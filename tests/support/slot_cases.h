/*
 * slot_cases.h - every slot that a GPU backend has, compared with the CPU's: for the emulator's tests and for a machine
 * with a GPU (tests/gpu). Needs the library alone.
 */
#ifndef YOKE_TESTS_SLOT_CASES_H
#define YOKE_TESTS_SLOT_CASES_H

#include <stdbool.h>

typedef struct slot_report {
    bool failed;
    long compared; /* elements */
    double worst;  /* distance in units of the last place, of the results that need not be equal to the bit */
    unsigned long long
        digest;     /* of all the GPU's results, to the bit: two GPUs, or a GPU and the emulator, compute alike */
    char text[900]; /* the first failure */
} slot_report;

typedef struct slot_case {
    const char *group, *name;
    void (*run)(const struct slot_case *self, slot_report *report);
    int op;
} slot_case;

/* All of them, ended by one without a name; the same every time. */
const slot_case *slot_cases(void);

/* Parts of them: optimizers, losses, random numbers; what layers are made of; indices and order; whole models;
 * operands that are read in packs; normalisation in every order of dimensions. */
extern const slot_case slot_training_cases[], slot_network_cases[], slot_index_cases[], slot_model_cases[],
    slot_pack_cases[], slot_norm_cases[];

#endif
