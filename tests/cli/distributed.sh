#!/bin/bash
# distributed.sh - `yoke run -- yoke train`: several processes train what one would, and end together.
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE

# ranks CODE NAME COUNT ARGUMENTS...: `yoke train` in so many processes, and its exit code.
ranks()
{
    local code=$1 name=$2 count=$3
    shift 3
    exits "$code" "$name" run --no-prefix -n "$count" -- "$YOKE" train "$@"
}

# near FILE FILE BOUND: two logs of the same events, whose losses differ by BOUND at most, relatively.
near()
{
    awk -v bound="$3" -F'"loss":' '
        { split($2, tail, ","); sub(/,.*/, "", $1); kind = $1 }
        NR == FNR { loss[FNR] = tail[1]; event[FNR] = kind; count = FNR; next }
        { seen++; d = loss[FNR] - tail[1]; if (d < 0) d = -d
          if (event[FNR] != kind || !(tail[1] > 0) || !(d <= bound * tail[1])) { print "# line " FNR ": " loss[FNR] " and " tail[1]; bad = 1 } }
        END { exit bad || count < 10 || seen != count }' "$1" "$2"
}

not()
{
    ! "$@" > not.out
}

losses()
{
    sed -E 's/,"(samples_per_)?seconds?":[^}]*//' "$1"
}

# The joined batch of one process has the samples of all the ranks' batches, in this order or another. In f32 rounding,
# which depends on the size of a batch, would decide which of two equal inputs of a pool is the maximum.
base=(--steps 60 --seed 5 --lr 0.03 --dtype f64)
for count in 2 3; do
    exits 0 "one process, batch $((12 * count))" train "${base[@]}" --batch-size $((12 * count)) --threads 1 --log one.log
    ranks 0 "$count processes, batch 12" $count "${base[@]}" --batch-size 12 --log a.log --save a.safetensors
    ok "$count processes: one alone speaks" [ "$(grep -c '^test accuracy' out)" = 1 ]
    says out "12 $count processes"
    ok "$count processes: the losses are those of the joined batch" near one.log a.log 1e-9
    ranks 0 "$count processes again" $count "${base[@]}" --batch-size 12 --workers 3 --log b.log --save b.safetensors
    ok "$count processes again: the same losses" [ "$(losses a.log)" = "$(losses b.log)" ]
    ok "$count processes again: the same weights" cmp -s a.safetensors b.safetensors
done
exits 0 "one process, batch 48, without shuffle, f64" train --steps 30 --no-shuffle --dtype f64 --batch-size 48 --log one.log
ranks 0 "2 processes, 2 batches of 12 a step" 2 --steps 30 --no-shuffle --dtype f64 --batch-size 12 --accumulate 2 --log a.log
ok "accumulated batches are joined too" near one.log a.log 1e-11

# Batch normalisation sees its own process's images only, unless told otherwise.
norm=(--model resnet18 --dtype f64 --steps 10 --lr 0.001 --no-eval)
exits 0 "ResNet-18, one process, batch 12" train "${norm[@]}" --batch-size 12 --threads 1 --log one.log
ranks 0 "ResNet-18, 2 processes" 2 "${norm[@]}" --batch-size 6 --log a.log
ok "the statistics are each process's own" not near one.log a.log 1e-3
ranks 0 "ResNet-18, 2 processes, --sync-bn" 2 "${norm[@]}" --batch-size 6 --sync-bn --log a.log
ok "with --sync-bn they are those of the joined batch" near one.log a.log 1e-6

# 2,000 images do not divide by 3 or 7.
exits 0 "a trained network" train --epochs 1 --save net.safetensors
accuracy=$(tail -n 1 out)
ok "which has learned something" awk '{ exit !($3 > 0.7) }' <<< "$accuracy"
for count in 1 2 3 7; do
    ranks 0 "$count processes test" $count --init net.safetensors --epochs 0
    ok "$count processes: the same accuracy" [ "$(tail -n 1 out)" = "$accuracy" ]
done

# Ends.
endless=(--epochs 1000000 --no-eval --batch-size 16)
start()
{
    local count=$1
    shift
    # shellcheck disable=SC2016
    "$YOKE" run --no-prefix -n "$count" -- bash -c 'echo $$ > pid.$RANK; exec "$@"' - "$YOKE" train "$@" > out 2> err < /dev/null &
    pid=$!
    wait_for log '"step":20,'
}
ended()
{
    wait "$pid" 2> /dev/null
    code=$?
}

# Stopped first, until the others wait for it: killed in a step for which its part is done, it leaves them able to end
# that one together, at the launcher's SIGTERM, as an interrupt does.
ok "an endless run has begun" start 3 "${endless[@]}" --log log
kill -STOP "$(cat pid.1)"
size=
until [ "$(stat -c %s log)" = "$size" ]; do
    size=$(stat -c %s log)
    pause 1
done
begin=${EPOCHREALTIME/./}
kill -KILL "$(cat pid.1)"
ended
took=$((${EPOCHREALTIME/./} - begin))
ok "a killed rank: exit code 137" [ $code = 137 ]
ok "a killed rank: all have ended within 10 s (${took} us)" in_time $took 10
ok "a killed rank: rank 0 names it" grep -Eq '^yoke: rank 0: .*rank 1 \(host .*, pid [0-9]+\)' err
says err "yoke run: rank 1 SIGKILL"
for rank in 0 2; do
    ok "a killed rank: rank $rank is gone" bash -c "! kill -0 $(cat pid.$rank) 2> /dev/null"
done

rm -f log
ok "another has begun" start 2 "${endless[@]}" --log log --save saved.safetensors
kill -INT "$(cat pid.1)"
ended
ok "SIGINT to one rank ends all: exit code 130" [ $code = 130 ]
step=$(sed -n 's/^interrupted after step \([0-9]*\) .*/\1/p' out)
ok "SIGINT: after the last step that was logged" grep -q "\"step\":$step," <<< "$(tail -n 1 log)"
ok "SIGINT: said once" [ "$(grep -c '^interrupted' out)" = 1 ]
ok "SIGINT: --save has saved" [ -s saved.safetensors ]

# odd VALUE VALUE ARGUMENTS...: rank 1 gets the second value of the last argument's option, the others the first.
odd()
{
    # shellcheck disable=SC2016
    run run --no-prefix -n 3 -- bash -c 'value=$1; [ "$RANK" != 1 ] || value=$2; shift 2; exec "$@" "$value"' - "$@"
}
odd glyphs nothere "$YOKE" train --steps 5 --data
ok "a rank without the data: exit code 2" [ "$code" = 2 ]
says err 'yoke: rank 1 "nothere"'
odd lenet mlp "$YOKE" train --steps 5 --model
ok "a rank with another network: exit code 1" [ "$code" = 1 ]
says err ": rank 1 (host "
says err "--model mlp rank 0 host"
says err "--model lenet"
odd 0.1 0.2 "$YOKE" train --steps 5 --lr
ok "a rank with another rate: exit code 1" [ "$code" = 1 ]
says err "--lr 0.2 rank 0"
odd --no-eval --resume "$YOKE" train --steps 5 --checkpoint ck --no-eval
ok "a rank that resumes: exit code 1" [ "$code" = 1 ]
says err "--resume rank 0"

# images FOLDER PART COUNT: as many as COUNT says in hexadecimal, 28x28, of class 0.
images()
{
    mkdir -p "$1"
    printf '%b' "\x00\x00\x08\x03\x00\x00\x00\x$3\x00\x00\x00\x1c\x00\x00\x00\x1c" > "$1/$2-images-idx3-ubyte"
    head -c $((16#$3 * 784)) /dev/zero >> "$1/$2-images-idx3-ubyte"
    printf '%b' "\x00\x00\x08\x01\x00\x00\x00\x$3" > "$1/$2-labels-idx1-ubyte"
    head -c $((16#$3)) /dev/zero >> "$1/$2-labels-idx1-ubyte"
}
for part in train t10k; do
    images here $part 28
    images there $part 3c
done
odd mnist:here mnist:there "$YOKE" train --steps 5 --no-eval --data
ok "a rank with other data: exit code 1" [ "$code" = 1 ]
says err "60 images 10 classes '0' '9' rank 0"
images few train 03
images few t10k 02
ranks 0 "fewer images than processes" 5 --data mnist:few --epochs 2 --batch-size 2
ok "are all tested" [ "$(tail -n 1 out)" = "test accuracy 1.0000" ]
ranks 1 "a loss that is no number" 2 --steps 300 --lr 1e30
says err "yoke: rank 0 loss"
says err "yoke: rank 1 loss"

exits 0 "bench step in 2 processes" run --no-prefix -n 2 -- "$YOKE" bench step --model lenet --batch-size 8 --steps 20 --json
ok "one line for both" [ "$(wc -l < out)" = 1 ]
ok "with the images of both" awk -F'[:,]' '{ for (i = 1; i < NF; i++) v[$i] = $(i + 1) }
    END { r = v["\"images_per_second\""] * v["\"step_ms_median\""] / 16000; exit !(v["\"world_size\""] == "2}" || v["\"world_size\""] == 2) || r < 0.99 || r > 1.01 }' out
exits 0 "and as text" run --no-prefix -n 2 -- "$YOKE" bench step --model lenet --batch-size 8 --steps 20
says out "2 processes: "
exits 0 "and of three batches" run --no-prefix -n 2 -- "$YOKE" bench step --model lenet --batch-size 8 --accumulate 3 --steps 20 --json
ok "which they reduce together" grep -qE '"steps":20,.*"accumulate":3,"world_size":2' out
odd 8 4 "$YOKE" bench step --model lenet --steps 20 --batch-size
ok "bench step, a rank with other batches: exit code 1" [ "$code" = 1 ]
says err "--batch-size 4 rank 0"

mkdir shares
exits 0 "bench checkpoint, shares of 2 processes" run --no-prefix -n 2 -- "$YOKE" bench checkpoint --sharded --megabytes 1 --rounds 2 --dir shares --json
ok "one line for both" [ "$(wc -l < out)" = 1 ]
ok "with what the caller waited for" grep -qE '"ranks":2,"bytes":[0-9]+,"memcpy_ms":[0-9.e-]+,"stall_ms":[0-9.e-]+,"first_stall_ms":[0-9.e-]+}' out
exits 0 "and of one" bench checkpoint --sharded --megabytes 1 --rounds 1 --dir shares
says out "1 rank, "
ok "nothing of theirs is left" [ -z "$(ls -A shares)" ]
finish
