#!/bin/bash
# cooldown.sh - `yoke run --fail-cooldown FIRST:MOST`: a host whose node has failed is let in again later, ever later,
# others at once; who leaves has not failed; and the launcher that keeps the list after node 0 goes on with the counts.
# The nodes are launchers of this host, which YOKE_HOST_ID tells apart.
. tests/support/tap.bash
needs_proc "processes are looked for there"
unset OMP_NUM_THREADS PYTHONUNBUFFERED MASTER_ADDR MASTER_PORT TORCHELASTIC_ERROR_FILE YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY YOKE_HOST_ID
needs_built tests/elastic/survive_test
worker=$built
free_ports 32700 12
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; rm -rf "$work"; }' EXIT
wait=$(patience 3) # of a host that has failed once

# What a process finds, then until the file `go` is there.
cat > wait.sh <<'SCRIPT'
echo "rank $RANK of $WORLD_SIZE"
until [ -e go ]; do read -rt 0.05 <> .nap; done
exit $(cat go)
SCRIPT

# node NUMBER HOST ARGUMENTS...: a launcher in the background; its output goes to out.NUMBER and err.NUMBER.
node()
{
    local number=$1 host=$2
    shift 2
    rm -f out.$number err.$number # else what another has said is found in them
    YOKE_HOST_ID=$host "$YOKE" run --nnodes "$nodes" --master-addr 127.0.0.1 --master-port $port --last-call "$last" \
        "$@" -- "${program[@]}" > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
    [ $number != 0 ] || wait_until 30 listens # before another takes its place
}
listens()
{
    grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp
}
shows()
{
    wait_until 30 grep -qF -- "$2" out.$1
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
next()
{
    port=$((port + 3))
    rm -f go go.* at.* out.* err.* result
}

# ---- all processes are started again when a node comes or goes
nodes=1:3 last=0.3 program=(bash wait.sh)
node 0 first --fail-cooldown "$wait":1000
shows 0 "rank 0 of 1"
node 1 lemon
ok "a node comes" shows 1 "rank 1 of 2"
killed 1
ok "it is killed" wait_for err.0 "is lost: its launcher ended"
began=$EPOCHREALTIME
node 1 lemon
ok "comes back too early, and is told to wait" wait_for err.1 "lets this node in after"
says err.1 "node 0 lets this node in after s: nodes of host lemon have failed 1 time (--fail-cooldown"
says err.0 "a node comes too early, and waits for s: nodes of host lemon have failed 1 time (--fail-cooldown"
node 2 apple
ok "another host's is let in meanwhile" shows 2 "rank 1 of 2"
ok "the one that waits is no node" [ ! -s out.1 ]
ok "it is let in when its time is over" shows 1 "rank 2 of 3"
took=$(awk -v from="$began" -v to="$EPOCHREALTIME" -v wait="$wait" 'BEGIN { print (to - from > wait - 1) ? "late" : "early" }')
ok "not before" [ "$took" = late ]
kill -TERM "${pid[2]}"
ok "one leaves" ended 143 2
wait_for err.0 "leaves: SIGTERM"
node 2 apple
ok "and comes back: it has not failed" shows 2 "rank 2 of 3"
ok "nobody else was told to wait" [ "$(grep -c "comes too early" err.0)" = 1 ]
killed 1
ok "the first is killed once more" wait_until 30 eval '[ "$(grep -c "is lost: its launcher ended" err.0)" -ge 2 ]'
node 1 lemon --join-timeout 0.5
ok "and has no time to wait: exit code 1" ended 1 1
says err.1 "lets this node in after s, and --join-timeout 0.5 ends before: nodes of host lemon have failed 2 times"
node 1 lemon
ok "it waits, and is killed" wait_for err.1 "lets this node in after"
killed 1
node 1 lemon
ok "one waits when the job ends" wait_for err.1 "lets this node in after"
says err.1 "nodes of host lemon have failed 2 times" # who waits is no node that could fail
: > go
ok "the others end well" ended 0 0 2
ok "it is told: exit code 1" ended 1 1
says err.1 "the job has come to its end"

# ---- nodes beyond the most wait as spares, and take the place of one that is lost
next
nodes=1:2
node 0 a --spares 1
node 1 b
shows 1 "rank 1 of 2"
node 2 c --join-timeout 0.5
ok "one more node waits as a spare" wait_for err.2 "waits as a spare"
says err.2 "node 0 this node waits as a spare: the job has its 2 nodes, and this is spare 1 of 1 (--spares)"
says err.0 "a node waits as a spare: the job has its 2 nodes, and this is spare 1 of 1 (--spares)"
node 3 d
ok "a second one is refused: exit code 1" ended 1 3
says err.3 "comes too late 2 nodes"
pause 1 # longer than its --join-timeout, which is for those that are to be let in
killed 1
ok "a node is lost: the spare takes its place" shows 2 "rank 1 of 2"
node 3 d
ok "another one waits" wait_for err.3 "waits as a spare"
: > go
ok "all end well" ended 0 0 2
ok "so does the spare that was not needed" ended 0 3
says err.3 "the job has come to its end, and has not needed this spare"
next
node 0 a --spares 1 --fail-cooldown "$wait":1000
node 1 b
shows 1 "rank 1 of 2"
node 2 c
wait_for err.2 "waits as a spare"
killed 1
ok "the spare takes the place" shows 2 "rank 1 of 2"
node 1 b
ok "one that comes back too early waits" wait_for err.1 "nodes of host b have failed 1 time"
ok "and is a spare when its time is over" wait_for err.1 "waits as a spare"
echo 5 > ended
mv ended go
ok "the job fails: exit code 5" ended 5 0 2
ok "it is that of the spare, too" ended 5 1

# ---- wrong values
wrong()
{
    local message=$1
    shift
    exits 2 "yoke run $*" run "$@"
    says err "$message"
}
for value in 10 10: :600 0:600 -1:5 a:b 10:600: 10:inf nan:10 10:2e6 ""; do
    wrong "--fail-cooldown FIRST:MOST 10:600" --fail-cooldown "$value" --nnodes 1:2 --master-addr a true
done
wrong "--fail-cooldown 10:5 first 10 s longest 5 s" --fail-cooldown 10:5 --nnodes 1:2 --master-addr a true
wrong "--fail-cooldown 1:5 --nnodes MIN:MAX 2" --fail-cooldown 1:5 --nnodes 2 --master-addr a true
wrong "--fail-cooldown 1:5 --nnodes MIN:MAX 1" --fail-cooldown 1:5 true

# ---- the processes of the others go on: nodes come in vain, and node 0 is lost
next
export OMP_NUM_THREADS=1 YOKE_LOG=info
exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected
nodes=2:4 last=20 program=("$worker" worker result)
export SURVIVE_PLAN="0.0 4 stepped wait 1.0 9 stepped wait 2.0 9 stepped wait"
for number in 0 1 2 3; do
    node $number "host$number" --fail-cooldown "$((number ? 900 : 500)):1000" # node 0's counts
done
ok "four nodes train" at 4
pause $(patience 0.5) # so that the launchers know that these survive
killed 3
ok "one is killed" wait_for err.0 "is lost: its launcher ended without a word; the others go on"
program=(sh -c "exit 3")
node 4 vain
ok "one comes in vain: exit code 3" ended 3 4
ok "which is said" wait_for err.0 "has come in vain"
node 4 vain --join-timeout 0.5
ok "and has to wait before it does so again: exit code 1" ended 1 4
says err.4 "nodes of host vain have failed 1 time (--fail-cooldown 500:1000)"
program=("$worker" worker result)
killed 0
: > go.4
ok "node 0 is killed, and the others go on" at 9
line=$(grep -h "node 0 .*is lost, and node [0-9]* keeps" err.* | head -n 1)
port=${line#*127.0.0.1:}
port=${port%%;*}
for host in host3 host0; do
    node 4 $host --join-timeout 0.5 --json
    ok "who keeps the list now knows that $host has failed: exit code 1" ended 1 4
    says err.4 "lets this node in after s, and --join-timeout 0.5 ends before: nodes of host $host have failed 1 time (--fail-cooldown 500:1000)"
done
node 4 apple
ok "another host's node comes" wait_for err.4 "asks to join"
other=no
if command -v objcopy > /dev/null && objcopy --remove-section .note.gnu.build-id "$worker" other; then
    other=yes program=("$work/other" worker result)
    node 5 other
    ok "and one with another build of the program" wait_for err.5 "asks to join"
fi
pause 0.3 # so that the others look for it with the next step
: > go.9
ok "and takes part" wait_for err.4 "has joined the others in view"
if [ $other = yes ]; then
    ok "the other build does not: exit code 1" ended 1 5
    says err.5 "elastic_create: the run does not take this process in: it has code of build and the run has code of build"
else
    skip "another build of the program" "there is no objcopy"
fi
ok "all end well" ended 0 1 2 4
ok "with the weights of one process without a fault" cmp -s result expected
program=("$worker" worker result)

# ---- a spare joins processes that go on
next
nodes=1:2 last=20
export SURVIVE_PLAN="0.0 4 stepped wait 0.0 9 stepped wait"
node 0 a --spares 1
node 1 b
ok "two nodes train" at 4
node 2 c
ok "one waits as a spare" wait_for err.2 "waits as a spare"
pause $(patience 0.5) # so that the launchers know that these survive
killed 1
ok "a node is lost: the spare comes" wait_for err.2 "asks to join"
: > go.4
at 9
pause 0.3 # so that the others look for it with the next step
: > go.9
ok "and takes part" wait_for err.2 "has joined the others in view"
ok "both end well" ended 0 0 2
ok "with the same weights" cmp -s result expected

# ---- the launcher that a spare waits at is killed
next
nodes=2:3 last=20
export SURVIVE_PLAN="0.0 4 stepped wait 1.0 9 stepped wait 2.0 9 stepped wait"
for number in 0 1 2; do
    node $number "host$number" --spares 1 --fail-cooldown 900:1000
done
ok "three nodes train" at 4
node 3 host3
ok "one waits as a spare" wait_for err.3 "waits as a spare"
pause $(patience 0.5) # so that the launchers know that these survive
killed 0
ok "node 0 is killed: the spare hears who keeps the list now" wait_for err.3 "goes on waiting, and asks the others"
ok "and takes the place" wait_for err.3 "asks to join"
line=$(grep -h "node 0 .*is lost, and node [0-9]* keeps" err.* | head -n 1)
port=${line#*127.0.0.1:}
port=${port%%;*}
node 4 host0
ok "host 0 comes back too early: exit code 1" ended 1 4
says err.4 "lets this node in after s, and --join-timeout 60 ends before: nodes of host host0 have failed 1 time"
: > go.4
at 9
pause 0.3 # so that the others look for it with the next step
: > go.9
ok "the spare takes part" wait_for err.3 "has joined the others in view"
ok "all end well" ended 0 1 2 3
ok "with the same weights" cmp -s result expected
finish
