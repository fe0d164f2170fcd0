#!/bin/bash
# etcd_keeper.sh - a job of two nodes whose view etcd keeps, a cluster of three: the launcher that keeps the store is killed,
# at once with a member of etcd, and the other goes on alone; a node comes to it, and is killed. The weights are those of a run without a fault. etcd_faults.sh has other faults.
. tests/support/etcd.bash
. tests/support/tap.bash
needs_proc "processes are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY
needs_built tests/elastic/survive_test
worker=$built
etcd_needs "a keeper that is killed"
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; etcd_end; rm -rf "$work"; }' EXIT
trap 'exit 1' INT TERM HUP
export OMP_NUM_THREADS=1 YOKE_LOG=info
etcd_options=() pid=()
free_ports 18500 8

# node NUMBER ARGUMENTS...: a launcher in the background; its output goes to out.NUMBER and err.NUMBER.
node()
{
    local number=$1
    shift
    "$YOKE" run --nnodes 1:2 --rdzv "etcd://$etcd_members/p" --job-id j --last-call 20 "$@" -- "$worker" worker result \
        > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
ended()
{
    local expected=$1 all=0 number code
    shift
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null
        code=$?
        [ $code = "$expected" ] || { all=1; echo "# node $number ended with $code"; }
        unset "pid[number]"
    done
    cat err.* > err
    return $all
}
at()
{
    wait_until 60 [ -e at."$1" ]
}
killed()
{
    kill -KILL "${pid[$1]}"
    { wait "${pid[$1]}"; } 2> /dev/null
    unset "pid[$1]"
}
# listed COUNT: etcd has so many nodes in the view.
listed()
{
    [ "$(etcd_value p/j/view "${member:-0}" | grep -c '^node')" = "$1" ]
}
same()
{
    cmp -s result expected
}

exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected
ok "etcd begins, of three" etcd_begin 3 $port

export SURVIVE_PLAN="0.0 4 stepped wait 1.0 9 stepped wait 1.0 15 stepped wait"
node 0
ok "the first is in etcd" wait_until 30 listed 1
node 1
ok "two nodes train" at 4
ok "etcd has both" wait_until 30 listed 2
kill -KILL "${etcd_pid[0]}"
wait "${etcd_pid[0]}" 2> /dev/null
member=1
killed 0
: > go.4
ok "the first is killed, with a member of etcd, and the other goes on" at 9
says err.1 "node 0 is lost, and node 1 keeps the list of nodes at 127.0.0.1: the others go on: 1 node with 1 rank"
says err.1 "1 process in view 2, a step done"
ok "etcd has the other alone" wait_until 30 listed 1
node 2
ok "one comes to it" wait_for err.2 "asks to join"
pause $(patience 0.3) # so that the other looks for it with the next step
: > go.9
ok "takes part" wait_for err.2 "has joined the others in view"
ok "in the middle of the run" at 15
ok "and is in etcd" wait_until 30 listed 2
killed 2
ok "it is killed, and is not in etcd any more" wait_until 60 listed 1
: > go.15
ok "the last ends well" ended 0 1
ok "with the weights of one process without a fault" same
ok "nothing was started again" [ "$(grep -c "attempt\|started again" err)" = 0 ]
ok "nothing is left in etcd" listed 0
finish
