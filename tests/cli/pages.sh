#!/bin/bash
# pages.sh - what each rank was doing, saved by `yoke run` when a job fails: that of a rank that was killed too.
. tests/support/tap.bash
needs_proc "processes are looked for there"
export TMPDIR=$PWD

# fails ARGUMENTS...: a job of two ranks that train, of which rank 1 is killed once the first step has been logged.
fails()
{
    rm -f log
    run run "$@" -n 2 -- bash -c '[ $RANK = 0 ] || { until grep -q step log 2> /dev/null; do sleep 0.1; done; kill -9 $$; } &
        exec "$0" train --data glyphs --epochs 100000 --no-eval --log log' "$YOKE"
}

fails --log-dir logs --error-file report
ok "a rank is killed: exit code 137" [ $code = 137 ]
says err "what each rank of this node was doing logs/rank_*/page.json"
ok "the report names the pages" grep -q '"pages":"logs/rank_\*/page.json"' report
for rank in 0 1; do
    page=logs/rank_$rank/page.json
    ok "rank $rank: its page is there" grep -qE '^\{"version":5,"rank":'$rank',"world_size":2,"local_rank":'$rank',.*"incarnation":0,"pid":[0-9]+,"phase":\{"name":"' $page
    ok "rank $rank: the last operations are in it" grep -qE '"last":\[.*"what":"collective","kind":"all_reduce","number":[0-9]+,"of":"world"' $page
done
ok "rank 0 saw its group fail" grep -qE '"failed_s_ago":[0-9.]+' logs/rank_0/page.json
ok "no other file is left" [ -z "$(ls yoke-pages-* 2> /dev/null)" ]

fails
says err "what each rank of this node was doing yoke-pages- .json"
file=$(ls yoke-pages-*.json)
ok "one file with a line for each rank" [ "$(grep -c '^{"version":5,"rank":[01],' "$file")" = 2 ]
ok "that its user alone may read" [ "$(stat -c %a "$file")" = 600 ]
if find_python ""; then
    ok "each is JSON" "$python" -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$file"
else
    skip "each is JSON" "there is no Python"
fi
rm -f "$file"

exits 3 "a program that does not use yoke" run -n 2 bash -c 'exit 3'
ok "leaves no page" [ -z "$(ls yoke-pages-* 2> /dev/null)" ]
exits 0 "a job that ends well" run -n 2 -- "$YOKE" bench allreduce --seconds 0.05 --bytes 4K
ok "leaves none" [ -z "$(ls yoke-pages-* 2> /dev/null)" ]
finish
