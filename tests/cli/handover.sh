#!/bin/bash
# handover.sh - a ResNet-18 in float64 trained half in PyTorch and half in yoke, and the other way round, is the run that
# PyTorch does alone. Four steps of eight images and three optimizers here; tests/parity/handover.py alone does twenty of
# sixteen and all optimizers. Skipped where Python has no torch.
here=$PWD
. tests/support/tap.bash

needs_built tests/parity/handover_test
program=$built
if ! find_python torch; then
    skip "half in PyTorch, half in yoke" "there is no Python with torch"
else
    # One thread each: on a busy machine the others of a BLAS wait for their turn, and spin.
    OMP_NUM_THREADS=1 "$python" -W ignore "$here/tests/parity/handover.py" --program "$program" --steps 4 --batch 8 \
        --kinds sgd,adamw,adagrad > out 2> err
    ok "half in PyTorch, half in yoke" [ $? = 0 ]
    sed 's/^/# /' out
fi
finish
