#!/bin/bash
# trace_nodes.sh - `yoke run --trace` over several nodes: one file on node 0, also where the nodes have one folder and where
# their clocks are hours apart; nodes that record nothing, or that cannot give what they recorded. `yoke trace` of a job
# of several nodes that goes on.
root=$PWD
. tests/support/tap.bash
find_python "" || { skip "traces of several nodes" "there is no Python"; finish; exit; }
check=$root/tests/cli/trace_check.py
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD
free_ports 27400 30
bench=("$YOKE" bench allreduce --seconds 0.02 --bytes 4K --json)

# node NUMBER FOLDER ARGUMENTS...: a launcher in the background, in that folder.
node()
{
    local number=$1 folder=$2
    shift 2
    mkdir -p "$folder"
    (cd "$folder" && exec ${clock[number]:-} "$YOKE" run --master-addr 127.0.0.1 --master-port $port --node-rank "$number" "$@") \
        > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
# ended NUMBER...: waits for these nodes; passes if each ended with 0.
ended()
{
    local number fine=0
    for number in "$@"; do
        wait "${pid[number]}" || fine=1
    done
    port=$((port + 3))
    cat out.? > out
    cat err.? > err
    return $fine
}

# One folder, as of a network's file system.
clock=()
node 0 one --nnodes 2 -n 1 --trace t.json "${bench[@]}"
node 1 one --nnodes 2 -n 2 --trace t.json "${bench[@]}"
ok "two nodes" ended 0 1
says err.0 "yoke run: the trace of 3 ranks is in one/t.json"
ok "leave one file, of all ranks" eval '"$python" "$check" one/t.json 3 | grep -qE "communication [1-9].* flow [1-9]"'
ok "and no other" [ "$(ls one)" = t.json ]
ok "and the other node says nothing" [ ! -s err.1 ]

# Each has a folder of its own, and one does not record.
node 0 a --nnodes 3 -n 1 --trace t.json "${bench[@]}"
node 1 b --nnodes 3 -n 1 "${bench[@]}"
node 2 c --nnodes 3 -n 1 --trace t.json "${bench[@]}"
ok "three nodes, one without --trace" ended 0 1 2
says err.0 "yoke run: the trace of 2 ranks is in a/t.json"
ok "are one file of two ranks" eval '"$python" "$check" a/t.json | grep -q "communication [1-9]"'
ok "no part is left" [ -z "$(ls b/* c/* 2> /dev/null)" ]

# Node 0 does not record, or cannot write: what the others have stays with them.
node 0 d --nnodes 2 -n 1 "${bench[@]}"
node 1 e --nnodes 2 -n 1 --trace t.json "${bench[@]}"
ok "node 0 without --trace" ended 0 1
says err.1 "yoke run: the trace of 1 rank is in e/t.json.node1"
ok "node 1 has its own" "$python" "$check" e/t.json.node1
node 0 f --nnodes 2 -n 1 --trace no/t.json "${bench[@]}"
node 1 g --nnodes 2 -n 1 --trace t.json "${bench[@]}"
ok "node 0 without the folder" ended 0 1
says err.0 "yoke run: --trace no/t.json: No such file or directory; the run goes on without a trace"
ok "likewise" "$python" "$check" g/t.json.node1

# A job that is started again has the trace of its last attempt.
node 0 h --nnodes 2 -n 1 --max-restarts 1 --trace t.json bash -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; exec "$@"' bash "${bench[@]}"
node 1 h --nnodes 2 -n 1 --trace t.json bash -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 20; exec "$@"' bash "${bench[@]}"
ok "a job that is started again" ended 0 1
says err.0 "yoke run: the trace of 2 ranks is in h/t.json"
ok "leaves one file" eval '"$python" "$check" h/t.json 2 > /dev/null && [ "$(ls h)" = t.json ]'

# Hosts whose clocks are hours apart: the bound that is written holds, and no receive is before its send.
if [ "$(id -u)" = 0 ] && unshare --time --monotonic 7200 true 2> /dev/null; then
    for number in 0 1 2; do
        clock[number]="env YOKE_HOST_ID=h$number unshare --time --monotonic $((number * 10000))"
    done
    for number in 0 1 2; do
        node $number far$number --nnodes 3 -n 2 --trace t.json "${bench[@]}"
    done
    ok "three hosts" ended 0 1 2
    ok "one file" eval '"$python" "$check" far0/t.json 6 > counts'
    cat > apart.py << 'END'
import json, sys
trace = json.load(open(sys.argv[1]))
ranks = trace["otherData"]["ranks"]
clocks = {rank["machine"]: rank for rank in ranks[::-1] if rank["to_rank0_ns"] is not None}
assert len({rank["machine"] for rank in ranks}) == 3 and len(clocks) == 3, ranks
for rank in ranks:
    hours = rank["rank"] // 2 * 10000 * 10**9
    if rank["rank"] > 1:
        assert abs(rank["to_rank0_ns"] + hours) <= rank["error_ns"] < 10**8, (rank, hours)
spans = {}
for event in trace["traceEvents"]:
    if event.get("cat") == "communication":
        key = event["name"], event["args"]["of"], event["args"]["number"]
        spans.setdefault(key, []).append((event["ts"], event["ts"] + event["dur"]))
whole = [span for key, span in spans.items() if len(span) == 6 and key[0] == "all_reduce"]
assert len(whole) > 5, len(whole)
for span in whole:
    assert max(begin for begin, _ in span) <= min(end for _, end in span) + 0.0005, span
END
    ok "whose clocks are right within the bound" "$python" apart.py far0/t.json
    ok "no part is left on any" [ "$(ls far0 far1 far2 | grep -c json)" = 1 ]
else
    skip "hosts whose clocks are hours apart" "namespaces of time cannot be made here"
fi

# A job that goes on: node 0's launcher has the ranks of all nodes record the same steps, whatever their clocks are.
if ! [ -e /proc/self/fd ]; then
    skip "a job that goes on" "there is no /proc"
    finish
    exit
fi
mkdir -m 700 runs
export YOKE_RUN_DIR=$work/runs
trap 'kill -TERM "${pid[@]}" 2> /dev/null; wait; rm -rf "$work"' EXIT
far=${clock[1]:+1}
port=$((port + 3))
train=("$YOKE" train --steps 1000000 --no-eval --threads 1)
node 0 on0 --job-id on --nnodes 2 -n 1 "${train[@]}"
node 1 on1 --job-id on --nnodes 2 -n 2 "${train[@]}"
trains()
{
    run ps
    [ "$(grep -cE "^  rank [0-2] .* step [1-9]" out)" = 3 ]
}
ok "three ranks train on two nodes" wait_until 60 trains
exits 0 "a trace of both nodes" trace on --steps 3 -o on.json --timeout "$(patience 60)"
says out "the trace of 3 ranks is in on.json"
ok "nests, and has arrows" eval '"$python" "$check" on.json 3 | grep -qE "communication [1-9].* flow [1-9]"'
cat > same.py << 'END'
import collections, json, sys
trace, far = json.load(open(sys.argv[1])), len(sys.argv) > 2
ranks = {rank["rank"]: rank for rank in trace["otherData"]["ranks"]}
steps, spans = collections.defaultdict(list), collections.defaultdict(list)
for event in trace["traceEvents"]:
    if event.get("cat") == "step":
        steps[event["pid"]].append(event["args"]["number"])
    if event.get("cat") == "communication" and event["name"] == "all_reduce":
        spans[event["args"]["of"], event["args"]["number"]].append((event["ts"], event["ts"] + event["dur"]))
assert len(steps[0]) == 3 and steps[0] == steps[1] == steps[2], steps
whole = [span for span in spans.values() if len(span) == 3]
assert len(whole) >= 3, spans
for span in whole:
    assert max(begin for begin, _ in span) <= min(end for _, end in span) + 0.0005, span
if far:
    assert ranks[0]["machine"] != ranks[1]["machine"]
    for rank in ranks[1], [r for r in ranks.values() if r["machine"] == ranks[1]["machine"]][0]:
        if rank["to_rank0_ns"] is not None:
            assert abs(rank["to_rank0_ns"] + 10000 * 10**9) <= rank["error_ns"] < 10**9, rank
END
ok "of the same steps, on one clock" "$python" same.py on.json $far
exits 0 "on another node" trace "${pid[1]}" --steps 1 -o one.json
says err "node 1 of 2 ranks alone node 0 records all"
ok "its own ranks" eval '"$python" "$check" one.json | grep -q "step 2"'
exits 1 "steps that do not come" trace on --steps 100000 --timeout 0.5
says err "rank 0 has not applied the steps within 0.5 s"
exits 0 "what was taken back is recorded no more" trace on --steps 1 -o again.json --timeout "$(patience 60)"
ok "by any rank" eval '"$python" "$check" again.json 3 | grep -q "step 3"'
exits 0 "the job is stopped on the second node" stop "${pid[1]}" --timeout "$(patience 30)"
wait "${pid[0]}"
ok "and ends on the first" [ $? = 143 ]
wait "${pid[1]}"
finish
