#!/bin/bash
# monitor_textfile.sh - `yoke monitor --textfile`: the file is whole at any moment, as /metrics is, and goes with the monitor;
# what it takes; a folder that goes away and comes back.
. tests/support/tap.bash
pids=()
trap 'kill "${pids[@]}" 2> /dev/null; wait; rm -rf "$work"' EXIT
export YOKE_RUN_DIR=$work/runs

exits 2 "a name that node_exporter does not read" monitor --textfile yoke.txt
says err "--textfile yoke.txt .prom"
exits 2 "passwords for nobody" monitor --textfile yoke.prom --web-config-file web.yml
says err "--textfile --web-config-file"
exits 2 "without end" monitor --textfile yoke.prom -c 0
says err "--collect-interval 0 100"
exits 2 "once, and served" monitor --once
says err "--once --textfile"
exits 1 "a folder that is not there" monitor --textfile none/yoke.prom --once
says err "none/yoke.prom No such file"
mkdir folder
umask 077
exits 0 "once" monitor --textfile folder/yoke.prom --once
ok "nothing but the file" [ "$(ls -A folder)" = yoke.prom ]
ok "which others may read" [ "$(stat -c %a folder/yoke.prom)" = 644 ]
ok "has metrics" grep -q '^yoke_build_info{version="' folder/yoke.prom
if command -v promtool > /dev/null; then
    ok "promtool finds nothing to say" eval 'promtool check metrics < folder/yoke.prom > out 2> err && [ ! -s out ]'
else
    skip "promtool" "it is not there (Debian's package is prometheus)"
fi

"$YOKE" run -n 2 --job-id night -- "$YOKE" train --data glyphs --batch-size 32 --epochs 100000 --no-eval > job.out \
    2> job.err < /dev/null &
pids+=($!)
"$YOKE" monitor --textfile folder/yoke.prom -c 100 > monitor.out 2> monitor.err < /dev/null &
monitor=$!
pids+=($monitor)
# metric NAME LABELS: of the file.
metric() { sed -n "s/^$1{.*$2.*} //p" folder/yoke.prom; }
trains() { [ "$(metric yoke_rank_steps_total 'rank="1"')" -gt 2 ] 2> /dev/null; }
if [ -e /proc/self/stat ]; then
    ok "the job is in it" wait_until 60 trains
    waits() { awk "BEGIN { exit !($(metric yoke_rank_waiting_seconds_total 'rank="0"') > 0) }"; }
    ok "and how long its ranks have waited" wait_until 30 waits
    for phase in forward backward loading optimizer; do
        ok "and were in $phase" awk "BEGIN { exit !($(metric yoke_rank_phase_seconds_total "rank=\"0\",phase=\"$phase\"") > 0) }"
    done
    if command -v promtool > /dev/null; then
        ok "promtool has nothing to say of it" \
            eval 'promtool check metrics < folder/yoke.prom > out 2> err && [ ! -s out ]'
    fi
fi
# The rate of the processor's counter is measured at each look: what it is multiplied with must not seem to step back.
rises()
{
    local i now before=0
    for ((i = 0; i < 30; i++)); do
        now=$(metric yoke_rank_phase_seconds_total 'rank="0",phase="forward"')
        awk "BEGIN { exit !($now >= $before) }" || return 1
        before=$now
        pause 0.05
    done
}
if [ -e /proc/self/stat ]; then
    "$YOKE" ps --json > out
    stopped=($(grep -oE '"(supervisor_pid|pid)":[0-9]+,"(host|alive)"' out | grep -oE '[0-9]+'))
    kill -STOP "${stopped[@]}"
    ok "counters of a job that is stopped never step back" rises
    kill -CONT "${stopped[@]}"
fi
whole()
{
    local i text
    for ((i = 0; i < 300; i++)); do
        text=$(< folder/yoke.prom) || return 1
        [[ $text == '# HELP yoke_'*'yoke_monitor_left_out{kind="counters"} '[0-9]* ]] || return 1
    done
}
wait_until 20 holds monitor.out yoke.prom
says monitor.out "folder/yoke.prom every 0.1 s"
ok "whoever reads it has it whole" whole
mv folder gone
wait_until 20 holds monitor.err "No such file"
pause 0.5
ok "a folder that is gone is said once" [ "$(wc -l < monitor.err)" = 1 ]
mkdir folder
ok "it is written when it is back" wait_until 20 holds folder/yoke.prom yoke_build_info
kill $monitor
wait $monitor
ok "SIGTERM ends it" [ $? = 0 ]
ok "the file goes with it" [ -z "$(ls -A folder)" ]
finish
