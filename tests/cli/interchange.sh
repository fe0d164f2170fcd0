#!/bin/bash
# interchange.sh - weights to and from the Python package safetensors, under torchvision's names. Skipped where the
# package is not installed ($YOKE_PEER_PYTHON, python3 and /usr/bin/python3 are asked).
here=$PWD
. tests/support/tap.bash

if ! find_python "numpy safetensors.numpy"; then
    skip "interchange with Python" "there is no Python with numpy and safetensors"
    finish
    exit
fi
python_ok()
{
    local name=$1
    shift
    "$python" "$here/tests/cli/interchange.py" "$@" > out 2> err
    ok "$name" [ $? = 0 ]
}

for model in lenet resnet18; do
    exits 0 "$model: save" train --model $model --data glyphs --batch-size 8 --steps 1 --no-eval --save ours.safetensors
    python_ok "$model: Python reads the same numbers and writes the same bytes" copy $model ours.safetensors theirs.safetensors
    exits 0 "$model: load what Python wrote" train --model $model --epochs 0 --no-eval --init theirs.safetensors --save again.safetensors
    ok "$model: nothing changed on the way" cmp -s ours.safetensors again.safetensors
done
finish
