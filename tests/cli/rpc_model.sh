#!/bin/bash
# rpc_model.sh - the model of how references are counted (tests/rpc/references.pml), searched in all its states; and with each
# of its faults put in, which the search must find.
model=$(realpath "$(dirname "$0")/../rpc/references.pml")
. tests/support/tap.bash

# search NAME OPTIONS...: makes the search of the model with these options and runs it; what it says goes to the file out.
search()
{
    mkdir "$1" && cd "$1" || exit 1
    shift
    spin -a "$@" "$model" > out 2>&1 && gcc -O1 -DSAFETY -DCOLLAPSE -DMEMLIM=1000 -o pan pan.c >> out 2>&1 &&
        ./pan -m100000 > ../out 2>&1
    cd ..
}
# All states were searched and hold: the search neither failed nor ended early.
all_hold()
{
    grep -q 'errors: 0$' out && ! grep -q 'Search not completed\|max search depth too small' out
}

if ! command -v spin > /dev/null; then
    skip "the model of references" "there is no spin (scripts/install-deps --tests)"
else
    search whole
    ok "all states of the model hold" all_hold
    for fault in TAKEN_TOO_EARLY DROP_WHILE_PINNED PINS_STAY ENTRIES_STAY; do
        search $fault -D$fault
        ok "the model finds the fault $fault" grep -q 'assertion violated' out
    done
fi
finish
