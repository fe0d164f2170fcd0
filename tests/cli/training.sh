#!/bin/bash
# training.sh - what runs give: the same bits for a seed whatever the workers and threads, the order of files, accuracy.
. tests/support/tap.bash

# losses FILE: the events of a log without what depends on the clock.
losses()
{
    sed -E 's/,"(samples_per_)?seconds?":[^}]*//' "$1"
}

base=(train --steps 40 --batch-size 32 --no-eval --seed 7)
exits 0 "the run to compare with" "${base[@]}" --workers 0 --threads 1 --save a.safetensors --log a.log
ok "40 steps are logged" [ "$(grep -c '"event":"step"' a.log)" = 40 ]
for variant in "--workers 1" "--workers 4" "--threads 2" "--workers 4 --threads 2"; do
    # shellcheck disable=SC2086
    exits 0 "$variant" "${base[@]}" $variant --save b.safetensors --log b.log
    ok "$variant: the same losses" [ "$(losses a.log)" = "$(losses b.log)" ]
    ok "$variant: the same weights" cmp -s a.safetensors b.safetensors
done
exits 0 "another seed" train --steps 40 --batch-size 32 --no-eval --seed 8 --log b.log
ok "another seed gives other losses" [ "$(losses a.log)" != "$(losses b.log)" ]
exits 0 "--no-shuffle" train --steps 40 --batch-size 32 --no-eval --seed 7 --no-shuffle --log b.log
ok "--no-shuffle gives other losses" [ "$(losses a.log)" != "$(losses b.log)" ]
exits 0 "--mixup" train --steps 40 --batch-size 32 --no-eval --seed 7 --mixup 0.4 --cutmix 1 --workers 0 --log b.log
ok "--mixup gives other losses" [ "$(losses a.log)" != "$(losses b.log)" ]
exits 0 "--mixup with workers" train --steps 40 --batch-size 32 --no-eval --seed 7 --mixup 0.4 --cutmix 1 --workers 2 --log c.log
ok "--mixup: the same losses" [ "$(losses b.log)" = "$(losses c.log)" ]
exits 0 "--rand-augment" train --steps 10 --batch-size 32 --no-eval --seed 7 --rand-augment 9 --log c.log
ok "--rand-augment gives other losses" [ "$(losses c.log | head -n 5)" != "$(losses a.log | head -n 5)" ]
exits 2 "--rand-augment with --no-augment" train --rand-augment 9 --no-augment
says err "--no-augment leaves out what --rand-augment asks for"

exits 0 "two epochs" train --epochs 2 --batch-size 600 --log c.log
ok "steps go on counting over epochs" grep -q '"event":"step","epoch":1,"step":21,' c.log
ok "one eval event per epoch" [ "$(grep -c '"event":"eval"' c.log)" = 2 ]
ok "the last line is the test accuracy" grep -Eq '^test accuracy [01]\.[0-9]{4}$' <<< "$(tail -n 1 out)"
accuracy=$(tail -n 1 out | cut -d' ' -f3)
ok "which is that of the last epoch" grep -q "test accuracy $accuracy " <<< "$(grep '^epoch 2/2' out)"
ok "and of the log" grep -q "\"accuracy\":$(echo "$accuracy" | sed 's/0*$//')" <<< "$(tail -n 1 c.log)"

exits 0 "--steps ends in the middle of the second epoch" train --steps 25 --batch-size 600 --log d.log
ok "after 25 steps" [ "$(grep -c '"event":"step"' d.log)" = 25 ]
ok "and tests" grep -q '"event":"eval","epoch":1' d.log
exits 0 "more steps than epochs have" train --steps 30 --epochs 1 --batch-size 600 --log d.log
ok "end with the epochs" [ "$(grep -c '"event":"step"' d.log)" = 20 ]

exits 0 "plain \`yoke train\`" train
ok "reaches 0.95" awk '/^test accuracy/ { found = $3 >= 0.95 } END { exit !found }' out
finish
