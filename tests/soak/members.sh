#!/bin/bash
# Soak: a program that survives, whose processes are killed, stopped for good (--evict-stalled 3) or for a moment, asked
# to leave, and end at their start, at random steps, phases and microseconds, several at once, while the members change,
# and those that came in their place. With spares and restarts, or without. One process of a job has no fault, so each
# job has to end well, with the weights, losses and random numbers of the undisturbed run: one SHA-256. No job may take
# longer than a minute, and no process may be left.
#
# usage: members.sh [COUNT [SEED]]      COUNT faults; a job that went wrong is printed with its plan, by which
#        tests/elastic/survive_test makes it again
. "$(dirname "${BASH_SOURCE[0]}")/../support/tap.bash"
count=${1:-1000} seed=${2:-$$}
worker=${YOKE%/*}/tests/elastic/survive_test
if [ ! -x "$worker" ]; then
    skip "random faults of members" "this build has no tests/elastic/survive_test"
    echo "1..$tests"
    exit
fi
RANDOM=$seed
unset MASTER_ADDR MASTER_PORT YOKE_VIRTUAL_RANKS YOKE_SHARED_MEMORY
export OMP_NUM_THREADS=1 YOKE_LOG=warn YOKE_JOIN_TIMEOUT=20
faults=0 jobs=0 bad=0 longest=0 views=0
declare -A kinds
echo "# $count faults, seed $seed"

# Processes of this soak's jobs that run.
marked()
{
    local path
    for path in $(grep -lsa "YOKE_SOAK_JOB=$$" /proc/[0-9]*/environ); do
        path=${path%/environ}
        [ "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$path/status" 2> /dev/null)" = Z ] || echo "${path#/proc/}"
    done
}

# one_of WORD...: *picked is one of them.
one_of()
{
    shift $((RANDOM % $#))
    picked=$1
}

# fault SLOT.INCARNATION: adds one to the plan, at the step of the last one often, so that several come at once.
fault()
{
    [ $((RANDOM % 3)) = 0 ] || step=$((RANDOM % 20))
    one_of kill kill kill delay delay delay halt stop leave exit
    local kind=$picked what=$picked
    one_of begin batch backward summed stepped recover
    case $kind in
    delay)
        what=$((RANDOM % 6000))
        one_of begin batch backward recover
        ;;
    halt)
        [ $((halts++)) -lt 2 ] || what=kill kind=kill
        ;;
    esac
    plan+="$1 $step $picked $what "
    kinds[$kind]=$((${kinds[$kind]:-0} + 1))
    faults=$((faults + 1))
}

job()
{
    local processes=$((2 + RANDOM % 4)) spares=0 restarts=0 slot keeper
    [ $((RANDOM % 2)) = 0 ] || spares=$((1 + RANDOM % 2))
    [ $((RANDOM % 2)) = 0 ] || restarts=$((1 + RANDOM % 3))
    keeper=$((RANDOM % processes)) plan='' step=0 halts=0
    for ((slot = 0; slot < processes + spares; slot++)); do
        [ $slot != $keeper ] || continue
        [ $((RANDOM % 3)) = 0 ] || fault $slot.0
        [ $((RANDOM % 3)) != 0 ] || [ $restarts = 0 ] || fault $slot.1
    done
    options=(-n $processes --max-restarts $restarts --spares $spares --evict-stalled 3)
    jobs=$((jobs + 1))
    rm -f result
    local began=$SECONDS left
    YOKE_SOAK_JOB=$$ SURVIVE_PLAN=$plan timeout -k 5 60 "$YOKE" run "${options[@]}" -- "$worker" worker result > out 2> err < /dev/null
    code=$?
    [ $((SECONDS - began)) -le $longest ] || longest=$((SECONDS - began))
    views=$((views + $(grep -c 'warn: elastic: view' err)))
    left=$(marked)
    if [ $code != 0 ] || ! cmp -s result expected || [ -n "$left" ]; then
        bad=$((bad + 1))
        echo "# job $jobs: exit code $code, $(cat result 2> /dev/null || echo no result)${left:+, left: $left}"
        echo "#   SURVIVE_PLAN='$plan' yoke run ${options[*]} -- $worker worker result"
        tail -n 25 err | sed 's/^/#   /'
    fi
}

SURVIVE_PLAN='' "$YOKE" run -n 1 -- "$worker" worker expected > out 2> err < /dev/null
ok "the undisturbed run" grep -q "steps 26 drawn" expected
while [ $faults -lt "$count" ]; do
    job
done
echo "# $jobs jobs, $faults faults ($(for kind in "${!kinds[@]}"; do printf '%s %s, ' "$kind" "${kinds[$kind]}"; done)"`
     `"$views changes as members saw them), longest job $longest s, SHA-256 $(sha256sum < expected | cut -c1-64)"
ok "all end well, with one result, and nothing is left" [ $bad = 0 ]
finish
