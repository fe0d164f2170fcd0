#!/bin/bash
# recorded_steps.sh - `yoke train` on an (emulated) GPU: steps that are recorded and replayed give the losses and weights
# of steps that run as they are, with batches of other sizes between, mixed precision, and several batches a step; runs
# that go on; a loss that is not finite; what is not recorded, and why.
. tests/support/tap.bash
build=${YOKE%/*}
if [ ! -e "$build/emulator/yoke-cuda.so" ]; then
    echo "1..0 # SKIP this build has no emulator: it needs the headers of CUDA 12 or 13"
    exit 0
fi
export YOKE_BACKEND_PATH=$build/emulator YOKE_DETERMINISTIC=1 # bits are compared

# images NAME COUNT: so many pictures of 28x28 and their labels, as MNIST's files.
images()
{
    local i count
    count=$(printf '\\0\\0\\0\\%03o' "$2")
    { printf '\0\0\10\3%b\0\0\0\34\0\0\0\34' "$count" && seq 1 9999 | head -c $((784 * $2)); } > "data/$1-images-idx3-ubyte"
    printf '\0\0\10\1%b' "$count" > "data/$1-labels-idx1-ubyte"
    for ((i = 0; i < $2; i++)); do printf '%b' "\\0$((i * 3 % 8))"; done >> "data/$1-labels-idx1-ubyte"
}
mkdir data
images train 22
images t10k 10

# The lines of steps, and their losses.
losses()
{
    grep '"event":"step"' "$1" | sed -E 's/,"(samples_per_)?seconds?":[^}]*//'
}

# both NAME ARGUMENTS...: a run that records its steps, and one that does not, have the same bits.
both()
{
    local name=$1
    shift
    YOKE_LOG=info exits 0 "$name" train --device cuda --data mnist:data --log a.log --save a.safetensors "$@"
    ok "$name: a step is recorded" grep -q "info: step [45] is recorded, and replayed" err
    cp out a.out
    cp err a.err
    YOKE_LOG=info exits 0 "$name, --no-graph" train --device cuda --data mnist:data --log b.log --save b.safetensors \
        --no-graph "$@"
    ok "$name: --no-graph records none" [ "$(grep -c recorded err)" = 0 ]
    ok "$name: the same losses" [ "$(losses a.log)" = "$(losses b.log)" ]
    ok "$name: the same weights" cmp -s a.safetensors b.safetensors
    ok "$name: the same is said" \
        [ "$(sed 's/[0-9]* images.s//; s/a.safe/b.safe/' a.out)" = "$(sed 's/[0-9]* images.s//' out)" ]
}

both "epochs that end with a smaller batch" --model lenet --batch-size 4 --epochs 2 --schedule cosine
ok "the last step of an epoch is recorded, too" grep -q "the last step of an epoch is recorded, too: step 12" a.err
ok "every step is logged" [ "$(grep -c '"event":"step"' a.log)" = 12 ]
ok "the losses are finite" [ "$(grep -c null a.log)" = 0 ]
"$YOKE" train --device cpu --data mnist:data --model lenet --batch-size 4 --epochs 2 --schedule cosine --log cpu.log > out
ok "they are those of the CPU" awk -F'[:,}]' '
    /"step"/ && FNR == NR { loss[FNR] = $9 }
    /"step"/ && FNR != NR { d = $9 - loss[FNR]; bad += d * d > 1e-8; seen++ }
    END { exit bad || seen < 12 }' a.log cpu.log
both "tests" --model lenet --batch-size 4 --epochs 5
ok "the test of a batch is recorded, once" [ "$(grep -c "the test of a batch is recorded, and replayed" a.err)" = 1 ]
both "fp16" --model mlp --batch-size 4 --epochs 2 --precision fp16 --warmup 4
both "two batches a step" --model lenet --batch-size 4 --epochs 3 --accumulate 2
ok "the last step of an epoch, too" grep -q "the last step of an epoch is recorded, too: step 6" a.err
both "fewer batches in the last step" --model mlp --batch-size 2 --epochs 3 --accumulate 4
ok "that is recorded, too" grep -q "the last step of an epoch is recorded, too: step 6" a.err

# Two processes with a GPU each, and NCCL: the reduction is recorded, too.
if [ -e "$build/emulator/yoke-nccl.so" ]; then
    export YOKE_EMULATOR_GPUS=2
    pair=(-n 2 -- "$YOKE" train --device cuda --data mnist:data --model mlp --batch-size 2 --epochs 2 --no-eval)
    YOKE_COMM_BACKEND=nccl YOKE_LOG=info exits 0 "two ranks" run "${pair[@]}" --log a.log --save a.safetensors
    ok "both ranks record" [ "$(grep -c 'info: step [0-9]* is recorded, and replayed' err)" = 2 ]
    ok "the last step of an epoch, too" [ "$(grep -c 'the last step of an epoch is recorded, too: step 12' err)" = 2 ]
    YOKE_COMM_BACKEND=nccl exits 0 "two ranks, --no-graph" run "${pair[@]}" --no-graph --log b.log --save b.safetensors
    ok "two ranks: the same losses" [ "$(losses a.log)" = "$(losses b.log)" ]
    ok "two ranks: the same weights" cmp -s a.safetensors b.safetensors
    YOKE_COMM_BACKEND=native exits 0 "two ranks by native" run "${pair[@]}" --log b.log --save b.safetensors
    ok "native: why nothing is recorded" grep -q "cuda:[01]: [a-z_]*: the backend 'native' carries it out on the host, which a recording cannot repeat; the backend 'nccl' can be recorded" err
    ok "native: the same losses" [ "$(losses a.log)" = "$(losses b.log)" ]
    ok "native: the same weights" cmp -s a.safetensors b.safetensors
    unset YOKE_EMULATOR_GPUS
else
    skip "two ranks" "this build has no nccl backend"
fi

# A run that goes on in the middle of an epoch has the bits of one that was not interrupted.
whole=(train --device cuda --data mnist:data --model mlp --batch-size 4 --no-eval --precision fp16)
exits 0 "the first half" "${whole[@]}" --steps 7 --checkpoint ck
exits 0 "the other half" "${whole[@]}" --steps 12 --checkpoint ck --resume --log c.log --save c.safetensors
exits 0 "in one run" "${whole[@]}" --steps 12 --log d.log --save d.safetensors
ok "the same weights" cmp -s c.safetensors d.safetensors
ok "the same losses" [ "$(losses c.log)" = "$(losses d.log | tail -n +8)" ]

# A loss that is not finite is found after the steps behind it were queued: none of them counts, nothing is saved of it.
bad=(train --device cuda --data mnist:data --model mlp --batch-size 4 --no-eval)
for precision in fp32 fp16; do
    exits 1 "$precision: a loss that is not finite" "${bad[@]}" --lr 1e30 --precision $precision --log log --save no.safetensors
    says err "step 2 epoch 1 1e+30"
    says err "--allow-nan"
    ok "$precision: the steps before it are in the log, and no others" [ "$(grep -c event log)" = 1 ]
    ok "$precision: nothing was saved" [ ! -e no.safetensors ]
done
exits 1 "one in a replay" "${bad[@]}" --epochs 9 --lr 1e-20 --schedule step --step-size 1 --gamma 1e99 --checkpoint nan --save-every 1
late=$(sed -n 's/.*at step \([0-9]*\) .*/\1/p' err)
ok "one in a replay, at step ${late:-?}" [ "${late:-0}" -gt 6 ]
ok "the last checkpoint is that of the step before" test -e nan/step-*0$((late - 1))
exits 1 "the same without a recording" "${bad[@]}" --epochs 9 --lr 1e-20 --schedule step --step-size 1 --gamma 1e99 --no-graph
ok "the same step" [ "$(sed -n 's/.*at step \([0-9]*\) .*/\1/p' err)" = "$late" ]
# A sample that cannot be read, in the fifth step: the four before it count.
mkdir cifar
for ((i = 0; i < 20; i++)); do
    { printf '%b' "\\0$([ $i = 17 ] && echo 310 || echo $((i % 8)))" && seq $i 9999 | head -c 3072; } >> cifar/data_batch_$((i / 4 + 1)).bin
done
exits 1 "a damaged sample" train --device cuda --data cifar10:cifar --model mlp --batch-size 4 --no-shuffle --no-eval --log log
says err "cifar10: sample 17 label 200"
ok "the steps before it are in the log" [ "$(grep -c '"loss":[0-9]' log)" = 4 ]

exits 0 "--allow-nan" "${bad[@]}" --lr 1e30 --steps 10 --allow-nan --log log
ok "--allow-nan goes on" grep -q '"step":10,' log
ok "the log says null" grep -q '"loss":null' log

# Not recorded, and why is said once.
exits 0 "many batches a step" "${bad[@]}" --batch-size 1 --accumulate 17 --steps 2
says err "notice: steps are not recorded --accumulate 17 16 batches"
exits 0 "two processes on the CPU's ways" run --no-prefix -n 2 -- "$YOKE" "${bad[@]}" --device cuda:0 --steps 18 --log a.log
ok "why it is not recorded is said once" [ "$(grep -c 'notice: steps are not recorded, and run as they are: cuda:0' err)" = 1 ]
exits 0 "two processes on CPUs" run --no-prefix -n 2 -- "$YOKE" "${bad[@]}" --device cpu --steps 18 --log b.log
losses a.log > a.losses
losses b.log > b.losses
ok "the losses are those of the CPU" awk -F'[:,}]' '
    FNR == NR { loss[FNR] = $9 } FNR != NR { d = $9 - loss[FNR]; bad += d * d > 1e-8; seen++ }
    END { exit bad || seen != 18 }' a.losses b.losses
if [ -e "$build/emulator/yoke-nccl.so" ]; then
    # Several ranks with NCCL: the reduction is in the recording.
    export YOKE_EMULATOR_GPUS=2 YOKE_COMM_BACKEND=nccl
    ranks=(run --no-prefix -n 2 -- "$YOKE" "${bad[@]}" --device cuda --steps 12)
    YOKE_LOG=info exits 0 "two processes with NCCL" "${ranks[@]}" --log a.log --save a.safetensors
    ok "they record a step" said err "is recorded, and replayed" 2
    exits 0 "two processes with NCCL, --no-graph" "${ranks[@]}" --log b.log --save b.safetensors --no-graph
    ok "the same losses" [ "$(losses a.log)" = "$(losses b.log)" ]
    ok "the same weights" cmp -s a.safetensors b.safetensors
else
    skip "two processes with NCCL" "this build has no nccl backend"
fi
# shellcheck disable=SC2016
exits 1 "one process with --no-graph, one without" run -n 2 -- \
    bash -c '"$0" train --data mnist:data --steps 2 $([ $RANK = 1 ] && echo --no-graph)' "$YOKE"
says err "rank 1 --no-graph rank 0"
exits 0 "--no-graph on a CPU" train --device cpu --data mnist:data --steps 1 --no-eval --no-graph
finish
