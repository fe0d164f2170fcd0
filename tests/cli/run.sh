#!/bin/bash
# run.sh - `yoke run`: environment, output, failures, signals, restarts, and that nothing is left behind.
. tests/support/tap.bash
needs_proc "processes are looked for there"
host=$(uname -n)
host=${host%%.*}
unset OMP_NUM_THREADS PYTHONUNBUFFERED MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES TORCHELASTIC_ERROR_FILE

# lines COUNT PATTERN FILE: so many lines match the whole pattern.
lines()
{
    [ "$(grep -cxE -- "$2" "$3")" = "$1" ]
}

# alive MARK: some process has MARK as one of its arguments (grep, which gets it from a file, has not).
alive()
{
    echo "$1" > mark
    grep -qxzF -f mark /proc/[0-9]*/cmdline 2> /dev/null
}

# gone MARK SECONDS: within so long no process has it.
gone()
{
    wait_until "$2" eval '! alive "$1"'
}

mark=31.$$ # a number of seconds that no other process sleeps
id=run-$$  # an argument of the launchers that start starts

# start ARGUMENTS...: `yoke run ARGUMENTS` in the background, as $pid.
start()
{
    rm -f ready.*
    "$YOKE" run --job-id "$id" "$@" > out 2> err < /dev/null &
    pid=$!
}

# ready COUNT: waits until so many processes have made their file ready.RANK.
ready()
{
    wait_until 20 count_ready "$1"
}
count_ready()
{
    [ "$(find . -maxdepth 1 -name 'ready.*' | wc -l)" = "$1" ]
}

ended()
{
    wait "$pid"
    code=$?
}


# ---- which rank: yoke train has the answer that groups, loaders and devices have (tests/host/rank_info_test.c)
WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 exits 1 "yoke train without RANK" train --data glyphs --steps 1
says err "RANK not set WORLD_SIZE"
RANK=1 exits 1 "yoke train without WORLD_SIZE" train --data glyphs --steps 1
says err "WORLD_SIZE not set RANK"
SLURM_PROCID=4 SLURM_NTASKS=4 exits 1 "yoke train, a rank that Slurm has not" train --data glyphs --steps 1
says err "SLURM_PROCID=4 SLURM_NTASKS=4"

# ---- the command line
exits 0 "run --help" run --help
says out "usage yoke run PROGRAM"
says out "-n, --nproc-per-node N"
wrong()
{
    local message=$1
    shift
    exits 2 "yoke $*" "$@"
    says err "$message"
}
wrong "no program" run
wrong "no program" run -n 2 --
wrong "unknown --nprok-per-node --nproc-per-node" run --nprok-per-node 2 true
wrong "unknown --max_restart-s --max-restarts" run --max_restart-s 2 true
wrong "--nproc-per-node value" run -n
wrong "--nproc-per-node 0 1 4096" run -n 0 true
wrong "--nproc-per-node two" run -n two true
wrong "--nproc-per-node 2,x" run -n 2,x true
wrong "--nproc-per-node 2,3 2 --nnodes 1" run -n 2,3 true
wrong "--nnodes 0" run --nnodes 0 true
wrong "--nnodes 1:4 --master-addr" run --nnodes 1:4 true
wrong "--nnodes 4:1 least above" run --nnodes 4:1 true
wrong "--node-rank 2 0 1 --nnodes 2" run --nnodes 2 --node-rank 2 --master-addr a true
wrong "--nnodes 2 --master-addr" run --nnodes 2 --node-rank 1 true
wrong "--node-rank 1 node 0" run --node-rank 1 true
wrong "--standalone node" run --standalone --nnodes 2 true
wrong "--master-port 70000 0 65535" run --master-port 70000 true
wrong "--master-port 0 nodes port" run --nnodes 2 --master-addr a --master-port 0 true
wrong "--master-addr :: address" run --nnodes 2 --master-addr '[::]' true
wrong "--master-addr 0.0.0.0 address" run --nnodes 2 --master-addr 0.0.0.0 true
wrong "port --master-port" run --nnodes 2 --master-addr node0:29500 true
wrong "port --master-port" run --nnodes 2 --master-addr tcp://node0 true
wrong "--grace -1" run --grace -1 true
wrong "--redirects 3 --log-dir" run -r 3 true
wrong "--redirects 7 0 1 stdout" run -r 7 --log-dir logs true
wrong "python3 -m package" run -n 2 -m package
CUDA_VISIBLE_DEVICES='' exits 2 "no GPU" run -n gpu true
says err "no GPU"
exits 0 "torchrun's names with _" run --nproc_per_node=2 --nnodes=1 --node_rank 0 --max_restarts=0 --monitor_interval 1 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 --no_python true
exits 0 "more of torchrun's names" run --master_port=0 --shutdown_timeout 5 --local-addr localhost --event_log_handler null --signals-to-handle SIGTERM true
exits 0 "the names of old scripts, shortened" run --nnode=1 --node_rank=0 --nproc_per_node=1 true
# torchrun's variables stand in for options that are not given.
PET_NPROC_PER_NODE=3 PET_ROLE=trainer PET_RDZV_ID=pet PET_MAX_RESTARTS=2 PET_NODE_RANK='' exits 0 "PET_ variables" \
    run sh -c 'echo $WORLD_SIZE $ROLE_NAME $YOKE_JOB_ID $TORCHELASTIC_MAX_RESTARTS'
ok "and count" [ "$(grep -c '\] 3 trainer pet 2$' out)" = 3 ]
PET_NPROC_PER_NODE=3 PET_RDZV_ID=pet exits 0 "an option instead" run -n 1 --job-id own sh -c 'echo $WORLD_SIZE $YOKE_JOB_ID'
ok "counts more" grep -qx '\[.*:0\] 1 own' out
PET_NNODES=2 PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=1 PET_STANDALONE=1 wrong "--standalone node" run true
PET_STANDALONE=0 exits 0 "a flag of 0" run true
PET_STANDALONE=yes wrong "PET_STANDALONE yes 0 1" run true
PET_MASTER_PORT=70000 wrong "PET_MASTER_PORT 70000 0 65535" run true
PET_NNODES=2 wrong "--nnodes 2 --master-addr" run true
PET_NNODES=2 PET_RDZV_ENDPOINT=203.0.113.7:1234 exits 1 "an endpoint" run true
says err "203.0.113.7:1234 network"
exits 0 "options after the program are the program's" run -n 1 --no-prefix -- echo --no-prefix -n 5
ok "and reach it" [ "$(cat out)" = "--no-prefix -n 5" ]

wrong "--job-id control character" run --job-id $'a\nb' true
printf '\n' > blank
head -c 5000 /dev/zero > long
chmod 600 blank long
exits 1 "a blank secret" run --secret-file blank true
says err "blank 16 bytes"
exits 1 "a secret that is too long" run --secret-file long true
says err "long secret 4096 bytes"
YOKE_JOB_SECRET_FILE=none exits 1 "a secret that is not there" run --nnodes 2 --master-addr 127.0.0.1 true
says err "YOKE_JOB_SECRET_FILE=none No such file or directory"

# ---- programs that are not there or may not run
exits 127 "a program that is not there" run -n 2 no-such-program
says err "no-such-program PATH"
exits 127 "a path that is not there" run -n 2 ./no/such
says err "./no/such"
printf 'print(1)\n' > train.py
exits 126 "a script that may not be executed" run -n 2 ./train.py
says err "./train.py python3 ./train.py"
exits 126 "the same without ./" run -n 2 train.py
says err "python3 train.py"
exits 126 "a folder" run ./
says err "Is a directory"
printf 'echo 1\n' > plain
chmod +x plain train.py
exits 126 "a file without #!" run -n 2 ./plain
says err "#! bash ./plain"
printf '#!/no/such/interpreter -x\n' > plain
exits 126 "an interpreter that is not there" run -n 2 ./plain
says err "'/no/such/interpreter -x'"
printf '#!/bin/sh\r\necho 1\r\n' > plain
exits 126 "a script with Windows' line ends" run -n 2 ./plain
says err "try: sed -i 's/\r$//' ./plain"
mkfifo -m 777 channel
exits 126 "a pipe" run ./channel
says err "./channel file"
exits 127 "a program of this folder" run plain
says err "./plain"
mkdir open closed && cp "$(type -P true)" closed/inside && cp "$(type -P true)" open/program && : > open/barred && chmod 0 closed
as_user=()
[ "$(id -u)" != 0 ] || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
cp "$YOKE" yoke.here && chmod 711 "$work" && chmod 755 yoke.here # where that user can read it
if "${as_user[@]}" "$work/yoke.here" --version > out 2> err; then
    for case in "missing 127" "inside 127" "barred 126" "program 0" "$work/closed/inside 126"; do
        read -r name expected <<< "$case"
        PATH=$work/closed:$work/open:$PATH "${as_user[@]}" "$work/yoke.here" run "$name" > out 2> err < /dev/null
        code=$?
        ok "a folder of PATH that may not be searched, ${name##*/}: exit code $expected" [ $code = "$expected" ]
        [ "$name" != missing ] || says err "missing PATH $work/closed"
    done
    says err "closed/inside folder"
else
    skip "a folder of PATH that may not be searched" "nobody else can run the program: $(head -n 1 err)"
fi
chmod 755 closed
rm -f yoke.here

if command -v python3 > /dev/null; then
    python3 -c 'import socket, time; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(60)' > port &
    holder=$!
    wait_until 60 [ -s port ]
    exits 1 "a port in use" run -n 2 --master-port "$(cat port)" touch started
    says err "--master-port $(cat port)"
    says err "(pid $holder)"
    ok "nothing was started" [ ! -e started ]
    exits 1 "a port in use where nodes are to meet" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port "$(cat port)" touch started
    says err "127.0.0.1:$(cat port) in use 'python3' (pid $holder)"
    exits 1 "the same without --node-rank" run --nnodes 2 --join-timeout 0.5 --master-addr 127.0.0.1 --master-port "$(cat port)" touch started
    says err "in use 'python3' (pid $holder)"
    { kill $holder; wait $holder; } 2> /dev/null
else
    skip "a port in use" "there is no python3 to hold one"
fi

# ---- environment
cat > env.sh << 'END'
for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME \
    MASTER_ADDR TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE PYTHONUNBUFFERED; do
    printf '%s=%s ' $name "${!name}"
done
echo
echo "same $MASTER_PORT $TORCHELASTIC_RUN_ID $YOKE_JOB_ID $(od -An -tx1 -v <&$YOKE_JOB_SECRET_FD | tr -d ' \n')"
echo "threads $OMP_NUM_THREADS"
END
RANK=77 WORLD_SIZE=99 exits 0 "environment" run -n 3 bash env.sh
for rank in 0 1 2; do
    ok "of rank $rank" lines 1 "\[$host:$rank\] RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 GROUP_RANK=0 GROUP_WORLD_SIZE=1 ROLE_RANK=$rank ROLE_WORLD_SIZE=3 ROLE_NAME=default MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_USE_AGENT_STORE=False PYTHONUNBUFFERED=1 " out
done
ok "port, id and a secret of 32 bytes" lines 3 '\[.*\] same [0-9]{4,5} ([0-9a-f]{16}) \1 [0-9a-f]{64}' out
ok "are the same for all" [ "$(grep -o 'same.*' out | sort -u | wc -l)" = 1 ]
first=$(grep -om1 'same.*' out)
cores=$(nproc)
threads=$((cores / 3 > 1 ? cores / 3 : 1))
ok "cores are shared" lines 3 "\[.*\] threads $threads" out
run run -n 1 bash env.sh
ok "another job has another id and secret" [ "$(grep -o 'same.*' out | cut -d' ' -f3-)" != "$(cut -d' ' -f3- <<< "$first")" ]
ok "one process has all cores" lines 1 "\[.*\] threads $cores" out
OMP_NUM_THREADS=7 run run -n 2 bash env.sh
ok "OMP_NUM_THREADS of the user stays" lines 2 "\[.*\] threads 7" out
OMP_NUM_THREADS='' run run -n 2 bash env.sh
ok "an empty one is not set" lines 2 "\[.*\] threads [1-9][0-9]*" out
free_ports 20000 10
run run -n 2 --master-addr localhost --master-port $port --job-id night --role trainer bash -c 'echo $MASTER_ADDR $MASTER_PORT $YOKE_JOB_ID $TORCHELASTIC_RUN_ID $ROLE_NAME'
ok "address, port, id and role as given" lines 2 "\[.*\] localhost $port night night trainer" out
run run --no-prefix --master-addr '[::1]' printenv MASTER_ADDR
ok "an IPv6 address loses its brackets" [ "$(cat out)" = ::1 ]
TORCHELASTIC_ERROR_FILE='' run run --no-prefix --master-addr '' printenv MASTER_ADDR
ok "what is empty is not given" [ "$(cat out)" = 127.0.0.1 ]
run run -n 2 --no-prefix bash -c 'env | grep SECRET; ls -l /proc/self/fd/60 | grep -o memfd'
ok "the secret is in a descriptor, not in arguments or environment" lines 2 YOKE_JOB_SECRET_FD=60 out
run run -n 2 --pass-local-rank --no-prefix echo a b
ok "--pass-local-rank" [ "$(sort out | tr '\n' ' ')" = "a b --local_rank=0 a b --local_rank=1 " ]
ls /proc/self/fd > inside
run run --no-prefix ls /proc/self/fd
ok "the secret's descriptor is passed on" grep -qx 60 out
sed -i /^60$/d out
ok "and no other of the launcher's" cmp -s out inside
"$YOKE" run echo hello >&- 2> err
ok "a closed stdout is as /dev/null: exit code 0" [ $? = 0 ]
"$YOKE" run cat <&- > out 2> err
ok "a closed stdin is empty: exit code 0" [ $? = 0 ]
echo input > input
"$YOKE" run -n 2 --no-prefix bash -c 'echo $RANK:$(cat)' < input > out 2> err
ok "stdin goes to rank 0" [ "$(sort out | tr '\n' ' ')" = "0:input 1: " ]

# ---- output
exits 0 "stdout and stderr" run -n 2 bash -c 'echo out; echo err >&2'
ok "stdout to stdout" lines 2 "\[$host:[01]\] out" out
ok "stderr to stderr" lines 2 "\[$host:[01]\] err" err
ok "nothing else" [ "$(cat out err | wc -l)" = 4 ]
cat > pieces.sh << 'END'
for ((i = 0; i < 300; i++)); do
    printf '%s' "begin $RANK"
    printf '%s' " middle $i "
    printf 'end\n'
done
printf 'last'
END
exits 0 "lines written in pieces by four" run -n 4 bash pieces.sh
ok "are whole" lines 1200 "\[$host:([0-3])\] begin \1 middle [0-9]+ end" out
ok "a line that is not ended is shown at the end" lines 4 "\[$host:[0-3]\] last" out
ok "nothing is lost or added" [ "$(wc -l < out)" = 1204 ]
exits 0 "long lines" run -n 2 bash -c 'head -c 3000000 /dev/zero | tr "\0" $RANK; echo; printf "a\r\n\n"'
ok "are whole" [ "$(awk '{ print length($0) - index($0, " ") }' out | sort -n | tr '\n' ' ')" = "0 0 2 2 3000000 3000000 " ]
exits 0 "many lines" run -n 2 seq 200000
sed -n "s/^\[$host:1\] //p" out > lines.1
seq 200000 > lines.seq
ok "come in order" cmp -s lines.1 lines.seq
"$YOKE" run -n 2 yes 2> err | head -n 2 > out
ok "a reader that goes away ends the writers" [ "${PIPESTATUS[0]}" = 141 ]
"$YOKE" run -n 2 echo hello > /dev/full 2> err
ok "a full stdout: exit code 1" [ $? = 1 ]
says err "stdout No space left on device"
start bash -c 'printf " 1%%\r 2%%\r 3%%"; touch ready.$RANK; sleep 30'
ok "a progress bar that is redrawn" wait_for out "$(printf '1%%\r 2%%')"
kill -INT $pid
ended

rm -rf logs
exits 0 "--log-dir" run -n 2 --log-dir logs/deep bash -c 'echo out $RANK; printf "err $RANK" >&2'
ok "stdout of rank 1" [ "$(cat logs/deep/rank_1/stdout.log)" = "out 1" ]
ok "stderr of rank 0" [ "$(cat logs/deep/rank_0/stderr.log)" = "err 0" ]
ok "and on the console" lines 2 "\[$host:[01]\] out [01]" out
exits 3 "--redirects 1, a restart" run -n 1 --log-dir logs/deep -r 1 --max-restarts 1 bash -c 'echo $TORCHELASTIC_RESTART_COUNT; exit 3'
ok "stdout is in the file alone" [ ! -s out ]
ok "of both attempts, and of this run only" [ "$(tr '\n' ' ' < logs/deep/rank_0/stdout.log)" = "0 1 " ]
exits 0 "--tee without --log-dir" run -n 1 --tee 3 echo hello
ok "shows what is shown anyway" lines 1 "\[$host:0\] hello" out
if mkdir small && mount -t tmpfs -o size=64k none small 2> err; then
    exits 0 "a full disk under --log-dir" run --log-dir small -r 1 bash -c 'head -c 500000 /dev/zero | tr "\0" x | fold -w 99; echo last'
    says err "--log-dir [$host:0] No space left on device"
    ok "nothing is lost: the rest is shown" grep -q 'last$' out
    umount "$PWD/small"
else
    skip "a full disk under --log-dir" "no file system can be mounted here"
fi
touch file
exits 1 "a folder that cannot be made" run --log-dir file/logs true
says err "--log-dir file/logs/rank_0 Not a directory"

# ---- failures
exits 7 "a process fails" run -n 3 bash -c 'if [ $RANK = 1 ]; then seq 30 >&2; echo "the last word" >&2; exit 7; fi; exec sleep '$mark
says err "yoke run: rank 1 exit code 7 local rank 1 host $host pid"
says err "    the last word"
ok "20 lines of stderr" lines 19 '    [0-9]+' err
says err "ranks 0, 2 SIGTERM"
ok "are gone" gone $mark 1
for signal in SEGV KILL ABRT; do
    exits $((128 + $(kill -l $signal))) "SIG$signal" run -n 2 bash -c 'ulimit -c 0; if [ $RANK = 0 ]; then kill -'$signal' $$; fi; exec sleep '$mark
    says err "rank 0 failed SIG$signal"
done
exits 5 "--grace" run -n 2 --grace 0.6 bash -c 'if [ $RANK = 0 ]; then until [ -e deaf ]; do sleep 0.02; done; exit 5; fi; trap "" TERM; touch deaf; sleep '$mark
says err "rank 0 failed SIGKILL 0.6 s"
says err "rank 1 SIGKILL not stop"
exits 4 "one that crashes when it is asked to stop" run -n 2 bash -c 'ulimit -c 0; [ $RANK = 1 ] || { until [ -e traps ]; do sleep 0.02; done; exit 4; }
    trap "kill -SEGV \$\$" TERM; : > traps; while :; do sleep 0.02; done'
says err "rank 1 SIGSEGV asked to stop"
rm -f traps
ok "its child is gone too" gone $mark 1
for ((i = 0; i < 5; i++)); do
    run run -n 2 --grace 0 bash -c '[ $RANK = 1 ] && exit 2; exec sleep '$mark
    cat err
done > ends
ok "without a grace: what ended a process is told as it was" lines 5 '  rank 0: .*SIG(TERM|KILL).*' ends
exits 6 "a stopped process" run -n 2 bash -c 'if [ $RANK = 0 ]; then until grep -qs "^State:.*stopped" /proc/$(cat stopping 2> /dev/null)/status; do sleep 0.02; done; exit 6; fi; echo $$ > stopping; kill -STOP $$'
says err "rank 1 SIGTERM"
exits 3 "the first decides" run -n 2 bash -c 'if [ $RANK = 0 ]; then trap "exit 9" TERM; touch set; while :; do sleep 0.02; done; fi; until [ -e set ]; do sleep 0.02; done; exit 3'
says err "rank 0 stopped exit code 9"

exits 4 "--error-file" run -n 2 --error-file report.json --job-id j bash -c 'if [ $RANK = 1 ]; then printf "tab\t quote\" bad\377 e\303\251\n" >&2; exit 4; fi; exec sleep '$mark
ok "JSON: the failure" grep -qE '"exit_code":4,"failure":\{"rank":1,"local_rank":1,"pid":[0-9]+,"exit_code":4,"signal":null,"host":"[^"]+","seconds":[0-9.]+,"stderr":\["tab\\t quote\\" bad'$'\357\277\275'' e'$'\303\251''"\]\}' report.json
ok "JSON: the others" grep -qE '"others":\[\{"rank":0,"local_rank":0,"pid":[0-9]+,"exit_code":null,"signal":"SIGTERM","stopped":true,"killed":false\}\]\}$' report.json
if command -v python3 > /dev/null; then
    ok "is read by a parser" python3 -c 'import json; r = json.load(open("report.json")); assert r["job_id"] == "j" and r["message"].endswith("exit code 4")'
fi
exits 0 "a run that ends well" run -n 2 --error-file report.json true
ok "leaves no old report" [ ! -e report.json ]
TORCHELASTIC_ERROR_FILE=report.json exits 4 "TORCHELASTIC_ERROR_FILE" run bash -c 'echo ${TORCHELASTIC_ERROR_FILE-unset}; exit 4'
ok "is the launcher's" grep -q '"exit_code":4' report.json
says out "unset"
ln -s /dev/null null
for name in null channel .; do
    exits 1 "--error-file that is no file" run --error-file $name touch started
    says err "--error-file $name file"
    ok "it is still there" [ -e $name ]
done
exits 1 "--error-file in a folder that is not there" run --error-file none/report.json touch started
says err "--error-file none/report.json No such file or directory"
ok "nothing was started" [ ! -e started ]
exits 4 "--json" run --json bash -c 'exit 4'
ok "one object on stderr" grep -qE '^\{"message":"rank 0 .*\}$' err

# ---- restarts
exits 0 "--max-restarts" run -n 2 --max-restarts 3 bash -c 'echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || sleep 0.$RANK; [ $TORCHELASTIC_RESTART_COUNT = 2 ]'
ok "the whole group is started again" lines 2 '.* attempt 2 of 3' out
says err "restart 2 of 3"
ok "and no more often" [ "$(grep -c 'attempt 3' out)" = 0 ]
exits 8 "restarts run out" run -n 2 --max-restarts 2 bash -c 'exit 8'
ok "after two" [ "$(grep -c '^yoke run: restart' err)" = 2 ]

# ---- signals
for signal in INT TERM HUP; do
    start -n 2 bash -c 'touch ready.$RANK; exec sleep '$mark
    ready 2
    kill -s $signal $pid
    ended
    ok "SIG$signal: exit code" [ $code = $((128 + $(kill -l $signal))) ]
    says err "ranks 0, 1 SIG$signal"
done
start -n 2 --max-restarts 5 bash -c 'trap "echo saved; exit 0" TERM; touch ready.$RANK; while :; do sleep 0.02; done'
ready 2
kill -TERM $pid
ended
ok "processes that end well on SIGTERM: exit code 143" [ $code = 143 ]
ok "have time to save" lines 2 '.* saved' out
ok "and are not started again" [ "$(grep -c restart err)" = 0 ]
for signal in TERM INT; do
    rm -f err
    start -n 2 --max-restarts 1 --grace 2 bash -c 'trap "" TERM; touch ready.$RANK
        until [ -e ready.1 ]; do sleep 0.02; done
        while [ $RANK = 1 ]; do sleep 0.02; done; exit 7'
    wait_for err "stopping"
    kill -s $signal $pid
    ended
    ok "SIG$signal after a failure: exit code 7" [ $code = 7 ]
    ok "and no restart" [ "$(grep -c restart err)" = 0 ]
done
start -n 2 --grace 0.4 bash -c 'trap "" TERM; touch ready.$RANK; while :; do sleep 0.02; done'
ready 2
kill -TERM $pid
ended
ok "processes that ignore SIGTERM: exit code 143" [ $code = 143 ]
says err "ranks 0, 1 SIGKILL, would not stop"
start -n 2 --grace 60 bash -c 'trap "" INT; touch ready.$RANK; while :; do sleep 0.02; done'
ready 2
kill -INT $pid
taken $pid INT
sleep 0.1
ok "one SIGINT waits" kill -0 $pid
kill -INT $pid
ended
ok "a second SIGINT does not: exit code 130" [ $code = 130 ]
says err "ranks 0, 1 SIGKILL"
start -n 2 bash -c 'trap "echo usr1; exit 0" USR1; touch ready.$RANK; while :; do sleep 0.02; done'
ready 2
kill -USR1 $pid
ended
ok "SIGUSR1 is passed on and ends nothing by itself" [ $code = 0 ]
ok "every process got it" lines 2 '.* usr1' out
mkfifo pipe
exec 9<> pipe # never read
"$YOKE" run -n 2 yes > pipe 2> err < /dev/null &
pid=$!
sleep 0.3
kill -TERM $pid
ended
exec 9>&-
ok "a reader that does not read cannot keep it: exit code 143" [ $code = 143 ]

# ---- nothing is left
cat > family.sh << END
sleep $mark &
setsid sleep $mark &
(setsid bash -c 'trap "" TERM HUP; sleep $mark; :' &)
touch ready.\$RANK
END
for victim in launcher supervisor "stopping launcher"; do
    start -n 3 bash -c '. ./family.sh; wait'
    ready 3
    supervisor=$(cat /proc/$pid/task/$pid/children)
    ok "the family is there" alive $mark
    # shellcheck disable=SC2086
    case $victim in
    launcher) kill -KILL $pid ;;
    supervisor) kill -KILL $supervisor ;;
    *) kill -TERM $pid && kill -KILL $pid ;;
    esac
    { ended; } 2> /dev/null
    ok "the $victim killed: nothing is left 1 s later" gone $mark 1
    ok "the $victim killed: nor is the launcher" gone "$id" 1
done
start -n 2 --grace 0.3 bash -c '. ./family.sh'
ended
ok "what programs leave behind when they end is stopped: exit code 0" [ $code = 0 ]
ok "and is gone when yoke run has ended" gone $mark 1

failures=0
for ((i = 0; i < 100; i++)); do
    "$YOKE" run -n 2 --job-id "$id" sh -c 'echo $RANK' > out 2> err || failures=$((failures + 1))
done
ok "100 runs in a row" [ $failures = 0 ]
ok "leave no process" gone "$id" 1
failures=0
for ((i = 0; i < 20; i++)); do
    start -n 2 sleep $mark
    for ((k = 0; k < 1000; k++)); do # before exec it is a copy of this script, with its traps
        grep -qs yoke /proc/$pid/comm && break
    done
    sleep 0.00$((i / 2))
    kill -TERM $pid 2> /dev/null
    { ended; } 2> /dev/null
    [ $code = 143 ] || failures=$((failures + 1))
done
ok "SIGTERM at any moment of the start" [ $failures = 0 ]
ok "leaves no process" gone $mark 1
finish
