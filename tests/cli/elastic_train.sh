#!/bin/bash
# elastic_train.sh - `yoke train --elastic`: processes of it are killed, are started again, leave, and nodes come and go,
# while it trains; the weights, the log and the tests are those of a run without a fault.
. tests/support/tap.bash
needs_proc "ports that are listened to are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE YOKE_VIRTUAL_RANKS YOKE_SHARED_MEMORY YOKE_HOST_ID
export OMP_NUM_THREADS=1
free_ports 32500 10
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; rm -rf "$work"; }' EXIT

# The log without what depends on the clock, on who writes a number, and on who was there.
facts()
{
    sed '/"event":"\(time\|members\)"/d; s/,"samples_per_second":[^}]*//' "$1"
}

# 12 virtual ranks, in the middle of whose run a checkpoint is due again and again. Each process notes its number.
train=("$YOKE" train --data glyphs --model lenet --batch-size 2 --lr 0.05 --schedule cosine --warmup 2 --steps 60
    --threads 1 --seed 3 --checkpoint ck --save-every 5 --save weights --log log)
# shellcheck disable=SC2016
noting=(sh -c 'echo $$ > pid.$RANK.$YOKE_INCARNATION; exec "$@"' -)

# start NUMBER OPTIONS... -- ARGUMENTS...: a launcher in the background.
start()
{
    local number=$1
    local options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    "$YOKE" run --no-prefix --virtual-ranks 12 "${options[@]}" -- "${noting[@]}" "${train[@]}" --elastic "$@" \
        > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
fresh()
{
    rm -rf ck log weights pid.* out.* err.*
}
# at STEP: until the log has it.
at()
{
    wait_until 60 eval '[ -s log ] && [ "$(grep -c "event.:.step" log)" -ge '"$1"' ]'
}
# ended CODE NUMBER...
ended()
{
    local expected=$1 all=0 number got
    shift
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null
        got=$?
        unset "pid[number]"
        [ $got = "$expected" ] || { all=1; echo "# launcher $number ended with $got"; }
    done
    cat out.* > out
    cat err.* > err
    return $all
}
same()
{
    ok "$1: the weights of a run without a fault" cmp -s weights expected
    ok "$1: its log, each step once" [ "$(facts log)" = "$(facts expected.log)" ]
    ok "$1: its last checkpoint" cmp -s ck/step-00000060/model.safetensors expected.checkpoint
}

exits 0 "without --elastic" run --no-prefix --virtual-ranks 12 -n 2 -- "${train[@]}"
mv weights expected
mv log expected.log
cp ck/step-00000060/model.safetensors expected.checkpoint
says out "test accuracy 0"
grep '^test accuracy' out > expected.accuracy
fresh
start 0 -n 3 --
ended 0 0
same "nobody ends"

fresh
start 0 -n 3 --
at 9
kill -KILL "$(cat pid.0.0)"
at 25
kill -KILL "$(cat pid.2.0)"
ok "rank 0 is killed, then another: the last one ends well" ended 0 0
says err "1 process goes on in view 3"
says err "yoke run: % of s went into steps that count; steps made again changes of members actions between steps all else"
same "two killed"
# members VIEW MEMBERS WHY: the log has a line of that change.
members()
{
    grep -qE '^\{"event":"members","view":'"$1"',"epoch":0,"step":[0-9]+,"members":'"$2"',"why":"'"$3"'","time":[0-9.]+,"seconds":[0-9.]+\}$' log
}
ok "the log says who went first" members 2 2 'rank 0 \(process 0\) has ended'
ok "and then" members 3 1 'rank 1 \(process 2\) has ended'
says out "% of s went into steps that count; steps made again changes of members checkpoints tests"
# The parts are the whole, and there were changes.
adds_up()
{
    tail -n 1 log | sed -n 's/^{"event":"time","wall":\([0-9.]*\),"steps":\([0-9.]*\),"again":\([0-9.]*\),"changes":\([0-9.]*\),"checkpoints":\([0-9.]*\),"tests":\([0-9.]*\),"other":\([0-9.]*\)}$/\1 \2 \3 \4 \5 \6 \7/p' |
        awk '{ d = $1 - $2 - $3 - $4 - $5 - $6 - $7; good = NF == 7 && d * d < 1e-4 && $2 > 0 && $4 > 0 && $5 > 0 && $6 > 0 } END { exit !good }'
}
ok "the log has that, too" adds_up
ok "and the tests" [ "$(grep '^test accuracy' out)" = "$(cat expected.accuracy)" ]

fresh
start 0 -n 2 --max-restarts 1 --
at 12
kill -KILL "$(cat pid.1.0)"
ok "one is killed, and started again" ended 0 0
says err "rank 1 has joined the others"
same "started again"

fresh
start 0 -n 3 --evict-stalled 3 --
at 9
kill -STOP "$(cat pid.1.0)"
ok "one is stopped: it is killed, and the others end well" ended 0 0
says err "rank 1 is lost: killed by yoke run: it stood still for (--evict-stalled 3), stopped by a signal"
same "one stopped"

# Spares, which may come too late to take the place of one that is killed; survive_test has those that wait.
fresh
start 0 -n 2 --spares 2 --
at 9
kill -KILL "$(cat pid.1.0)"
ok "one is killed, and there are spares: all end well" ended 0 0
same "spares"

# A leave repeats nothing; then all leave together, with a checkpoint that another number of processes goes on from.
fresh
start 0 -n 3 --job-id leaving --
at 7
kill -TERM "$(cat pid.0.0)"
at 20
top_shows()
{
    "$YOKE" top --once > top.out 2>> top.out && said top.out "MEMBERS 2, view 2" 1 && said top.out "rank 0 has left, with its step complete" 1
}
ok "yoke top shows who has left" wait_until 60 top_shows
kill -TERM "${pid[0]}"
ok "rank 0 leaves; then all: saved, to be resumed" ended 75 0
says out "saved a checkpoint --resume goes on"
says err "rank 0 has left, with its step complete the others go on"
start 1 -n 2 -- --resume
ok "two go on" ended 0 1
same "left and resumed"

# Who comes with other settings is refused.
fresh
# shellcheck disable=SC2016
noting=(sh -c 'echo $$ > pid.$RANK.$YOKE_INCARNATION; [ $YOKE_INCARNATION = 0 ] || set -- "$@" --weight-decay 0.5; exec "$@"' -)
start 0 -n 2 --max-restarts 1 --
at 4
kill -KILL "$(cat pid.1.0)"
ok "who comes with other settings does not take part" ended 0 0
says err "does not take this process in: it has --weight-decay 0.5, and the run has --weight-decay 0"
same "one refused"

# A node is killed. In halves, with two batches of each shard, the loss scaled.
train+=(--precision fp16 --accumulate 2 --batch-size 1 --optimizer adamw --lr 0.001)
exits 0 "fp16 without --elastic" run --no-prefix --virtual-ranks 12 -n 2 -- "${train[@]}" --checkpoint other
mv weights expected
mv log expected.log
cp other/step-00000060/model.safetensors expected.checkpoint
fresh
nodes=(-n 1 --nnodes 2:3 --master-addr 127.0.0.1 --master-port $port --last-call 30)
start 0 "${nodes[@]}" --
wait_until 30 eval 'grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp'
start 1 "${nodes[@]}" --
start 2 "${nodes[@]}" --
at 8
kill -KILL "${pid[2]}"
{ wait "${pid[2]}"; } 2> /dev/null
unset "pid[2]"
ok "a node is killed: the others end well" ended 0 0 1
says err.0 "the others go on"
same "a node killed"

# refused MESSAGE ARGUMENTS...
refused()
{
    local message=$1
    shift
    exits 2 "refused: $message" train --elastic "$@"
    says err "$message"
}
refused "--elastic --virtual-ranks V"
refused "--trace --elastic" --virtual-ranks 2 --trace t
refused "--async-save --sharded-save --elastic" --virtual-ranks 2 --checkpoint ck --async-save --sharded-save
exits 0 "alone" train --virtual-ranks 2 --elastic --steps 2 --no-eval --save weights
finish
