#!/bin/bash
# recipe_seeds.sh - plain `yoke train` ends above 0.99 for each of the seeds 0 to 19, or 0 to $1 - 1.
set -u
yoke=${YOKE:-build/yoke} failed=0
for ((seed = 0; seed < ${1:-20}; seed++)); do
    accuracy=$("$yoke" train --seed $seed 2> /dev/null | sed -n 's/^test accuracy //p')
    echo "seed $seed: ${accuracy:-no accuracy}"
    awk -v accuracy="${accuracy:-0}" 'BEGIN { exit !(accuracy > 0.99) }' || failed=$((failed + 1))
done
echo "$failed seeds at 0.99 or below"
[ $failed = 0 ]
