#!/bin/bash
# loss_plot.sh - the drawing of the loss: on a terminal that is wide enough, and nowhere else.
. tests/support/tap.bash

job=(train --epochs 2 --batch-size 300 --lr 0.05 --log log)
exits 0 "without a terminal" "${job[@]}"
ok "nothing is drawn" [ "$(grep -c '|' out)" = 0 ]
if ! script -qec true /dev/null > /dev/null 2>&1 < /dev/null; then
    skip "the drawing on a terminal" "there is no script(1) that makes one"
    finish
    exit
fi
# terminal COLUMNS TERM [ARGUMENT...]: the run on a terminal of that width; what it showed is in the file screen.
terminal()
{
    local columns=$1 term=$2
    shift 2
    TERM=$term script -qec "stty cols $columns && exec '$YOKE' ${job[*]} $* 2> err" /dev/null < /dev/null | tr -d '\r' > screen
    ok "$columns columns, $term: exit code 0" [ "${PIPESTATUS[0]}" = 0 ]
}
terminal 100 xterm
ok "ten rows are drawn" [ "$(grep -cE '^ *[0-9.]+ \|' screen)" = 10 ]
ok "64 columns of them, at most" awk '/\|/ && length($0) > 9 + 64 { bad = 1 } END { exit bad }' screen
says screen "steps 1 to 80, * training, o test"
ok "the loss falls from the left to the right" awk -F'|' '/\|/ { rows++; for (i = 1; i <= length($2); i++)
    if (substr($2, i, 1) == "*") { if (!first || i < first) { first = i; top = rows } if (i > last) { last = i; bottom = rows } } }
    END { exit !(top < bottom && last > 50) }' screen
ok "the two tests are in it" [ "$(grep '|' screen | tr -cd o | wc -c)" = 2 ]
ok "the highest row is the largest loss, or nearly" awk '/\|/ { exit !($1 > 1.5 && $1 < 3) }' screen
ok "the last line is the test accuracy" grep -q '^test accuracy' <<< "$(tail -n 1 screen)"
terminal 40 xterm
ok "a narrow terminal's drawing fits it" awk '/\|/ { n++ } /\|/ && length($0) >= 40 { bad = 1 } END { exit bad || n != 10 }' screen
terminal 20 xterm
ok "on a very narrow one there is none" [ "$(grep -c '|' screen)" = 0 ]
terminal 100 dumb
ok "on a dumb one there is none" [ "$(grep -c '|' screen)" = 0 ]
terminal 100 xterm --steps 5
ok "of a few steps there is none" [ "$(grep -c '|' screen)" = 0 ]
finish
