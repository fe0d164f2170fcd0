#!/bin/bash
# unreadable.sh - `yoke train` on pictures of which one is damaged: --on-error.
here=$PWD
. tests/support/tap.bash

picture=$here/tests/fuzz/corpus/fuzz_image/rgb420.jpg
for split in train test; do
    for class in cat dog; do
        mkdir -p pets/$split/$class
        for i in 1 2 3 4; do cp "$picture" pets/$split/$class/$i.jpg; done
    done
done
head -c 300 "$picture" > pets/train/cat/3.jpg
run=(--model mlp --data image-folder:pets --epochs 2 --batch-size 3)
exits 1 "a damaged picture" train "${run[@]}"
says err "image-folder pets/train/cat/3.jpg bad JPEG Premature end"
exits 0 "--on-error skip" train "${run[@]}" --on-error skip
says err "notice 1 sample last epoch could not be read pets/train/cat/3.jpg Premature end next one"
says out "epoch 2/2"
head -c 100 "$picture" > pets/test/dog/4.jpg
exits 0 "another in the test, two processes" run -n 2 -- "$YOKE" train "${run[@]}" --on-error skip
says err "notice 1 sample test could not be read"
exits 2 "--on-error without a word of it" train "${run[@]}" --on-error stop
says err "--on-error unknown stop skip"
rm pets/train/*/*.jpg
for class in cat dog; do head -c 100 "$picture" > pets/train/$class/1.jpg; done
exits 1 "nothing that can be read" train "${run[@]}" --on-error skip
says err "pets/train/cat/1.jpg"
finish
