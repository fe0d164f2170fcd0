/*
 * isa.h - the instruction sets that some files are compiled for, and the one of them that is used. Layer: base.
 *
 * Makefile: CPU_ISAS. Where YK__ISAS is defined (files that the Makefile calls SET_AWARE, and the tests of the
 * kernels), YK__ISAS(X, A) is X(base, A) X(v3, A) ... for the sets that are built, narrowest first.
 */
#ifndef YOKE_BASE_ISA_H
#define YOKE_BASE_ISA_H

#include <stdbool.h>

#include "base/core.h"

/* The plainest instructions of the architecture, x86-64-v3 (AVX2, FMA, BMI2), and x86-64-v4 (AVX-512). */
enum { YK__LEVEL_base, YK__LEVEL_v3, YK__LEVEL_v4, YK__LEVELS };

/* The widest set that is built and that the processor has, or the one that $YOKE_CPU_ISA names; the same at every call.
 * -1 where there is none: yk__isa_check says why. */
int yk__isa(void);
/* YK_ERR_ARGUMENT where $YOKE_CPU_ISA names no set, YK_ERR_UNSUPPORTED where its set is not built or the processor
 * lacks it, or lacks all that are built. The message names the sets that can be used. */
yk_status yk__isa_check(void);
/* True where the set is built and the processor has it. */
bool yk__isa_usable(int level);
/* The names of the sets that are built, with commas between. */
const char *yk__isa_built(void);

#endif
