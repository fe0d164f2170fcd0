#!/bin/bash
# node_changes.sh - `yoke run --nnodes MIN:MAX`: nodes come, leave and are lost while a job runs, and all processes are
# started again with new ranks and variables, which no restart is counted for. The nodes are launchers of this host.
. tests/support/tap.bash
needs_proc "processes are looked for there"
host=$(uname -n)
host=${host%%.*}
unset OMP_NUM_THREADS PYTHONUNBUFFERED MASTER_ADDR MASTER_PORT TORCHELASTIC_ERROR_FILE YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD
free_ports 28500 30

# What a process finds, then until the file `go` is there.
cat > wait.sh <<'SCRIPT'
echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE, restart $TORCHELASTIC_RESTART_COUNT, $YOKE_NNODES"
until [ -e go ]; do read -rt 0.05 <> .nap; done
exit ${END:-0}
SCRIPT

# node NUMBER MIN:MAX ARGUMENTS...: a launcher in the background; its output goes to out.NUMBER and err.NUMBER.
node()
{
    local number=$1 nodes=$2
    shift 2
    "$YOKE" run --nnodes "$nodes" --master-addr 127.0.0.1 --master-port $port --last-call 0.3 "$@" \
        > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
    [ $number != 0 ] || wait_until 30 listens # before another takes its place
}
listens()
{
    grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp
}

# shows NUMBER TEXT: until the node's processes have said it.
shows()
{
    wait_until 30 grep -qF -- "$2" out.$1
}

# ended CODE NUMBER...: these nodes end with it.
ended()
{
    local expected=$1 all=0 number
    shift
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null
        [ $? = "$expected" ] || all=1
    done
    return $all
}

# next: another job.
next()
{
    kill -KILL "${pid[@]}" 2> /dev/null # there are none, but after a case that failed
    port=$((port + 3))
    rm -f go out.* err.*
}

# ---- they come, leave, and are lost
node 0 2:3 -n 2 bash wait.sh
node 1 2:3 -n 1 bash wait.sh
ok "the least are enough" shows 1 "rank 2 of 3, local 0 of 1, node 1 of 2, restart 0, 2:3"
node 2 2:3 -n 2 --json bash wait.sh
ok "one more comes" shows 2 "rank 4 of 5, local 1 of 2, node 2 of 3, restart 0"
ok "the others have new variables" shows 0 "rank 1 of 5, local 1 of 2, node 0 of 3"
says err.0 "a node $host pid comes attempt 2 begins s 3 nodes 5 ranks node 0"
node 3 2:3 bash wait.sh
ok "there is no place for a fourth: exit code 1" ended 1 3
says err.3 "comes too late 3 nodes"
kill -9 "${pid[1]}"
ok "one is lost: another has its number" shows 2 "rank 2 of 4, local 0 of 2, node 1 of 2, restart 0"
ok "that is a line" wait_until 20 grep -q "node 1 .*rank 2) is lost" err.0
says err.2 '{ "event": "members", "message": "node 1 lost attempt 3 "why": "attempt":2 "nodes":2 "ranks":4 "node":1 "seconds":'
node 1 2:3 -n 1 bash wait.sh
ok "and comes back" shows 1 "rank 4 of 5, local 0 of 1, node 2 of 3, restart 0"
kill -TERM "${pid[2]}"
ok "one leaves: exit code 143" ended 143 2
ok "the others go on" shows 1 "rank 2 of 3, local 0 of 1, node 1 of 2, restart 0"
says err.0 "node 1 ranks 2-3 leaves SIGTERM attempt 5 2 nodes 3 ranks"
: > go
ok "the job ends well" ended 0 0 1
{ wait "${pid[1]}"; } 2> /dev/null

# ---- fewer than are needed
next
node 0 2:3 --join-timeout 2 bash wait.sh
node 1 2:3 --join-timeout 2 bash wait.sh
ok "two nodes" shows 1 "rank 1 of 2"
kill -9 "${pid[1]}"
ok "one alone waits, and ends: exit code 1" ended 1 0
says err.0 "--nnodes 2:3 1 node 2 s --join-timeout 127.0.0.1 2 are needed"
next
node 0 2:3 --join-timeout 1 bash wait.sh
ok "at the start, too: exit code 1" ended 1 0
says err.0 "--nnodes 2:3 1 node 1 s 2 are needed"
next
node 0 2:3 bash wait.sh
node 1 2:3 bash wait.sh
ok "two nodes" shows 1 "rank 1 of 2"
kill -9 "${pid[0]}"
ok "node 0 is lost: exit code 1" ended 1 1
says err.1 "node 0 lost keeps the list of nodes"

# ---- failures count, changes do not
next
node 0 1:2 --max-restarts 1 bash wait.sh
node 1 1:2 --max-restarts 1 bash -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { until [ -e fail ]; do read -rt 0.05 <> .nap; done; exit 7; }; . ./wait.sh'
ok "two nodes" shows 0 "rank 0 of 2"
node 2 1:2 bash wait.sh
ok "a third one is refused" ended 1 2
: > fail
ok "a failure is a restart" shows 1 "rank 1 of 2, local 0 of 1, node 1 of 2, restart 1"
kill -9 "${pid[1]}"
ok "a loss is none" shows 0 "rank 0 of 1, local 0 of 1, node 0 of 1, restart 1"
: > go
ok "one node goes on to the end" ended 0 0
next
rm -f fail
node 0 1:2 bash wait.sh
node 1 1:2 env END=3 bash wait.sh
ok "two nodes" shows 1 "rank 1 of 2"
: > go
ok "without restarts a failure ends all" ended 3 0 1
next
node 0 1:2 bash wait.sh
ok "one node after the last call" shows 0 "rank 0 of 1, local 0 of 1, node 0 of 1"
kill -TERM "${pid[0]}"
ok "SIGTERM to node 0 ends the job" ended 143 0

# ---- programs of yoke's meet again in each attempt
next
meet='"$YOKE" bench allreduce --seconds 0.05 --bytes 4K --json; . ./wait.sh'
node 0 2:3 bash -c "$meet"
node 1 2:3 bash -c "$meet"
ok "two ranks meet" shows 0 "rank 0 of 2"
node 2 2:3 bash -c "$meet"
ok "three ranks meet" shows 0 "rank 0 of 3"
: > go
ok "all end well" ended 0 0 1 2
ok "what they measured is there twice" [ "$(grep -c '"bytes"' out.0)" = 2 ]

# ---- the command line
wrong()
{
    local message=$1
    shift
    exits 2 "yoke run $*" run "$@"
    says err "$message"
}
wrong "--nnodes 3:2 least 3 above most 2" --nnodes 3:2 --master-addr a true
wrong "--nnodes 0:2 number MIN:MAX" --nnodes 0:2 --master-addr a true
wrong "--nnodes 2: number MIN:MAX" --nnodes 2: --master-addr a true
wrong "--node-rank 1 --nnodes 2:3 0 alone" --nnodes 2:3 --node-rank 1 --master-addr a true
wrong "--nproc-per-node 1,2,3 --nnodes 2:3 one" --nnodes 2:3 -n 1,2,3 --master-addr a true
wrong "--nnodes 1:2 roles fixed" --nnodes 1:2 --master-addr a --role a true : --role b true
wrong "--on-failure continue --nnodes 1:2" --nnodes 1:2 --master-addr a --on-failure continue true
next
node 0 1:2 --join-timeout 1 bash wait.sh
shows 0 "rank 0 of 1"
node 1 2:2 bash wait.sh
ok "another --nnodes: exit code 1" ended 1 1
says err.1 "wrong number of nodes --nnodes 2 node 0 1:2"
: > go
ok "the job goes on" ended 0 0

finish
