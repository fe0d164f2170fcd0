#!/bin/bash
# progress.sh - a bar on a terminal, plain lines elsewhere, results on stdout in both cases.
. tests/support/tap.bash

exits 0 "without a terminal" train --epochs 1
ok "no control characters" [ "$(cat out err | tr -d '\n' | LC_ALL=C tr -d '[:print:]' | wc -c)" = 0 ]
ok "one line for the epoch" grep -Eq '^epoch 1/1  train loss [0-9.]+  test loss [0-9.]+  test accuracy 0\.[0-9]{4}  [0-9]+ images/s$' out

if ! script -qec true /dev/null > /dev/null 2>&1 < /dev/null; then
    skip "the bar on a terminal" "there is no script(1) that makes one"
    finish
    exit
fi
# terminal COLUMNS TERM: a run of 200 steps, which end in the second epoch, on a terminal of that width. What it showed
# on stderr goes to the file screen, stdout to out.
terminal()
{
    TERM=$2 script -qec "stty cols $1 && exec '$YOKE' train --steps 200 > out" /dev/null > screen < /dev/null
    ok "on a terminal of $1 columns ($2): exit code 0" [ $? = 0 ]
}
terminal 100 xterm
ok "stdout has no bar" [ "$(grep -c '=>' out)" = 0 ]
ok "the last line on stdout is the test accuracy" grep -Eq '^test accuracy 0\.[0-9]{4}' <<< "$(tail -n 1 out)"
ok "the bar is drawn over itself" [ "$(tr -cd '\r' < screen | wc -c)" -gt 2 ]
ok "it shows epoch, step, loss, speed and time" \
    grep -Eq '\[=+>? *\]  epoch 1/2  step +[0-9]+/188  loss [0-9.]+ +[0-9]+ images/s  [0-9]+:[0-9]{2} left' <<< "$(tr '\r' '\n' < screen)"
ok "it ends cleared" [ "$(tail -c 4 screen)" = "$(printf '\r\033[K')" ]
terminal 24 xterm
widest=$(tr '\r' '\n' < screen | sed 's/\x1b\[K//g' | awk '{ if (length($0) > w) w = length($0) } END { print w }')
ok "a narrow terminal's lines stay below its width" [ "$widest" -le 23 ]
ok "and still say where the run is" grep -q 'epoch 1/2  step' screen
terminal 100 dumb
ok "a dumb terminal gets no bar" [ "$(grep -c '\[K' screen)" = 0 ]
finish
