#!/bin/bash
# instruction_sets.sh - YOKE_CPU_ISA: the kernels that are asked for are used, or it is said why not, before any of them can
# end the program by SIGILL.
. tests/support/tap.bash
few=(train --model mlp --steps 1 --batch-size 8)

exits 0 "doctor" doctor
built=$(sed -n 's/^  kernels .*of those that are built (\([a-z0-9, ]*\))$/\1/p' out)
used=$(sed -n 's/^  kernels *\([a-z0-9]*\).*/\1/p' out)
ok "doctor lists what is built" [ -n "$built" ]
ok "and uses one of them" eval '[[ " ${built//,/} " == *" $used "* ]]'
for set in base v3 v4; do
    if [[ " ${built//,/} " != *" $set "* ]]; then
        YOKE_CPU_ISA=$set exits 1 "$set, which is not built: doctor" doctor
        says out "problem: YOKE_CPU_ISA=$set: this build of yoke has kernels for $built alone CPU_ISAS=all"
        YOKE_CPU_ISA=$set exits 1 "$set, which is not built: a training" "${few[@]}"
        says err "YOKE_CPU_ISA=$set: this build of yoke has kernels for $built alone CPU_ISAS=all"
        continue
    fi
    YOKE_CPU_ISA=$set run doctor
    if grep -q "this processor lacks" out; then
        ok "$set, which the processor lacks: doctor" [ $code = 1 ]
        YOKE_CPU_ISA=$set exits 1 "$set, which the processor lacks: a training" "${few[@]}"
        says err "YOKE_CPU_ISA=$set: this processor lacks"
    else
        ok "$set: doctor" grep -qE "^  kernels +$set( |,)" out
        YOKE_CPU_ISA=$set exits 0 "$set: a training" "${few[@]}"
    fi
done
YOKE_CPU_ISA=${used^^} exits 0 "a name in capitals" "${few[@]}"
YOKE_CPU_ISA=avx2 exits 1 "a name that is none: doctor" doctor
says out "problem: YOKE_CPU_ISA=avx2: expected the name of an instruction set: base, v3 or v4"
YOKE_CPU_ISA=avx2 exits 2 "a name that is none: a training" "${few[@]}"
says err "YOKE_CPU_ISA=avx2: expected the name of an instruction set: base, v3 or v4"
YOKE_CPU_ISA=avx2 exits 0 "the program itself needs no kernels" --version
finish
