#!/bin/bash
# resume_distributed.sh - checkpoints of `yoke run -- yoke train`: a job that was killed goes on to the bit, with another
# number of processes too; a signal to one process saves the same step on all; what fails on one fails on all.
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE

losses()
{
    sed -E 's/,"(samples_per_)?seconds?":[^}]*//' "$1"
}

# job COUNT ARGUMENTS...: the words of a job of so many processes, each of which writes its number to pid.RANK.
job()
{
    # shellcheck disable=SC2016
    words=(run --no-prefix "${launch[@]}" -n "$1" sh -c "$first"'echo $$ > pid.$RANK; exec "$@"' - "$YOKE" train)
    shift
    words+=("$@")
}
launch=()
first= # what each process does before

# start COUNT ARGUMENTS...: in the background; the launcher's process is $pid.
start()
{
    job "$@"
    rm -f pid.*
    "$YOKE" "${words[@]}" > out 2> err < /dev/null &
    pid=$!
}

# ended: waits, and sets $code.
ended()
{
    wait "$pid" 2> /dev/null
    code=$?
}

# ranks CODE NAME COUNT ARGUMENTS...
ranks()
{
    local expected=$1 name=$2
    shift 2
    job "$@"
    exits "$expected" "$name" "${words[@]}"
}

base=(--epochs 2 --batch-size 20 --seed 3 --schedule cosine --warmup 10 --momentum 0.9 --weight-decay 1e-4)
ranks 0 "the unbroken run" 2 "${base[@]}" --workers 2 --save whole.safetensors --log whole.log
cp out whole.out
for how in "" "--async-save --sharded-save"; do
    rm -rf ck
    # shellcheck disable=SC2086
    start 2 "${base[@]}" --workers 2 --save half.safetensors --log half.log --checkpoint ck --save-every 7 $how
    ok "killed $how: a checkpoint in the middle of an epoch" reached 49
    kill -KILL "$pid"
    ended
    ok "killed $how: before the end" [ $code = 137 ]
    # shellcheck disable=SC2086
    start 2 "${base[@]}" --workers 1 --save half.safetensors --log half.log --checkpoint ck --save-every 7 --resume $how
    ok "killed $how, resumed: goes on" reached 350
    kill -KILL "$(cat pid.1)"
    ended
    ok "one process killed $how: the job ends with 137" [ $code = 137 ]
    # shellcheck disable=SC2086
    ranks 0 "killed twice $how, resumed" 2 "${base[@]}" --workers 3 --save half.safetensors --log half.log \
        --checkpoint ck --save-every 7 --resume $how
    says out "going on ck/step-"
    ok "killed $how: one process speaks" [ "$(grep -c '^going on' out)" = 1 ]
    ok "killed $how: the same weights to the bit" cmp -s whole.safetensors half.safetensors
    ok "killed $how: the same log" [ "$(losses whole.log)" = "$(losses half.log)" ]
    ok "killed $how: the same epoch line" [ "$(sed -n 's/ *[0-9]* images.*//; /^epoch 2/p' out)" = \
        "$(sed -n 's/ *[0-9]* images.*//; /^epoch 2/p' whole.out)" ]
    ok "killed $how: the last three are kept" [ "$(ls ck | tr '\n' ' ')" = \
        "step-00000588 step-00000595 step-00000600 " ]
done

# Other numbers of processes: 12,000 images are 20 steps of 2 x 60, then 20 of 3 x 60, then 100 of 60.
rm -rf ck
plain=(--batch-size 60 --no-eval --checkpoint ck --log log --resume)
ranks 0 "20 steps of 2 processes" 2 "${plain[@]}" --steps 20
ranks 0 "20 steps of 3, sharded" 3 "${plain[@]}" --steps 40 --sharded-save
ok "three files of weights" [ "$(ls ck/step-00000040/model-*-of-00003.safetensors | wc -l)" = 3 ]
ok "which are one checkpoint" "$YOKE" ckpt verify ck
exits 0 "the rest of the epoch in one" train "${plain[@]}" --epochs 1
ok "together they are one epoch" eval 'newest; [ $newest = 140 ]'
ok "and each step is in the log once" [ "$(grep -c '"event":"step"' log)" = 140 ]
ok "and the epoch" [ "$(grep -c '"event":"epoch"' log)" = 1 ]
ranks 0 "the next epoch in 2" 2 "${plain[@]}" --epochs 2
ok "is a whole one" eval 'newest; [ $newest = 240 ]'

# So does a schedule over the whole run, a quarter of which is over: 50 of 200 steps are 100 of one process's 400, and 33
# of 3 processes' 134. Of the epoch, 6,000 images are left.
rm -rf ck
falling=(--epochs 2 --batch-size 60 --schedule cosine --no-eval --checkpoint ck --resume)
ranks 0 "a cosine over 2 epochs in 2 processes" 2 "${falling[@]}" --save-every 50 --keep 1000
rm -r ck/step-0000015? ck/step-0000020? ck/step-0000010?
cp -r ck quarter
# moment STEP TIME: of the schedule.
moment()
{
    grep -Eq "\"time\": $2\b" "ck/$(printf 'step-%08d' "$1")/state.json"
}
ranks 1 "over more epochs in 1" 1 "${falling[@]}" --epochs 3
says err "schedule 'cosine 2 epochs' 'cosine 3 epochs'"
ranks 0 "the rest of a cosine in 1" 1 "${falling[@]}" --save-every 150
ok "is where it was" moment 150 200
ok "and comes to its end" moment 350 400
rm -rf ck
cp -r quarter ck
ranks 0 "the rest of a cosine in 3" 3 "${falling[@]}"
ok "is at its end too" moment 151 135

# A signal to one process, and to the launcher: all save one step, and the run goes on from there as if nothing had been.
endless=(--epochs 100000 --no-eval --batch-size 20 --momentum 0.9)
one_step()
{
    local step
    ok "$1: exit code 75" [ $code = 75 ]
    newest
    step=$newest
    says out "saved checkpoint step $step ck"
    says err "exit code 75"
    ok "$1: one checkpoint" [ "$(ls ck)" = "$(printf 'step-%08d' "$step")" ]
    ok "$1: of the last step" [ "$(sed -n 's/.*"step":\([0-9]*\),.*/\1/p' log | tail -n 1)" = "$step" ]
    ranks 0 "$1: resumed" 2 "${endless[@]}" --checkpoint ck --resume --steps $((step + 5)) --save a.safetensors
    ranks 0 "$1: never stopped" 2 "${endless[@]}" --steps $((step + 5)) --save b.safetensors
    ok "$1: the same weights" cmp -s a.safetensors b.safetensors
}
for case in "TERM 1" "USR1 0" "TERM all" "USR1 all"; do
    signal=${case% *} whom=${case#* }
    rm -rf ck log
    launch=(--max-restarts 2)
    start 2 "${endless[@]}" --checkpoint ck --save-every 1000s --log log
    ok "SIG$signal to $whom: the run has begun" wait_for log '"step":3,'
    [ $whom = all ] || kill -s $signal "$(cat pid.$whom)"
    [ $whom != all ] || kill -s $signal "$pid"
    ended
    launch=()
    one_step "SIG$signal to $whom"
done
rm -rf ck log
start 2 "${endless[@]}" --checkpoint ck --save-every 1s --log log
ok "every second by one clock" reached 10
kill -s TERM "$pid"
ended
ok "is the same step on all" [ $code = 75 ]

# A process that dies is started again with the others, and the run ends as if nothing had been.
rm -rf ck
launch=(--max-restarts 2)
start 2 "${base[@]}" --workers 2 --save half.safetensors --log half.log --checkpoint ck --save-every 7 --resume
ok "restarted: a checkpoint" reached 49
kill -KILL "$(cat pid.1)"
ended
launch=()
ok "restarted: exit code 0" [ $code = 0 ]
says err "restart 1 of 2"
ok "restarted: the same weights" cmp -s whole.safetensors half.safetensors
ok "restarted: the same log" [ "$(losses whole.log)" = "$(losses half.log)" ]

# What failed first is plain: the others, which wait for it and would save their state, are started again at once. Their
# part is measured in turns with that of processes that end by the signal: what a busy machine adds is in both.
rm -rf ck log
launch=(--max-restarts 30)
start 2 "${endless[@]}" --checkpoint ck --save-every 100000 --log log
ok "restarts: the run has begun" wait_for log '"step":20,'
plain=$pid
mkdir -p plain
(cd plain && exec "$YOKE" run --max-restarts 30 -n 2 sh -c 'echo $$ > pid.$RANK; exec sleep 600' 2> err < /dev/null) &
other=$!
wait_until 60 [ -s plain/pid.1 ]
best=2000000 least=1000000 most=$((20000 * ${YOKE_TEST_SLOWNESS:-1}))
# restart FOLDER ATTEMPT: kills rank 1, and sets $took to the microseconds until the launcher begins the restart.
restart()
{
    local victim again began
    read -r victim < "$1/pid.1"
    began=${EPOCHREALTIME/./}
    kill -KILL "$victim"
    until holds "$1/err" "restart $2 of 30"; do pause 0.001; done
    took=$((${EPOCHREALTIME/./} - began))
    until read -r again < "$1/pid.1" && [ "$again" != "$victim" ]; do pause 0.01; done
}
for ((attempt = 1; attempt <= 25 && best >= most + least; attempt++)); do
    restart plain $attempt
    [ $took -ge $least ] || least=$took
    restart . $attempt
    [ $took -ge $best ] || best=$took
    sleep 0.7
done
kill -INT $plain $other
wait $other 2> /dev/null
pid=$plain
ended
launch=()
ok "a failure is judged, and the others stopped, within $most us of what the machine takes for a job of nothing ($best us, $least us)" \
    [ $best -lt $((most + least)) ]

# A signal while all test: 60 images to train on and 10,000 to test.
mkdir mnist
images()
{
    printf '%b' "\x00\x00\x08\x03\x00\x00$2\x00\x00\x00\x1c\x00\x00\x00\x1c" > "mnist/$1-images-idx3-ubyte"
    head -c $(($3 * 784)) /dev/zero >> "mnist/$1-images-idx3-ubyte"
    printf '%b' "\x00\x00\x08\x01\x00\x00$2" > "mnist/$1-labels-idx1-ubyte"
    head -c "$3" /dev/zero >> "mnist/$1-labels-idx1-ubyte"
}
images train '\x00\x3c' 60
images t10k '\x27\x10' 10000
for signal in TERM USR1; do
    rm -rf ck log
    start 2 --data mnist:mnist --epochs 100000 --batch-size 30 --checkpoint ck --save-every 100000 --log log
    ok "SIG$signal while testing: the run has begun" wait_for log '"step":3,'
    kill -s $signal "$(cat pid.1)"
    ended
    ok "SIG$signal while testing: exit code 75" [ $code = 75 ]
    step=$(sed -n 's/.*"step":\([0-9]*\),.*/\1/p' log | tail -n 1)
    ok "SIG$signal while testing: saved" [ "$(ls ck)" = "$(printf 'step-%08d' "$step")" ]
done

# Two hosts, as far as the processes know, of which one does not see the other's files.
mkdir far
rm -rf ck log
first='export YOKE_HOST_ID=host$RANK; [ $RANK = 0 ] || cd far; '
start 2 "${endless[@]}" --checkpoint ck --save-every 1000s --log log
ok "two hosts: the run has begun" wait_for log '"step":3,'
kill -s USR1 "$(cat far/pid.1)"
ended
one_step "two hosts, SIGUSR1 to the second"
ok "two hosts: one writes" [ "$(ls far)" = "pid.1" ]
first=

# A broken newest one; nothing to go on from; another run's.
rm -rf ck
ranks 0 "three checkpoints" 2 "${endless[@]}" --steps 12 --checkpoint ck --save-every 4
ranks 0 "to compare with" 2 "${endless[@]}" --steps 16 --save b.safetensors
printf '\x01' | dd of=ck/step-00000012/optimizer.safetensors bs=1 seek=5000 conv=notrunc 2> dd.err
ranks 0 "a broken newest checkpoint" 2 "${endless[@]}" --steps 16 --checkpoint ck --resume --save a.safetensors
says err "warning: 1 broken rank 0 (host"
says err "ck/step-00000012/optimizer.safetensors checksum"
says out "going on ck/step-00000008"
ok "costs nothing but time" cmp -s a.safetensors b.safetensors
ranks 1 "without --resume" 2 "${endless[@]}" --steps 16 --checkpoint ck
says err "yoke: rank 1: rank 0 (host"
says err "ck/step-00000016 --resume"
ranks 1 "another seed" 2 "${endless[@]}" --steps 20 --checkpoint ck --resume --seed 9
says err "saved seed '0' '9'"
for dir in ck/*; do truncate -s 50 "$dir/state.json"; done
ranks 1 "nothing but broken ones" 2 "${endless[@]}" --steps 20 --checkpoint ck --resume
says err "ck: valid checkpoint"
ranks 1 "a folder in a folder that is not there" 2 "${endless[@]}" --steps 1 --checkpoint no/where
says err "yoke: rank 1: --checkpoint rank 0 (host"
says err "no/where No such file or directory"

# A disk that is full, and one that cannot be written.
mkdir small
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=1400k tmpfs small 2> mount.err; then
    trap 'umount "$PWD/small"; rm -rf "$work"' EXIT
    ranks 1 "a full disk" 2 "${endless[@]}" --steps 40 --checkpoint small/ck --save-every 4 --keep 9
    says err "yoke: rank 0: rank 0 (host"
    says err "yoke: rank 1: rank 0 (host"
    says err "No space left on device"
    ok "a full disk: nothing half is left" [ "$(ls -d small/ck/*.tmp 2> /dev/null)" = "" ]
    last=$(ls small/ck | tail -n 1)
    ok "a full disk: the last that fitted is whole" "$YOKE" ckpt verify "small/ck/$last"
    mount -o remount,ro small
    ranks 1 "a disk that cannot be written" 2 "${endless[@]}" --steps 40 --checkpoint small/ck --resume
    says err "yoke: rank 1: --checkpoint rank 0 (host"
    says err "small/ck Read-only file system"
else
    skip "a full disk" "needs to be root, and to mount a tmpfs"
fi

# With augmentation and batch normalisation, where the data are.
if [ -n "${YOKE_DATA:-}" ] && run train --model lenet --data cifar10 --steps 1 --no-eval && [ "$code" = 0 ]; then
    base=(--model resnet18-cifar --data cifar10 --batch-size 4 --lr 0.02 --schedule cosine --no-eval --steps 6)
    ranks 0 "ResNet-18 on CIFAR-10" 2 "${base[@]}" --workers 2 --save whole.safetensors
    rm -rf ck
    start 2 "${base[@]}" --workers 1 --checkpoint ck --save-every 1
    ok "ResNet-18: step 3" reached 3
    kill -KILL "$pid"
    ended
    ranks 0 "ResNet-18, killed, resumed" 2 "${base[@]}" --workers 3 --checkpoint ck --resume --save half.safetensors
    ok "ResNet-18: the same weights to the bit" cmp -s whole.safetensors half.safetensors
else
    skip "ResNet-18 on CIFAR-10" "needs CIFAR-10 under YOKE_DATA"
fi
finish
