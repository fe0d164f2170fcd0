#!/bin/bash
# bench_ops.sh - build/bench/operation_times, and bench/ops: its command line and exit codes, its JSON with and without PyTorch. The part with PyTorch is
# skipped where that is not installed ($YOKE_PEER_PYTHON or python3 is asked).
here=$PWD
. tests/support/tap.bash
export YOKE

# measures CODE NAME ARGUMENTS...: what bench/operation_times ends with.
measures()
{
    YOKE=${YOKE%/*}/bench/operation_times exits "$@"
}
measures 0 "--help" --help
says out "usage operation_times"
says out "examples:"
ok "help within 80 columns" awk 'length($0) > 80 { bad = 1 } END { exit bad }' out
measures 2 "a pattern that no row matches" --only conv4d
says err "--only 'conv4d' --list"
measures 2 "no regular expression" --only '('
says err "--only '(' regular expression"
measures 2 "a pattern is missing" --only
says err "--only value"
measures 2 "less than no time" --seconds -1
says err "--seconds -1 0"
if ! command -v python3 > /dev/null; then
    skip "bench/ops" "there is no python3"
    finish
    exit
fi
# ops PYTHON ARGUMENTS...: bench/ops under this Python; output to out and err, exit code to $code.
ops()
{
    local python=$1
    shift
    YOKE_PEER_PYTHON=$python "$here/bench/ops" "$@" > out 2> err
    code=$?
}
# A Python that has no torch, whatever is installed.
mkdir without
echo 'raise ImportError("no torch in this test")' > without/torch.py
without_torch()
{
    PYTHONPATH=$PWD/without ops python3 "$@"
}

without_torch --help
ok "--help: exit code 0" [ $code = 0 ]
says out "--only PATTERN"
without_torch --onyl add
ok "an unknown option: exit code 2" [ $code = 2 ]
says err "--onyl"
without_torch --rounds 0
ok "no rounds: exit code 2" [ $code = 2 ]
without_torch --only conv4d
ok "a pattern that nothing matches: exit code 2" [ $code = 2 ]
says err "--only 'conv4d'"
without_torch --only '^add x=1 y=1 forward' --rounds 1 --seconds 0 --json
ok "without PyTorch: exit code 0" [ $code = 0 ]
says err "no PyTorch"
ok "one row" [ "$(wc -l < out)" = 1 ]
says out '{"case":"add x=1 y=1","direction":"forward","bound":"small","us":'
ok "no ratio" bash -c '! grep -q ratio out'

if ! find_python torch; then
    skip "next to PyTorch" "no Python here has it"
    finish
    exit
fi
# Every operation, in PyTorch too: each kind of small row, and a layout of each kind. A row may be behind (1): it is made.
rows='(^conv2d x=8x512x14x14 w=512x1x3x3 .* forward | small$|^step model=(lenet batch=4 |lstm ))'
ops "$python" --only "$rows" --rounds 1 --seconds 0 --json
ok "next to PyTorch: exit code 0 or 1" [ $code -le 1 ]
cp out rows.json
ok "every row was measured" [ "$(wc -l < out)" = "$("${YOKE%/*}/bench/operation_times" --list --json --only "$rows" | wc -l)" ]
cat > check.py <<'END'
import json, sys
rows = [json.loads(line) for line in open("rows.json")]
assert len(rows) > 40, len(rows)
behind = False
for row in rows:
    assert row["us"] > 0 and row["peer_us"] > 0 and row["format"] in ("nchw", "channels_last"), row
    assert abs(row["ratio"] - row["peer_us"] / row["us"]) < 1e-3 + 1e-3 * row["ratio"], row
    assert 0 < row["lowest"] <= row["ratio"] * 1.001 + 1e-3, row
    behind |= row["ratio"] < 1 or row["lowest"] < 0.95
assert int(sys.argv[1]) == behind, "exit code"
END
ok "every row has both times and their ratio; the exit code says whether one is behind" "$python" check.py $code
without_torch --from rows.json
ok "--from: the rows kept before, the same exit code" "$python" check.py $code
says out "geometric mean of"
without_torch --from rows.json --markdown
says out '| small | direction | yoke, us | PyTorch, us | ratio |'
says out '| `exp x=1000` | forward |'
finish
