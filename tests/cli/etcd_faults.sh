#!/bin/bash
# etcd_faults.sh - a job of two nodes that etcd keeps, through faults: etcd stands still, and its history is compacted; its
# view is forged; the first node stands still, as one that is cut off, and the other goes on, before which it stops for good.
# The weights are those of a run without a fault.
. tests/support/etcd.bash
. tests/support/tap.bash
needs_proc "processes are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY
needs_built tests/elastic/survive_test
worker=$built
etcd_needs "faults of etcd"
# tree PID: the process and all that it has started.
tree()
{
    local child
    echo "$1"
    for child in $(cat /proc/"$1"/task/*/children 2> /dev/null); do
        tree "$child"
    done
}
trap '[ $BASHPID != $$ ] || { for p in "${stopped[@]}"; do kill -CONT $p; done 2> /dev/null; kill -KILL "${pid[@]}" 2> /dev/null; etcd_end; rm -rf "$work"; }' EXIT
trap 'exit 1' INT TERM HUP
export OMP_NUM_THREADS=1 YOKE_LOG=info
etcd_options=() pid=() stopped=()
silence=$(patience 3)
free_ports 19300 8
node()
{
    local number=$1
    shift
    "$YOKE" run --nnodes 1:2 --rdzv "etcd://$etcd_members/p" --job-id j --last-call 20 --node-timeout "$silence" \
        "$@" -- "$worker" worker result > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
at()
{
    wait_until 60 [ -e at."$1" ]
}
listed()
{
    [ "$(etcd_value p/j/view 2> /dev/null | grep -c '^node')" = "$1" ]
}
same()
{
    cmp -s result expected
}
exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected
ok "etcd begins, of three" etcd_begin 3 "$port"
export SURVIVE_PLAN="0.0 4 stepped wait 0.0 9 stepped wait 1.0 15 stepped wait"
node 0
ok "the first is in etcd" wait_until 30 listed 1
node 1
ok "two nodes train" at 4
ok "etcd has both" wait_until 30 listed 2

# ---- etcd stands still
for one in "${etcd_pid[@]}"; do
    kill -STOP "$one"
done
ok "etcd stands still, which is said" wait_for err.0 "the job goes on, and changes of its nodes wait"
: > go.4
ok "and the job goes on" at 9
for one in "${etcd_pid[@]}"; do
    kill -CONT "$one"
done
ok "etcd goes on" wait_for err.0 "etcd answers again, after"
ok "each is said once" [ "$(grep -c "changes of its nodes wait" err.0)" = 1 ]
revision=$(etcd_ask /v3/kv/range '{"key":"AA=="}' | sed -n 's/.*"revision":"\([0-9]*\)".*/\1/p')
ok "its history is compacted" eval 'etcd_ask /v3/kv/compaction "{\"revision\":\"$revision\"}" > out'
kill -KILL "${etcd_pid[2]}" # perhaps its leader
wait "${etcd_pid[2]}" 2> /dev/null

# ---- the first node stands still
read -ra stopped <<< "$(tree "${pid[0]}" | tr '\n' ' ')"
for one in "${stopped[@]}"; do
    kill -STOP "$one"
done
ok "the first node stands still, and the other goes on" wait_for err.1 "is lost, and node 1 keeps the list of nodes"
ok "and is alone in etcd" wait_until 30 listed 1
: > go.9
ok "it trains" at 15
for one in "${stopped[@]}"; do
    kill -CONT "$one" 2> /dev/null
done
wait "${pid[0]}"
code=$?
stopped=()
ok "the first goes on, and ends" [ $code = 1 ]
says err.0 "this side of the cut ends"

# ---- the view is forged
etcd_value p/j/view > value
sed 's/term [0-9]*/term 99/' value > forged
ok "the view is forged" etcd_set p/j/view forged
ok "which is said" wait_for err.1 "the value of p/j/view in etcd is not to be believed: it was made without this job's secret"
: > go.15
ok "and the last ends well" wait "${pid[1]}"
pid=()
ok "with the weights of one process without a fault" same
finish
