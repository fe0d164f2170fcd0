#!/bin/bash
# trace.sh - `yoke run --trace`: one file with what all ranks did, which nests on every thread; ranks without one; where a
# trace cannot be written.
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
ok "no part is left" [ -z "$(ls t.json.* 2> /dev/null)" ]

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
finish
