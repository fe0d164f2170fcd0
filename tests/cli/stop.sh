#!/bin/bash
# stop.sh - `yoke stop`: a run ends in order and nothing of it is left; which run is meant; ranks without a launcher; what
# is not to be touched.
. tests/support/tap.bash
needs_proc "processes are looked for there"
pids=()
end_all()
{
    local pid
    for pid in "${pids[@]}"; do
        kill -CONT "$pid"
        kill -KILL "$pid"
    done 2> /dev/null
    wait
    rm -rf "$work"
}
trap end_all EXIT
export YOKE_RUN_DIR=$work/runs
# begin NAME ARGUMENTS...: a run, whose launcher's pid goes to $launcher, once it has announced itself.
begin()
{
    "$YOKE" run --job-id "$1" "${@:2}" > "$1.out" 2> "$1.err" < /dev/null &
    launcher=$!
    pids+=($launcher)
    wait_until 60 announced $launcher
}
announced()
{
    grep -q "\"launcher\":$1," runs/*.json 2> /dev/null
}
gone() # PID...
{
    local pid
    for pid in "$@"; do
        ! kill -0 "$pid" 2> /dev/null || return 1
    done
}

# ---- what is wrong
exits 2 "no run named" stop
says err "name pid --orphans yoke ps"
exits 2 "two runs" stop one two
says err "two one too many"
exits 2 "a run and --orphans" stop --orphans one
says err "--orphans"
exits 2 "an empty name" stop ""
says err "empty"
exits 2 "a time that is none" stop --timeout soon one
says err "--timeout soon"
exits 2 "no such run" stop night
says err "no run 'night' no run"
sleep 600 &
other=$!
pids+=($other)
exits 2 "a process that is no launcher" stop $other
says err "pid $other no launcher"
ok "is not touched" kill -0 $other

# ---- a run
begin night -n 2 -- bash -c 'trap "echo saved; exit 0" TERM; echo $$ > rank.$RANK; while :; do sleep 0.1; done'
night=$launcher
wait_until 60 eval '[ -s rank.0 -a -s rank.1 ]'
begin other -n 1 sleep 600
others=$launcher
exits 2 "a name that is none of them" stop nigt
says err "'nigt' 'night' pid $night 'other' pid $others"
exits 2 "a number that begins like a pid" stop "${night}x"
exits 0 "by its name" stop night
says out "job night pid $night ended 2 ranks"
ok "the ranks are gone" gone "$(cat rank.0)" "$(cat rank.1)"
wait $night
ok "it ended by SIGTERM" [ $? = 143 ]
ok "its ranks could save" [ "$(grep -c saved night.out)" = 2 ]
ok "the other run goes on" kill -0 $others
exits 0 "by its pid" stop --timeout 60 $others
says out "job other pid $others ended 1 rank"
wait $others
exits 2 "it is gone" stop $others

# ---- two of one name, and one that is stopped
begin twin -n 1 sleep 600
first=$launcher
begin twin -n 1 sleep 600
second=$launcher
exits 1 "two of one name" stop twin
says err "2 runs 'twin' pid $first pid $second"
ok "neither is touched" kill -0 $first $second
kill -STOP $first
exits 0 "one that is stopped" stop $first
ok "has ended" gone $first
ok "the other goes on" kill -0 $second
exits 0 "and then there is one" stop twin
wait $first $second

# ---- one that takes its time
begin slow -n 1 --grace 600 -- bash -c 'trap "" TERM; echo $$ > slow; while :; do sleep 0.1; done'
wait_until 60 eval '[ -s slow ]'
exits 1 "it does not end in time" stop --timeout 0.3 slow
says err "slow pid $launcher SIGTERM 0.3 s kill -KILL $launcher"
ok "and goes on" kill -0 "$(cat slow)"
kill -KILL $launcher
wait $launcher
ok "what it says ends it" wait_until 20 gone "$(cat slow)"

# ---- several nodes, also such that come and go: on whichever it is asked, all end
free_ports 27460 6
for nodes in 2 1:2; do
    for node in 0 1; do
        "$YOKE" run --job-id wide --nnodes $nodes --master-addr 127.0.0.1 --master-port $port --last-call 60 -n 1 \
            -- bash -c 'trap "echo saved; exit 0" TERM; echo > up.'$node'; while :; do sleep 0.1; done' \
            > wide.$node 2>&1 < /dev/null &
        wide[node]=$!
        pids+=($!)
        [ $node = 1 ] || pause 0.5
    done
    ok "$nodes nodes run" wait_until 60 eval '[ -e up.0 -a -e up.1 ]'
    wait_until 60 announced "${wide[1]}"
    exits 0 "the second of $nodes nodes is stopped" stop "${wide[1]}"
    wait "${wide[0]}"
    ok "the first ends as well" [ $? = 143 ]
    wait "${wide[1]}"
    ok "both could save" [ "$(cat wide.0 wide.1 | grep -c saved)" = 2 ]
    rm -f up.?
    port=$((port + 3))
done

# ---- ranks without a launcher
exits 0 "none is left over" stop --orphans
says out "no rank without a launcher"
YOKE_RANK_PAGE=4194303:3:0:0 YOKE_JOB_ID=lost RANK=3 sleep 600 &
quick=$!
YOKE_RANK_PAGE=4194303:4:0:0 YOKE_JOB_ID=lost RANK=4 bash -c 'trap "" TERM; echo > deaf; while :; do sleep 0.1; done' &
deaf=$!
pids+=($quick $deaf)
wait_until 20 eval '[ -e deaf ]'
begin live -n 1 sleep 600
exits 0 "two are" stop --orphans --timeout 1
says out "pid $quick sleep rank 3 job lost ended"
says out "pid $deaf bash rank 4 job lost killed"
wait $quick $deaf
ok "a rank with a launcher is none" kill -0 $launcher
ok "nor is another process" kill -0 $other
# A shell that is one, with the command in it.
YOKE_RANK_PAGE=4194303:5:0:0 RANK=5 bash -c '"$YOKE" stop --orphans; echo went on' > out 2> err
says out "went on"

# ---- other people's
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
    YOKE_RANK_PAGE=4194303:6:0:0 RANK=6 setpriv --reuid 65534 --clear-groups sleep 600 &
    foreign=$!
    pids+=($foreign)
    wait_until 20 eval '[ "$(stat -c %u /proc/$foreign)" = 65534 ]'
    exits 1 "a process of another user" stop $foreign
    says err "pid $foreign user not yours"
    exits 0 "what others have left" stop --orphans
    ok "is not touched" kill -0 $foreign
    # A run of another user: by its pid, not by root either; and that user not one of root's.
    mkdir -m 700 theirs
    chmod 755 "$work"
    chown 65534 theirs
    plain=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    YOKE_RUN_DIR=$work/theirs "${plain[@]}" "$YOKE" run --job-id theirs -n 1 sleep 600 > /dev/null 2>&1 < /dev/null &
    theirs=$!
    pids+=($theirs)
    wait_until 60 eval '[ -n "$(ls theirs)" ]'
    exits 1 "a run of another user" stop $theirs
    says err "pid $theirs user not yours"
    YOKE_RUN_DIR=$work/theirs exits 1 "by its name, with that user's folder" stop theirs
    ok "is not touched" kill -0 $theirs
    "${plain[@]}" env YOKE_RUN_DIR="$work/runs" "$YOKE" stop live > out 2> err
    ok "that user does not stop root's run" [ $? != 0 ]
    "${plain[@]}" env YOKE_RUN_DIR="$work/runs" "$YOKE" stop $launcher > out 2> err
    ok "nor by its pid" [ $? = 1 ]
    ok "which goes on" kill -0 $launcher
    YOKE_RUN_DIR=$work/theirs "${plain[@]}" "$YOKE" stop theirs > out 2> err
    ok "who began it stops it" [ $? = 0 ]
    wait $theirs
else
    exits 1 "a process of another user" stop 1
    says err "pid 1 user not yours"
fi
exits 0 "at the end" stop live
wait $launcher
ok "no announcement is left" [ -z "$(ls -A runs)" ]
finish
