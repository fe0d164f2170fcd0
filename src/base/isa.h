/*
 * isa.h - which of the instruction sets that some files are compiled for (Makefile: CPU_ISAS) is used. Layer: base.
 */
#ifndef YOKE_BASE_ISA_H
#define YOKE_BASE_ISA_H

/* 4, 3 or 0: x86-64-v4 (AVX-512), x86-64-v3 (AVX2, FMA), or the plainest. The widest that is compiled, that the
 * processor has, and that $YOKE_CPU_ISA allows; the same at every call. */
int yk__isa(void);

#endif
