#!/bin/bash
# monitor.sh - `yoke monitor` and `yoke ps`: a job is watched by Debian's own Prometheus, and what that has is what the
# job's log has; GPUs are those of the emulated NVML; what is refused.
root=$PWD
. tests/support/tap.bash
needs_proc "processes are looked for there"
pids=()
end_all()
{
    local pid
    for pid in "${pids[@]}"; do
        kill -CONT "$pid"
        kill "$pid"
    done 2> /dev/null
    wait
    rm -rf "$work"
}
trap end_all EXIT
export YOKE_RUN_DIR=$work/runs

# ---- what is wrong, and what need not be there
ok "no other verb has libmicrohttpd" eval '! ldd "$YOKE" | grep -q microhttpd'
for address in 0.0.0.0:9400 :9400 192.0.2.1:9400 '[::]:9400'; do
    exits 2 "monitor -a $address" monitor -a "$address"
    says err "--address $address TLS password 127.0.0.1:9400"
done
exits 2 "no port" monitor -a 127.0.0.1:90000
says err "--address 127.0.0.1:90000 port 0 65535"
exits 2 "no such option" monitor --adress 127.0.0.1:0
says err "--address"
echo 'DCGM_FI_DEV_GPU_TMP, gauge, x' > wrong.csv
exits 2 "a field that is none" monitor -a 127.0.0.1:0 -f wrong.csv
says err "wrong.csv:1: 'DCGM_FI_DEV_GPU_TMP' 'DCGM_FI_DEV_GPU_TEMP'"
exits 1 "a file that is not there" monitor -a 127.0.0.1:0 -f none.csv
says err "none.csv No such file"
exits 2 "labels that are none" monitor -a 127.0.0.1:0 --labels mixed
says err "--labels mixed old new both"
mkdir none
echo 'no library' > none/libmicrohttpd.so.12
LD_LIBRARY_PATH=$PWD/none exits 1 "without libmicrohttpd" monitor -a 127.0.0.1:0
says err "libmicrohttpd Debian libmicrohttpd12"

# ---- deploy/
if command -v promtool > /dev/null; then
    ok "the rules" eval 'promtool check rules "$root/deploy/yoke-rules.yml" > out 2> err'
    ok "the configuration" eval 'promtool check config "$root/deploy/prometheus-yoke.yml" > out 2> err'
    ok "each alert comes when it should" eval 'promtool test rules "$root/deploy/yoke-rules-test.yml" > out 2> err'
else
    skip "deploy/*.yml" "there is no promtool (Debian's package is prometheus)"
fi
if command -v systemd-analyze > /dev/null; then
    sed "s,/usr/local/bin/yoke,$YOKE," "$root/deploy/yoke-monitor@.service" > yoke-monitor@root.service
    ok "the unit" eval 'systemd-analyze verify ./yoke-monitor@root.service > out 2> err'
    ok "is one without a word of systemd's" [ ! -s err ]
else
    skip "the unit" "there is no systemd-analyze"
fi

# ---- ps
exits 0 "ps without a run" ps
says out "no run"
exits 0 "ps --json" ps --json
ok "an empty object" grep -q '^{"runs":\[\],.*"problem":null}$' out
YOKE_RANK_PAGE=4194303:3:0:0 YOKE_JOB_ID=lost RANK=3 sleep 600 &
pids+=($!)
segment=/dev/shm/yoke-test.$$
[ -w /dev/shm ] && truncate -s 3M "$segment"
exits 0 "ps, with what is left behind" ps
says out "left over pid $! sleep rank 3 job lost pid 4194303 gone"
if [ -e "$segment" ]; then
    says out "left over $segment 3.0 MiB user $(id -un)"
    exec 8< "$segment"
    exits 0 "ps, with a segment that is open" ps
    says out "left over $segment held by pid $$"
    exits 0 "ps --json of it" ps --json
    says out "\"path\":\"$segment\" \"held_by\":[ $$"
    exec 8<&-
    rm -f "$segment"
fi
exits 0 "doctor, too" doctor
says out "pid $! rank 3 of job lost launcher is gone yoke stop --orphans"
exits 0 "as JSON" ps --json
says out "\"pid\":$! \"what\":\"left over\" \"job\":\"lost\" \"rank\":3 \"command\":\"sleep 600\" \"cores\": \"launcher_gone\":true"
kill $!
mkdir wide
chmod 755 wide
YOKE_RUN_DIR=$PWD/wide exits 0 "a folder that others may enter: the run goes on" run -n 1 true
says err "yoke run: $PWD/wide 755 700 will not see this run"
ok "in one line" [ "$(wc -l < err)" = 1 ]
YOKE_RUN_DIR=$PWD/wide exits 1 "ps says so, too" ps
says err "$PWD/wide 755 700"
exits 0 "a run that ends" run -n 2 true
ok "leaves nothing" [ -z "$(ls -A runs)" ]
ok "the folder is closed to others" [ "$(stat -c %a runs)" = 700 ]

# ---- the monitor
# begin_monitor NAME ARGUMENTS...: on a free port, which goes to $monitor_port.
begin_monitor()
{
    "$YOKE" monitor -a 127.0.0.1:0 "${@:2}" > "$1.out" 2> "$1.err" < /dev/null &
    pids+=($!)
    wait_until 20 has_begun "$1.out" $!
    monitor_port=$(sed -n 's,.*http://127.0.0.1:\([0-9]*\)/metrics.*,\1,p' "$1.out")
}
has_begun()
{
    holds "$1" /metrics || ! kill -0 "$2" 2> /dev/null
}
begin_monitor own
own=$monitor_port
if grep -q 'libmicrohttpd12' own.err; then
    skip "the monitor" "libmicrohttpd is not there"
    finish
    exit
fi
# fetch PATH [HOST [METHOD]]: the answer's head goes to the file head, the body to out.
fetch()
{
    exec 9<> "/dev/tcp/127.0.0.1/$own" || return 1
    printf '%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${3:-GET}" "$1" "${2-127.0.0.1:$own}" >&9
    sed -e 's/\r$//' <&9 > answer
    exec 9>&-
    sed '/^$/q' answer > head
    sed '1,/^$/d' answer > out
}
answers() # CODE NAME FETCH-ARGUMENTS...
{
    fetch "${@:3}"
    ok "$2: $1" grep -q "^HTTP/1.1 $1 " head
}
answers 200 "/health" /health
says out "OK"
answers 200 "/" /
ok "the page is HTML" grep -q '^Content-Type: text/html; charset=utf-8' head
ok "it may load nothing" grep -q "^Content-Security-Policy: default-src 'none'" head
ok "it is what it says" grep -q '^X-Content-Type-Options: nosniff' head
answers 200 "/metrics" /metrics
ok "Prometheus' text" grep -q '^Content-Type: text/plain; version=0.0.4' head
for part in /page.css:text/css /page.js:text/javascript /api/snapshot:application/json; do
    answers 200 "${part%:*}" "${part%:*}"
    ok "its type" grep -q "^Content-Type: ${part#*:}" head
    ok "nobody keeps it" grep -q '^Cache-Control: no-store' head
done
says out '"runs":[] "left_over":null "host":'
answers 404 "another path" /metrics/none
says out "/metrics /metrics/yoke /metrics/dcgm"
answers 405 "another method" /metrics localhost POST
ok "it names those there are" grep -q '^Allow: GET, HEAD' head
for host in localhost "localhost:$own" 127.9.9.9 '[::1]:80'; do
    answers 200 "Host: $host" /health "$host"
done
for host in rebound.example "rebound.example:$own" 127.0.0.1.example 192.0.2.1 ''; do
    answers 403 "Host: $host" /metrics "$host"
    ok "says nothing of what is here" eval '! grep -q yoke_ out'
done
# Requests that are none, too long, without an end; a client that says nothing; memory after some hundred answers, of which
# the address sanitizer keeps up to 256 MiB that was freed, and looks for leaks itself.
kept=$([ -n "${SANITIZE:-}" ] && echo $((260 << 10)) || echo 2048)
if find_python ""; then
    ok "hostile clients do no harm" "$python" - "$own" "${pids[-1]}" "$kept" << 'END'
import http.client, socket, sys, time
port, pid, most = map(int, sys.argv[1:])
def answer(raw):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        try:
            s.sendall(raw)
            return s.recv(64)
        except OSError:
            return b""
def memory():
    return int([line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS")][0])
kept = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
def scrape():
    kept.request("GET", "/metrics")
    response = kept.getresponse()
    return response.status, len(response.read())
assert scrape()[0] == 200
silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(50)]
assert b" 414 " in answer(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n")
assert b" 431 " in answer(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n")
assert b" 403 " in answer(b"GET http://rebound.example/ HTTP/1.1\r\nHost: rebound.example\r\n\r\n")
assert b" 404 " in answer(b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n")
assert b" 200 " not in answer(bytes(range(256)) * 100 + b"\r\n\r\n")
# A thousand clients, each with half a request: who has a connection is answered, and the others find one again.
slow = []
for _ in range(1000):
    slow.append(socket.socket())
    slow[-1].setblocking(False)
    slow[-1].connect_ex(("127.0.0.1", port))
time.sleep(0.5)
sent = 0
for client in slow:
    try:
        sent += client.send(b"GET /metrics HTTP/1.1\r\nHost: local") > 0
    except OSError: # it waits for a connection
        pass
assert sent > 50 and scrape()[0] == 200, sent
for client in slow + silent:
    client.close()
for tries in range(200):
    if b" 200 " in answer(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        break
    time.sleep(0.1)
else:
    raise AssertionError("nobody gets a connection any more")
assert scrape()[0] == 200
before = memory()
for _ in range(300):
    assert scrape()[0] == 200
assert memory() - before < most, (before, memory())
END
else
    skip "hostile clients" "there is no Python"
fi
exits 1 "a port in use" monitor -a "127.0.0.1:$own"
says err "127.0.0.1:$own 'yoke' (pid ${pids[-1]})"

# ---- a second one, with GPUs
gpus=
if command -v cc > /dev/null && cc -shared -fPIC -D_GNU_SOURCE -o libnvidia-ml.so.1 "$root/tests/emulator/nvml.c"; then
    export YOKE_EMULATOR_GPUS=2
    LD_LIBRARY_PATH=$PWD NODE_NAME=node-7 begin_monitor gpus -c 500
    gpus=$monitor_port
    says gpus.out "2 GPUs 580.00"
    LD_LIBRARY_PATH=$PWD YOKE_EMULATOR_GPM=0 begin_monitor old
    says old.out "GPM Hopper"
    own_before=$own own=$monitor_port
    answers 200 "GPUs without GPM" /metrics/dcgm
    ok "no metric of it" eval '! grep -q DCGM_FI_PROF_ out'
    ok "no temperature of the memory" eval '! grep -q MEMORY_TEMP out'
    ok "but that of the GPU" grep -q '^DCGM_FI_DEV_GPU_TEMP{gpu="1",.*} 41$' out
    own=$own_before
    # NVML that disagrees with the driver.
    LD_LIBRARY_PATH=$PWD YOKE_EMULATOR_NVML_ERROR=18 begin_monitor updated
    says updated.out "NVML does not start: Driver/library version mismatch (18) restart no metrics of GPUs"
    own_before=$own own=$monitor_port
    answers 200 "NVML of another version" /metrics
    says out 'yoke_monitor_collect_success{source="gpus"} 0'
    ok "and no GPU" eval '! grep -q DCGM_FI out'
    own=$own_before
    LD_LIBRARY_PATH=$PWD YOKE_EMULATOR_NVML_ERROR=18 run doctor
    says out "NVML does not start: Driver/library version mismatch (18)"
    LD_LIBRARY_PATH=$PWD YOKE_EMULATOR_HOLDERS="$$:2.5 999999999:1" exits 0 "who holds a GPU" ps
    says out "pid $$ (bash), of user $(id -un), for 2.5 GiB : bash"
    says out "pid 999999999 another pid namespace 1.0 GiB"
    if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
        setpriv --reuid 65534 --regid 65534 --clear-groups sleep 600 &
        pids+=($!)
        LD_LIBRARY_PATH=$PWD YOKE_EMULATOR_HOLDERS="$$:2.5 $!:1" begin_monitor held
        own_before=$own own=$monitor_port
        answers 200 "root's monitor" /api/snapshot
        says out "\"pid\":$$,\"user\":\"$(id -un)\",\"name\":\"bash\",\"bytes\":"
        says out "\"pid\":${pids[-2]},\"user\":\"$(id -un 65534)\",\"name\":null,\"bytes\":1073741824,"
        own=$own_before
    else
        skip "other people's processes" "it takes root and setpriv (util-linux)"
    fi
else
    skip "GPUs" "there is no compiler to make an NVML"
fi

# ---- a job, and Prometheus
job='night "1"\'
"$YOKE" run -n 2 --job-id "$job" -- "$YOKE" train --data glyphs --batch-size 32 --epochs 100000 --no-eval --log log \
    > job.out 2> job.err < /dev/null &
launcher=$!
pids+=($launcher)
prometheus=
if command -v prometheus > /dev/null && command -v promtool > /dev/null; then
    free_ports 31000 2
    holders=$((port + 1))
    # The alerts, at once.
    sed '/^ *for: /d' "$root/deploy/yoke-rules.yml" > rules.yml
    cat > prometheus.yml << END
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [rules.yml]
scrape_configs:
  - job_name: yoke
    static_configs: [{targets: ['127.0.0.1:$own']}]
  - job_name: gpus
    metrics_path: /metrics/dcgm
    static_configs: [{targets: [${gpus:+"'127.0.0.1:$gpus'"}]}]
  - job_name: holders
    static_configs: [{targets: [${gpus:+"'127.0.0.1:$holders'"}]}]
    metric_relabel_configs: [{source_labels: [__name__], regex: yoke_rank_gpu_memory_bytes, action: keep}]
END
    prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:$port \
        > prometheus.out 2>&1 < /dev/null &
    pids+=($!)
    prometheus=http://127.0.0.1:$port
fi
# value METRIC RANK: of the last answer. trains: the job has taken five steps. query EXPRESSION: Prometheus' answer, in out.
value()
{
    sed -n "s/^$1{.*rank=\"$2\".*} //p" out
}
trains()
{
    fetch /metrics/yoke
    local samples
    for samples in "$(value yoke_rank_samples_total 0)" "$(value yoke_rank_samples_total 1)"; do
        [ -n "$samples" ] && [ "$samples" -ge 160 ] || return 1
    done
}
query()
{
    promtool query instant "$prometheus" "$1" > out 2> err
}
has() # EXPRESSION: Prometheus has something to say
{
    query "$1" && grep -q '=>' out
}
ok "the job's steps are seen" wait_until 60 trains
if [ -n "$prometheus" ]; then
    ok "Prometheus' own check of the metrics" eval 'promtool check metrics < out > checked 2>&1'
    ok "has nothing to say" [ ! -s checked ]
fi
exits 0 "ps" ps
says out "job night pid $launcher 2 of 2 ranks train --data glyphs"
says out "rank 0 pid step loss"
says out "port 127.0.0.1: is held by the supervisor"
exits 0 "doctor" doctor
says out "pid $launcher launcher of job night cores"
says out "supervisor of job night listens on 127.0.0.1:"
exits 0 "ps --json" ps --json
ranks=($(grep -oE '"pid":[0-9]+,"alive":true' out | grep -oE '[0-9]+'))
supervisor=$(grep -oE '"supervisor_pid":[0-9]+' out | grep -oE '[0-9]+')
ok "names two ranks and the supervisor" [ ${#ranks[@]} = 2 -a -n "$supervisor" ]
pids+=("$supervisor" "${ranks[@]}")

# Every panel of the dashboards has something to show, and every rule can be evaluated. For memory of GPUs by rank NVML
# has to name a rank as the holder.
if [ -n "$prometheus" ] && find_python ""; then
    boards=
    if [ -n "$gpus" ]; then
        LD_LIBRARY_PATH=$PWD YOKE_EMULATOR_HOLDERS="${ranks[0]}:2.5" "$YOKE" monitor -a "127.0.0.1:$holders" \
            > holders.out 2> holders.err < /dev/null &
        pids+=($!)
        boards=$root/deploy/grafana-gpus.json
    fi
    ok "dashboards and rules, with Prometheus" "$python" - "$prometheus" "$(patience 90)" "${gpus:-none}" \
        "$root/deploy/grafana-training.json" ${boards:+"$boards"} << 'END'
import json, sys, time, urllib.error, urllib.parse, urllib.request
prometheus, seconds, gpus, boards = sys.argv[1], float(sys.argv[2]), sys.argv[3] != "none", sys.argv[4:]
def ask(path, **what):
    try:
        with urllib.request.urlopen(f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(what)}", timeout=60) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        sys.exit(f"# {what}: {error.read().decode()}")
def panels(path):
    with open(path) as file:
        board = json.load(file)
    variables = {one["name"]: one for one in board["templating"]["list"]}
    def filled(query):
        query = query.replace("$__rate_interval", "30s")
        for name in variables:
            query = query.replace("$" + name, ".*")
        assert "$" not in query, query
        return query
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], filled(target["expr"])
    for one in variables.values():
        if one["type"] == "query": # label_values(SERIES, LABEL)
            series, label = one["query"]["query"][len("label_values("):-1].rsplit(", ", 1)
            yield "the variable " + one["name"], filled(f'count by ({label}) ({series}) and on ({label}) {series}')
waiting = [one for path in boards for one in panels(path)]
waiting = [one for one in waiting if gpus or "gpu_memory" not in one[1]]
assert len(waiting) >= 15 + (10 if gpus else 0), waiting
end = time.monotonic() + seconds
while waiting and time.monotonic() < end:
    waiting = [one for one in waiting if not ask("query", query=one[1])["result"]]
    time.sleep(0.2)
assert not waiting, waiting
while True:
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    if all(rule["health"] != "unknown" for rule in rules):
        break
    assert time.monotonic() < end, rules
    time.sleep(0.2)
assert len(rules) >= 8
for rule in rules:
    assert rule["health"] == "ok", rule
    assert len(rule["annotations"]["summary"]) > 20 and len(rule["annotations"]["action"]) > 60, rule
assert not [rule for rule in rules if rule["name"] in ("YokeRunStalled", "YokeLossNotFinite", "YokeRankLost")
            and rule["state"] != "inactive"], rules
END
else
    skip "dashboards and rules" "there is no Prometheus or no Python"
fi

# The job is stopped, so that nothing changes while it is looked at.
kill -STOP "$supervisor" "${ranks[@]}"
pause 0.2
fetch /metrics/yoke
cp out stopped
for rank in 0 1; do
    samples=$(value yoke_rank_samples_total $rank) loss=$(value yoke_rank_loss $rank)
    # An epoch of a rank is 6000 images: 187 batches of 32, and one of 16.
    eval "step_$rank=$((samples / 6000 * 188 + (samples % 6000 + 31) / 32)) loss_$rank=$loss"
done
steps=$(value yoke_rank_steps_total 0)
ok "the loss is that of this step or the one before" [ $((steps - step_0)) -ge 0 -a $((steps - step_0)) -le 1 ]
ok "the world" [ "$(value yoke_rank_restarts_total 0)" = 0 ]
ok "the memory is the kernel's" [ "$(value yoke_rank_resident_memory_bytes 0)" = \
    $(($(awk '{ print $2 }' "/proc/${ranks[0]}/statm") * $(getconf PAGESIZE))) ]
if [ -z "$prometheus" ]; then
    skip "Prometheus" "it is not there (Debian's package is prometheus)"
else
    is_in() # EXPRESSION VALUE: Prometheus has it
    {
        query "$1" && awk -v v="$2" 'NF > 1 { n++; bad += $(NF - 1) != v } END { exit bad || n != 1 }' out
    }
    ok "Prometheus has the steps" wait_until 60 is_in 'yoke_rank_steps_total{rank="0"}' "$steps"
    ok "and the job's name" grep -qF 'job_id="night \"1\"\\"' out
    ok "and the losses of both" eval 'wait_until 60 is_in "yoke_rank_loss{rank=\"0\"}" $loss_0 &&
        wait_until 60 is_in "yoke_rank_loss{rank=\"1\"}" $loss_1'
    ok "and the world size" is_in yoke_run_world_size 2
    ok "a question of the manual" has 'bottomk by (job_id) (1, yoke_rank_waiting_seconds)'
    if [ -n "$gpus" ]; then
        # The panels of dashboard 12239, and what the emulated GPUs measure.
        while read -r expected expression; do
            ok "GPUs: $expression" wait_until 60 is_in "$expression" "$expected"
        done << 'END'
41 DCGM_FI_DEV_GPU_TEMP{gpu=~"1"}
40.5 avg(DCGM_FI_DEV_GPU_TEMP{gpu=~".*"})
250.5 DCGM_FI_DEV_POWER_USAGE{gpu="0"}
511 sum(DCGM_FI_DEV_POWER_USAGE)
1411000000 DCGM_FI_DEV_SM_CLOCK{gpu="1"}*1000000
71 DCGM_FI_DEV_GPU_UTIL{gpu="1"}
2560 DCGM_FI_DEV_FB_USED{gpu="0"}
0.05 DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0"}
0.02 DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1"}
22020096 DCGM_FI_PROF_PCIE_TX_BYTES{gpu="1",Hostname="node-7",DCGM_FI_DRIVER_VERSION="580.00"}
END
    fi
fi

# A rank that is killed is gone, while the other one, and a launcher that has not seen it yet, are there.
kill -KILL "${ranks[1]}"
wait_until 20 eval 'grep -q "^State:.Z" /proc/${ranks[1]}/status'
pause 0.1
fetch /metrics/yoke
ok "a killed rank has no series" eval '! grep -q "rank=\"1\"" out'
ok "the other one has" [ "$(value yoke_rank_steps_total 0)" = "$steps" ]
ok "one rank runs" grep -q '^yoke_run_ranks{.*} 1$' out
if [ -n "$prometheus" ]; then
    gone() { query 'yoke_rank_steps_total{rank="1"}' && ! grep -q '=>' out; }
    ok "Prometheus has none of it either" wait_until 60 gone
    ok "and has the other" has 'yoke_rank_steps_total{rank="0"}'
    ok "and says that a rank is lost" wait_until 60 has \
        'ALERTS{alertname="YokeRankLost",alertstate="firing",job_id=~"night.*"}'
fi
kill -CONT "$supervisor" "${ranks[0]}"
wait $launcher
ok "the job ends by the kill" [ $? = 137 ]
pause 0.1
fetch /metrics/yoke
ok "no run is left" eval '! grep -qE "^yoke_(run|rank)_" out'
ok "nor a file" [ -z "$(ls -A runs)" ]
# What the log says of the steps that were seen.
for rank in 0 1; do
    eval "step=\$step_$rank loss=\$loss_$rank"
    logged=$(sed -n 's/.*"event":"step".*"step":'$step',"loss":\([^,}]*\).*/\1/p' log)
    ok "rank $rank: the loss of step $step is the log's" awk -v a="$loss" -v b="$logged" \
        'BEGIN { exit !(b != "" && (a - b) * (a - b) < 1e-14 * a * a) }'
done

kill "${pids[1]}"
wait "${pids[1]}"
ok "SIGTERM ends the monitor" [ $? = 0 ]

# A launcher that was killed leaves a file, which who looks takes away: no monitor does, all have ended here.
kill "${pids[@]}" 2> /dev/null
wait
pids=()
"$YOKE" run -n 1 sleep 600 > job.out 2> job.err < /dev/null &
launcher=$!
pids+=($launcher)
wait_until 20 eval '[ -n "$(ls runs/*.json 2> /dev/null)" ]'
supervisor=$(ls runs)
kill -KILL "${supervisor%%-*}"
wait $launcher
ok "the file is there" [ -n "$(ls -A runs)" ]
exits 0 "ps after that" ps
says out "no run"
ok "it is not any more" [ -z "$(ls -A runs)" ]
finish
