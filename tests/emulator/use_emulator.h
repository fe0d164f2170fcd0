/*
 * use_emulator.h - the emulated GPUs beside the test program, in place of real ones.
 */
#ifndef YOKE_TESTS_EMULATOR_USE_EMULATOR_H
#define YOKE_TESTS_EMULATOR_USE_EMULATOR_H

#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/machine.h"

#ifdef __SANITIZE_THREAD__
/* The C library keeps stacks of threads that have ended, and frees what such a thread had of the plug-ins' thread-local
 * variables in any other thread, under a lock of its own that the thread sanitizer does not see. */
const char *__tsan_default_suppressions(void);
__attribute__((weak, visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "race:_dl_deallocate_tls\n";
}
#endif

/* Makes `cuda` the emulator's. False where this build has none. */
static inline bool find_emulator(void)
{
    char program[4096], folder[4200];
    snprintf(program, sizeof(program), "%s", own_program());
    snprintf(folder, sizeof(folder), "%s/emulator", dirname(dirname(dirname(program))));
    setenv("YOKE_BACKEND_PATH", folder, 1);
    snprintf(program, sizeof(program), "%.4000s/yoke-cuda.so", folder);
    return access(program, R_OK) == 0;
}

/* The same for a test of nothing else: where there is none, the plan that skips it is printed. */
static inline bool use_emulator(void)
{
    if (find_emulator())
        return true;
    printf("1..0 # SKIP this build has no emulator: it needs the headers of CUDA 12 or 13\n");
    return false;
}

#endif
