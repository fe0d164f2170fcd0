#!/bin/bash
# node0_returns.sh - node 0's launcher is killed, another one goes on keeping the list of nodes, and the command of node 0
# is started once more: it is called to where the job goes on, and joins it, in place of beginning one of its own; who
# comes by the old address from then on is sent there. Other jobs at that address are left alone. The weights are those of
# a run without a fault. tests/launch/recall_test.c has several that call.
. tests/support/tap.bash
needs_proc "listening sockets are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY
needs_built tests/elastic/survive_test
worker=$built
export OMP_NUM_THREADS=1
free_ports 32300 6
seconds=$(patience 5)
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; rm -rf "$work"; }' EXIT

# node NUMBER MIN:MAX ARGUMENTS...: a launcher in the background; its output goes to out.NUMBER and err.NUMBER.
node()
{
    local number=$1 nodes=$2
    shift 2
    "$YOKE" run --nnodes "$nodes" --master-addr 127.0.0.1 --master-port $port --node-timeout $seconds "$@" -- "$worker" worker result \
        > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
listens()
{
    grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp
}
ended()
{
    local all=0 number code
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null
        code=$?
        [ $code = 0 ] || { all=1; echo "# node $number ended with $code"; }
        unset "pid[number]"
    done
    cat err.* > err
    return $all
}
at()
{
    wait_until 40 [ -e at."$1" ]
}
killed()
{
    kill -KILL "${pid[$1]}"
    { wait "${pid[$1]}"; } 2> /dev/null
    unset "pid[$1]"
}

exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected

# ---- node 0 comes back, and one more node by its address
plan=
for rank in 0 1 2 3 4; do
    plan+=" $rank.0 4 stepped wait $rank.0 9 stepped wait $rank.0 12 stepped wait"
done
export SURVIVE_PLAN=$plan
for number in 0 1 2; do
    node $number 1:4 --last-call 20
    [ $number != 0 ] || wait_until 30 listens
done
node 3 1:4 --last-call 20
ok "four nodes train" at 4
pause "$(patience 0.5)" # so that the launchers know that these survive
killed 0
: > go.4
ok "node 0 is killed, and the others go on" at 9
killed 3

umask 077
printf 'a secret of another job\n' > other
ok "another job's node 0 at that address is left alone" timeout "$(patience 30)" "$YOKE" run --nnodes 1:2 --master-addr \
    127.0.0.1 --master-port $port --job-id another --last-call 2 true 2> err.another
ok "so is one with another secret" timeout "$(patience 30)" "$YOKE" run --nnodes 1:2 --master-addr 127.0.0.1 \
    --master-port $port --secret-file other --last-call 2 true 2> err.other
pause "$seconds" # after that who joins is no less a node than those that came from the keeper before
ok "neither was called" eval '! grep -q "goes on" err.another err.other'
cat err.1 err.2 > err
says err "at 127.0.0.1:$port, where this job was kept before, is somebody else"

node 0 1:4 --node-rank 0 --last-call 0
ok "node 0's command comes back" wait_for err.0 "the job that was kept at 127.0.0.1:$port goes on"
ok "and asks to join where it goes on" wait_for err.0 "joins it there, and begins no job of its own"
node 3 1:4
ok "who comes by node 0's address is sent on" wait_for err.3 "says that the job goes on, and is kept at 127.0.0.1:"
pause 0.3 # so that the others look for them with the next step
: > go.9
ok "node 0 takes part, long after the other launcher began to keep the list" wait_for err.0 "has joined the others in view"
ok "and so does the other" wait_for err.3 "has joined the others in view"
ok "in the middle of the run" at 12
: > go.12
ok "all end well" ended 0 1 2 3
ok "with the weights of one process without a fault" cmp -s result expected
ok "nothing was started again" [ "$(grep -c "attempt\|started again" err)" = 0 ]
finish
