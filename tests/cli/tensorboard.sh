#!/bin/bash
# tensorboard.sh - `yoke train --tensorboard`: rank 0 alone writes a file, which TensorBoard's own reader reads up to where it
# is cut, at 1,000 places; a folder that cannot be had.
root=$PWD
. tests/support/tap.bash
exits 0 "a run with an event file" run -n 2 -- "$YOKE" train --steps 8 --threads 1 --tensorboard runs/one
ok "is one file" [ "$(ls runs/one/events.out.tfevents.* | wc -l)" = 1 ]
ok "which begins as such files do" grep -q brain.Event:2 runs/one/events.out.tfevents.*
for word in loss/train accuracy/test conv1.weight _hparams_/experiment; do
    ok "$word is in it" grep -q "$word" runs/one/events.out.tfevents.*
done
exits 1 "a folder that cannot be made" train --steps 1 --tensorboard /proc/none/runs
says err "summary_create: /proc/none/runs: No such file or directory"
exits 2 "an empty name" train --steps 1 --tensorboard ""
[ -z "${YOKE_TEST_TENSORBOARD:-}" ] || export PYTHONPATH=$YOKE_TEST_TENSORBOARD
if find_python tensorboard; then
    ok "TensorBoard's reader finds what was written" "$python" "$root/tests/cli/tensorboard_check.py" runs/one 1000
else
    skip "TensorBoard's reader finds what was written" "this Python has no tensorboard"
fi
finish
