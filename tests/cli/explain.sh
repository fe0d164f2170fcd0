#!/bin/bash
# explain.sh - `yoke explain`: the rank that a running job waits for, the one that ended a job that failed, by the pages
# that were saved; and what is no job.
. tests/support/tap.bash
needs_proc "processes are looked for there"
export TMPDIR=$PWD YOKE_RUN_DIR=$PWD/runs

exits 2 "nothing to explain" explain
says err "expected job folder file yoke ps"
exits 2 "no such job" explain nights
says err "nights no file folder run yoke ps"
mkdir empty
exits 2 "a folder without pages" explain empty
says err "no page in empty --log-dir DIR/rank_N/page.json"
echo '{"rank":0,' > broken
exits 1 "a file that is none" explain broken
says err "broken:1: no page of a rank"
echo '{"a":1}' > other
exits 1 "JSON that is no page" explain other
says err "no page of a rank"

# ---- a job that goes on: rank 1 is stopped, and the others wait for it
"$YOKE" run -n 3 --job-id night -- "$YOKE" train --data glyphs --epochs 100000 --no-eval > job.out 2> job.err < /dev/null &
launcher=$!
trap 'kill -CONT ${ranks[1]:-$launcher} 2> /dev/null; kill $launcher 2> /dev/null; wait; rm -rf "$work"' EXIT
ranks=()
all_ranks()
{
    run ps --json
    ranks=($(grep -oE '"pid":[0-9]+,"alive":true' out | grep -oE '[0-9]+'))
    [ ${#ranks[@]} = 3 ] && [ "$(grep -oE '"samples":[0-9]+' out | wc -l)" = 3 ] # all have taken a step
}
ok "three ranks run" wait_until 60 all_ranks
pause 0.3
kill -STOP "${ranks[1]}"
waited_for()
{
    run explain night
    [ $code = 0 ] && grep -qE "^rank 1 (has not come to|does not go on in) .* of group 'world', .*is stopped" out
}
ok "the rank that the others wait for" wait_until 20 waited_for
says out "rank 1 process pid ${ranks[1]} is stopped"
ok "a line for each rank" [ "$(grep -c '^  rank [0-2] ' out)" = 3 ]
exits 0 "by the launcher's pid" explain $launcher
says out "rank 1 group 'world' pid ${ranks[1]} is stopped"
kill -CONT "${ranks[1]}"

# ---- it fails, and its pages are saved
kill -KILL "${ranks[2]}"
wait $launcher
ok "the job fails" [ $? = 137 ]
file=$(ls yoke-pages-*.json)
exits 0 "the saved file" explain "$file"
ok "a sentence, and a line for each rank" [ "$(wc -l < out)" = 4 ]
says out "rank 2 pid ${ranks[2]}"
cp "$file" copy
exits 0 "two files" explain "$file" copy
rm -f "$file"

# ---- a job that --hang-timeout ends: rank 0 is stopped. A machine that is busier than it was when the test began may let
# the time pass before that, with ranks that are on their way to their first step: then nothing is stopped, and once more.
for hang in 2 6 18; do
    rm -rf log logs stopped
    "$YOKE" run -n 2 --log-dir logs --hang-timeout "$(patience $hang)" --job-id slow -- bash -c \
        '[ $RANK != 0 ] || { until grep -q step log 2> /dev/null; do sleep 0.1; done; kill -STOP $$ && echo > stopped; } &
        exec "$0" train --data glyphs --epochs 100000 --no-eval --log log' "$YOKE" > job.out 2> job.err < /dev/null
    ended=$?
    [ ! -e stopped ] || break
done
ok "a job that hangs is ended" [ $ended != 0 -a -e stopped ]
exits 0 "the folder of its logs" explain logs
ok "the rank is named, in an operation or before it" grep -qE "^rank 0 (has not come to|does not go on in) .* of group 'world'.*[:;] its process \(pid [0-9]+\) is stopped" out
finish
