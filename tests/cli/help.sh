#!/bin/bash
# help.sh - `yoke help`, `yoke version`, the width of all help, and names of options as others call them.
. tests/support/tap.bash

exits 0 "yoke help" help
says out "train"
exits 0 "yoke version" version
ok "is that of --version" [ "$(cat out)" = "$("$YOKE" --version)" ]
exits 2 "version takes nothing" version now
for command in "" train predict generate export new run ps top stop explain monitor plot ckpt doctor bench data "data check" "bench step" "bench device" \
    "bench data-parallel" "bench checkpoint" "bench allreduce" "bench loader"; do
    # shellcheck disable=SC2086
    {
        exits 0 "$command --help" $command --help
        ok "$command: within 80 columns" awk 'length($0) > 80 { print "# " $0; bad = 1 } END { exit bad }' out
        cp out plain
    }
    [ -n "$command" ] && [ "$command" != bench ] && [ "$command" != data ] && [ "$command" != ckpt ] || continue
    # shellcheck disable=SC2086
    exits 0 "help $command" help $command
    ok "is $command --help" cmp -s plain out
done
for command in "ckpt info" "ckpt verify" "ckpt convert" "ckpt diff" "ckpt strip"; do
    # shellcheck disable=SC2086
    exits 0 "$command --help" $command --help
    ok "$command: within 80 columns" awk 'length($0) > 80 { bad = 1 } END { exit bad }' out
done
exits 2 "help of a verb that is misspelt" help trian
says err "unknown 'trian' 'train'"

# meant WORD OPTION: train does not know WORD, and names OPTION.
meant()
{
    exits 2 "--$1" train "--$1" 1
    says err "unknown --$1, did you mean --$2?"
}
meant learning-rate lr
meant learning_rate lr
meant learnin-rate lr
meant wd weight-decay
meant bs batch-size
meant bacth-size batch-size
meant num-workers workers
meant patience early-stop
meant img-size image-size
meant dataset data
meant pretrained init
exits 2 "as one word" train --learning-rate=0.1
says err "--learning-rate, did you mean --lr?"
finish
