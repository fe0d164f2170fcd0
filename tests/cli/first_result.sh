#!/bin/bash
# first_result.sh - what `yoke train` comes to and says of it: the recipe for glyphs, the best test, an early end, a run
# that stays at chance, the drawing of the loss, and what the log has of an epoch.
. tests/support/tap.bash

# ---- the recipe ----
exits 0 "plain \`yoke train\`" train --log plain.log
says out "recipe for glyphs rate 0.1 cosine"
ok "ends above 0.99" awk '/^test accuracy/ { found = $3 > 0.99 } END { exit !found }' out
ok "and with its lowest test loss, or nearly" awk '/test loss/ { for (i = 1; i < NF; i++) if ($i == "loss" && $(i - 1) == "test") last = $(i + 1)
    least = least == "" || last < least ? last : least } END { exit !(last < 1.2 * least) }' out
says out "top-5 accuracy "
ok "an epoch is in the log as on the screen" [ "$(grep -c '"event":"epoch"' plain.log)" = 8 ]
last=$(grep '"event":"epoch"' plain.log | tail -n 1)
for key in epoch step loss test_loss accuracy top5 lr samples_per_second seconds; do
    ok "with its $key" grep -q "\"$key\":[0-9]" <<< "$last"
done
accuracy=$(tail -n 1 out | cut -d' ' -f3 | sed 's/0*$//')
ok "and the accuracy of the last line" grep -q "\"accuracy\":$accuracy[,0-9]" <<< "$last"
# Where a number is given, or the run can be made longer, nothing is set.
for given in "--lr 0.05" "--schedule none" "--batch-size 64" "--momentum 0.9" "--weight-decay 0" "--optimizer adam" \
    "--warmup 1" "--steps 3" "--epochs 1" "--checkpoint run"; do
    # shellcheck disable=SC2086
    exits 0 "$given" train --steps 2 --epochs 3 --no-eval $given
    ok "$given: no recipe" [ "$(grep -c recipe out)" = 0 ]
done

# ---- the best test, and an early end ----
exits 0 "a run whose tests differ" train --model mlp --epochs 3 --lr 0.05 --batch-size 128 --save-best best.safetensors --save last.safetensors
best=$(sed -n 's/.*test accuracy \([0-9.]*\)  .*/\1/p' out | sort -n | tail -n 1)
says out "saved best.safetensors best tests: accuracy $best after epoch"
exits 0 "what was saved" train --model mlp --epochs 0 --init best.safetensors
ok "is the best" [ "$(tail -n 1 out)" = "test accuracy $best" ]
exits 0 "--early-stop" train --model mlp --epochs 9 --lr 1e-12 --early-stop 2 --batch-size 600 --checkpoint stopped
says out "stopped early: 2 epochs best accuracy"
ok "ends before its epochs" [ "$(grep -c '^epoch ' out)" -lt 9 ]
ok "and saves where it is" [ -d "stopped/$(printf step-%08d $(($(grep -c '^epoch ' out) * 20)))" ]
exits 0 "it goes on from there" train --model mlp --epochs 9 --lr 1e-12 --early-stop 2 --batch-size 600 --checkpoint stopped --resume --log again.log
ok "the log has no rate of an epoch without a step" [ "$(grep -c '"event":"epoch".*"lr":1e-12,"seconds":' again.log)" = 1 ]
says out "stopped early: 2 epochs"
ok "and knows the best test" [ "$(grep -c '^epoch ' out)" = 1 ]

# ---- chance ----
exits 0 "a rate that is too low" train --epochs 1 --lr 1e-9
says err "yoke: notice: nothing accuracy chance (0.1000 with 10 classes)"
says err "--lr 1e-10 --lr 5e-09"
says err "Labels"
ok "the last line is the accuracy all the same" grep -q '^test accuracy 0\.[01]' <<< "$(tail -n 1 out)"
exits 0 "a rate that is too high" train --model mlp --epochs 1 --lr 8 --momentum 0.99 --allow-nan
says err "rate too high --lr 0.8"
exits 0 "a run that learns" train --model mlp --epochs 1
ok "says nothing of the kind" [ "$(grep -c notice err)" = 0 ]
exits 0 "one that is too short to tell" train --steps 20 --lr 1e-9
ok "neither" [ "$(grep -c notice err)" = 0 ]

# ---- optimizers ----
for optimizer in adam adamw; do
    exits 0 "--optimizer $optimizer" train --epochs 1 --optimizer $optimizer --log $optimizer.log
    ok "$optimizer learns, at a rate of its own" awk '/^test accuracy/ { found = $3 > 0.8 } END { exit !found }' out
    ok "which is 0.001" grep -q '"lr":0.001,' $optimizer.log
done
for optimizer in rmsprop:0.01 adagrad:0.01 adadelta:1 adamax:0.002 nadam:0.002 radam:0.001; do
    exits 0 "--optimizer ${optimizer%:*}" train --model mlp --steps 3 --no-eval --optimizer ${optimizer%:*} --log ${optimizer%:*}.log
    ok "its rate is PyTorch's" grep -q "\"lr\":${optimizer#*:}," ${optimizer%:*}.log
done
exits 0 "adam, to go on" train --model mlp --steps 3 --optimizer adam --batch-size 32 --no-eval --checkpoint adams
exits 1 "with another optimizer" train --model mlp --steps 6 --optimizer sgd --lr 0.001 --batch-size 32 --no-eval --checkpoint adams --resume
says err "adams was saved with the optimizer"

# ---- two processes ----
exits 0 "two processes" run --no-prefix -n 2 -- "$YOKE" train --model mlp --epochs 2 --lr 0.05 --confusion \
    --save-best two.safetensors --early-stop 5
says out "confusion rows true columns"
ok "all 2000 images are counted, once" awk '/^[0-9] / { for (i = 2; i <= 11; i++) n += $i } END { exit n != 2000 }' out
ok "each accuracy is said once" [ "$(grep -c '^test accuracy' out)" = 1 ]
finish
