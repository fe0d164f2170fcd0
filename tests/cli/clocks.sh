#!/bin/bash
# clocks.sh - nodes whose clocks are hours apart, and one whose clock jumps by hours while it trains (libfaketime): nobody
# is taken for lost, a host that has failed waits for seconds, one of them keeps the list after node 0, and the weights
# are those of a run without a fault. The clocks that count durations run on, as they do on a host whose date is set.
. tests/support/tap.bash
needs_proc "processes are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY YOKE_HOST_ID
needs_built tests/elastic/survive_test
worker=$built
preload=$(faketime -m -f +0 printenv LD_PRELOAD 2> /dev/null)
if [ -z "$preload" ] || [ -n "${SANITIZE:-}" ]; then
    [ -z "${SANITIZE:-}" ] || why="a sanitizer's library has to be the first that is loaded"
    skip "clocks that are hours apart" "${why:-there is no faketime}"
    finish
    exit
fi
export OMP_NUM_THREADS=1 YOKE_LOG=info
free_ports 33400 6
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; rm -rf "$work"; }' EXIT
timeout=$(patience 3)

# node NUMBER HOST CLOCK: a launcher in the background whose clock is off by what the file has; in out.NUMBER, err.NUMBER.
node()
{
    local number=$1 host=$2
    rm -f "out.$number" "err.$number"
    YOKE_HOST_ID=$host LD_PRELOAD=$preload FAKETIME_TIMESTAMP_FILE=$work/$3 FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1 \
        DONT_FAKE_MONOTONIC=1 "$YOKE" run --nnodes 2:4 --master-addr 127.0.0.1 --master-port "$port" --last-call 20 \
        --node-timeout "$timeout" --fail-cooldown "$timeout":900 -- "$worker" worker result \
        > "out.$number" 2> "err.$number" < /dev/null &
    pid[number]=$!
    [ "$number" != 0 ] || wait_until 30 listens
}
listens()
{
    grep -q ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp
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
    local failed=0 number
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null || { failed=1; echo "# node $number ended with another code than 0"; }
        unset "pid[number]"
    done
    cat err.* > err
    return $failed
}

echo +0 > now
echo +3h > ahead
echo +0 > jumps
exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected
ok "a clock is three hours ahead" awk -v here="$(date +%s)" -v ahead="$(LD_PRELOAD=$preload FAKETIME_TIMESTAMP_FILE=$work/ahead date +%s)" \
    'BEGIN { exit !(ahead - here > 10700 && ahead - here < 10900) }'

export SURVIVE_PLAN="0.0 4 stepped wait 0.0 9 stepped wait"
node 0 zero now
node 1 one ahead
node 2 two jumps
node 3 three now
ok "four nodes train" at 4
echo +5h > jumps
pause "$(patience 4)" # longer than --node-timeout
echo -3h > jumps
pause "$(patience 1.2)"
ok "nobody is lost" [ "$(cat err.* | grep -c "is lost\|cannot be reached")" = 0 ]
killed 1
ok "the node whose clock is ahead is killed" wait_for err.0 "is lost: its launcher ended"
began=$EPOCHREALTIME
node 1 one jumps
ok "it comes back too early" wait_for err.1 "nodes of host one have failed 1 time"
ok "and is let in" wait_for err.1 "asks to join"
took=$(awk -v from="$began" -v to="$EPOCHREALTIME" -v wait="$timeout" 'BEGIN { print (to - from > wait - 1) ? "late" : "early" }')
ok "when its time is over, not before" [ "$took" = late ]
: > go.4
at 9
killed 0
: > go.9
ok "node 0 is killed, and the others end well" ended 1 2 3
says err "node 0 is lost, and node keeps the list of nodes the others go on: 3 nodes with"
ok "with the weights of one process without a fault" cmp -s result expected
finish
