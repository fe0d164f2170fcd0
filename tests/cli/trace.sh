#!/bin/bash
# trace.sh - `yoke run --trace`: one file with what all ranks did, which nests on every thread; ranks without one; where a
# trace cannot be written. `yoke trace report` and merge. `yoke trace JOB` of a run that goes on, by its user alone.
root=$PWD
. tests/support/tap.bash
find_python "" || { skip "a trace nests" "there is no Python"; finish; exit; }
check=$root/tests/cli/trace_check.py

exits 0 "a job that is traced" run -n 2 --trace t.json -- "$YOKE" train --steps 6 --no-eval --threads 1
says err "yoke run: the trace of 2 ranks is in t.json"
ok "it nests, and has both ranks" eval '"$python" "$check" t.json 2 > counts'
for category in op backward optimizer communication loading loader step; do
    ok "there are events of category $category" grep -qE "\\b$category [1-9]" counts
done
ok "both ranks have the six steps" grep -q "step 12" counts
ok "arrows lead from who came last to who waited" grep -qE "flow [1-9]" counts
ok "no part is left" [ -z "$(ls t.json.* 2> /dev/null)" ]

exits 0 "a report" trace report t.json
says out "t.json: 2 ranks 6 steps"
says out "rank time compute exposed loading saving other"
says out "is the one that the others wait for: it came last to collectives"
says out "conv2d (backward) GFLOP/s"
exits 0 "a report with a machine's peak" trace report t.json --peak 100 --top 3
says out "of peak"
exits 0 "a report as JSON" trace report --json t.json
cat > parts.py << 'END'
import json, sys
report = json.load(open("out"))
assert report["critical_rank"] in (0, 1) and not report["cut"] and report["collectives"] > 6
for rank in report["ranks"]:
    parts = sum(rank[part + "_s"] for part in ("compute", "exposed_communication", "loading", "saving", "other"))
    assert rank["steps"] == 6 and abs(parts - rank["time_s"]) < 1e-6 and rank["compute_s"] > 0, rank
assert sum(o["flops"] for o in report["operations"]) > 1e6
END
ok "the parts of a rank are its time" "$python" parts.py
exits 0 "the difference of two" trace report t.json t.json
says out "t.json and t.json, per step"
says out "exposed communication 0.0 us"
exits 0 "traces merged" trace merge -o m.json t.json
ok "are a trace" eval '"$python" "$check" m.json 2 > counts'
exits 0 "Perfetto's form" trace convert t.json -o t.pftrace
ok "has the same events" "$python" "$root/tests/cli/perfetto_check.py" t.json t.pftrace
ok "and is smaller" [ "$(stat -c %s t.pftrace)" -lt "$(stat -c %s t.json)" ]
exits 1 "no trace to convert" trace convert "$check" -o x.pftrace
says err "is no trace of yoke's"
ok "leaves no file" [ ! -e x.pftrace ]
exits 1 "no trace" trace report "$check"
says err "is no trace of yoke's"
exits 1 "none there" trace report none.json
says err "none.json: No such file or directory"
exits 2 "no file named" trace report
exits 2 "three files" trace report a b c
exits 1 "no trace to merge" trace merge -o m.json "$check"
exits 2 "no output named" trace merge t.json

exits 3 "a rank that ends otherwise" run -n 2 --trace u.json -- bash -c '[ $RANK = 0 ] || exit 3; trap "" TERM; exec "$0" train --steps 2 --no-eval' "$YOKE"
says err "rank 1 left no trace"
exits 0 "a program without yoke" run -n 1 --trace none.json -- true
says err "rank 0 left no trace"
ok "leaves no file" [ ! -e none.json ]

exits 0 "a folder that is not there" run -n 1 --trace no/folder/t.json -- "$YOKE" train --steps 1 --no-eval
says err "yoke run: --trace no/folder/t.json: No such file or directory; the run goes on without a trace"
ok "is said once" [ "$(grep -c "without a trace" err)" = 1 ]
exits 2 "an empty name" run -n 1 --trace "" -- true
# What a rank cannot write, as on a full disk (profiler_test.c), it says, and the run ends as it would have.
mkdir there
exits 0 "a folder that goes ends no run" run -n 1 --trace there/t.json -- bash -c 'rmdir there; exec "$0" train --steps 2 --no-eval' "$YOKE"
says err "yoke: the trace of this rank is lost: t.json.rank0: No such file or directory"
ok "is said once" [ "$(grep -c "is lost" err)" = 1 ]

# ---- yoke train --trace: by the group of its processes, whose clocks are compared
exits 0 "a process alone" train --steps 3 --no-eval --trace one.json
ok "leaves a trace" eval '"$python" "$check" one.json 1 | grep -q "optimizer 3"'
exits 0 "processes of one host" run -n 3 -- "$YOKE" train --steps 3 --no-eval --threads 1 --trace all.json
ok "leave one file" eval '"$python" "$check" all.json 3 | grep -q "optimizer 9"'
ok "and no other" [ -z "$(ls all.json.* 2> /dev/null)" ]
exits 0 "a trace that cannot be written" train --steps 1 --no-eval --trace no/folder/t.json
says err "yoke train: --trace no/folder/t.json: no/folder/t.json: No such file or directory"
# Hosts whose clocks are hours apart: no rank leaves a collective before all have come to it.
cat > together.py << 'END'
import collections, json, sys
trace = json.load(open(sys.argv[1]))
ranks = trace["otherData"]["ranks"]
assert len({rank["machine"] for rank in ranks}) == len(ranks) and max(rank["error_ns"] for rank in ranks) > 0, ranks
spans = collections.defaultdict(dict)
for event in trace["traceEvents"]:
    if event.get("cat") == "communication":
        spans[event["name"], event["args"]["number"]][event["pid"]] = event["ts"], event["ts"] + event["dur"]
whole = [span for span in spans.values() if len(span) == len(ranks)]
assert len(whole) > 10, len(whole)
for span in whole:
    assert max(begin for begin, _ in span.values()) <= min(end for _, end in span.values()) + 0.0005, span
assert max(rank["error_ns"] for rank in ranks) < 5e7, ranks
END
if [ "$(id -u)" = 0 ] && unshare --time --monotonic 7200 true 2> /dev/null; then
    free_ports 27300 1
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_SIZE=3
    for rank in 0 1 2; do
        hours=$((rank * 3))
        RANK=$rank LOCAL_RANK=$rank YOKE_HOST_ID=h$rank unshare --time --monotonic $((hours * 3600)) \
            "$YOKE" train --steps 10 --no-eval --threads 1 --trace far.json > far$rank.out 2>&1 &
    done
    wait
    unset MASTER_ADDR MASTER_PORT WORLD_SIZE
    cat far?.out > err
    ok "hosts whose clocks are hours apart leave one trace" eval '"$python" "$check" far.json 3 > counts'
    ok "no rank leaves a collective before all have come" "$python" together.py far.json
    exits 0 "a report of it" trace report far.json
    says out "far.json: the clocks of the hosts are known to within"
else
    skip "hosts whose clocks are hours apart" "namespaces of time cannot be made here"
fi

# ---- a run that goes on
if ! [ -e /proc/self/fd ]; then
    skip "a run that goes on" "there is no /proc"
    finish
    exit
fi
pids=()
end_all()
{
    kill -KILL "${pids[@]}" 2> /dev/null
    wait
    rm -rf "$work"
}
trap end_all EXIT
mkdir -m 700 runs
export YOKE_RUN_DIR=$work/runs
# begin NAME ARGUMENTS...: a run, whose launcher's pid goes to $launcher, once it trains.
begin()
{
    "$YOKE" run --job-id "$1" "${@:2}" > "$1.out" 2> "$1.err" < /dev/null &
    launcher=$!
    pids+=($launcher)
    wait_until 60 trains "$1"
}
trains()
{
    "$YOKE" ps 2> /dev/null | sed -n "/^job $1,/,/^$/p" | grep -q "  step [1-9]"
}
begin on -n 2 -- "$YOKE" train --steps 1000000 --no-eval --threads 1
exits 0 "steps of a run that goes on" trace on --steps 3 -o on.json
says out "the trace of 2 ranks is in on.json"
ok "nest, of both ranks" eval '"$python" "$check" on.json 2 > counts'
ok "and are three of each" grep -q "optimizer 6 step 6" counts
exits 0 "and once more, by pid" trace $launcher --steps 1
says out "the trace of 2 ranks is in trace.json"
ok "it was one step of each" eval '"$python" "$check" trace.json 2 | grep -q "optimizer 2 step 2"'
exits 2 "another run" trace nobody
says err "no run of yours on this machine has the name or pid 'nobody'"
exits 1 "a file that cannot be written" trace on --steps 1 -o no/folder/t.json
says err "no/folder/t.json: No such file or directory"
exits 2 "two runs named" trace on on
exits 2 "no steps" trace on --steps 0
ln -s on.json link.json
exits 0 "a link" trace on --steps 1 -o link.json
ok "leads to the file that is written" [ -L link.json -a -f on.json ]
# What others may do: nothing, not even with the number of the process and the folder in hand.
if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2> /dev/null; then
    chmod 755 "$work" runs
    mkdir -m 777 open
    (cd open && setpriv --reuid 65534 --regid 65534 --clear-groups "$YOKE" trace on --steps 1 > ../out 2> ../err)
    code=$?
    ok "another user gets nothing" [ $code != 0 ]
    ok "and no file" [ -z "$(ls open)" ]
    chmod 700 runs
else
    skip "another user gets nothing" "only root can be another user"
fi
kill -TERM $launcher
wait $launcher
begin busy -n 1 --trace busy.json -- "$YOKE" train --steps 1000000 --no-eval
exits 1 "one that records already" trace busy --steps 1 -o again.json
says err "rank 0 is recording already"
ok "leaves no file" [ ! -e again.json ]
kill -TERM $launcher
wait $launcher
begin sleeps -n 1 -- bash -c '"$0" train --steps 1000000 --no-eval' "$YOKE"
pkill -STOP -P "$(pgrep -P "$(pgrep -P $launcher)")" 2> /dev/null || kill -STOP "$(pgrep -P "$(pgrep -P $launcher)")"
exits 1 "one that takes no step" trace sleeps --steps 2 --timeout 0.5
says err "rank 0 has not applied the steps within 0.5 s"
finish
