#!/bin/bash
# onnx.sh - what yk_onnx_export writes of each network and layer of tests/onnx/onnx_export_test.c: onnx.checker takes it, and
# onnxruntime computes the same to 1e-5, with batches of 1 and 4.
root=$PWD
. tests/support/tap.bash
needs_built tests/onnx/onnx_export_test
program=$built
[ -z "${YOKE_TEST_ONNX:-}" ] || export PYTHONPATH=$YOKE_TEST_ONNX
if ! find_python "onnx onnxruntime"; then
    skip "onnxruntime computes what yoke does" "this Python has no onnx or no onnxruntime"
else
    mkdir files
    ok "files are written" eval 'YOKE_ONNX_FOLDER=$PWD/files "$program" > written'
    ok "onnxruntime computes what yoke does" "$python" "$root/tests/cli/onnx_check.py" files 60
fi
finish
