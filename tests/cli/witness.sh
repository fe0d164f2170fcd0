#!/bin/bash
# witness.sh - `yoke run --witness HOST`: the same command on three hosts, of which HOST has no processes. Whether node 0
# or the witness is killed, the others go on, with the weights of a run without a fault; and two nodes alone are
# told what they cannot survive. The nodes are launchers of this host, which YOKE_HOST_ID tells apart.
. tests/support/tap.bash
needs_proc "processes are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY YOKE_HOST_ID
export OMP_NUM_THREADS=1
free_ports 33200 18
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; rm -rf "$work"; }' EXIT

# ---- what is refused
refused()
{
    local code=$1 name=$2
    shift 2
    exits "$code" "$name" "$@"
    says err "$name"
}
refused 2 "--witness c where nodes come and go --nnodes MIN:MAX 3" run --nnodes 3 --witness c --master-addr localhost -- true
refused 2 "--witness c one of the nodes 1:2 --nnodes 2:3" run --nnodes 1:2 --witness c --master-addr localhost -- true
refused 2 "--witness empty" run --nnodes 2:3 --witness "" --master-addr localhost -- true
refused 2 "--witness c --rdzv etcd" run --nnodes 2:3 --witness c --rdzv etcd://localhost -- true
refused 1 "--witness no-such-host.invalid" run --nnodes 2:3 --witness no-such-host.invalid --master-addr localhost -- true

needs_built tests/elastic/survive_test
worker=$built

# node HOST MIN:MAX ARGUMENTS...: a launcher in the background; its output goes to out.HOST and err.HOST.
declare -A pid
node()
{
    local host=$1 nodes=$2
    shift 2
    YOKE_HOST_ID=$host "$YOKE" run --nnodes "$nodes" --master-addr 127.0.0.1 --master-port "$port" --last-call 20 "$@" -- \
        "$worker" worker result > "out.$host" 2> "err.$host" < /dev/null &
    pid[$host]=$!
}
listens()
{
    grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp
}
# nodes HOSTS MIN:MAX ARGUMENTS...: the first is node 0.
nodes()
{
    local host hosts=$1
    shift
    rm -f at.* go.* out.* err.* result
    for host in $hosts; do
        node "$host" "$@"
        [ "$host" != "${hosts%% *}" ] || wait_until 30 listens
    done
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
ended()
{
    local host failed=0
    for host in "$@"; do
        { wait "${pid[$host]}"; } 2> /dev/null || { failed=1; echo "# $host ended with another code than 0"; }
        unset "pid[$host]"
    done
    cat err.* > err
    return $failed
}
same()
{
    cmp -s result expected
}
exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected

# ---- node 0 is killed, and the witness
for lost in a c; do
    export SURVIVE_PLAN="0.0 4 stepped wait 1.0 4 stepped wait"
    nodes "a b c" 2:3 --witness c
    ok "two of three nodes train" at 4
    pause "$(patience 0.5)" # so that the launchers know that these survive
    killed "$lost"
    : > go.4
    rest=()
    for host in a b c; do
        [ $host = $lost ] || rest+=("$host")
    done
    ok "$lost is killed, and the others end well" ended "${rest[@]}"
    [ $lost = c ] && left="2 ranks" || left="1 rank"
    says err "is lost the others go on: 2 nodes with $left"
    ok "with the weights of one process without a fault" same
    ok "nothing was started again" [ "$(grep -c "attempt\|started again" err)" = 0 ]
    ok "three are told nothing of two" [ "$(grep -c "no witness" err)" = 0 ]
    port=$((port + 3))
done

# ---- two alone, and a second one without processes
export SURVIVE_PLAN="0.0 4 stepped wait"
nodes "a b" 1:2
ok "two nodes train" at 4
ok "and are told that there is no witness" wait_for err.a "there are two nodes and no witness"
says err.a "--nnodes 1:2 node 0's end is that of the job --nnodes 2:3 --witness HOST"
: > go.4
ok "they end well" ended a b
port=$((port + 3))
nodes "a b" 2:3 --witness c --last-call 0.1
ok "two nodes whose witness has not come train" at 4
ok "and are told so" wait_for err.a "until a third one has come (--witness c)"
node c 2:3 --witness c
ok "it comes" wait_for err.a "comes, and joins the others: 3 nodes with 2 ranks"
node d 2:3 --witness d
{ wait "${pid[d]}"; } 2> /dev/null
ok "another one is refused" [ $? = 1 ]
unset "pid[d]"
says err.d "host has no processes (--witness, -n 0) and neither has host one node alone"
: > go.4
ok "the others end well" ended a b c
ok "with the same weights" same
finish
