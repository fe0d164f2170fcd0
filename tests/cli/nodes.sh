#!/bin/bash
# nodes.sh - `yoke run` with several nodes: launchers that meet, end together, restart together, and notice each other's
# end. The nodes are launchers of this host; where network namespaces can be made, also of hosts that a cable joins.
protocol=$(sed -n 's/.*YK__PROTOCOL = \([0-9]*\),.*/\1/p' src/net/handshake.h)
. tests/support/tap.bash
needs_proc "processes are looked for there"
host=$(uname -n)
host=${host%%.*}
unset OMP_NUM_THREADS PYTHONUNBUFFERED MASTER_ADDR MASTER_PORT TORCHELASTIC_ERROR_FILE YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD
mark=32.$$ # a number of seconds that no other process sleeps
free_ports 21000 150

# lines COUNT PATTERN FILE: so many lines match the whole pattern.
lines()
{
    [ "$(grep -cxE -- "$2" "$3")" = "$1" ]
}

# gone: within 3 s no process sleeps for $mark.
gone()
{
    echo "$mark" > mark
    wait_until 3 eval '! grep -qxzF -f mark /proc/[0-9]*/cmdline 2> /dev/null'
}

# node NUMBER ARGUMENTS...: a launcher in the background; its output goes to out.NUMBER and err.NUMBER, its pid to
# pid[NUMBER]. Each job has a port of its own.
node()
{
    local number=$1
    shift
    "$YOKE" run --master-addr 127.0.0.1 --master-port $port "$@" > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}

# ended NUMBER...: waits for these nodes; code[NUMBER] is how each ended.
ended()
{
    local number
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null
        code[number]=$?
    done
    port=$((port + 3))
    cat out.* > out
    cat err.* > err
}

# ready COUNT: until so many processes have made their file ready.RANK.
ready()
{
    wait_until 20 count_ready "$1"
}
count_ready()
{
    [ "$(find . -maxdepth 1 -name 'ready.*' | wc -l)" = "$1" ]
}

# codes CODE NUMBER...: these nodes ended with it.
codes()
{
    local expected=$1 number
    shift
    for number in "$@"; do
        [ "${code[number]}" = "$expected" ] || return 1
    done
}

# ---- places
show='echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT ${YOKE_JOB_SECRET_FD-none} $YOKE_JOB_ID'
node 0 --nnodes 3 --node-rank 0 -n 3 bash -c "$show"
node 2 --nnodes 3 --node-rank 2 -n 2 bash -c "$show"
node 1 --nnodes 3 --node-rank 1 -n 1 bash -c "$show"
this=$port
ended 0 1 2
ok "three nodes: exit code 0" codes 0 0 1 2
ok "the first of node 0" lines 1 "\[$host:0\] 0 0 6 3 0 3 127.0.0.1:$((this + 1)) none default" out.0
ok "the last of node 0" lines 1 "\[$host:2\] 2 2 6 3 0 3 127.0.0.1:$((this + 1)) none default" out.0
ok "unequal counts: the one of node 1" lines 1 "\[$host:3\] 3 0 6 1 1 3 127.0.0.1:$((this + 1)) none default" out.1
ok "unequal counts: the last of node 2" lines 1 "\[$host:5\] 5 1 6 2 2 3 127.0.0.1:$((this + 1)) none default" out.2
for number in 0 1 2; do
    node $number --nnodes 3 -n 1,2,3 bash -c "$show"
done
ended 0 1 2
ok "without --node-rank, a list: exit code 0" codes 0 0 1 2
ok "each node has its number" [ "$(cut -d' ' -f6 out | sort | uniq -c | tr -s ' \n' ' ')" = " 1 0 2 1 3 2 " ]
ok "each rank is there once" [ "$(cut -d' ' -f2 out | sort | tr '\n' ' ')" = "0 1 2 3 4 5 " ]
node 0 --nnodes 2 --job-id a -n 1 bash -c 'exec 3<>/dev/tcp/127.0.0.1/$MASTER_PORT || echo free'
node 1 --nnodes 2 --job-id a -n 1 true
ended 0 1
says out.0 free
printf secret-of-the-job > job.secret
chmod 600 job.secret
for number in 0 1; do
    node $number --nnodes 2 --secret-file job.secret bash -c 'cat $YOKE_JOB_SECRET_FILE; echo; echo ${YOKE_JOB_SECRET_FD-none}'
done
ended 0 1
ok "a secret in a file" codes 0 0 1
ok "reaches the processes" lines 2 '.* secret-of-the-job' out
# The end of a line is no part of it, whichever system wrote the file.
(umask 077 && { cat job.secret; printf '\r\n'; } > dos.secret)
node 0 --nnodes 2 --secret-file job.secret "$YOKE" bench allreduce --seconds 0.05 --bytes 4K --json
node 1 --nnodes 2 --secret-file dos.secret "$YOKE" bench allreduce --seconds 0.05 --bytes 4K --json
ended 0 1
ok "files whose lines end otherwise" codes 0 0 1
chmod 644 job.secret
exits 1 "a secret that others may read" run --nnodes 2 --node-rank 0 --master-addr a --secret-file job.secret true
says err "--secret-file job.secret 600"
printf 'fifteen letters' > short.secret
chmod 600 short.secret
exits 1 "a secret that is too short" run --nnodes 2 --node-rank 0 --master-addr a --secret-file short.secret true
says err "--secret-file short.secret 16 bytes"
if [ "$(id -u)" = 0 ]; then
    cp job.secret theirs.secret && chmod 600 theirs.secret && chown 65534 theirs.secret
    exits 1 "another user's secret" run --nnodes 2 --node-rank 0 --master-addr a --secret-file theirs.secret true
    says err "--secret-file theirs.secret user"
else
    skip "another user's secret" "not root"
fi
chmod 600 job.secret

# ---- the first failure decides
fails='if [ $RANK = 3 ]; then sleep 0.2; echo "attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS" >&2; exit 7; fi; exec sleep '$mark
node 0 --nnodes 2 --node-rank 0 -n 2 --error-file report.0 bash -c "$fails"
node 1 --nnodes 2 --node-rank 1 -n 3 --error-file report.1 bash -c "$fails"
ended 0 1
ok "a process of node 1 fails: exit code 7 everywhere" codes 7 0 1
for number in 0 1; do
    ok "node $number reports it" grep -qE "^yoke run: rank 3 .*exit code 7 .*local rank 1, host $host, pid [0-9]+, .*[0-9.]+ s" err.$number
    ok "node $number has its last lines" lines 1 '    attempt 0 of 0' err.$number
    ok "node $number, JSON" grep -qE '"exit_code":7,"failure":\{"rank":3,"local_rank":1,"pid":[0-9]+,"exit_code":7,"signal":null,"host":"'"$host"'","seconds":[0-9.]+,"stderr":\["attempt 0 of 0"\]\},"others":\[\{' report.$number
done
ok "it is the same process" [ "$(grep -o 'pid [0-9]*' err.0)" = "$(grep -o 'pid [0-9]*' err.1)" ]
says err.0 "ranks 0, 1 SIGTERM"
says err.1 "ranks 2, 4 SIGTERM"
ok "nothing is left" gone
# What was first is plain as soon as both nodes have said what had ended there.
rm -f victim.*
waits='echo $$ > victim.$RANK; exec sleep '$mark
node 0 --nnodes 2 --node-rank 0 --max-restarts 30 bash -c "$waits"
node 1 --nnodes 2 --node-rank 1 --max-restarts 3 bash -c "$waits"
# A machine whose cores are wanted by several processes at a time takes as many times longer, up to four: 80 ms, where
# judging took 200 before.
best=100000000
for ((attempt = 1; attempt <= 25 && best >= 20000; attempt++)); do
    wait_until 60 [ -s victim.1 ]
    victim=$(cat victim.1)
    rm -f victim.1
    sleep 0.3
    read -r _ _ _ busy _ < /proc/loadavg
    times=$((${busy%/*} / $(nproc)))
    times=$((times < ${YOKE_TEST_SLOWNESS:-1} ? ${YOKE_TEST_SLOWNESS:-1} : times > 4 ? 4 : times))
    began=${EPOCHREALTIME/./}
    kill -KILL "$victim"
    until holds err.0 "restart $attempt of 30"; do pause 0.001; done
    took=$(((${EPOCHREALTIME/./} - began) / times))
    [ $took -ge $best ] || best=$took
done
kill -TERM "${pid[0]}"
ended 0 1
ok "two nodes begin a restart within 20 ms of a failure (best of $((attempt - 1)): $best us for each process that a core has)" [ $best -lt 20000 ]
rm -f victim.*
# Ranks that fail because another was killed end a moment later, on the node that decides.
rm -f stone
effect='if [ $RANK = 1 ]; then sleep 0.3; echo $$ > stone; kill -KILL $$; fi
    until [ -s stone ]; do sleep 0.001; done
    while grep -qs "^State:.[^Z]" /proc/$(cat stone)/status; do :; done
    sleep 0.02; exit 9'
node 0 --nnodes 2 --node-rank 0 bash -c "$effect"
node 1 --nnodes 2 --node-rank 1 bash -c "$effect"
ended 0 1
ok "the killed process of node 1, not the effect on node 0: exit code 137" codes 137 0 1
says err.0 "rank 1 failed SIGKILL"
node 0 --nnodes 2 --node-rank 0 --grace 0.5 bash -c 'until [ -e deaf ]; do sleep 0.02; done; exit 5'
node 1 --nnodes 2 --node-rank 1 --grace 0.5 bash -c 'trap "" TERM; : > deaf; sleep '$mark
ended 0 1
ok "one that does not stop: exit code 5" codes 5 0 1
says err.1 "rank 1 SIGKILL not stop"
ok "and is gone" gone

# ---- restarts
restart='echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
    : > told.$TORCHELASTIC_RESTART_COUNT.$RANK
    [ $RANK != 2 ] || { until [ -e told.$TORCHELASTIC_RESTART_COUNT.0 -a -e told.$TORCHELASTIC_RESTART_COUNT.1 ]; do sleep 0.02; done; exit 3; }
    exec sleep '$mark
node 0 --nnodes 2 --node-rank 0 -n 2 --max-restarts 3 bash -c "$restart"
node 1 --nnodes 2 --node-rank 1 -n 1 bash -c "$restart"
ended 0 1
ok "restarts: exit code 0" codes 0 0 1
ok "all processes of all nodes together, node 0's count" lines 3 '.* attempt 2 of 3' out
ok "and no more often" [ "$(grep -c attempt out)" = 9 ]
for number in 0 1; do
    says err.$number "restart 2 of 3"
done
ok "nothing is left" gone
node 0 --nnodes 2 --node-rank 0 --max-restarts 1 true
node 1 --nnodes 2 --node-rank 1 bash -c 'exit 8'
ended 0 1
ok "restarts run out: exit code 8" codes 8 0 1
ok "after one" [ "$(grep -c '^yoke run: restart' err.1)" = 1 ]

# The processes of one node save their state when another's failure stops them: that is no end of the job.
rm -f ready.*
save='echo attempt $TORCHELASTIC_RESTART_COUNT; trap "exit 75" TERM; : > ready.$TORCHELASTIC_RESTART_COUNT; while :; do sleep 0.02; done'
node 0 --nnodes 2 --node-rank 0 --max-restarts 1 bash -c 'until [ -e ready.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.02; done; exit 3'
node 1 --nnodes 2 --node-rank 1 bash -c "$save"
ended 0 1
ok "all processes of one node saved: the failure counts, exit code 3" codes 3 0 1
ok "and the restart" lines 1 '.* attempt 1' out.1
rm -f ready.*
node 0 --nnodes 2 --node-rank 0 --max-restarts 1 bash -c 'until [ -e ready.0 ]; do sleep 0.02; done; exit 75'
node 1 --nnodes 2 --node-rank 1 bash -c "$save"
ended 0 1
ok "those of all nodes saved: exit code 75, no restart" codes 75 0 1
for number in 0 1; do
    says err.$number "started again"
done
for first in 0 1; do
    rm -f ready.*
    for number in 0 1; do
        node $number --nnodes 2 --node-rank $number --max-restarts 1 bash -c '[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
            : > ready.$RANK; [ $RANK = '$first' ] || exec sleep '$mark'
            until [ -e ready.'$((1 - first))' ]; do sleep 0.02; done; exit 75'
    done
    ended 0 1
    ok "rank $first alone saved: restarted, exit code 0" codes 0 0 1
    ok "which both nodes report" said err "yoke run: rank $first exit code 75" 2
done
for saver in 0 1 all; do
    rm -f ready.*
    for number in 0 1; do
        node $number --nnodes 2 --node-rank $number --max-restarts 1 bash -c 'case '$saver' in $RANK | all) trap "exit 75" TERM ;; esac
            : > ready.$RANK; while :; do sleep 0.02; done'
    done
    ready 2
    kill -TERM "${pid[1]}"
    ended 0 1
    expected=143
    [ $saver != all ] || expected=75
    ok "SIGTERM, rank $saver saved: exit code $expected" codes $expected 0 1
done
# Asked to end while the processes are stopped after a failure: the failure counts, and there is no restart.
for victim in 0 1; do
    for left in 1 2; do # processes of node 0, which has the one that fails
        rm -f ready.* err.*
        node 0 --nnodes 2 --node-rank 0 -n $left --max-restarts 1 --grace 2 bash -c 'trap "" TERM; : > ready.$RANK
            until [ -e ready.'$left' ]; do sleep 0.02; done
            while [ $RANK = 1 ]; do sleep 0.02; done; exit 7'
        node 1 --nnodes 2 --node-rank 1 --grace 2 bash -c 'trap "" TERM; : > ready.$RANK; while :; do sleep 0.02; done'
        wait_for err.1 "stopping"
        kill -TERM "${pid[victim]}"
        ended 0 1
        ok "SIGTERM at node $victim after a failure: exit code 7" codes 7 0 1
        ok "and no restart" [ "$(grep -c 'yoke run: restart' err)" = 0 ]
    done
done

# The next attempt fails before node 1 has read that there is one: it reads verdict, plan and stop in one go.
rm -f ready.*
node 0 --nnodes 2 --node-rank 0 -n 2 --max-restarts 1 --node-timeout $(patience 60) --grace $(patience 60) bash -c '
    [ $TORCHELASTIC_RESTART_COUNT = 0 ] || { : > second; exit 3; }
    [ $RANK = 0 ] || trap "" TERM
    : > ready.$RANK
    [ $RANK = 0 ] || { until [ -e failed ]; do sleep 0.02; done; exit 0; }
    until [ -e ready.1 -a -e ready.2 ]; do sleep 0.02; done
    exit 3'
node 1 --nnodes 2 --node-rank 1 --node-timeout $(patience 60) bash -c 'echo $$ > rank.2; : > ready.2; exec sleep '$mark
ready 3
supervisor=$(cat /proc/${pid[1]}/task/${pid[1]}/children)
wait_until 10 eval '[ ! -e /proc/$(cat rank.2) ]'
sleep 0.3 # node 1 says that its process has ended
kill -STOP $supervisor
touch failed
wait_until 10 [ -e second ]
sleep 0.3 # node 0 says that all have to stop again
kill -CONT $supervisor
ended 0 1
ok "an attempt that fails before all nodes begin it: exit code 3" codes 3 0 1
ok "is stopped on the late node too" said err.1 "rank 2 SIGTERM" 2

# ---- ends of launchers
for case in "TERM 0 143" "TERM 1 143" "INT 1 130"; do
    read -r signal victim expected <<< "$case"
    rm -f ready.*
    for number in 0 1; do
        node $number --nnodes 2 --node-rank $number -n 2 --max-restarts 2 bash -c ': > ready.$RANK; exec sleep '$mark
    done
    ready 4
    kill -s $signal "${pid[victim]}"
    ended 0 1
    ok "SIG$signal at node $victim: exit code $expected everywhere" codes $expected 0 1
    ok "SIG$signal at node $victim reaches the other" said err.$((1 - victim)) "ranks SIG$signal" 1
done
for victim in 0 1; do
    for who in launcher supervisor; do
        rm -f ready.*
        for number in 0 1; do
            node $number --nnodes 2 --node-rank $number -n 2 --max-restarts 2 bash -c ': > ready.$RANK; exec sleep '$mark
        done
        ready 4
        process=${pid[victim]}
        [ $who = launcher ] || process=$(cat /proc/$process/task/$process/children)
        # shellcheck disable=SC2086
        kill -KILL $process
        ended 0 1
        ok "the $who of node $victim killed: exit code 1 of the other" codes 1 $((1 - victim))
        ok "it is named" grep -qE "^yoke run: node $victim \(host $host, pid [0-9]+, .*\) .*lost.*launcher ended" err.$((1 - victim))
        ok "nothing is left" gone
    done
done
rm -f ready.*
for number in 0 1; do
    node $number --nnodes 2 --node-rank $number --node-timeout 2 --error-file report.$number bash -c ': > ready.$RANK; exec sleep '$mark
done
ready 2
supervisor=$(cat /proc/${pid[1]}/task/${pid[1]}/children)
kill -STOP $supervisor
ended 0
port=$((port - 3))
kill -CONT $supervisor
ended 1
ok "a launcher that falls silent: exit code 1" codes 1 0 1
says err.0 "node 1 lost 2 s"
says err.1 "node 1 2 s"
ok "JSON: a node that is lost" grep -qE '^\{"message":"node 1 \(host [^)]*\) is lost: .*,"exit_code":1,"failure":null,"others":\[\{"rank":0,' report.0
ok "nothing is left" gone
# Node 0 itself: the other gives it up, and it does not say afterwards that the other was lost.
rm -f ready.*
for number in 0 1; do
    node $number --nnodes 2 --node-rank $number --node-timeout 2 bash -c ': > ready.$RANK; exec sleep '$mark
done
ready 2
supervisor=$(cat /proc/${pid[0]}/task/${pid[0]}/children)
kill -STOP $supervisor
ended 1
port=$((port - 3))
kill -CONT $supervisor
ended 0
ok "node 0 falls silent: exit code 1" codes 1 0 1
says err.1 "node 0 is lost: nothing was heard 2 s"
says err.0 "node 0 stood still"
ok "node 0 blames itself" [ "$(grep -c 'node 1 .*is lost' err.0)" = 0 ]
# All stand still, for longer than --node-timeout: nobody is lost.
rm -f ready.*
for number in 0 1; do
    node $number --nnodes 2 --node-rank $number --node-timeout 2 --hang-timeout 2 \
        bash -c 'echo $$ > rank.$RANK; : > ready.$RANK; until [ -e awake ]; do sleep 0.05; done'
done
ready 2
all="${pid[0]} ${pid[1]} $(cat /proc/${pid[0]}/task/${pid[0]}/children /proc/${pid[1]}/task/${pid[1]}/children rank.0 rank.1)"
# shellcheck disable=SC2086
kill -STOP $all
sleep 5
# shellcheck disable=SC2086
kill -CONT $all
sleep 3 # the time that a lost one would be found in
touch awake
ended 0 1
ok "a job whose launchers all stood still goes on" codes 0 0 1
# When it wakes up and closes its end, the other only waits for its own process.
rm -f ready.*
node 0 --nnodes 2 --node-rank 0 --node-timeout 2 --grace 4 bash -c 'trap "" TERM; : > ready.0; sleep '$mark
node 1 --nnodes 2 --node-rank 1 --node-timeout 2 bash -c ': > ready.1; exec sleep '$mark
ready 2
# ticks: the processor time that node 0's supervisor has used, in 1/100 s.
ticks()
{
    local stat
    read -r -a stat < /proc/$waiting/stat && echo $((stat[13] + stat[14]))
}
read -r waiting < /proc/${pid[0]}/task/${pid[0]}/children
supervisor=$(cat /proc/${pid[1]}/task/${pid[1]}/children)
kill -STOP $supervisor
ok "a silent launcher is given up" wait_for err.0 "stopping"
kill -CONT $supervisor
ended 1
port=$((port - 3))
before=$(ticks)
sleep 1.5
after=$(ticks)
ok "and costs no processor time ($before and $after ticks)" [ $((after - before)) -lt 6 ]
ended 0
exits 0 "a folder for logs" run --log-dir logs true
: > file
for number in 0 1; do
    logs=file
    [ $number = 1 ] || logs=logs
    node $number --nnodes 2 --node-rank $number --log-dir $logs/x sleep $mark
done
ended 0 1
ok "a node that cannot start its processes: exit code 1" codes 1 0 1
says err.0 "node 1 (host $host) prepare"

for number in 0 1; do
    other=$((1 - number))
    node $number --nnodes 2 --node-rank $number no-such-program
    node $other --nnodes 2 --node-rank $other sleep $mark
    ended 0 1
    ok "a program that node $number has not: exit code 127 everywhere" codes 127 0 1
    says err.$number "no-such-program PATH"
    says err.$other "node $number (host $host) no-such-program"
done
ok "nothing is left" gone
node 0 --nnodes 2 --node-rank 0 --join-timeout 0.3 no-such-program
ended 0
ok "nor does any other node come: exit code 127" codes 127 0

# ---- joining
node 0 --nnodes 3 --node-rank 0 --join-timeout 0.5 true
ended 0
says err.0 "2 of 3 nodes 127.0.0.1:$((port - 3)) 0.5 s nodes 1, 2"
node 1 --nnodes 2 --node-rank 1 --join-timeout 0.4 true
ended 1
ok "no node 0: exit code 1" codes 1 1
says err.1 "127.0.0.1:$((port - 3)) refused"
says err.1 "yoke run node 0 port"
exits 1 "a name that is not there" run --nnodes 2 --node-rank 1 --master-addr no-such-host.invalid --join-timeout 0.4 --secret-file job.secret true
says err "'no-such-host.invalid' resolved"
exits 1 "an address of no interface" run --nnodes 2 --node-rank 0 --master-addr 203.0.113.7 --secret-file job.secret true
says err "203.0.113.7:29500 interface address lo 127.0.0.1"
says err "node 0 --master-addr"
exits 1 "a network and no secret" run --nnodes 2 --node-rank 1 --master-addr 203.0.113.7 true
says err "203.0.113.7:29500 network secret"
says err "openssl rand -hex 32 > job.secret; chmod 600 job.secret"

# Who is turned away is told why at once, and node 0 says it.
printf another-jobs-secret > other.secret
chmod 600 other.secret
node 0 --nnodes 3 -n 1,1,1 --node-rank 0 --secret-file job.secret true
node 1 --nnodes 3 --node-rank 1 --secret-file job.secret true
here="--master-addr 127.0.0.1 --master-port $port"
told=()
# refused FACTS [--node-0-says FACTS] OPTIONS...
refused()
{
    local text=$1 other=$1
    shift
    if [ "$1" = --node-0-says ]; then
        other=$2
        shift 2
    fi
    told+=("$other")
    # shellcheck disable=SC2086
    exits 1 "$text" run $here --secret-file job.secret "$@" true
    says err "$text"
}
refused "wrong secret" --node-0-says "wrong secret 'default'" --nnodes 3 --secret-file other.secret --node-rank 2
refused "wrong job" --nnodes 3 --job-id b --node-rank 2
refused "host $(uname -n) --nnodes 2 node 0 (host $(uname -n)) 3" --nnodes 2 --node-rank 1
refused "--node-timeout 2.5 node 0 (host $(uname -n)) 15" --nnodes 3 --node-timeout 2.5 --node-rank 2
refused "--nproc-per-node node 0" --nnodes 3 -n 1,2,1 --node-rank 2
refused "--node-rank 1 host $(uname -n) (pid" --nnodes 3 --node-rank 1
if command -v python3 > /dev/null; then
    python3 - $port << 'PY'
import os, socket, struct, sys, time
def connect():
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        except OSError:
            time.sleep(0.02)
text = lambda s: bytes([len(s)]) + s.encode()
body = struct.pack("<H", 77) + text("9.8.7") + text("node7") + os.urandom(32)
other = connect()
other.sendall(b"yoke" + struct.pack("<I", len(body)) + body)
garbage = [connect() for _ in range(200)]
for i, s in enumerate(garbage):
    try:
        s.sendall([b"GET / HTTP/1.0\r\n\r\n", b"yoke\xff\xff\xff\xff", b"yo", b""][i % 4])
    except OSError:
        pass
other.settimeout(20)
answer = b""
while True:
    piece = other.recv(4096)
    if not piece:
        break
    answer += piece
open("answer", "wb").write(answer)
PY
    ok "another version is told this one's protocol" [ "$(head -c 10 answer | od -An -tx1 | tr -d ' ')" = "796f6b6523000000$(printf %02x "$protocol")00" ]
    ok "and nothing more" [ "$(wc -c < answer)" = 43 ]
    told+=("wrong version")
else
    skip "another version, garbage" "there is no python3 to send them"
fi
node 2 --nnodes 3 --node-rank 2 --secret-file job.secret true
ended 0 1 2
ok "those that belong together go on: exit code 0" codes 0 0 1 2
for text in "${told[@]}"; do
    says err.0 "yoke run: turned away $text"
done
node 0 --nnodes 3 --node-rank 0 --join-timeout 3 --secret-file job.secret true
node 1 --nnodes 3 --node-rank 1 --secret-file job.secret true
node 2 --nnodes 3 --node-rank 2 --secret-file other.secret true
ended 0 1 2
ok "a node that does not come: exit code 1" codes 1 0 1 2
for number in 0 1; do
    says err.$number "1 of 3 nodes 127.0.0.1:$((port - 3)) 3 s node 2 secret"
done
rm -f ready.*
for number in 0 1; do
    node $number --nnodes 2 --node-rank $number bash -c ': > ready.$RANK; while [ ! -e go ]; do sleep 0.02; done'
done
ready 2
node 2 --nnodes 2 --node-rank 1 true
ended 2
port=$((port - 3))
touch go
ended 0 1
ok "a node too late: exit code 1" codes 1 2
says err.2 "late node 0 $(uname -n) 2 nodes"
ok "the job goes on" codes 0 0 1
if command -v python3 > /dev/null; then
    node 0 --nnodes 2 --node-rank 0 true
    python3 -c "
import socket, time
def connect():
    for _ in range(250): # until the launcher listens
        try:
            return socket.create_connection(('127.0.0.1', $port))
        except OSError:
            time.sleep(0.02)
keep = [connect() for _ in range(300)]
open('flooded', 'w').close()
time.sleep(0.7)" &
    flood=$!
    wait_until 5 [ -e flooded ]
    node 1 --nnodes 2 --node-rank 1 true
    ended 0 1
    wait $flood
    ok "a node joins during a flood: exit code 0" codes 0 0 1
else
    skip "a flood of strangers" "there is no python3 to send it"
fi

# What launchers say to each other is authenticated frame by frame: a byte that is changed on the way, from node 1 or to
# it, ends the job, and both say so and name the connection. With --encrypt it cannot be read either.
if command -v python3 > /dev/null; then
    cat > proxy.py << 'PY'
import os, select, socket, sys
port, through, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
listener = socket.create_server(("127.0.0.1", through))
open(name + ".ready", "w").close()
while True:
    near = listener.accept()[0]
    try:
        far = socket.create_connection(("127.0.0.1", port))
        break
    except OSError: # node 0 does not listen yet
        near.close()
seen = open(name + ".seen", "wb")
def ended(): # one side is gone, in whatever way
    os._exit(0)
while True:
    for s in select.select([near, far], [], [])[0]:
        try:
            piece = bytearray(s.recv(65536))
        except OSError:
            ended()
        if not piece:
            ended()
        if s is near:
            seen.write(piece)
            seen.flush()
        if os.path.exists(name + (".damage" if s is near else ".damage-back")):
            piece[-1] ^= 1
        try:
            (far if s is near else near).sendall(piece)
        except OSError:
            ended()
PY
    # behind NAME OPTIONS...: two nodes of which the second reaches the first through the proxy; it fails with a marker.
    behind()
    {
        local name=$1
        shift
        python3 proxy.py $port $((port + 2)) "$name" &
        proxy=$!
        wait_until 5 [ -e "$name.ready" ]
        rm -f ready.*
        node 0 --nnodes 2 --node-rank 0 --secret-file job.secret "$@" bash -c ': > ready.$RANK; exec sleep '$mark
        "$YOKE" run --master-addr 127.0.0.1 --master-port $((port + 2)) --nnodes 2 --node-rank 1 --secret-file job.secret \
            "$@" bash -c ': > ready.$RANK; until [ -e '"$name"'.go ]; do sleep 0.02; done; echo the-marker-of-$((1 + 1)) >&2; exit 6' \
            > out.1 2> err.1 < /dev/null &
        pid[1]=$!
        ready 2
    }
    behind plain
    touch plain.go
    ended 0 1
    kill $proxy 2> /dev/null
    ok "through a proxy: exit code 6" codes 6 0 1
    ok "without --encrypt it can be read there" grep -qa the-marker-of-2 plain.seen
    behind secret --encrypt
    touch secret.go
    ended 0 1
    kill $proxy 2> /dev/null
    ok "encrypted, through a proxy: exit code 6" codes 6 0 1
    says err.0 the-marker-of-2
    ok "encrypted: what node 1 reported was not to be read" [ "$(grep -ca the-marker-of-2 secret.seen)" = 0 ]
    for way in damage damage-back; do
        behind $way
        through=$((port + 2))
        touch $way.$way
        touch $way.go
        ended 0 1
        kill $proxy 2> /dev/null
        ok "$way, a byte is changed on the way: exit code 1" codes 1 0 1
        # Each side knows its own end of the proxy.
        for number in 0 1; do
            [ $number = 0 ] && at=$((through - 2)) || at=$through
            [ $way = damage ] && link="127.0.0.1:[0-9]+ to (the server at )?127.0.0.1:$at" ||
                link="127.0.0.1:$at to (this process at )?127.0.0.1:[0-9]+"
            ok "$way: node $number names the damage and the connection" grep -qE \
                "^yoke run: node $((1 - number)) .* $link.* frame" err.$number
        done
    done
    ok "nothing is left" gone
else
    skip "a proxy between two nodes" "there is no python3 for it"
fi

# A host that calls itself something else than a name: nothing of it reaches a terminal as it is.
if unshare --uts true 2> /dev/null; then
    node 0 --nnodes 2 --node-rank 0 --secret-file job.secret --join-timeout $(patience 20) true
    for nodes in 3 2; do
        unshare --uts bash -c 'printf "a\e[31mb\x9bc" > /proc/sys/kernel/hostname; exec "$@"' - "$YOKE" run --master-addr 127.0.0.1 \
            --master-port $port --nnodes $nodes --node-rank 1 --secret-file job.secret bash -c 'exit 9' > out.1 2> err.1 < /dev/null
        cat err.1 >> err.both
    done
    ended 0
    ok "a host's name with control characters: exit code 9" codes 9 0
    says err.0 'turned away host a'
    says err.0 "rank 1 exit code 9"
    ok "control characters of a host's name are not printed" [ "$(cat err.0 err.both | tr -d '\n\t\040-\176' | wc -c)" = 0 ]
else
    skip "a host's name with control characters" "no UTS namespace can be made here"
fi

# ---- two hosts and a cable
a=yka$$ b=ykb$$
if ip netns add $a 2> /dev/null && ip netns add $b 2> /dev/null &&
    ip link add $a netns $a type veth peer name $b netns $b 2> /dev/null; then
    trap 'ip netns del $a; ip netns del $b; rm -rf "$work"' EXIT
    ip -n $a addr add 10.211.0.1/24 dev $a && ip -n $a link set $a up && ip -n $a link set lo up
    ip -n $b addr add 10.211.0.2/24 dev $b && ip -n $b link set $b up && ip -n $b link set lo up
    # there NUMBER SPACE ARGUMENTS...
    there()
    {
        local number=$1 space=$2
        shift 2
        ip netns exec $space "$YOKE" run --nnodes 2 --master-addr 10.211.0.1 --secret-file job.secret "$@" > out.$number 2> err.$number < /dev/null &
        pid[number]=$!
    }
    there 0 $a -n 1 --node-timeout 2 bash -c 'echo $RANK $WORLD_SIZE $MASTER_ADDR; : > here.$RANK; exec sleep '$mark
    there 1 $b -n 2 --node-timeout 2 bash -c 'echo $RANK $WORLD_SIZE $MASTER_ADDR; : > here.$RANK; exec sleep '$mark
    wait_until 10 [ -e here.0 -a -e here.1 -a -e here.2 ]
    ok "two hosts without --node-rank: the address says who is node 0" wait_for out.0 '0 3 10.211.0.1'
    begin=$SECONDS
    ip -n $b link set $b down
    ended 0 1
    ok "a cut cable: exit code 1 on both" codes 1 0 1
    ok "within seconds" in_time $(((SECONDS - begin) * 1000000)) 20
    says err.0 "node 1 (host $(uname -n), pid "
    says err.0 "node 1 lost 2 s"
    says err.1 "node 0 (host $(uname -n), pid "
    ok "nothing is left" gone
    ip -n $b link set $b up
    ip -n $a route add blackhole 10.211.0.2/32 # a firewall that drops what comes back
    there 1 $b --node-rank 1 --join-timeout 1 true
    ended 1
    says err.1 "no answer firewall"
else
    ip netns del $a 2> /dev/null
    ip netns del $b 2> /dev/null
    skip "two hosts and a cable" "network namespaces cannot be made here"
fi
finish
