#!/bin/bash
# gpu_check.sh - scripts/gpu-check makes a bundle, and DIR/run carries it out: here without a driver, and on the emulator.
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

BUILD=$build "$sources/scripts/gpu-check" --bundle "$work/bundle" > out 2> err
ok "gpu-check --bundle" [ $? = 0 ]
ok "at most 60 MB" [ "$(du -sb bundle | cut -f1)" -le 60000000 ]
for file in run gpu_cases yoke-cuda.so sources.tar.gz about; do
    ok "the bundle has $file" [ -s "bundle/$file" ]
done
BUILD=$build "$sources/scripts/gpu-check" --bundle "$work/bundle" > out 2> err
ok "a folder that is not empty is refused" [ $? = 1 ]
"$sources/scripts/gpu-check" > out 2> err
ok "usage" [ $? = 2 ]

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

export YOKE_BACKEND_PATH=$build/emulator
bundle/run --small --report emulated > out 2> err
ok "on the emulator: exit code 0" [ $? = 0 ]
ok "every case passed" "$python" -c '
import json
r = json.load(open("emulated/gpu-report.json"))
assert len(r["cases"]) > 50 and all(c["passed"] and c["compared"] > 0 for c in r["cases"]), r'
ok "every benchmark can be carried out" "$python" -c '
import json
r = json.load(open("emulated/gpu-report.json"))
assert len(r["benchmarks"]) > 40 and not any("error" in b for b in r["benchmarks"]), r'
YOKE_EMULATOR_MEMORY=1 bundle/run --small --report broken > out 2> err
ok "a GPU of 1 MiB: exit code 1" [ $? = 1 ]
says out "out of memory"
bundle/run --small --seconds 0.5 --report short > out 2> err
ok "no time: exit code 1" [ $? = 1 ]
says out "NOT RUN"
finish
