#!/bin/bash
# top.sh - `yoke top`: what it shows of a job on a terminal that tmux makes is what `yoke ps --json` says; keys, widths
# and sizes; once without a terminal; what is missing.
. tests/support/tap.bash
needs_proc "processes are looked for there"
pids=()
servers=0
# screen COMMAND...: of the last server of tmux.
screen() { tmux -L "yoke-$$-$servers" "$@" 2> err; }
end_all()
{
    local pid
    for ((; servers; servers--)); do
        screen kill-server
    done
    for pid in "${pids[@]}"; do
        kill -CONT "$pid"
        kill -KILL "$pid"
    done
    wait
    rm -rf "$work"
} 2> /dev/null
trap end_all EXIT
export YOKE_RUN_DIR=$work/runs TMUX_TMPDIR=$work

# ---- what is wrong, and what need not be there
ok "no other verb has ncurses" eval '! ldd "$YOKE" | grep -q -e curses -e tinfo'
exits 2 "an order that is none" top --sort stp
says err "--sort 'stp' 'step'"
exits 2 "an interval that is none" top --interval 0
says err "--interval 0 0.1 3600"
exits 2 "an argument" top night
says err "unexpected 'night'"
exits 0 "without a run" top
says out "no run"
says out "CPU of $(getconf _NPROCESSORS_ONLN) cores"
mkdir wide
chmod 755 wide
YOKE_RUN_DIR=$PWD/wide exits 1 "a folder that others may enter" top
says err "$PWD/wide 755 700"

# ---- two jobs, one of whose names is hostile. They are stopped, so that nothing changes while they are looked at.
"$YOKE" run -n 2 --job-id night -- "$YOKE" train --data glyphs --batch-size 32 --epochs 100000 --no-eval \
    > job.out 2> job.err < /dev/null &
pids+=($!)
launcher=$!
wait_until 60 eval '[ -n "$(ls runs/*.json 2> /dev/null)" ]'
pause 0.01
"$YOKE" run -n 1 --job-id $'a "long" <name> \u202e of a job that goes on and on' \
    -- "$YOKE" train --data glyphs --epochs 100000 --no-eval > other.out 2> other.err < /dev/null &
pids+=($!)
trains()
{
    "$YOKE" ps --json > out
    [ "$(grep -oE '"steps":[0-9]+' out | awk -F: '$2 >= 3' | wc -l)" = 3 ]
}
ok "both train" wait_until 60 trains
ranks=($(grep -oE '"pid":[0-9]+,"alive":true' out | grep -oE '[0-9]+'))
supervisors=($(grep -oE '"supervisor_pid":[0-9]+' out | grep -oE '[0-9]+'))
pids+=("${ranks[@]}" "${supervisors[@]}")
kill -STOP "${supervisors[@]}" "${ranks[@]}"
pause 0.3
exits 0 "ps --json" ps --json
cp out ps.json
exits 0 "top --json" top --json
ok "the memory is the kernel's" grep -q "\"total_bytes\":$(($(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) * 1024))," out
# All but what goes on while a job stands still: ages, the processors of the machine, and what other tests leave.
still() { sed -E 's/"left_over":.*,"machine"/"machine"/; s/"phase_times_s":[^}]*.,//g; s/"[a-z_]+_(s|s_ago|percent)":[0-9.e+-]+,?//g; s/"(available|resident)_bytes":[0-9.]+//g' "$1"; }
ok "prints what ps --json prints" [ "$(still out)" = "$(still ps.json)" ]
# value NUMBER NAME: of the rank in ps.json, as text: the ranks of the older run come first.
value() { grep -oE "\"$2\":[^,}]+" ps.json | sed -n "$(($1 + 1))s/.*://p"; }
for rank in 0 1; do
    eval "step_$rank=$(value $rank steps) loss_$rank=$(printf %.6g "$(value $rank loss)")"
done
step=$((step_0 > step_1 ? step_0 : step_1)) # of a run the rank that is furthest
exits 0 "once" top
says out "2 runs, 3 ranks by rank"
says out "night $launcher 2/2 $step $loss_0"
says out 'a "long" <name>'
ok "nothing of a name turns the line" eval '! grep -q "$(printf "\u202e")" out'
for rank in 0 1; do
    eval "says out \"$rank \$step_$rank - \$loss_$rank ${ranks[$rank]}\""
done
ok "a line for each rank" [ "$(grep -cE '^ *[01] ' out)" = 3 ]

if ! command -v tmux > /dev/null; then
    skip "on a terminal" "there is no tmux"
    finish
    exit
fi
# ---- on a terminal
# begin COLUMNS ROWS "TERM [VARIABLE=VALUE]" ARGUMENTS...: yoke top on a terminal of that size; its exit code comes to the
# file code.
begin()
{
    rm -f code
    servers=$((servers + 1))
    screen -f /dev/null new-session -d -x "$1" -y "$2" \
        "TERM=$3 '$YOKE' top ${*:4} 2> top.err; echo \$? > code.part; stty -a > modes; mv code.part code; sleep 600"
}
# shows FACTS: soon.
shows() { ok "the terminal shows '$1'" wait_until 30 shown "$1"; }
shown()
{
    screen capture-pane -p > out
    said out "$1" 1
}
ends() { ok "$1" wait_until 30 holds code "$2"; }
begin 120 24 screen
shows "2 runs, 3 ranks"
shows "night $launcher 2/2 $step $loss_0"
shows "0 $step_0 $loss_0 ${ranks[0]}"
shows "1 $step_1 $loss_1 ${ranks[1]}"
shows "q quit"
ok "the ranks of one run" [ "$(grep -cE '^ *[01] ' out)" = 2 ]
screen send-keys Down
other_is_shown() { shown "0 ${ranks[2]}" && [ "$(grep -cE '^ *[01] ' out)" = 1 ]; }
ok "down selects the other" wait_until 30 other_is_shown
screen send-keys k
shows "1 $step_1 $loss_1 ${ranks[1]}"
screen send-keys s
shows "3 ranks by step"
screen resize-window -x 40 -y 8
narrow() { shown "RANK PHASE STEP LOSS" && ! grep -q STEPS/S out; }
ok "fewer columns on a narrow terminal" wait_until 30 narrow
says out "night 2/2 $step"
ok "no line is cut" eval '! grep -qE "^.{41}" out'
shows "q quit"
screen resize-window -x 3 -y 1
pause 0.1
screen resize-window -x 120 -y 24
shows "night $launcher 2/2 $step $loss_0"
screen send-keys q
ends "q ends it" 0
tr '\n' ' ' < modes > one_line
ok "the terminal is as it was" grep -qE '(^|[ ;])icanon.* echo( |;)' one_line
begin 80 12 screen --sort waiting
shows "by waiting"
screen send-keys C-c
ends "so does an interrupt" 0
begin 80 12 nothing-of-the-kind
ends "a terminal that ncurses does not know" 1
says top.err "'nothing-of-the-kind' TERM --once"
mkdir none
for library in libncursesw.so.6 libncurses.so.6; do
    echo 'no library' > none/$library
done
begin 80 12 "screen LD_LIBRARY_PATH=$PWD/none"
ends "without ncurses" 1
says top.err "libncursesw Debian libncursesw6 --once"
finish
