#!/bin/bash
# roles.sh - `yoke run` with several programs as one job: the command line, what each process is told, failures of a
# role that end the job or do not, and three nodes, which are launchers of this host, or hosts of their own where network
# namespaces can be made.
. tests/support/tap.bash
needs_proc "processes are looked for there"
host=$(uname -n)
host=${host%%.*}
unset OMP_NUM_THREADS PYTHONUNBUFFERED MASTER_ADDR MASTER_PORT TORCHELASTIC_ERROR_FILE YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD

# lines COUNT PATTERN FILE: so many lines match the whole pattern.
lines()
{
    [ "$(grep -cxE -- "$2" "$3")" = "$1" ]
}

wrong()
{
    local message=$1
    shift
    exits 2 "yoke run $*" run "$@"
    says err "$message"
}

# ---- the command line
wrong "part 2 ./trainer --role" -n 1 --role ps true : -n 3 ./trainer
wrong "part 1 true --role" -n 1 true : -n 3 --role trainer true
wrong "--role ps parts 1 2 same" -n 1 --role ps true : -n 3 --role ps true
wrong "part 2 --role b no program" --role a true : --role b
wrong "--nnodes part 2 in front once" --role a true : --nnodes 2 --role b true
wrong "--nproc-per-node 1,2 role ps 2 numbers --nnodes 3" --nnodes 3 --master-addr x -n 1,2 --role ps true : --role t true
wrong "--nproc-per-node 1,2 2 numbers --nnodes 1" -n 1,2 --role ps true : --role t true
wrong "--nproc-per-node 0,0 role t no process" --nnodes 2 --master-addr x --role a true : -n 0,0 --role t true
wrong "node 0 no process rank 0" --nnodes 2 --master-addr x -n 0,1 --role a true : -n 0,1 --role b true
wrong "node 0 no process rank 0" --nnodes 2 --master-addr x -n 0,2 true
wrong "--role a/b letters" --role a/b true : --role c true
for word in stop Continue restart= restart=x restart=-1 ''; do
    wrong "--on-failure end continue restart" -n 2 --on-failure "$word" true
done
wrong "--on-failure abort role ps" --role ps --on-failure abort true : --role t true
exits 127 "a program that is not there in one part" run --role ps true : --role t ./nowhere
says err "./nowhere no such program"
exits 126 "a program that may not run in one part" run --role ps true : --role t /etc/passwd
exits 0 "a ':' of the program's own" run --no-prefix echo a : b
ok "reaches it" [ "$(cat out)" = "a : b" ]

# ---- what each process is told
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $YOKE_INCARNATION "$@"'
exits 0 "two roles" run --log-dir logs -n 1 --role ps bash -c "$show" x a b : -n 3 --role trainer bash -c "$show" x c
ok "the server" lines 1 "\[$host:0 ps 0\] 0/4 0/4 ps 0/1 0 a b" out
for k in 0 1 2; do
    ok "trainer $k" lines 1 "\[$host:$((k + 1)) trainer $k\] $((k + 1))/4 $((k + 1))/4 trainer $k/3 0 c" out
done
ok "logs are called after the roles" [ "$(ls logs | tr '\n' ' ')" = "rank_0.ps_0 rank_1.trainer_0 rank_2.trainer_1 rank_3.trainer_2 " ]
exits 0 "roles in fewer words" run --role=a true : --role=b --nproc-per-node=2 true

# ---- failures that end the job
exits 7 "a trainer fails" run --error-file report -n 1 --role ps sleep 60 : -n 3 --role trainer bash -c '[ $ROLE_RANK != 1 ] || exit 7; sleep 60'
says err "rank 2 (trainer 1) failed exit code 7 local rank 2"
ok "JSON names the role" grep -qE '"message":"rank 2 \(trainer 1, .*"failure":\{"rank":2,"local_rank":2,"pid":[0-9]+,"exit_code":7,"signal":null,"role":"trainer","role_rank":1,.*"others":\[\{"rank":0,.*"role":"ps","role_rank":0' report
exits 137 "the server is killed" run -n 1 --role ps bash -c 'kill -9 $$' : -n 2 --role trainer sleep 60
says err "rank 0 (ps 0) failed killed by SIGKILL"
exits 5 "all roles start again together" run --max-restarts 1 -n 1 --role ps bash -c 'echo try $TORCHELASTIC_RESTART_COUNT; exit 5' : --role t sleep 60
ok "twice" lines 1 "\[$host:0 ps 0\] try 1" out
"$YOKE" run -n 1 --role ps sleep 60 : -n 2 --role trainer sleep 60 > out 2> err < /dev/null &
sleep 0.5
kill -TERM $!
wait $!
ok "a signal ends all roles" [ $? = 143 ]
exits 75 "all saved their state" run --role ps bash -c 'exit 75' : --role t bash -c 'exit 75'

# ---- failures that do not
exits 0 "one is lost" run -n 1 --role ps sleep 1 : -n 2 --role t --on-failure continue bash -c '[ $ROLE_RANK = 1 ] || exit 3; sleep 0.5'
says err "rank 1 (t 0) is lost exit code 3"
says err "rank 1 (t 0) was lost exit code 3"
exits 0 "one comes back" run -n 1 --role ps sleep 1 : -n 2 --role t --on-failure restart=2 \
    bash -c 'echo incarnation $YOKE_INCARNATION; [ $ROLE_RANK = 1 -o $YOKE_INCARNATION = 2 ] || exit 3'
says err "rank 1 (t 0) failed exit code 3 started again 0.1 s"
says err "rank 1 (t 0) failed exit code 3 started again 0.2 s"
says err "rank 1 (t 0) was started again 2 times"
ok "as another incarnation" lines 1 "\[$host:1 t 0\] incarnation 2" out
exits 3 "more restarts than are allowed" run -n 1 --role ps sleep 60 : -n 2 --role t --on-failure restart=1 bash -c 'exit 3'
says err "started again 1 times all that --on-failure allows"
exits 0 "without roles" run -n 3 --on-failure continue bash -c '[ $RANK != 1 ] || exit 3; sleep 0.3'
says err "rank 1 was lost exit code 3"
# As JSON: what happens, and the end, whatever it is.
exits 0 "JSON of a job that ends well" run --json -n 1 --role ps sleep 1 : -n 2 --role t --on-failure continue bash -c '[ $ROLE_RANK = 1 ] || exit 3; sleep 0.5' : \
    --role r --on-failure restart=1 bash -c '[ $YOKE_INCARNATION = 1 ] || kill -9 $$'
ok "one is lost" grep -qE '^\{"event":"lost","message":"rank 1 \(t 0\) is lost: exit code 3 .*","job_id":"[0-9a-f]+","host":"'"$host"'","time":[0-9]+,"rank":1,"local_rank":1,"pid":[0-9]+,"exit_code":3,"signal":null,"lost":true,"incarnation":0,.*"why":null,"role":"t","role_rank":0,"doing":null\}$' err
ok "one comes back" grep -qE '^\{"event":"restart","message":"rank 3 \(r 0\) failed: killed by SIGKILL .* started again in 0.1 s",.*"rank":3,.*"exit_code":null,"signal":"SIGKILL","lost":false,.*"again_in_s":0.1,' err
ok "the end" grep -qE '^\{"message":"the job ended well; 1 rank was lost, 1 was started again",.*"exit_code":0,"failure":null,"others":\[.*"departed":\[\{"rank":1,.*"exit_code":3,.*"lost":true,.*\},\{"rank":3,.*"lost":false,"incarnation":1,' err
ok "no line is text" lines 0 '[^{].*' err
exits 0 "JSON of a job that ends well with all" run --json -n 2 --on-failure restart true
ok "there is none" [ ! -s err ]
exits 3 "JSON of a failure" run --json -n 2 --on-failure restart=0 bash -c '[ $RANK = 0 ] && exit 3; exec sleep 60'
ok "why it ends the job" grep -qE '^\{"event":"limit","message":"rank 0 has been started again 0 times, ' err
exits 3 "all are lost" run -n 2 --on-failure continue bash -c 'exit 3'
# Nothing runs when the job ends, as the other process waits to be started again.
timeout 60 "$YOKE" run --role a --on-failure restart bash -c 'exit 3' : --role b --on-failure restart=0 bash -c 'sleep 1; exit 4' > out 2> err < /dev/null
ok "a failure ends the job while the other process waits to be started again" [ $? = 4 ]
rm -f out err
# A signal ends what waits to be started again, and nothing is left of what it had started.
mark=33.$$
"$YOKE" run -n 1 --role a sleep 60 : --role b --on-failure restart bash -c "sleep $mark & exit 1" > out 2> err < /dev/null &
ok "it has been started again" wait_for err "started again in 0.8 s"
kill -TERM $!
wait $!
ok "a signal while one waits to be started again" [ $? = 143 ]
echo "$mark" > mark
ok "nothing is left" wait_until 3 eval '! grep -qxzF -f mark /proc/[0-9]*/cmdline 2> /dev/null'

# ---- three nodes
free_ports 24000 60
# node NUMBER ARGUMENTS...: a launcher in the background, in the namespace space[NUMBER] where there is one.
space=()
address=127.0.0.1
node()
{
    local number=$1
    shift
    ${space[$number]:+ip netns exec ${space[$number]}} "$YOKE" run --nnodes "$nodes" --master-addr $address --master-port $port \
        --node-rank "$number" ${secret:+--secret-file $secret} --grace 2 "$@" > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
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
three_nodes()
{
    local where=$1 number
    nodes=3
    for number in 0 1 2; do
        node $number -n 1,0,0 --role ps bash -c "$show" : -n 0,1,2 --role trainer bash -c "$show"
    done
    ended 0 1 2
    ok "$where: exit code 0" [ "${code[*]}" = "0 0 0" ]
    ok "$where: the server" lines 1 "\[[^ ]*:0 ps 0\] 0/4 0/1 ps 0/1 0 ?" out.0
    ok "$where: node 1" lines 1 "\[[^ ]*:1 trainer 0\] 1/4 0/1 trainer 0/3 0 ?" out.1
    ok "$where: node 2" lines 1 "\[[^ ]*:3 trainer 2\] 3/4 1/2 trainer 2/3 0 ?" out.2
    for number in 0 1 2; do
        node $number -n 1,0,0 --role ps sleep 60 : -n 0,1,2 --role trainer bash -c '[ $ROLE_RANK != 2 ] || exit 6; sleep 60'
    done
    ended 0 1 2
    ok "$where: a failure ends all" [ "${code[*]}" = "6 6 6" ]
    for number in 0 1 2; do
        says err.$number "rank 3 (trainer 2) failed exit code 6"
    done
    for number in 0 1 2; do
        node $number -n 1,0,0 --role ps sleep 2 : -n 0,1,2 --role trainer --on-failure continue bash -c '[ $ROLE_RANK != 2 ] || exit 6; sleep 0.5'
    done
    ended 0 1 2
    ok "$where: one is lost" [ "${code[*]}" = "0 0 0" ]
    says err.2 "rank 3 (trainer 2) was lost exit code 6"
    says err.0 "rank 3 (trainer 2) was lost exit code 6 host pid s"
    ok "$where: node 1 has nothing to say" [ ! -s err.1 ]
    # Of every node, with a failure at the end, and as JSON.
    for number in 0 1 2; do
        node $number --json --error-file report.$number -n 2,0,0 --role ps --on-failure continue bash -c '[ $ROLE_RANK = 0 ] || exit 4; sleep 1.5; exit 9' : \
            -n 0,2,2 --role trainer --on-failure continue bash -c '[ $ROLE_RANK = 0 -o $ROLE_RANK = 3 ] && exit 6; sleep 60'
    done
    ended 0 1 2
    ok "$where: some are lost, then one fails" [ "${code[*]}" = "9 9 9" ]
    departed='"departed":\[\{"rank":1,.*"exit_code":4,[^}]*"role":"ps","role_rank":1\},\{"rank":2,[^}]*"exit_code":6,[^}]*"lost":true,[^}]*"host":"[^"]+",[^}]*"role":"trainer","role_rank":0\},\{"rank":5,[^}]*\}\]\}$'
    ok "$where: node 0 lists all" grep -qE '^\{"message":"rank 0 \(ps 0, .*'"$departed" err.0
    ok "$where: in the file too" grep -qE "$departed" report.0
    ok "$where: node 2 lists its own" grep -qE '"departed":\[\{"rank":5,[^}]*\}\]\}$' report.2
    for number in 0 1 2; do
        node $number -n 1,0,0 --role ps sleep 2 : -n 0,1,2 --role trainer --on-failure restart=1 bash -c '[ $YOKE_INCARNATION = 1 -o $ROLE_RANK != 2 ] || exit 6'
    done
    ended 0 1 2
    ok "$where: one comes back" [ "${code[*]}" = "0 0 0" ]
    says err.2 "rank 3 (trainer 2) was started again 1 time"
    # Yoke's own programs meet in the launchers' store, whatever is left of rank 0.
    for number in 0 1 2; do
        node $number -n 1,0,0 --role a "$YOKE" bench allreduce --seconds 0.05 --bytes 4K --json : -n 0,1,1 --role b "$YOKE" bench allreduce --seconds 0.05 --bytes 4K --json
    done
    ended 0 1 2
    ok "$where: all roles in one group" [ "${code[*]}" = "0 0 0" ]
    says out.0 '"ranks":3,'
}
three_nodes "three launchers"

nodes=2
# differ MESSAGE ARGUMENTS OF NODE 0 -- ARGUMENTS OF NODE 1
differ()
{
    local message=$1 first=()
    shift
    while [ "$1" != -- ]; do
        first+=("$1")
        shift
    done
    shift
    node 0 --join-timeout "$(patience 2)" "${first[@]}"
    node 1 --join-timeout "$(patience 2)" "$@"
    ended 0 1
    ok "roles that differ: $message" [ "${code[0]} ${code[1]}" = "1 1" ]
    says err.1 "$message"
    says err.0 "turned away $message"
}
differ "--on-failure continue restart" -n 1 --on-failure restart true -- -n 1 --on-failure continue true
differ "--on-failure end restart=3" --on-failure restart=3 true -- true
differ "roles differ 2 parts 1" -n 1 true -- --role ps true : --role t true
differ "roles differ part 2 --role t --role trainer" --role ps true : --role trainer true -- --role ps true : --role t true
differ "roles differ role t --on-failure continue end" --role ps true : --role t true -- --role ps true : --role t --on-failure continue true
differ "roles differ role t --on-failure restart=2 restart=3" --role ps true : --role t --on-failure restart=3 true -- --role ps true : --role t --on-failure restart=2 true
differ "roles differ role ps other numbers -n" -n 1,1 --role ps true : -n 1,1 --role t true -- -n 1,0 --role ps true : -n 1,2 --role t true

# ---- three hosts
missing=
[ "$(id -u)" = 0 ] || missing="it takes root"
command -v ip > /dev/null || missing="it takes ip (iproute2)"
names=(yk$$ra yk$$rb yk$$rc)
if [ -z "$missing" ] && ! ip netns add ${names[0]} 2> err; then
    missing="no network namespace can be made: $(head -n 1 err)"
fi
if [ -n "$missing" ]; then
    skip "three hosts" "$missing"
    finish
    exit
fi
cleanup()
{
    local name one
    for name in "${names[@]}"; do
        for one in $(ip netns pids $name 2> /dev/null); do
            kill -9 "$one" 2> /dev/null
        done
        ip netns del $name 2> /dev/null
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP
# Host 0 has a bridge, at which a cable from each of the others ends.
joined=yes
ip -n ${names[0]} link add bridge0 type bridge 2> err || joined=
for k in 1 2; do
    ip netns add ${names[k]} 2>> err && ip link add yk$$p$k netns ${names[0]} type veth peer name eth0 netns ${names[k]} 2>> err || joined=
done
if [ -z "$joined" ]; then
    skip "three hosts" "they cannot be joined here: $(head -n 1 err)"
    finish
    exit
fi
ip -n ${names[0]} addr add 10.213.78.1/24 dev bridge0
ip -n ${names[0]} link set bridge0 up
for k in 1 2; do
    ip -n ${names[0]} link set yk$$p$k master bridge0 up
    ip -n ${names[k]} addr add 10.213.78.$((k + 1))/24 dev eth0
    ip -n ${names[k]} link set eth0 up
done
for name in "${names[@]}"; do
    ip -n $name link set lo up
done
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > job.secret)
secret=job.secret
space=("${names[@]}")
address=10.213.78.1
three_nodes "three hosts"
finish
