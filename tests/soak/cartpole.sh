#!/bin/bash
# cartpole.sh - the agent of examples/rl_cartpole balances the pole: the mean reward of its last 100 episodes is above 475
# of 500 before its rounds are over. 1, 2 and 3 observers print the same, to the last bit of the weights. Takes 15 s of
# processor time each time.
set -u
yoke=${YOKE:-build/yoke} failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for observers in 1 2 3; do
    "$yoke" run --no-prefix -n $((observers + 1)) -- "${yoke%/*}/examples/rl_cartpole" > "$folder/$observers" || failed=1
    echo "$observers observers: $(tail -n 2 "$folder/$observers" | head -n 1)"
    awk '/^round/ { found = $8 == 100 && $NF > 475 } /^the weights/ { ended = 1 } END { exit !(found && ended) }' \
        "$folder/$observers" || { echo "the pole is not balanced" && failed=1; }
    cmp "$folder/1" "$folder/$observers" || failed=1
done
[ $failed = 0 ]
