#!/bin/bash
# Soak: jobs that train and save a checkpoint every few steps, while ranks are killed, crash, stand still or are asked to
# end, launchers are killed, and links between hosts are cut, at random moments. The job is restarted by --max-restarts,
# or by the same command line with --resume where the whole of it ended. However often that happens, the weights must be
# those of the undisturbed run, to the bit, and nothing may be left: no process, no temporary file, and in a launcher
# that lived through restarts neither a descriptor nor a mapping.
#
# usage: restarts.sh [COUNT [SEED [TRANSPORT...]]]     COUNT faults over the transports: shared tcp nodes (all three)
. "$(dirname "${BASH_SOURCE[0]}")/../support/tap.bash"
count=${1:-1000} seed=${2:-$$}
shift $(($# < 2 ? $# : 2))
transports=(${@:-shared tcp nodes})
RANDOM=$seed
steps=500 ranks=3 bad=0 longest=60
declare -A faults of_kind
declare -a victims launcher
jobs_done=0
ulimit -c 0
export YOKE_SOAK=soak-$$ TMPDIR=$work/tmp YOKE_JOIN_TIMEOUT=20
mkdir "$TMPDIR"
train=("$YOKE" train --data glyphs --model mlp --steps $steps --batch-size 8 --lr 0.01 --momentum 0.9 --no-eval)
echo "# $count faults over ${transports[*]}, seed $seed"
exec 3>&2 2> shell.err # bash says of every launcher that it was killed

wrong()
{
    bad=$((bad + 1))
    echo "# job $jobs_done over $transport, after ${history[*]: -4}: $*"
    tail -q -n 15 err? 2> /dev/null | sed 's/^/#   /'
}

# Processes of this soak's jobs.
marked()
{
    local path
    for path in $(grep -lsa "YOKE_SOAK_JOB=$YOKE_SOAK" /proc/[0-9]*/environ); do
        path=${path%/environ}
        [ "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$path/status" 2> /dev/null)" = Z ] || echo "${path#/proc/}"
    done
}

# ---- three hosts -------------------------------------------------------------------------------------------------------
spaces=()
for n in 0 1 2 x; do
    spaces+=("ys$$$n")
done
cleanup()
{
    local pid space
    for pid in $(marked); do
        kill -KILL "$pid" 2> /dev/null
    done
    for space in "${spaces[@]}"; do
        ip netns del "$space" 2> /dev/null
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# The bridge is in the namespace x, host N has the address 10.216.77.(N + 1).
make_hosts()
{
    local n
    for n in 0 1 2 3; do
        ip netns add "${spaces[n]}" || return 1
    done
    ip -n "${spaces[3]}" link add bridge type bridge && ip -n "${spaces[3]}" link set bridge up || return 1
    for n in 0 1 2; do
        ip link add e$n netns "${spaces[n]}" type veth peer name p$n netns "${spaces[3]}" || return 1
        ip -n "${spaces[3]}" link set p$n master bridge up
        ip -n "${spaces[n]}" addr add 10.216.77.$((n + 1))/24 dev e$n
        ip -n "${spaces[n]}" link set lo up
        ip -n "${spaces[n]}" link set e$n up
    done
    (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret)
}

# ---- a job -------------------------------------------------------------------------------------------------------------
# Starts the launchers; $hosts of them.
begin()
{
    local n among
    rm -f pid.* err?
    for ((n = 0; n < hosts; n++)); do
        among=(-n $ranks)
        [ $hosts = 1 ] || among=(-n 1 --nnodes $hosts --node-rank $n --master-addr 10.216.77.1 --master-port 29541
            --secret-file secret --node-timeout 6 --join-timeout 30)
        # shellcheck disable=SC2016
        YOKE_SOAK_JOB=$YOKE_SOAK YOKE_HOST_ID=host$n ${in[n]:-} "$YOKE" run --no-prefix --max-restarts 100000 --grace 2 "${among[@]}" -- \
            sh -c 'echo $$ > pid.$RANK.part; mv pid.$RANK.part pid.$RANK; exec "$@"' - "${train[@]}" --checkpoint ck \
            --resume --save weights $how > out$n 2> err$n < /dev/null &
        launcher[n]=$!
    done
    measured=
}

alive()
{
    local n
    for ((n = 0; n < hosts; n++)); do
        kill -0 "${launcher[n]}" 2> /dev/null && return 0
    done
    return 1
}

# Descriptors and mappings of the first launcher, while all ranks run; the smallest of a few looks, as some are open for
# a moment only.
measure()
{
    local i files maps best_files=100000 best_maps=100000
    for ((i = 0; i < 5; i++)); do
        files=$(ls "/proc/${launcher[0]}/fd" 2> /dev/null | wc -l) maps=$(cat "/proc/${launcher[0]}/maps" 2> /dev/null | wc -l)
        [ "${maps:-0}" -gt 0 ] && [ "$files" -gt 0 ] || return 1
        [ "$files" -ge $best_files ] || best_files=$files
        [ "$maps" -ge $best_maps ] || best_maps=$maps
        sleep 0.01
    done
    measures="$best_files descriptors and $best_maps mappings"
}

# Whether this process, which a pid file names, is still one of ours.
ours()
{
    [ -n "$1" ] && grep -qsa "YOKE_SOAK_JOB=$YOKE_SOAK" "/proc/$1/environ"
}

# hit SIGNAL RANK...: whether one was there.
hit()
{
    local signal=$1 pid found=1 rank
    shift
    for rank in "$@"; do
        pid=$(cat pid."$rank" 2> /dev/null)
        ours "$pid" && kill -s "$signal" "$pid" 2> /dev/null && found=0
    done
    return $found
}

# One fault; false where there was nobody to meet it.
inject()
{
    local rank=$((RANDOM % ranks)) n=$((RANDOM % hosts)) pid kinds
    kinds=(KILL KILL KILL KILL SEGV ABRT TERM USR1 pair all STOP launcher inner)
    [ $hosts = 1 ] || kinds+=(cut cut)
    kind=${kinds[RANDOM % ${#kinds[@]}]}
    [ $kind != STOP ] || [ $((RANDOM % 2)) = 0 ] || kind=KILL # a time-out each
    case $kind in
    KILL | SEGV | ABRT | TERM | USR1 | STOP) hit $kind $rank || return 1 ;;
    pair) hit KILL $rank $(((rank + 1) % ranks)) || return 1 ;;
    all) hit KILL 0 1 2 || return 1 ;;
    launcher) ours "${launcher[n]}" && kill -KILL "${launcher[n]}" 2> /dev/null || return 1 ;;
    inner)
        pid=$(cat "/proc/${launcher[n]}/task/${launcher[n]}/children" 2> /dev/null)
        pid=${pid%% *}
        [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = "$(basename "$YOKE")" ] && ours "$pid" || return 1
        kill -KILL "$pid" 2> /dev/null || return 1
        ;;
    cut)
        ip -n "${spaces[3]}" link set p$n down
        sleep "$((RANDOM % 4)).$((RANDOM % 10))"
        ip -n "${spaces[3]}" link set p$n up
        ;;
    esac
    history+=("$kind")
    faults[$transport]=$((${faults[$transport]:-0} + 1))
    of_kind[$kind]=$((${of_kind[$kind]:-0} + 1))
}

# Waits for the launchers, while checkpoints come: $codes.
finish_launchers()
{
    local n moved=$SECONDS seen= now
    while alive; do
        now=$(ls ck 2> /dev/null)
        [ "$now" = "$seen" ] || moved=$SECONDS
        seen=$now
        if [ $((SECONDS - moved)) -gt $longest ]; then
            wrong "hangs: $(for pid in $(marked); do echo "$pid $(tr '\0' ' ' < "/proc/$pid/cmdline")$(cat "/proc/$pid/wchan" 2> /dev/null);"; done)"
            for pid in $(marked); do
                kill -KILL "$pid" 2> /dev/null
            done
            break
        fi
        sleep 0.02
    done
    codes=
    for ((n = 0; n < hosts; n++)); do
        { wait "${launcher[n]}"; } 2> /dev/null
        codes+="$? "
    done
}

# What the launchers may end with. A rank that fails is started again, however it failed, so a job ends with anything but
# 0 for two reasons: a rank was asked to end, saved its state and had the others do so (75); or a node was lost, which is
# not started again. The launchers then end with 1, or with the first failure where a rank failed in the same attempt
# before that: 128 plus the signal that it was hit with (134 SIGABRT, 137 SIGKILL, 139 SIGSEGV; 143 SIGTERM and 138
# SIGUSR1 where it came before the rank handled it). The launcher that was killed itself ends with 137.
expected_end()
{
    local fault known="0" lost= failed=
    for fault in "${history[@]:begun}"; do
        case $fault in
        TERM) known+=" 75" failed+=" 143" ;;
        USR1) known+=" 75" failed+=" 138" ;;
        KILL | pair | all | STOP) failed+=" 137" ;; # one that stands still is killed in the end
        SEGV) failed+=" 139" ;;
        ABRT) failed+=" 134" ;;
        launcher | inner) known+=" 137" lost=1 ;;
        cut) lost=1 ;;
        esac
    done
    [ -z "$lost" ] || known+=" 1$failed"
    for code in $codes; do
        [[ " $known " == *" $code "* ]] || return 1
    done
}

nothing_left()
{
    local i left
    for ((i = 0; i < 100; i++)); do
        left=$(marked)
        [ -n "$left" ] || return 0
        sleep 0.05
    done
    wrong "left behind: $(for pid in $left; do echo "$pid $(tr '\0' ' ' < "/proc/$pid/cmdline");"; done)"
    for pid in $left; do
        kill -KILL "$pid" 2> /dev/null
    done
}

one_job()
{
    local quota=$((4 + RANDOM % 12)) injected=0 attempts=0 done_at=
    how="--save-every $((1 + RANDOM % 3))"
    [ $((RANDOM % 3)) != 0 ] || how+=" --async-save"
    [ $((RANDOM % 3)) != 0 ] || how+=" --sharded-save"
    history=()
    rm -rf ck weights
    while [ -z "$done_at" ]; do
        attempts=$((attempts + 1)) begun=${#history[@]}
        begin
        local first= last= tries=0
        while alive && [ $injected -lt $quota ] && [ $tries -lt 400 ]; do
            sleep "0.$((RANDOM % 6))$((RANDOM % 10))"
            if [ -z "$first" ] && [ -e pid.0 ] && [ -e pid.1 ] && [ -e pid.2 ] && measure; then
                first=$measures
            fi
            inject && injected=$((injected + 1))
            tries=$((tries + 1))
        done
        # It has lived through restarts, and is as it was at first.
        if [ -n "$first" ] && [ $hosts = 1 ] && [ $((${#history[@]} - begun)) -ge 2 ]; then
            sleep 0.3
            measure && last=$measures
            if [ -n "$last" ] && [ "$last" != "$first" ]; then
                sleep 0.5
                measure && last=$measures
                [ "$last" = "$first" ] || ! alive || wrong "the launcher had $first, and has $last"
            fi
            [ -z "$last" ] || compared=$((compared + 1))
        fi
        finish_launchers
        nothing_left
        expected_end || wrong "ended with $codes"
        [[ "$codes" == *[1-9]* ]] || done_at=$SECONDS
        [ $attempts -lt 60 ] || { wrong "was not done after $attempts starts"; break; }
    done
    jobs_done=$((jobs_done + 1))
    cmp -s whole weights || wrong "has other weights"
    [ -z "$(find ck -name '*.tmp*' -print -quit)" ] || wrong "left $(find ck -name '*.tmp*' | tr '\n' ' ')"
    [ "$(ls "$TMPDIR" | wc -l)" = 0 ] || wrong "left $(ls "$TMPDIR" | tr '\n' ' ')in TMPDIR"
    compared_weights=$((compared_weights + 1))
    echo "# job $jobs_done over $transport: $attempts starts, ${#history[@]} faults (${faults[$transport]} so far), $bad wrong"
}

compared=0 compared_weights=0
run run --no-prefix -n $ranks -- "${train[@]}" --save whole
ok "the undisturbed run" [ "$code" = 0 ]
share=$(((count + ${#transports[@]} - 1) / ${#transports[@]}))
for transport in "${transports[@]}"; do
    hosts=1 in=()
    unset YOKE_SHARED_MEMORY YOKE_COMM_TIMEOUT
    export YOKE_COMM_TIMEOUT=3
    case $transport in
    tcp) export YOKE_SHARED_MEMORY=0 ;;
    nodes)
        hosts=3
        if [ "$(id -u)" != 0 ] || ! command -v ip > /dev/null || ! make_hosts 2> err; then
            skip "three hosts" "it takes root, ip (iproute2) and network namespaces: $(head -n 1 err 2> /dev/null)"
            continue
        fi
        for n in 0 1 2; do
            in+=("ip netns exec ${spaces[n]}")
        done
        ;;
    esac
    before=$bad jobs_before=$jobs_done began=$SECONDS
    while [ "${faults[$transport]:-0}" -lt $share ]; do
        one_job
    done
    ok "$transport: ${faults[$transport]} faults in $((jobs_done - jobs_before)) jobs, $((SECONDS - began)) s: the weights of the undisturbed run" \
        [ $bad = $before ]
done
for kind in "${!of_kind[@]}"; do
    echo "# ${of_kind[$kind]} times $kind"
done
echo "# the weights compared $compared_weights times, the descriptors and mappings of launchers $compared times"
grep -v ' Killed ' shell.err >&3
finish
[ $bad = 0 ]
