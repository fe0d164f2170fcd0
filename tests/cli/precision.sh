#!/bin/bash
# precision.sh - `yoke train --precision`: what it reaches, that its bits are as reproducible as f32's, that a run goes
# on with the precision it began with, several processes, wrong usage.
. tests/support/tap.bash

losses()
{
    sed -E 's/,"(samples_per_)?seconds?":[^}]*//' "$1"
}

accuracy()
{
    tail -n 1 out | sed -n 's/^test accuracy //p'
}

# near A B: the losses of the first 60 steps of two logs, in which the loss begins to fall, are within 0.01 of one
# another. Later the smallest rounding shows: two instruction sets in fp32 are as far apart as fp32 and bf16.
near()
{
    sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$1" > losses.1
    sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$2" > losses.2
    paste -d ' ' losses.1 losses.2 |
        awk 'NR <= 60 { d = $1 - $2; far = far || $1 == "" || $2 == "" || d * d > 1e-4 } END { exit far || NR < 60 }'
}

# Under a learning rate that falls the accuracy is the same to half a hundredth, whatever rounds how. Sanitizers see the
# same in the first steps.
whole=(train --epochs 3 --schedule cosine)
[ -z "${SANITIZE:-}" ] || whole+=(--steps 60 --no-eval)
exits 0 "fp32" "${whole[@]}" --log fp32.log
if [ -z "${SANITIZE:-}" ]; then
    full=$(accuracy)
    ok "fp32 reaches 0.97 (here $full)" awk "BEGIN { exit !($full >= 0.97) }"
fi
for precision in bf16 fp16; do
    exits 0 "$precision" "${whole[@]}" --precision $precision --log $precision.log
    says out "parameters, f32, precision $precision)"
    if [ -z "${SANITIZE:-}" ]; then
        reached=$(accuracy)
        ok "$precision reaches the same (here $reached)" awk "BEGIN { d = $reached - $full; exit !(d * d <= 0.01 * 0.01) }"
    fi
    ok "$precision: the losses of fp32" near $precision.log fp32.log
    base=(train --steps 30 --batch-size 32 --no-eval --seed 7 --precision $precision)
    exits 0 "$precision, the run to compare with" "${base[@]}" --workers 0 --threads 1 --save a.safetensors --log a.log
    exits 0 "$precision, other threads" "${base[@]}" --workers 3 --threads 2 --save b.safetensors --log b.log
    ok "$precision: the same losses" [ "$(losses a.log)" = "$(losses b.log)" ]
    ok "$precision: the same weights" cmp -s a.safetensors b.safetensors
    exits 0 "without it" train --steps 30 --batch-size 32 --no-eval --seed 7 --log b.log
    ok "$precision gives other losses than fp32" [ "$(losses a.log)" != "$(losses b.log)" ]

    rm -rf ck
    exits 0 "$precision, half" "${base[@]}" --steps 13 --checkpoint ck
    exits 0 "$precision, the other half" "${base[@]}" --checkpoint ck --resume --save b.safetensors
    says out "going on from ck/step-00000013"
    ok "$precision: a run that goes on has the bits of one that was not broken" cmp -s a.safetensors b.safetensors
    other=$([ $precision = bf16 ] && echo fp16 || echo bf16)
    for now in fp32 $other; do
        exits 1 "--resume with --precision $now" train --steps 40 --batch-size 32 --no-eval --seed 7 --precision $now \
            --checkpoint ck --resume
        says err "was saved with dtype 'f32, precision $precision', which is 'f32"
    done
    exits 0 "2 processes with $precision" run --no-prefix -n 2 -- "$YOKE" train --epochs 1 --batch-size 32 --precision $precision
    reached=$(accuracy)
    ok "2 processes learn with $precision (here $reached)" awk "BEGIN { exit !($reached >= 0.7) }"
done
ok "the state of the scaler is saved" grep -q '"scaler"' ck/step-*/state.json

# shellcheck disable=SC2016
exits 1 "processes of two precisions" run -n 2 -- \
    bash -c '"$0" train --steps 2 --precision $([ $RANK = 0 ] && echo fp16 || echo bf16)' "$YOKE"
says err "--dtype f32, precision"

exits 2 "--precision of a number" train --precision f16
says err "--precision: unknown value 'f16', did you mean 'bf16'?"
exits 2 "--precision with f64" train --precision bf16 --dtype f64
says err "--precision bf16 is for --dtype f32, not f64"
exits 0 "--help" train --help
says out "--precision NAME"
says out "fp32, bf16, fp16"
finish
