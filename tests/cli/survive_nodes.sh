#!/bin/bash
# survive_nodes.sh - a program that survives, on nodes that come and go (`--nnodes MIN:MAX`): one is killed, one comes,
# one leaves, and the processes of the others go on: none is started again, and the weights are those of a run without a
# fault. The nodes are launchers of this host; survive_cut.sh has networks that are cut.
. tests/support/tap.bash
needs_proc "processes are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY
needs_built tests/elastic/survive_test
worker=$built
export OMP_NUM_THREADS=1 YOKE_LOG=info
free_ports 31500 39
program=("$worker" worker result)
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; rm -rf "$work"; }' EXIT

# node NUMBER MIN:MAX ARGUMENTS...: a launcher in the background; its output goes to out.NUMBER and err.NUMBER.
node()
{
    local number=$1 nodes=$2
    shift 2
    "$YOKE" run --nnodes "$nodes" --master-addr 127.0.0.1 --master-port $port --last-call "${last:-20}" "$@" -- \
        "${program[@]}" > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
    [ $number != 0 ] || wait_until 30 listens # before another takes its place
}
listens()
{
    grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp
}

# ended CODE NUMBER...: these nodes end with it.
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

# at STEP: until rank 0 has come to it, and waits there for the file go.STEP.
at()
{
    wait_until 60 [ -e at."$1" ]
}

# killed NUMBER
killed()
{
    kill -KILL "${pid[$1]}"
    { wait "${pid[$1]}"; } 2> /dev/null
    unset "pid[$1]"
}

# next: another job.
next()
{
    port=$((port + 3))
    rm -f at.* go.* out.* err.* result
}

same()
{
    cmp -s result expected
}

exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected

# ---- a node is killed, one comes, one leaves
export SURVIVE_PLAN="0.0 4 stepped wait 0.0 9 stepped wait 0.0 15 stepped wait"
node 0 2:3 -n 2
node 1 2:3 -n 1
node 2 2:3 -n 1
ok "three nodes train" at 4
killed 1
: > go.4
ok "one is killed, and the others go on" wait_for err.0 "3 processes go on in view 2, a step done"
says err.0 "node rank lost the others go on 2 nodes 3 ranks"
says err.2 "node rank lost the others go on 2 nodes 3 ranks"
at 9
node 3 2:3 -n 2 --json
ok "one comes" wait_for err.3 "asks to join"
: > go.9
ok "and takes part" wait_for err.3 '"members","message":"rank 5 has joined the others in view'
says err.0 "node ranks 4-5 comes joins the others 3 nodes 5 ranks"
ok "in the middle of the run" at 15
kill -TERM "${pid[2]}"
ok "one is asked to leave" wait_for err.0 "leaves: SIGTERM to its launcher; the others go on"
: > go.15
ok "it leaves: exit code 143" ended 143 2
ok "the others end well" ended 0 0 3
ok "the weights are those of one process without a fault" same
# Two that come join in one view where both have asked in time, else in two.
ok "four members end it" grep -q "view [45], 4 members" err
ok "half of three nodes would not do, so nothing is said of a cut" [ "$(grep -c "network is cut" err)" = 0 ]
says err "27 steps begun" # one more than there are: that in which the node was killed
ok "nothing was started again" [ "$(grep -c "attempt\|started again" err)" = 0 ]
ok "the node that came says so in JSON" grep -q '"event":"members".*"why":"node [0-9] .*leaves' err.3

# ---- nodes come whose processes fail before they are members: that is the end of those nodes alone
next
export SURVIVE_PLAN="0.0 4 stepped wait 0.0 9 stepped wait 0.0 12 stepped wait"
last=0.1
node 0 2:3
node 1 2:3
at 4
program=(sh -c "exit 3")
node 2 2:3 -n 2
ok "a node whose program fails ends with its exit code" ended 3 2
says err.2 "rank failed: exit code 3 local rank"
says err.0 "node 2 has come in vain exit code 3 the others go on 2 nodes 2 ranks"
program=(./nowhere)
node 2 2:3
ok "so does one that has no such program" ended 127 2
says err.0 "come in vain ./nowhere: no such program there"
program=("$worker" worker result)
SURVIVE_OTHER=1 node 2 2:3
wait_for err.2 "asks to join"
pause 0.2 # so that the others look for it with the next step
: > go.4
ok "one whose process is refused ends with its error" ended 1 2
says err.2 "does not take this process in seed"
at 9
node 2 2:3
wait_for err.2 "asks to join"
pause 0.2 # so that the others look for it with the next step
: > go.9
ok "one like the others is let in" wait_for err.2 "has joined the others in view"
at 12
: > go.12
ok "and all end well" ended 0 0 1 2
ok "with the same weights" same
ok "nothing was started again" [ "$(grep -c "attempt\|started again" err)" = 0 ]

# ---- too few nodes are left: the others keep their state until one more comes
next
export SURVIVE_PLAN="0.0 6 stepped wait"
last=0.1 # two of up to three begin
node 0 2:3
node 1 2:3
at 6
killed 1
: > go.6
ok "one node of two that are needed waits" wait_for err.0 "the others wait for more nodes"
node 2 2:3
ok "one more comes, and it goes on" ended 0 0 2
ok "the weights are the same" same
next
export SURVIVE_PLAN="0.0 6 stepped wait"
last=0.1 # two of up to three begin
node 0 2:3 --join-timeout $(patience 1) --grace 0.2
node 1 2:3 --join-timeout $(patience 1) --grace 0.2
at 6
killed 1
: > go.6
ok "none comes: exit code 1" ended 1 0
says err.0 "--nnodes 2:3 1 node --join-timeout 2 are needed"

# ---- processes end on several nodes, and come back; node 0's, too
next
export SURVIVE_PLAN="0.0 5 batch kill 2.0 5 batch kill 1.0 8 stepped wait"
node 0 2:2 # with a fixed number of nodes nobody survives
node 1 2:2
ok "a fixed number of nodes is refused" ended 1 0 1
says err "fixed number of nodes --nnodes MIN:MAX"
next
last=20
node 0 1:2 -n 2 --max-restarts 1
node 1 1:2 -n 2 --max-restarts 1
wait_until 30 eval '[ "$(cat err.0 err.1 | grep -c "asks to join")" = 2 ]'
: > go.8
ok "a process of each node ends, and is started again" ended 0 0 1
ok "with the same weights" same
says err "rank 0 joined the others in view"
says err "rank 2 joined the others in view"

# ---- all but one node are gone, and what began as one process
next
export SURVIVE_PLAN="0.0 3 stepped wait 0.0 9 stepped wait"
last=0.1
node 0 1:2
at 3
node 1 1:2 -n 2
wait_for err.1 "asks to join"
pause 0.05 # both of them
: > go.3
says err.0 "--nnodes 1:2 network node 0 goes on 1 node"
ok "two join one" wait_for err.1 "rank 2 has joined the others in view"
at 9
killed 1
: > go.9
ok "and are lost" ended 0 0
ok "with the same weights" same

# ---- node 0 has no process and only keeps the list: any node that trains may be lost
next
export SURVIVE_PLAN="0.0 6 stepped wait 0.0 12 stepped wait 1.0 12 stepped wait 2.0 12 stepped wait 3.0 12 stepped wait"
last=20
program=(./nowhere)
node 0 2:3 --node-rank 0 -n 0
program=("$worker" worker result)
node 1 2:3 -n 2
node 2 2:3 -n 2
at 6
pause $(patience 0.5) # so that the launchers know that these survive
killed 1
: > go.6
ok "of two nodes that train one is lost" wait_for err.0 "the others go on: 2 nodes with"
ok "the other goes on" wait_for err.2 "go on in view 2, a step done"
at 12
node 3 2:3
wait_for err.3 "asks to join"
pause 0.2 # so that the others look for it with the next step
: > go.12
ok "one comes" wait_for err.3 "has joined the others in view 3"
ok "and all end well" ended 0 0 2 3
ok "with the same weights" same
next
export SURVIVE_PLAN="0.0 6 stepped wait"
node 0 1:2 --node-rank 0 -n 0
node 1 1:2
at 6
wait_for err.0 "network is cut"
killed 1
ok "all that train are lost: exit code 1" ended 1 0
says err.0 "all processes were lost"
next
export SURVIVE_PLAN="0.0 26 finish kill"
node 0 2:3 --node-rank 0 -n 0
node 1 2:3
node 2 2:3
ok "a process is lost behind the last step: exit code 1" ended 1 0 1 2
says err.0 "lost behind the last step"
exits 2 "another node without processes is refused" run --nnodes 1:2 --master-addr 127.0.0.1 -n 0 -- true
says err "--nproc-per-node 0 --node-rank 0"

# ---- the end of node 0, and of all
next
export SURVIVE_PLAN="0.0 3 stepped wait"
last=20
node 0 1:2
node 1 1:2
at 3
killed 0
ok "the end of node 0 is that of the job: exit code 1" ended 1 1
says err.1 "node 0 lost keeps the list of nodes"
next
export SURVIVE_PLAN="0.0 3 stepped wait"
last=20
node 0 1:2
node 1 1:2
at 3
kill -TERM "${pid[0]}"
: > go.3
ok "SIGTERM to node 0: all leave together: exit code 143" ended 143 0 1
says err "all left after step"
next
export SURVIVE_PLAN="1.0 26 finish kill"
last=20
node 0 1:2
node 1 1:2
ok "a process that ends behind the last step: exit code 1" ended 1 0 1
says err.0 "lost behind the last step"
next
export SURVIVE_PLAN="2.0 4 batch kill 0.0 9 stepped wait"
last=20
node 0 1:2 -n 2
node 1 1:2
at 9
ok "a process is lost, and the others go on" grep -q "rank 2 is lost: killed by SIGKILL" err.1
killed 1
ok "its node is lost later, which had no other" wait_for err.0 "is lost: its launcher ended"
: > go.9
ok "that costs the others nothing, neither then nor at the end" ended 0 0
ok "who have the same weights" same
finish
