#!/bin/bash
# views_model.sh - the models of how the members of a run change (tests/elastic/views.pml), and of a register that outlives
# its keeper (keeper.pml), searched in all their states; and with each of their faults put in, which the search must find.
model=$(realpath "$(dirname "$0")/../elastic/views.pml")
. tests/support/tap.bash

# search NAME OPTIONS...: makes the search of the model with these options and runs it; what it says goes to the file out.
search()
{
    mkdir "$1" && cd "$1" || exit 1
    shift
    spin -a "$@" "$model" > out 2>&1 && gcc -O1 -w -DSAFETY -DCOLLAPSE -DMEMLIM=1000 -o pan pan.c >> out 2>&1 &&
        ./pan -m100000 > ../out 2>&1
    cd ..
}
# endless NAME OPTIONS...: likewise for executions that do not end.
endless()
{
    mkdir "$1" && cd "$1" || exit 1
    shift
    spin -a "$@" "$model" > out 2>&1 && gcc -O1 -w -DNP -DCOLLAPSE -DMEMLIM=1000 -o pan pan.c >> out 2>&1 &&
        ./pan -l -m100000 > ../out 2>&1
    cd ..
}
# All states were searched and hold: the search neither failed nor ended early.
all_hold()
{
    grep -q 'errors: 0$' out && ! grep -q 'Search not completed\|max search depth too small' out
}

if ! command -v spin > /dev/null; then
    skip "the model of views" "there is no spin (scripts/install-deps --tests)"
else
    search crashes -DCRASHES=3 -DCUTS=0
    ok "three processes that crash at any moment: all states hold" all_hold
    search cut -DCRASHES=1 -DCUTS=1
    ok "a network that is cut, or slow, and a process that crashes: all states hold" all_hold
    endless ends -DCRASHES=2 -DCUTS=0
    ok "when the faults are over the run ends: no execution goes on for ever" all_hold
    endless vain -DCRASHES=2 -DCUTS=0 -DNO_COMPARE
    ok "the search finds members that propose for ever" grep -q 'non-progress cycle (at' out
    for fault in NO_COMPARE GONE_EARLY; do
        search $fault -DCRASHES=2 -DCUTS=0 -D$fault
        ok "the model finds the fault $fault" grep -q 'assertion violated' out
    done
    for fault in NO_FENCE FROM_ANSWER; do
        search $fault -DCRASHES=0 -DCUTS=1 -D$fault
        ok "the model finds the fault $fault" grep -q 'assertion violated' out
    done
    search NO_OVER -DCRASHES=2 -DCUTS=0 -DNO_OVER
    ok "the model finds the fault NO_OVER" grep -q 'invalid end state' out

    model=${model%/*}/keeper.pml
    search keeper_crashes -DCRASHES=1 -DCUTS=0 -DBEATS=0
    ok "a launcher that crashes, and two that ask for one term: all states hold" all_hold
    search keeper_both -DCRASHES=1 -DCUTS=1 -DBEATS=0 -DVIEWS=1
    ok "a keeper that is cut off, and a launcher that crashes: all states hold" all_hold
    search keeper_cut -DCRASHES=0 -DCUTS=1 -DVIEWS=1 -DTERMS=2
    ok "a keeper that is cut off, beside beats that are late: all states hold" all_hold
    for fault in NO_COMPARE NO_NEWEST YIELD_KEPT; do
        search $fault.keeper -DCRASHES=1 -DCUTS=0 -DBEATS=0 -D$fault
        ok "the model of the keeper finds the fault $fault" grep -q 'assertion violated' out
    done
    for fault in NO_FENCE FROM_ANSWER PROMISE_FED; do
        search $fault.keeper -DCRASHES=0 -DCUTS=1 -DVIEWS=1 -D$fault
        ok "the model of the keeper finds the fault $fault" grep -q 'assertion violated' out
    done
fi
finish
