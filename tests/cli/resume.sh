#!/bin/bash
# resume.sh - checkpoints of `yoke train`: a run that was killed goes on to the bit, signals save, mistakes are told.
. tests/support/tap.bash

losses()
{
    sed -E 's/,"(samples_per_)?seconds?":[^}]*//' "$1"
}

# start ARGUMENTS...: in the background; its process is $pid.
start()
{
    "$YOKE" train "$@" > out 2> err < /dev/null &
    pid=$!
}

# ended: waits, and sets $code.
ended()
{
    wait "$pid" 2> /dev/null
    code=$?
}

# kill_at STEP ARGUMENTS...: a run with --log half.log --checkpoint ck that is killed when its checkpoint of STEP is there.
# One that has ended before that, while this script had to wait for a processor, is begun again.
kill_at()
{
    local step=$1 i
    shift
    rm -rf before
    mkdir before
    cp -r ck half.log before 2> /dev/null
    for ((i = 0; i < 20; i++)); do
        start "$@" --log half.log --checkpoint ck
        reached "$step"
        kill -KILL "$pid" 2> /dev/null
        ended
        [ $code = 0 ] || break
        rm -rf ck half.log
        cp -r before/. .
    done
    [ $code = 137 ]
}

base=(--epochs 2 --batch-size 100 --seed 3 --schedule cosine --warmup 10 --momentum 0.9 --weight-decay 1e-4)
exits 0 "the unbroken run" train "${base[@]}" --workers 2 --save whole.safetensors --log whole.log
cp out whole.out
for how in "" "--async-save"; do
    rm -rf ck half.log
    # shellcheck disable=SC2086
    ok "killed $how: in the middle of an epoch" kill_at 49 "${base[@]}" --workers 2 --save half.safetensors --save-every 7 $how
    printf '{"event":"step","epoch":0,"ste' >> half.log # the line that the kill cut off
    # shellcheck disable=SC2086
    ok "killed $how, resumed: goes on" kill_at 150 "${base[@]}" --workers 1 --save half.safetensors --save-every 7 --resume $how
    # shellcheck disable=SC2086
    exits 0 "killed twice $how, resumed" train "${base[@]}" --workers 4 --save half.safetensors --log half.log \
        --checkpoint ck --save-every 7 --resume $how
    says out "going on ck/step-"
    ok "killed $how: the same weights to the bit" cmp -s whole.safetensors half.safetensors
    ok "killed $how: the same log" [ "$(losses whole.log)" = "$(losses half.log)" ]
    ok "killed $how: the same epoch line" [ "$(sed -n 's/ *[0-9]* images.*//; /^epoch 2/p' out)" = \
        "$(sed -n 's/ *[0-9]* images.*//; /^epoch 2/p' whole.out)" ]
    ok "killed $how: the last three are kept" [ "$(ls ck | tr '\n' ' ')" = \
        "step-00000231 step-00000238 step-00000240 " ]
done

exits 0 "a finished run resumed" train "${base[@]}" --checkpoint ck --resume
ok "tests again" [ "$(tail -n 1 out)" = "$(tail -n 1 whole.out)" ]
ok "says no rate, as no step was taken" [ "$(grep '^epoch' out)" = "$(grep '^epoch 2' whole.out | sed 's| *[0-9]* images/s$||')" ]

rm -rf ck
exits 0 "without --save-every" train --epochs 3 --batch-size 600 --no-eval --checkpoint ck --keep 2 --resume
says out "no checkpoint ck"
ok "every epoch is saved, --keep stay" [ "$(ls ck | tr '\n' ' ')" = "step-00000040 step-00000060 " ]
exits 0 "a longer run from there" train --epochs 4 --batch-size 600 --no-eval --checkpoint ck --resume --save four.safetensors
exits 0 "the same in one go" train --epochs 4 --batch-size 600 --no-eval --save one.safetensors
ok "gives the same weights" cmp -s four.safetensors one.safetensors

# A run that never ends: what happens at its signals, and what --resume refuses.
endless=(--epochs 100000 --no-eval --batch-size 50)
exits 0 "to compare with" train "${endless[@]}" --steps 20 --save twenty.safetensors
for signal in TERM USR1; do
    rm -rf ck log
    start "${endless[@]}" --checkpoint ck --save-every 1000s --log log
    ok "SIG$signal: the run has begun" wait_for log '"step":3,'
    kill -s $signal "$pid"
    ended
    ok "SIG$signal: exit code 75" [ $code = 75 ]
    says out "saved checkpoint step"
    step=$(sed -n 's/.*"step":\([0-9]*\),.*/\1/p' log | tail -n 1)
    ok "SIG$signal: the checkpoint is of the last step" [ "$(ls ck)" = "$(printf 'step-%08d' "$step")" ]
done
exits 1 "--resume to a step that is behind" train "${endless[@]}" --steps 1 --checkpoint ck --resume
says err "--resume checkpoint step $step step 1"
rm -rf ck log
start "${endless[@]}" --checkpoint ck --log log
ok "SIGINT: the run has begun" wait_for log '"step":3,'
kill -s INT "$pid"
ended
ok "SIGINT saves too: exit code 130" [ $code = 130 ]
ok "SIGINT: one checkpoint" [ "$(ls ck | wc -l)" = 1 ]

rm -rf ck
exits 0 "five steps" train "${endless[@]}" --steps 5 --checkpoint ck
exits 1 "no --resume where there are checkpoints" train "${endless[@]}" --steps 20 --checkpoint ck
says err "ck/step-00000005 --resume"
refuses()
{
    local text=$1
    shift
    exits 1 "--resume with $*" train "${endless[@]}" --steps 20 --checkpoint ck --resume "$@"
    says err "--resume ck/step-00000005"
    says err "$text"
}
refuses "saved model 'lenet' 'mlp'" --model mlp
refuses "saved seed '0' '1'" --seed 1
refuses "saved lr '0.05' '0.1'" --lr 0.1
refuses "saved dtype 'f32' 'f64'" --dtype f64
refuses "schedule 'none' 'step 100000 epochs 20 steps'" --schedule step
refuses "shuffle 0 1" --no-shuffle
refuses "saved augmentation 'on' 'off'" --no-augment
refuses "mixup '0.2'" --mixup 0.2

# Another batch size takes what is left of the epoch, 11,750 images, and then whole epochs.
cp -r ck other
exits 0 "--resume with another batch size" train --epochs 2 --no-eval --batch-size 100 --checkpoint other --resume
ok "to the end of the second epoch" [ "$(ls other | tail -n 1)" = step-00000243 ]
rm -rf other

# So does another number of batches a step: half of a cosine's way stays half of it.
way=(--no-eval --model mlp --batch-size 50 --epochs 2 --lr 0.1 --schedule cosine --checkpoint way)
exits 0 "four batches a step" train "${way[@]}" --accumulate 4
rm -r way/step-00000120
exits 0 "--resume with another --accumulate" train "${way[@]}" --accumulate 2 --resume
ok "to the end of its own steps" [ -d way/step-00000180 ]
ok "and of its cosine" grep -Pzq '"kind": "cosine_lr",\s*"t_max": 240,\s*"eta_min": 0(\.0)?,\s*"time": 240' way/step-00000180/state.json
rm -rf way

# A link in the place of a saved file stays, and the file that it leads to is the new one.
mkdir elsewhere
ln -s elsewhere/linked.safetensors link.safetensors
exits 0 "--save through a link" train --model mlp --no-eval --steps 3 --save link.safetensors
ok "the link stays" [ -L link.safetensors ]
ok "its file is there" [ -f elsewhere/linked.safetensors ]
ok "and nothing else" [ "$(ls elsewhere)" = linked.safetensors ]
rm -r elsewhere link.safetensors

# A broken newest one.
exits 0 "to step 10" train "${endless[@]}" --steps 10 --checkpoint ck --resume
printf '\x01' | dd of=ck/step-00000010/model.safetensors bs=1 seek=5000 conv=notrunc 2> dd.err
exits 0 "a broken newest checkpoint" train "${endless[@]}" --steps 20 --checkpoint ck --resume --save again.safetensors
says err "warning 1 broken checkpoint ck/step-00000010/model.safetensors checksum"
says out "going on ck/step-00000005"
ok "costs nothing but time" cmp -s twenty.safetensors again.safetensors
cp -r ck kept
for dir in ck/*; do truncate -s 50 "$dir/state.json"; done
exits 1 "nothing but broken ones" train "${endless[@]}" --steps 20 --checkpoint ck --resume
says err "ck valid checkpoint 3 broken"

# Mistakes, and folders that are not there or full.
exits 2 "--save-every 0" train --checkpoint ck --save-every 0
exits 2 "--save-every 5m" train --checkpoint ck --save-every 5m
says err "--save-every 5m steps 500 30s"
exits 2 "--resume alone" train --resume
says err "--resume --checkpoint DIR"
exits 2 "--keep alone" train --keep 2
says err "--keep --checkpoint DIR"
cp -r kept/step-00000005 one
exits 1 "a checkpoint in place of the folder that it is in" train --steps 20 --checkpoint one --resume
says err "one: checkpoint"
ok "does not begin anew in it" [ ! -e one/step-00000020 ]
"$YOKE" ckpt strip twenty.safetensors bare.safetensors > out # which does not tell its model
mv bare.safetensors c1
exits 1 "weights of another model; the file's name is part of a tensor's" train --model mlp --steps 1 --init c1
says err "c1 load_state_dict MLP"
exits 1 "a folder in a folder that is not there" train --steps 1 --checkpoint no/where
says err "--checkpoint no/where No such file or directory"
exits 1 "a file" train --steps 1 --checkpoint twenty.safetensors
says err "--checkpoint twenty.safetensors Not a directory"
rm -rf ck && mv kept ck
before=$(cat ck/*/* | cksum)
(
    trap '' XFSZ
    ulimit -f 100
    run train "${endless[@]}" --steps 30 --checkpoint ck --resume
    exit "$code"
)
ok "a full disk: exit code 1" [ $? = 1 ]
says err ".tmp/model.safetensors: File too large"
ok "a full disk: what was there is there" [ "$(cat ck/*/* | cksum)" = "$before" ]

# With augmentation and batch normalisation, where the data are.
if [ -n "${YOKE_DATA:-}" ] && run train --model lenet --data cifar10 --steps 1 --no-eval && [ "$code" = 0 ]; then
    base=(--model resnet18-cifar --data cifar10 --batch-size 8 --lr 0.02 --schedule cosine --no-eval)
    exits 0 "ResNet-18 on CIFAR-10" train "${base[@]}" --steps 6 --workers 2 --save whole.safetensors
    rm -rf ck
    start "${base[@]}" --steps 6 --workers 1 --checkpoint ck --save-every 1
    ok "ResNet-18: step 3" reached 3
    kill -KILL "$pid"
    ended
    exits 0 "ResNet-18, killed, resumed" train "${base[@]}" --steps 6 --workers 3 --checkpoint ck --resume \
        --save half.safetensors
    ok "ResNet-18: the same weights to the bit" cmp -s whole.safetensors half.safetensors
else
    skip "ResNet-18 on CIFAR-10" "needs CIFAR-10 under YOKE_DATA"
fi
finish
