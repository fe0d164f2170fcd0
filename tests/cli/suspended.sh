#!/bin/bash
# suspended.sh - a job that stands still and goes on: by Ctrl-Z, by a batch system that stops all of its processes, and
# by the stop of a launcher alone. Time in which it stood still counts for no time-out; a rank that alone is stopped is
# found as ever.
. tests/support/tap.bash
needs_proc "which says that a process is stopped"

limit=$(patience 3)
still=$((2 * limit + 2))
export YOKE_COMM_TIMEOUT=$limit
# job NAME OPTIONS...: begins a job in the background that computes for longer than the test stops it; $front and
# $supervisor are its launcher.
job()
{
    rm -f log
    "$YOKE" run -n 3 --no-prefix --grace 2 "$@" -- bash -c 'echo $$ > pid.$RANK; exec "$@"' sh \
        "$YOKE" bench allreduce --seconds $limit --bytes 4,4M --json > log 2> err < /dev/null &
    front=$!
    wait_for log '"bytes":4,' # the first size is done, and the ranks are at the second
    read -r supervisor < "/proc/$front/task/$front/children"
    ranks=("$(cat pid.0)" "$(cat pid.1)" "$(cat pid.2)")
}
# goes_on NAME: the job ends well.
goes_on()
{
    wait $front
    ok "$1: the job goes on, and ends well" [ $? = 0 ]
    ok "$1: nobody is blamed" [ ! -s err ]
    says log '"bytes":4194304,'
}

for hang in "" "--hang-timeout $limit"; do
    # shellcheck disable=SC2086
    job $hang
    kill -TSTP $front
    sleep $still
    ok "Ctrl-Z $hang: the ranks are stopped" grep -q '^State:.*stopped' /proc/${ranks[0]}/status /proc/${ranks[2]}/status
    kill -CONT $front
    goes_on "Ctrl-Z $hang"

    # shellcheck disable=SC2086
    job $hang
    kill -STOP $front $supervisor "${ranks[@]}"
    sleep $still
    kill -CONT $front $supervisor "${ranks[@]}"
    goes_on "all processes stopped $hang"

    # shellcheck disable=SC2086
    job $hang
    kill -STOP "${ranks[@]}"
    sleep $still
    kill -CONT "${ranks[@]}"
    goes_on "the ranks stopped, the launcher not $hang"
done
job --hang-timeout $limit
kill -STOP $front $supervisor
sleep $still
kill -CONT $front $supervisor
goes_on "the launcher stopped, the ranks not"

YOKE_COMM_TIMEOUT=$(patience 60) job --hang-timeout $limit
kill -STOP "${ranks[1]}"
wait $front
ok "one rank stopped: 124" [ $? = 124 ]
says err "no progress $limit s rank 1"
job
kill -STOP "${ranks[1]}"
wait $front
ok "one rank stopped without --hang-timeout: the group's time-out" [ $? = 1 ]
says err "waited $limit s rank 1 stopped"
finish
