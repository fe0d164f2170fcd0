#!/bin/bash
# Soak: starts jobs under `yoke run` and ends them in random ways: by themselves, by a rank that fails, by signals to
# the launcher (KILL too), while ranks join, reduce, ignore SIGTERM, or have children of their own. Every job must give
# the exit code that is due, and leave no process behind a second later.
#
# usage: starts.sh [COUNT [SEED]]
. "$(dirname "${BASH_SOURCE[0]}")/../support/tap.bash"
count=${1:-1000} seed=${2:-$$}
RANDOM=$seed
bad=0
echo "# $count starts, seed $seed"

# Processes with this job's mark in their environment.
marked()
{
    grep -lsa "YOKE_SOAK=$1" /proc/[0-9]*/environ 2> /dev/null
}

wrong()
{
    bad=$((bad + 1))
    echo "# start $i ($*): exit code $code"
    sed 's/^/#   /' err | tail -n 10
}

for ((i = 0; i < count; i++)); do
    mark=$$-$i ranks=$((1 + RANDOM % 3)) kind=$((RANDOM % 8)) signal= expected=0
    declare -a program
    case $kind in
    0) program=(true) ;;
    1) program=(bash -c "[ \$RANK != 0 ] || exit 7; sleep 60") expected=7 ;;
    2) program=(bash -c "[ \$RANK != $((ranks - 1)) ] || kill -SEGV \$\$; sleep 60") expected=139 ;;
    3) program=("$YOKE" bench allreduce --bytes 4,100000 --json) ;;
    4) program=("$YOKE" bench allreduce) ;;
    5) program=(sleep 60) ;;
    6) program=(bash -c 'sleep 60 & setsid sleep 60 & wait') ;;
    7) program=(bash -c 'trap "" TERM INT; sleep 60 & wait; wait') ;;
    esac
    if [ $kind -ge 4 ]; then
        signal=$((RANDOM % 3))
        case $signal in
        0) signal=TERM expected=143 ;;
        1) signal=INT expected=130 ;;
        2) signal=KILL expected=137 ;;
        esac
    fi
    # Bash lets its background jobs ignore SIGINT; env gives it back.
    YOKE_SOAK=$mark env --default-signal=INT "$YOKE" run -n $ranks --grace 0.3 -- "${program[@]}" > out 2> err < /dev/null &
    launcher=$!
    if [ -n "$signal" ]; then
        until [ "$(cat /proc/$launcher/comm 2> /dev/null)" = "$(basename "$YOKE")" ]; do
            kill -0 $launcher 2> /dev/null || break # env has not run it: SIGINT would be lost
        done
        sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
        kill -$signal $launcher
    fi
    wait $launcher 2> /dev/null
    code=$?
    # A signal may come before the launcher has its handlers: then it dies of it, with the same code.
    [ $code = $expected ] || wrong "$ranks ranks of ${program[*]}${signal:+, SIG$signal}"
    left=
    for ((wait = 0; wait < 20; wait++)); do
        left=$(marked $mark) # grep's exit code tells of processes that ended while it read, too
        [ -n "$left" ] || break
        sleep 0.05
    done
    if [ -n "$left" ]; then
        wrong "$ranks ranks of ${program[*]}${signal:+, SIG$signal}, left behind: $(echo $left)"
        for path in $left; do
            kill -KILL "$(basename "${path%/environ}")"
        done
    fi
done
ok "$count starts and stops from seed $seed, $bad of them not as they must be" [ $bad = 0 ]
finish
[ $bad = 0 ]
