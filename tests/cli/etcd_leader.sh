#!/bin/bash
# etcd_leader.sh - a job that etcd keeps, while the leader of etcd's three members moves: on request, while a node joins; and
# because it is killed, while a node is lost. Nothing is started again, and the weights are those of a run without a fault.
. tests/support/etcd.bash
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY
needs_built tests/elastic/survive_test
worker=$built
etcd_needs "a leader of etcd that moves"
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; etcd_end; rm -rf "$work"; }' EXIT
trap 'exit 1' INT TERM HUP
export OMP_NUM_THREADS=1
etcd_options=() pid=()
free_ports 19700 8
node()
{
    local number=$1
    "$YOKE" run --nnodes 1:3 --rdzv "etcd://$etcd_members/p" --job-id j --last-call 1 -- "$worker" worker result \
        > out.$number 2> err.$number < /dev/null &
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
# status I: the member's own number and that of its leader, as it knows them.
status()
{
    etcd_ask /v3/maintenance/status '{}' "$1" | sed -n 's/.*"member_id":"\([0-9]*\)".*"leader":"\([0-9]*\)".*/\1 \2/p'
}
# leader: which member leads, in $leads, and the number of another one in $other.
leader()
{
    local i own known
    leads= other=
    for ((i = 0; i < 3; i++)); do
        read -r own known <<< "$(status $i)"
        [ -n "$own" ] || continue
        if [ "$own" = "$known" ]; then leads=$i; else other=$own; fi
    done
    [ -n "$leads" ] && [ -n "$other" ]
}
moved()
{
    leader && [ "$leads" != "$before" ]
}

exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected
ok "etcd begins, of three" etcd_begin 3 "$port"
export SURVIVE_PLAN="0.0 4 stepped wait 1.0 4 stepped wait 0.0 9 stepped wait 1.0 9 stepped wait 2.0 9 stepped wait"
node 0
ok "the first is in etcd" wait_until 60 listed 1
ok "it trains" at 4
ok "etcd has a leader" wait_until 30 leader
before=$leads
ok "it is to move" eval 'etcd_ask /v3/maintenance/transfer-leadership "{\"targetID\":\"$other\"}" $leads > out'
node 1
ok "a node comes meanwhile" wait_until 60 listed 2
ok "the leader has moved" wait_until 30 moved
pause 0.3 # so that the others look for it with the next step
: > go.4
ok "the node takes part" wait_for err.1 "has joined the others in view"
ok "in the middle of the run" at 9
before=$leads
kill -KILL "${etcd_pid[leads]}"
wait "${etcd_pid[leads]}" 2> /dev/null
kill -KILL "${pid[0]}"
{ wait "${pid[0]}"; } 2> /dev/null
: > go.9
ok "the leader is killed, and the first node, and the other one keeps the list" \
    wait_for err.1 "is lost, and node 1 keeps the list of nodes"
ok "another member leads" wait_until 30 moved
ok "and has the view" eval 'etcd_port=$((port + 2 * leads)) listed 1'
ok "the job ends well" wait "${pid[1]}"
pid=()
ok "with the weights of one process without a fault" cmp -s result expected
ok "nothing was started again" [ "$(cat err.[01] | grep -c "attempt\|started again")" = 0 ]
finish
