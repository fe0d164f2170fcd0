#!/bin/bash
# endings.sh - how runs end that do not end well: signals, NaN, a full disk, files that cannot be written.
. tests/support/tap.bash
needs_proc "processes are looked for there"

# start ARGUMENTS...: in the background, until the first step is logged; its process is $pid.
start()
{
    rm -f log
    "$YOKE" train --epochs 100000 --no-eval --log log "$@" > out 2> err < /dev/null &
    pid=$!
    ok "the run has begun" wait_for log '"step":1,'
}

# ended: waits, and sets $code.
ended()
{
    wait "$pid"
    code=$?
}

for signal in INT TERM; do
    expected=$((128 + $(kill -l $signal)))
    start --save "$signal.safetensors"
    kill -s $signal $pid
    ended
    ok "SIG$signal: exit code $expected" [ $code = $expected ]
    says out "saved $signal.safetensors"
    says out "interrupted step"
    ok "SIG$signal: no test accuracy is claimed" [ "$(grep -c 'test accuracy' out)" = 0 ]
    ok "SIG$signal: the log ends with a whole line" grep -q '}$' <<< "$(tail -n 1 log)"
    exits 0 "SIG$signal: the saved file can be loaded" train --init "$signal.safetensors" --steps 1 --no-eval
done

start --model resnet18 --batch-size 1500 --threads 1 # whose steps take longer than this
kill -s INT $pid
taken $pid INT
kill -s INT $pid
ended
ok "a second SIGINT: exit code 130" [ $code = 130 ]
ok "a second SIGINT does not wait for the step" [ "$(grep -c interrupted out)" = 0 ]

exits 1 "a loss that is not finite" train --lr 1e30 --log log
says err "step 2 epoch 1 1e+30"
says err "--allow-nan"
ok "the steps before it are in the log" grep -q '"step":1,' log
exits 0 "--allow-nan" train --lr 1e30 --steps 10 --allow-nan --no-eval --log log
ok "--allow-nan goes on" grep -q '"step":10,' log
ok "NaN is printed without a sign" grep -q 'train loss nan' out
ok "the log says null" grep -q '"loss":null' log

exits 0 "a file to be kept" train --steps 1 --no-eval --save keep.safetensors
cp keep.safetensors old.safetensors
(
    trap '' XFSZ
    ulimit -f 100 # blocks of 1,024 bytes: stands for a full disk
    run train --steps 2 --no-eval --save keep.safetensors
    exit $code
)
ok "a full disk: exit code 1" [ $? = 1 ]
says err "keep.safetensors File too large"
says out "epoch 1/1 train loss images/s"
ok "a full disk: the old file is as it was" cmp -s keep.safetensors old.safetensors
ok "a full disk: nothing else is left" [ "$(ls keep*)" = keep.safetensors ]

(
    trap '' XFSZ
    ulimit -f 100
    run train --steps 2 --no-eval --checkpoint full
    exit $code
)
ok "a checkpoint on a full disk: exit code 1" [ $? = 1 ]
says err "full File too large"
ok "and the epoch's result all the same, once" [ "$(grep -cE '^epoch 1/1  train loss [0-9.]+  [0-9]+ images/s$' out)" = 1 ]

exits 1 "--save where nothing can be written" train --save nowhere/x.safetensors --log log2
says err "--save nowhere/x.safetensors nowhere/"
ok "is found before training" [ ! -s log2 ]
exits 1 "--log where nothing can be written" train --log nowhere/log
says err "nowhere/log No such file or directory"
exits 0 "a log on a full disk ends no run" train --log /dev/full --steps 5 --no-eval --save kept.safetensors
says err "--log /dev/full No space left on device the run goes on without it"
ok "is said once" [ "$(grep -c /dev/full err)" = 1 ]
ok "and the run has its result" [ -s kept.safetensors ]
rm -f kept.safetensors
# A benchmark that writes removes it, however it ends.
mkdir written
for sharded in '' --sharded; do
    # shellcheck disable=SC2086
    "$YOKE" bench checkpoint $sharded --megabytes 20 --rounds 100 --dir written > out 2> err < /dev/null &
    pid=$!
    ok "bench checkpoint $sharded writes" wait_until 20 eval '[ -n "$(ls written)" ]'
    kill -s TERM $pid
    ended
    ok "bench checkpoint $sharded interrupted: exit code 143" [ $code = 143 ]
    ok "bench checkpoint $sharded interrupted: nothing is left" [ -z "$(ls -A written)" ]
    ok "bench checkpoint $sharded interrupted: no result" [ ! -s out ]
done
# Of two processes that share one, of which one alone is asked to end.
"$YOKE" run --no-prefix -n 2 -- bash -c 'echo $$ > pid.$RANK; exec "$0" bench checkpoint --sharded --megabytes 20 --rounds 100 --dir written' \
    "$YOKE" > out 2> err < /dev/null &
pid=$!
ok "the shares are written" wait_until 20 eval '[ -n "$(ls written/*.root/* 2> /dev/null)" ]'
kill -s INT "$(cat pid.1)"
ended
ok "shares interrupted: exit code 130" [ $code = 130 ]
ok "shares interrupted: nothing is left" [ -z "$(ls -A written)" ]
ok "shares interrupted: no result" [ ! -s out ]
# Asked to end while it waits for a rank that never comes, a run that saves its state has nothing to save yet.
all=$((1 << $(kill -l TERM) - 1 | 1 << $(kill -l USR1) - 1 | 1 << $(kill -l INT) - 1))
for signal in TERM USR1 INT; do
    expected=$([ $signal = INT ] && echo 130 || echo 75)
    free_ports 23000 3
    RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$YOKE" train --checkpoint never > out 2> err < /dev/null &
    pid=$!
    # Until it catches all of them; then it is joining, or about to.
    ok "signals are caught" wait_until 20 eval 'caught=$((16#$(sed -n "s/^SigCgt:[[:space:]]*//p" /proc/$pid/status) & all)); [ $caught = $all ]'
    sleep 0.2
    began=$(date +%s%N)
    kill -s $signal $pid
    ended
    took=$((($(date +%s%N) - began) / 1000))
    ok "SIG$signal while joining: exit code $expected" [ $code = $expected ]
    ok "SIG$signal while joining: at once ($took us)" in_time $took 1
done
finish
