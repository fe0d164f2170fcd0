#!/bin/bash
# Soak: a program that survives, on 3 to 8 nodes, each a network namespace of this machine on a bridge, which this script
# makes and removes. Processes are killed, in any phase of a step or from outside, stopped for good (--evict-stalled 3)
# or for a moment; launchers are killed, node 0's among them; links go down and up, lose packets, are slow; whole nodes
# stand still; nodes come; several at once, and while the members change. More than half of all nodes that a job ever has
# lose nothing but time, and one process of those has no fault, so each job has to end well on them: with the weights,
# losses and random numbers of the undisturbed run, one SHA-256, and so without a sample that was lost or used twice; with
# no more than 10 s between two steps (on a machine that is not busy), and with no process left on any node.
#
# usage: nodes.sh [COUNT [SEED [JOB]]]      COUNT faults; a job that went wrong is printed with what makes it again, and
#        its output is kept in the folder $YOKE_SOAK_KEEP, where that is set, with a line for each job. JOB: this one alone
. "$(dirname "${BASH_SOURCE[0]}")/../support/tap.bash"
count=${1:-1000} seed=${2:-$$} only=${3:-0}
worker=$(realpath "${YOKE%/*}/tests/elastic/survive_test")
prefix=${YOKE_SOAK_PREFIX:-yk-soak}-$$
most=8 # nodes, and virtual ranks
declare -A kinds
jobs=0 faults=0 bad=0 longest=0 steps=0 changes=0 lossy= slow=
missing=
[ "$(id -u)" = 0 ] || missing="it takes root"
command -v ip > /dev/null || missing="it takes ip (iproute2)"
[ -x "$worker" ] || missing="this build has no tests/elastic/survive_test"

# ---- the network ----------------------------------------------------------------------------------------------------
# Node N has the address 10.217.79.(N + 1), its interface is e0; the bridge is in a namespace of its own.
pids_of()
{
    ip netns pids "$prefix-$1" 2> /dev/null
}
cleanup()
{
    local n one
    for ((n = 0; n < most; n++)); do
        for one in $(pids_of $n); do
            kill -KILL "$one" 2> /dev/null
        done
    done
    for ((n = 0; n < most; n++)); do
        ip netns del "$prefix-$n" 2> /dev/null
    done
    ip netns del "$prefix-x" 2> /dev/null
    rm -rf "$work"
}
make_network()
{
    local n
    ip netns add "$prefix-x" && ip -n "$prefix-x" link add bridge type bridge && ip -n "$prefix-x" link set bridge up ||
        return 1
    for ((n = 0; n < most; n++)); do
        ip netns add "$prefix-$n" && ip link add e0 netns "$prefix-$n" type veth peer name p$n netns "$prefix-x" || return 1
        ip -n "$prefix-x" link set p$n master bridge up
        ip -n "$prefix-$n" addr add 10.217.79.$((n + 1))/24 dev e0
        ip -n "$prefix-$n" link set lo up
        ip -n "$prefix-$n" link set e0 up
    done
    # A kernel without netem has what loses packets in nftables, and what delays them in a bucket that is small.
    if tc -n "$prefix-0" qdisc add dev e0 root netem loss 1% 2> /dev/null; then
        lossy=netem slow=netem
    else
        ip netns exec "$prefix-0" nft add table inet soak 2> /dev/null && lossy=nft
        tc -n "$prefix-0" qdisc add dev e0 root tbf rate 1mbit burst 4kb latency 1s 2> /dev/null && slow=tbf
    fi
    restore 0
}
# restore NODE: its link as it was.
restore()
{
    ip -n "$prefix-x" link set "p$1" up
    tc -n "$prefix-$1" qdisc del dev e0 root 2> /dev/null
    [ "$lossy" != nft ] || ip netns exec "$prefix-$1" nft delete table inet soak 2> /dev/null
}
# lose NODE PERCENT; delay NODE MILLISECONDS
lose()
{
    if [ "$lossy" = netem ]; then
        tc -n "$prefix-$1" qdisc replace dev e0 root netem loss "$2%"
    else
        ip netns exec "$prefix-$1" nft "add table inet soak; add chain inet soak in { type filter hook input priority 0; };
            add rule inet soak in iifname e0 numgen random mod 100 < $2 drop"
    fi
}
delay()
{
    if [ "$slow" = netem ]; then
        tc -n "$prefix-$1" qdisc replace dev e0 root netem delay "$2ms" $(($2 / 2))ms
    else
        tc -n "$prefix-$1" qdisc replace dev e0 root tbf rate $((16000 / $2))kbit burst 4kb latency 1s
    fi
}

# ---- processes --------------------------------------------------------------------------------------------------------
# node NUMBER: starts its launcher, at the address of whoever keeps the list by now.
node()
{
    local number=$1 address rank=()
    [ $number != 0 ] || rank=(--node-rank 0)
    address=$(sed -n 's/.*keeps the list of nodes at \([0-9.]*:[0-9]*\);.*/\1/p' "$job/err.$safe_node" 2> /dev/null | tail -n 1)
    address=${address:-10.217.79.1:29500}
    YOKE_HOST_ID=host$number ip netns exec "$prefix-$number" "$YOKE" run --nnodes "$least:$most" -n "$local_count" \
        --master-addr "${address%:*}" --master-port "${address#*:}" ${rank[@]+"${rank[@]}"} --secret-file secret \
        "${options[@]}" -- "$worker" worker result > "$job/out.$number" 2> "$job/err.$number" < /dev/null &
    pid[$number]=$!
}
# has_come NODE: node 0 listens; another one's launcher has a connection to it.
has_come()
{
    local far=00000000:0000 state=0A
    [ "$1" = 0 ] || far=$(printf '%02X4FD90A:[0-9A-F]*' $(($1 + 1))) state=01
    grep -q "[0-9A-F]*:733C $far $state" "/proc/${pid[0]}/net/tcp" 2> /dev/null || ! kill -0 "${pid[$1]}" 2> /dev/null
}
# workers NODE: the processes of the program there.
workers()
{
    local one
    for one in $(pids_of "$1"); do
        [ "$(readlink "/proc/$one/exe")" != "$worker" ] || echo "$one"
    done
}
# now: milliseconds since the system's start.
now()
{
    local up
    read -r up _ < /proc/uptime
    now=$((10#${up/./} * 10))
}

# ---- faults -------------------------------------------------------------------------------------------------------------
# pick WORD...: *picked is one of them.
pick()
{
    shift $((RANDOM % $#))
    picked=$1
}
# at KIND NODE [NUMBER]: an event of the job, often close to the one before.
at()
{
    case $((RANDOM % 4)) in
    0) ;;
    1) when=$((when + RANDOM % 300)) ;;
    *) when=$((RANDOM % span)) ;;
    esac
    events+=("$when $*")
    faults=$((faults + 1))
    kinds[$1]=$((${kinds[$1]:-0} + 1))
}
# happen KIND NODE [NUMBER]
happen()
{
    local all one
    case $1 in
    kill) # of any that is there, but for the process of the job that has no fault
        all=($(workers "$2"))
        [ ${#all[@]} = 0 ] || [ "$2" = "$safe_node" ] || kill -KILL "${all[$3 % ${#all[@]}]}" 2> /dev/null
        ;;
    halt | stop)
        all=($(workers "$2"))
        [ ${#all[@]} != 0 ] && [ "$2" != "$safe_node" ] || return 0
        one=${all[$3 % ${#all[@]}]}
        kill -STOP "$one" 2> /dev/null
        [ "$1" = halt ] || later "$3" kill -CONT "$one"
        ;;
    blink | cut)
        ip -n "$prefix-x" link set "p$2" down
        [ "$1" = cut ] || later "$3" restore "$2"
        ;;
    loss)
        lose "$2" "$((3 + $3 % 12))"
        later "$3" restore "$2"
        ;;
    slow)
        delay "$2" "$((5 + $3 % 30))"
        later "$3" restore "$2"
        ;;
    launcher) # either of its two processes, or both
        all=("${pid[$2]}" $(cat "/proc/${pid[$2]}/task/${pid[$2]}/children" 2> /dev/null))
        case $(($3 % 3)) in
        0) kill -KILL "${all[0]}" 2> /dev/null ;;
        1) kill -KILL "${all[-1]}" 2> /dev/null ;;
        *) kill -KILL "${all[@]}" 2> /dev/null ;;
        esac
        ;;
    freeze)
        all=($(pids_of "$2"))
        [ ${#all[@]} = 0 ] || kill -STOP "${all[@]}" 2> /dev/null
        [ ${#all[@]} = 0 ] || later $((silence + silence / 2 + $3)) kill -CONT "${all[@]}"
        ;;
    leave) kill -TERM "${pid[$2]}" 2> /dev/null ;;
    come) node "$2" ;;
    esac
}
# later MILLISECONDS COMMAND...
later()
{
    now
    after+=("$((now + $1)) ${*:2}")
}
due() # does what is due, and says in *any whether something is still to come
{
    local rest=() one
    now
    for one in ${after[@]+"${after[@]}"}; do
        if [ "${one%% *}" -le $now ]; then
            ${one#* } 2> /dev/null
        else
            rest+=("$one")
        fi
    done
    after=(${rest[@]+"${rest[@]}"})
    any=${#after[@]}
}

# ---- a job --------------------------------------------------------------------------------------------------------------
# plan: draws its size and faults, which follow from the seed and its number alone.
plan()
{
    local n unsafe comes where=0
    RANDOM=$((seed * 7919 + jobs * 104729 + 1))
    nodes=$((3 + RANDOM % 6)) local_count=1 least=2 what=() events=() after=() phases='' when=0
    [ $nodes -gt 4 ] || local_count=$((1 + RANDOM % 2))
    unsafe=$((RANDOM % ((nodes + 1) / 2)))
    comes=$((RANDOM % (nodes - 2 * unsafe)))
    [ $comes -le $((most - nodes)) ] || comes=$((most - nodes))
    options=(--node-timeout "$(awk -v s=$silence 'BEGIN { print s / 1000 }')" --evict-stalled 3 --last-call $((2 * slowness))
        --join-timeout $((20 * slowness)) --max-restarts $((RANDOM % 3)))
    span=$((2500 * slowness))
    # Those that may be lost stand anywhere in the list, also in front.
    for ((n = 0; n < nodes; n++)); do
        what[$n]=stays
    done
    for ((n = 0; n < unsafe; n++)); do
        where=$((RANDOM % 3 ? (where + 1 + RANDOM % nodes) % nodes : 0))
        while [ "${what[$where]}" != stays ]; do
            where=$(((where + 1) % nodes))
        done
        what[$where]=goes
    done
    for ((n = nodes; n < nodes + comes; n++)); do
        what[$n]=comes
        at come $n
    done
    safe_node=$((RANDOM % nodes))
    while [ "${what[$safe_node]}" != stays ]; do
        safe_node=$(((safe_node + 1) % nodes))
    done
    for ((n = 0; n < nodes; n++)); do
        if [ "${what[$n]}" = goes ]; then
            pick launcher launcher cut freeze leave
            [ "${what[0]}" = stays ] || [ $picked != leave ] || picked=launcher # who keeps the list ends all by leaving
            at $picked $n $((RANDOM % 1000))
        fi
        [ $n != $safe_node ] && [ $((RANDOM % 2)) = 0 ] || continue
        pick kill kill halt stop blink loss slow phase
        case $picked in
        phase)
            pick begin batch backward summed stepped recover
            phases+="$((n * local_count)).$((RANDOM % 2)) $((RANDOM % 18)) $picked kill "
            faults=$((faults + 1)) kinds[phase]=$((${kinds[phase]:-0} + 1))
            ;;
        blink) at blink $n $((RANDOM % (silence / 10))) ;;
        *) at $picked $n $((RANDOM % 1500)) ;;
        esac
    done
    for ((n = 0; n < nodes && RANDOM % 2; n++)); do # also where the process without a fault is
        [ -z "$lossy$slow" ] || { pick ${lossy:+loss} ${slow:+slow} && at $picked $safe_node $((RANDOM % 2000)); }
    done
}
job()
{
    local n began start one event rest number code wrong='' left gap
    jobs=$((jobs + 1))
    plan
    [ "$only" = 0 ] || [ "$only" = $jobs ] || return 0
    rm -rf job result
    mkdir job
    job=$work/job
    pid=()
    SURVIVE_PLAN=$phases
    export SURVIVE_STEPS=$job/steps SURVIVE_PLAN
    now
    began=$now
    for ((n = 0; n < nodes; n++)); do
        node $n
        wait_until 20 has_come $n # those that come one by one get their numbers in this order
    done
    wait_until 60 [ -s "$job/steps" ] || wrong+="; it has not begun"
    now
    start=$now
    printf '%s\n' ${events[@]+"${events[@]}"} | sort -n > "$job/plan"
    while read -r one event number rest; do
        [ -n "$one" ] || continue
        due
        while [ $now -lt $((start + one)) ]; do
            pause 0.005
            due
        done
        echo "$((now - start)) $event $number $rest" >> "$job/done"
        happen "$event" "$number" "${rest:-0}"
    done < "$job/plan"
    # Those that stay end well; all the others end.
    for ((n = 0; n < most; n++)); do
        [ -n "${pid[$n]:-}" ] || continue
        while kill -0 "${pid[$n]}" 2> /dev/null && [ "$now" -lt $((start + span + 60000 * slowness)) ]; do
            pause 0.02
            due
        done
        if kill -0 "${pid[$n]}" 2> /dev/null; then
            wrong+="; the launcher of node $n has not ended"
            continue
        fi
        { wait "${pid[$n]}"; } 2> /dev/null
        code=$?
        echo "$((now - start)) node $n has ended with $code, or before" >> "$job/done"
        [ "${what[$n]}" != stays ] || [ $code = 0 ] || wrong+="; node $n ended with $code"
    done
    while due; [ "$any" -gt 0 ]; do
        pause 0.02
    done
    cmp -s result expected || wrong+="; the result is $(cat result 2> /dev/null || echo missing)"
    left=$(for ((n = 0; n < most; n++)); do pids_of $n; done)
    [ -z "$left" ] || pause 1 # one that was killed a moment ago
    left=$(for ((n = 0; n < most; n++)); do pids_of $n; done)
    [ -z "$left" ] || wrong+="; left: $(for one in $left; do tr '\0' ' ' < "/proc/$one/cmdline"; done | cut -c1-300)"
    gap=$(awk 'NR > 1 && $1 - last > most { most = $1 - last } { last = $1 } END { print int(1000 * most) }' "$job/steps" 2> /dev/null)
    [ "${gap:-0}" -le $longest ] || longest=$gap
    [ "${gap:-0}" -le $((10000 * slowness)) ] || wrong+="; $gap ms between two steps"
    [ ! -s "$job/steps" ] || steps=$((steps + $(wc -l < "$job/steps")))
    changes=$((changes + $(cat "$job"/err.* | grep -c ' go on in view \| has joined the others in view ')))
    now
    [ -z "${YOKE_SOAK_KEEP:-}" ] || echo "job $jobs: $nodes nodes, ${#events[@]} faults from outside, $((now - began)) ms,"`
        `" ${gap:-0} ms between two steps at most$wrong" >> "$YOKE_SOAK_KEEP/$seed.log"
    if [ -n "$wrong" ]; then
        bad=$((bad + 1))
        echo "# job $jobs${wrong}"
        echo "#   again: $0 $count $seed $jobs; $nodes nodes of $local_count, ${what[*]}, options ${options[*]}, plan '$phases'"
        sed 's/^/#   at ms /' "$job/done" 2> /dev/null
        for one in "$job"/err.*; do
            tail -n 6 "$one" | cut -c1-300 | sed "s/^/#   ${one##*/}: /"
        done
        [ -z "${YOKE_SOAK_KEEP:-}" ] || { mkdir -p "$YOKE_SOAK_KEEP" && cp -r "$job" "$YOKE_SOAK_KEEP/$seed.$jobs"; }
    fi
    for ((n = 0; n < most; n++)); do
        for one in $(pids_of $n); do
            kill -KILL "$one" 2> /dev/null
        done
        restore $n
    done
}

if [ -z "$missing" ]; then
    trap '[ $BASHPID != $$ ] || cleanup' EXIT
    trap 'exit 1' INT TERM HUP
    make_network 2> err || missing="no such network can be made here: $(head -n 1 err)"
fi
if [ -n "$missing" ]; then
    skip "random faults of nodes" "$missing"
    finish
    exit
fi
unset MASTER_ADDR MASTER_PORT YOKE_VIRTUAL_RANKS YOKE_SHARED_MEMORY YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD
read -r load _ < /proc/loadavg
slowness=${YOKE_TEST_SLOWNESS:-$((${load%.*} / $(nproc)))}
slowness=$((slowness < 1 ? 1 : slowness > 4 ? 4 : slowness))
export OMP_NUM_THREADS=1 YOKE_LOG=info YOKE_JOIN_TIMEOUT=60 SURVIVE_VIRTUAL=$most SURVIVE_PACE=$((120000 * slowness)) YOKE_TEST_SLOWNESS=$slowness
silence=$((5000 * slowness)) # milliseconds, --node-timeout
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret)
echo "# $count faults, seed $seed, loss by ${lossy:-nothing}, delay by ${slow:-nothing}, $slowness times as slow as a quiet machine"
SURVIVE_PLAN='' "$YOKE" run -n 1 -- "$worker" worker expected > out 2> err < /dev/null
ok "the undisturbed run" grep -q "steps" expected
while [ $faults -lt "$count" ]; do
    job
done
echo "# $jobs jobs, $faults faults ($(for kind in "${!kinds[@]}"; do printf '%s %s, ' "$kind" "${kinds[$kind]}"; done)"`
    `"$changes changes of members as launchers saw them), $steps steps, $longest ms between two steps at most,"`
    `" SHA-256 $(sha256sum < expected | cut -c1-64)"
ok "all end well, with one result, and nothing is left" [ $bad = 0 ]
finish
