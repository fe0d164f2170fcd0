#!/bin/bash
# gpu_check.sh - scripts/gpu-check makes a bundle, and DIR/run carries it out: here without a driver, and on the bundle's
# emulator, where cases hang, die or find something, and tools and libraries are missing.
sources=$PWD
. tests/support/tap.bash
build=${YOKE%/*}
python=$(command -v python3) || python=
if [ ! -e "$build/yoke-cuda.so" ]; then
    skip "the bundle" "this build has no yoke-cuda.so: it needs CUDA 12 or 13"
    finish
    exit
elif [ -z "$python" ]; then
    skip "the bundle" "there is no python3, which carries it out"
    finish
    exit
elif [ -n "${SANITIZE:-}" ]; then
    skip "the bundle" "a sanitized program is none to carry elsewhere"
    finish
    exit
fi

BUILD=$build CPU_ISAS="$(cat "$build/made-of/isas")" "$sources/scripts/gpu-check" --bundle "$work/bundle" > out 2> err
ok "gpu-check --bundle" [ $? = 0 ]
ok "at most 50 MB" [ "$(du -sb bundle | cut -f1)" -le 50000000 ]
for file in run peer.py peer_step.py yoke gpu_cases yoke-cuda.so.gz emulator/yoke-cuda.so.gz symbols/gpu_cases.gz lib/c/libc.so.6.gz sources.tar.gz about; do
    ok "the bundle has $file" [ -s "bundle/$file" ]
done
BUILD=$build CPU_ISAS="$(cat "$build/made-of/isas")" "$sources/scripts/gpu-check" --bundle "$work/bundle" > out 2> err
ok "a folder that is not empty is refused" [ $? = 1 ]
"$sources/scripts/gpu-check" > out 2> err
ok "usage" [ $? = 2 ]
bundle/run --parts smoke,speed > out 2> err
ok "an unknown part" [ $? = 2 ]
says err "no part 'speed'"
bundle/run --python "$work/no-python" > out 2> err
ok "no such Python" [ $? = 2 ]
says err "--python: there is no program '$work/no-python'"
bundle/run --report /proc/no-report > out 2> err
ok "a report that cannot be written" [ $? = 2 ]
says err "--report: '/proc/no-report': name a folder that can be written"
if [ ! -e /opt/conda/bin/python3 ]; then
    mkdir nothing
    PATH=$work/nothing bundle/run > out 2> err
    ok "no Python" [ $? = 2 ]
    says err "nothing was checked: Python 3.9 or later is needed"
fi

if ldconfig -p | grep -q libcuda.so.1; then
    skip "no driver" "there is one here"
else
    bundle/run --report report > out 2> err
    ok "without a driver: exit code 3" [ $? = 3 ]
    says out "no NVIDIA driver"
    ok "all versions come first" grep -qE '^driver, CUDA +not here' out
    says report/gpu-report.txt "nothing was checked"
    ok "the report is JSON" "$python" -c '
import json
r = json.load(open("report/gpu-report.json"))
assert r["versions"]["driver, CUDA"] == "not here" and r["cases"] == [], r'
fi

# check NAME CODE: what the emulated run of this name ended with, and its report, on which the expression on stdin holds.
check()
{
    ok "$1: exit code $2" [ "$code" = "$2" ]
    ok "$1: the report" "$python" -c '
import json, sys
r = json.load(open(sys.argv[1] + "/gpu-report.json"))
parts = {p["part"]: p for p in r["parts"]}
cases = {c["case"]: c for c in r["cases"]}
assert eval("(" + sys.stdin.read() + ")"), str(r)[:4000]' "$1"
}

emulate()
{
    local name=$1 folder=$2
    shift 2
    "$folder/run" --emulator --jobs 2 --report "$name" "$@" > out 2> err
    code=$?
}

# The tool that is not here: memcheck does not work, racecheck finds something. And what says which GPU there is.
mkdir tools
printf '#!/bin/sh\ncase $2 in memcheck) echo "Device not supported"; exit 1;; *) echo "a race"; exit 9;; esac\n' \
    > tools/compute-sanitizer
printf '#!/bin/sh\necho "NVIDIA Emulated, 580.95, 1024 MiB"\n' > tools/nvidia-smi

# ncu: a line for each metric, or for each launch; it may not know a metric.
cat > tools/ncu << 'END'
#!/bin/sh
case "$*" in *"--batch-size 2 "*"dram"* | *"dram"*"--batch-size 2 "*) echo "Failed to find metric dram__bytes.sum"; exit 1 ;; esac
echo "==PROF== Connected to process 7"
case "$*" in
*"--batch-size 32 "*)
    echo '"ID","Process ID","Kernel Name","dram__bytes.sum","gpu__time_duration.sum"'
    echo '"","","","byte","ns"'
    for kernel in a update_kernel b b update_kernel c; do
        at=$((${at:-0} + 1))
        echo "\"$at\",\"7\",\"void $kernel<float, int>(int, float *)\",\"4,000,000\",\"2,000\""
    done ;;
*)
    echo '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    for kernel in a update_kernel b b update_kernel c; do
        at=$((${at:-0} + 1))
        echo "\"$at\",\"7\",\"$kernel\",\"gpu__time_duration.sum\",\"ns\",\"1,500\""
        echo "\"$at\",\"7\",\"$kernel\",\"dram__bytes.sum\",\"byte\",\"3,000,000\""
    done ;;
esac
END

# PyTorch takes its time to load: it takes part where a Python that has it is named.
printf '#!/bin/sh\nexec "%s" -S "$@"\n' "$python" > tools/plain
chmod +x tools/*
peer=${YOKE_PEER_PYTHON:-$work/tools/plain}
PATH=$work/tools:$PATH emulate whole bundle --python "$peer"
check whole 1 <<< 'all(c["passed"] and c["compared"] > 0 for c in r["cases"]) and len(cases) > 30
    and all(p["failed"] == 0 and p["passed"] > 0 for n, p in parts.items() if n[:6] not in ("comput", "parity", "NCCL o"))
    and list(parts) == ["smoke", "every slot against the CPU", "every slot against the emulator",
                        "gradients against finite differences", "two logical devices", "two processes on one GPU",
                        "NCCL on one GPU", "parity with float64, next to PyTorch", "recorded steps against steps as they are",
                        "compute-sanitizer", "steps next to PyTorch", "where a step\u0027s time goes", "rates of slots"]
    and [p["kernels"][0]["us"] for p in r["profiles"] if p["who"] == "yoke"] == [3.0]
    and all(c["code"] == (1 if c["tool"] == "memcheck" else 9) for c in r["compute-sanitizer"])
    and parts["compute-sanitizer"]["failed"] == parts["compute-sanitizer"]["not run"] > 2
    and r["ddp"]["passed"] and (not r["nccl"]["explained"] or parts["NCCL on one GPU"]["passed"] == 4) and r["steps"][0]["recorded"] and r["versions"]["GPUs"][0].startswith("NVIDIA Emulated")
    and "emulator of CUDA" in r["doctor"] and len(r["device rates"]) == 7 and len(r["benchmarks"]) > 8 and not any("error" in b for b in r["benchmarks"]) and r["targets"] == []' > whole.txt
cat whole.txt
says whole/gpu-report.txt "NOT RUN memcheck Device not supported"
says whole/gpu-report.txt "FAILED racecheck a race"
ok "the text begins with the verdict, and ends with all of it in order" "$python" -c '
text = open("whole/gpu-report.txt").read()
assert text.startswith("gpu-check: ") and "\nfailed: racecheck" in text.split("==== versions")[0], text[:2000]
assert "\n== smoke\nok     memory round_trip" in text, text[:4000]'
if "$peer" -c 'import torch' 2> /dev/null; then
    ok "next to PyTorch" "$python" -c '
import json
r = json.load(open("whole/gpu-report.json"))
assert len(r["parity"]) == 4 and all(p["passed"] for p in r["parity"]), r
assert sorted(s["who"] for s in r["steps"]) == ["PyTorch, compiled", "PyTorch, eager", "yoke, as it is", "yoke, recorded"], r'
else
    says whole/gpu-report.txt "NOT RUN there is no PyTorch here"
    ok "without PyTorch the versions say so" grep -qE '^torch +not here: .*No module' whole/gpu-report.txt
fi

# One case hangs, one dies by a signal, one says nothing, one faults: those behind them run, and the report says which,
# where (by the names of functions) and what it was once more.
cp -al bundle broken
rm broken/gpu_cases
cat > broken/gpu_cases << END
#!/bin/bash
in_it() # SIGNAL: reaches the program in the middle of its work, and is what this script ends with
{
    "$work/bundle/gpu_cases" run record adamw & # which takes seconds
    sleep 0.4
    kill -\$1 \$!
    wait \$!
    kill -\$1 \$\$
}
case "\$*" in
"run memory round_trip") trap 'trap - QUIT; in_it QUIT' QUIT; sleep 60 & wait ;;
"run memory order_of_reuse") in_it SEGV ;;
"run fill all") export YOKE_EMULATOR_FAULT=fill ;;
"run record sgd") exit 0 ;;
esac
exec "$work/bundle/gpu_cases" "\$@"
END
chmod +x broken/gpu_cases
emulate faults broken --parts smoke,recorded,again,rates --case-seconds 2
check faults 1 <<< 'cases["memory round_trip"]["text"] == "no result: ran too long"
    and cases["memory order_of_reuse"]["text"].startswith("no result: ended by signal 11 (SIGSEGV)")
    and "gpu_cases(print_stack+0x" in cases["memory order_of_reuse"]["stderr"]
    and cases["record sgd"]["text"] == "no result: exit code 0"
    and len(r["failures"]) == 4
    and [a["text"] for a in r["again"] if a["what"] == "fill all" and a["how"] == "YOKE_CUDA_SYNCHRONOUS=1"][0].count("it was fill")
    and {a["how"] for a in r["again"] if a["what"] == "record sgd"} == {"as it was", "YOKE_CUDA_SYNCHRONOUS=1", "YOKE_CUDA_LIBRARIES=0"}
    and parts["rates of slots"]["failed"] == 0 and parts["rates of slots"]["passed"] > 8'

# Ended from outside: what was under way is no failure of it. A signal that came before the program, on whose output is
# waited, would end this script's own copy, which would remove its folder.
rm -f out
broken/run --emulator --report ended --parts smoke > out 2> err &
ended=$!
for ((i = 0; i < 600; i++)); do
    grep -qs '^== smoke' out && break
    read -rt 0.1 <> .nap
done
kill -TERM $ended
wait $ended
code=$?
check ended 1 <<< '"SIGTERM" in r["verdict"] and r["failures"] == [] and "driver, CUDA" in r["versions"]'

# A machine without the libraries, and programs that its C library is too old for.
YOKE_EMULATOR_LIBRARIES='' emulate bare bundle --parts smoke,slots,nccl,rates --own-c-library
check bare 0 <<< 'r["own C library"] and (parts["NCCL on one GPU"]["not run"], parts["NCCL on one GPU"]["passed"]) == (1, 0)
    and all("gemm: 0 by library, " in b["libraries"] and "gemm: 0 by library, 0 by" not in b["libraries"] for b in r["benchmarks"] if b["bench"][:4] == "gemm")'
YOKE_EMULATOR_MEMORY=1 emulate small bundle --parts smoke,rates
check small 1 <<< '"out of memory" in cases["memory round_trip"]["text"]'
emulate late bundle --seconds 1
check late 1 <<< 'sum(p["not run"] for p in r["parts"]) > 10 and len(r["parts"]) == 13 and len(r["not reached"]) > 10'
says late/gpu-report.txt "NOT RUN its time was over"
# What is measured on a GPU, here by programs that print figures: which targets are met, and which missed.
cp -al bundle measured
rm measured/gpu_cases measured/yoke
cat > measured/gpu_cases << 'END'
#!/bin/sh
case "$1" in
devices) echo "1 cuda devices" ;;
benches) printf 'copy float32 256 MiB\nadd float32\ndies float32\ngelu float32\ngemm float32 4096\n' ;;
bench)
    shift
    for name; do
        rate=4000
        [ "$name" = "gelu float32" ] && rate=3000
        [ "$name" = "dies float32" ] && kill -SEGV $$
        echo "{\"bench\": \"$name\", \"microseconds\": 1, \"first\": 2, \"gigabytes_per_second\": $rate, \"teraflops\": 0}"
    done ;;
esac
END
cat > measured/yoke << 'END'
#!/bin/sh
if [ "$2" = device ]; then
    for i in 1 2 3 4 5 6 7; do
        echo '{"device": "cuda:0", "row": "copy", "dtype": "float32", "rate": 4.5, "unit": "GB/s"}'
    done
    exit
fi
if [ "$1" = train ]; then
    printf 'epoch 1/2  train loss 1.0  200 images/s\nepoch 2/2  train loss 0.5  30000 images/s\n'
    exit
fi
while read -r pid stem; do # those that compile are stopped while a step is measured
    [ -e "$stem.ready" ] || grep State "/proc/$pid/status" >> STATES
done < COMPILING
case "$*" in *--record*) host=20 ;; *) host=400 ;; esac
case "$*" in *"--batch-size 4 "*) rate=1000 ;; *) rate=900 ;; esac
echo "{\"step_ms_median\": 1, \"images_per_second\": $rate, \"host_us_median\": $host, \"peak_memory_mb\": 5, \"peak_reserved_mb\": 10, \"recorded\": true}"
END
cat > tools/peer << END
#!/bin/bash
case "\$*" in
*peer.py\ version) echo '{"torch": "2.11.0", "cuda": "13.0", "cudnn": 91900, "triton": "3.6.0", "gpu": "NVIDIA H200"}' ;;
*peer.py\ rates) echo '{"copy": 3900, "product": 700, "attention": 87.5}' ;;
*peer.py\ step*)
    case "\$*" in *reduce-overhead*) nap=0.2 ;; *) nap=1.5 ;; esac
    for word; do
        [ "\$before" = --wait ] && stem=\$word
        before=\$word
    done
    [ -z "\$stem" ] || { echo "\$\$ \$stem" >> "$work/compiling"; read -rt \$nap <> "$work/.nap"; touch "\$stem.ready"; }
    while [ -n "\$stem" ] && [ ! -e "\$stem.go" ]; do sleep 0.05; done
    echo '{"step_ms_median": 1, "images_per_second": 500, "host_us_median": 700, "peak_memory_mb": 6, "peak_reserved_mb": 9}' ;;
*) exec "$python" -S "\$@" ;;
esac
END
sed -i "s|STATES|$work/states|; s|COMPILING|$work/compiling|" measured/yoke
chmod +x measured/gpu_cases measured/yoke tools/peer
PATH=$work/tools:$PATH measured/run --report figures --python "$work/tools/peer" --parts steps,profile,rates > out 2> err
code=$?
check figures 1 <<< '{t["target"]: (t["value"], t["met"]) for t in r["targets"]} == {
    "batch 1024: times PyTorch\u0027s images/s, compiled": (1.8, True), "batch 1024: peak reserved memory, MB": (10, False),
    "batch 512: times PyTorch\u0027s images/s, compiled": (1.8, True), "batch 512: peak reserved memory, MB": (10, False),
    "batch 32: times PyTorch\u0027s images/s, eager": (1.8, False), "batch 32: us of the host for a recorded step": (20, True),
    "batch 32: peak reserved memory, MB": (10, False), "batch 4: times PyTorch\u0027s images/s, eager": (2.0, True),
    "batch 4: us of the host for a recorded step": (20, True), "batch 4: peak reserved memory, MB": (10, False),
    "copy float32 256 MiB: % of a copy": (103, True), "add float32: % of a copy": (100, True),
    "gelu float32: % of a copy": (75, False)}
    and [f["what"] for f in r["failures"]] == ["dies float32"] and "SIGSEGV" in r["failures"][0]["text"]
    and r["training"]["images_per_second"] == 30000
    and r["benchmarks"][-2]["bench"] == "gemm float32 4096" and r["rates of PyTorch"]["copy"] == 3900
    and sorted(s["who"] for s in r["steps"] if s["batch_size"] == 512) == ["PyTorch, compiled", "PyTorch, compiled, again", "PyTorch, compiled, untuned",
        "PyTorch, eager", "yoke, as it is", "yoke, recorded", "yoke, recorded, tried"]
    and [(p["batch_size"], [(k["name"], k["launches"], k["us"], k["megabytes"]) for k in p["kernels"]]) for p in r["profiles"]] == [
        (1024, [("b", 2, 3.0, 6.0), ("update_kernel", 1, 1.5, 3.0)]),
        (32, [("b<float, int>", 2, 4.0, 8.0), ("update_kernel<float, int>", 1, 2.0, 4.0)])]'
ok "compilers are stopped while a step is measured" [ "$(sed 's/.*(//; s/).*//' states | sort | uniq -c | xargs)" = "$(wc -l < states) stopped" ]
says figures/gpu-report.txt "MISSED gelu float32: % of a copy: 75, wanted >= 80"
says figures/gpu-report.txt "PyTorch: attention bfloat16 8x12x1024x64 87.5 us"
says figures/gpu-report.txt "PyTorch: attention backward bfloat16 8x12x1024x64 NOT RUN"
says figures/gpu-report.txt "batch 1024 bf16, PyTorch, compiled 500 images/s, 1.80x"
ok "the verdict is the last line, too" [ "$(tail -n 1 out)" = "$(head -n 1 figures/gpu-report.txt | sed 's/ ([0-9]* s)$//')" ]

# A part of the steps, and of the cases.
measured/run --report fewer --python "$work/tools/peer" --parts steps --batches 32 > out 2> err
code=$?
check fewer 0 <<< '{s["batch_size"] for s in r["steps"]} == {32} and len(r["steps"]) == 5'
emulate some bundle --parts slots,gradients --cases '^softmax'
check some 0 <<< 'len(cases) > 0 and all(c.startswith("softmax ") for c in cases)'
bundle/run --cases '(' > out 2> err
ok "--cases that is no regular expression" [ $? = 2 ]
says err "--cases, --batches: "

# PyTorch that cannot compile is no failure of what is checked.
sed -i 's/^\*peer.py\\ step\*)$/*compiled*) echo "no C compiler" >\&2; exit 1 ;;\n&/' tools/peer
measured/run --report uncompiled --python "$work/tools/peer" --parts steps > out 2> err
code=$?
check uncompiled 0 <<< 'parts["steps next to PyTorch"]["failed"] == 0 and parts["steps next to PyTorch"]["not run"] == 4'
says uncompiled/gpu-report.txt "NOT RUN PyTorch, compiled, batch 512: exit code 1 no C compiler"

printf '#!/bin/sh\nexit 127\n' > broken/gpu_cases
emulate dead broken
check dead 1 <<< '"do not run here: exit code 127" in r["verdict"] and r["cases"] == []'
finish
