#!/bin/bash
# export.sh - yoke export: of what --save and --checkpoint wrote, of weights that tell nothing, of a published GPT-2; to
# stdout; bad input.
golden=$PWD/tests/golden
. tests/support/tap.bash
[ -z "${YOKE_TEST_ONNX:-}" ] || export PYTHONPATH=$YOKE_TEST_ONNX

exits 0 "a network is saved" train --model lenet --steps 1 --no-eval --batch-size 8 --save lenet.safetensors --checkpoint run
exits 0 "is exported" export lenet.safetensors -o lenet.onnx
ok "says nothing" [ ! -s out ]
exits 0 "from the folder of its checkpoints" export run --model lenet --output run.onnx
ok "is the same file" cmp -s run.onnx lenet.onnx
exits 0 "to stdout" export lenet.safetensors -o -
ok "is the same file" cmp -s out lenet.onnx
exits 0 "with an example of three" export lenet.safetensors --input 3,1,28,28 -o three.onnx
ok "is the same file, whose batch is free" cmp -s three.onnx lenet.onnx
printf '1,2,a\n3,4,b\n5,6,a\n7,9,b\n' > rows.csv
exits 0 "with weights in a second file" export lenet.safetensors --external-data -o outside.onnx
ok "is smaller by that" [ "$(stat -c %s outside.onnx)" -lt 10000 ] && ok "which is there" [ "$(stat -c %s outside.onnx.data)" -gt 150000 ]
exits 0 "of rows" train --data rows.csv --model mlp --steps 1 --no-eval --batch-size 2 --save rows.safetensors
exits 0 "are exported" export rows.safetensors -o rows.onnx --input 1,2
mkdir gpt2
cp "$golden/gpt2/model.safetensors" gpt2/
echo '{"n_head": 3}' > gpt2/config.json
exits 0 "a published GPT-2" export gpt2 --model gpt2 --input 1,5 -o gpt2.onnx
if find_python "onnx onnxruntime"; then
    ok "onnxruntime runs them with another batch" "$python" - << 'END'
import numpy, onnxruntime
same = [onnxruntime.InferenceSession(name).run(None, {"input": numpy.ones((4, 1, 28, 28), numpy.float32)})[0]
        for name in ("lenet.onnx", "outside.onnx")]
assert (same[0] == same[1]).all()
for name, shape, dtype, expected in (("lenet", (4, 1, 28, 28), numpy.float32, (4, 10)), ("rows", (4, 2), numpy.float32, (4, 2)),
                                     ("gpt2", (4, 5), numpy.int64, (4, 5, 37))):
    session = onnxruntime.InferenceSession(name + ".onnx")
    out = session.run(None, {"input": numpy.ones(shape, dtype)})[0]
    assert out.shape == expected and numpy.isfinite(out).all(), (name, out.shape)
END
else
    skip "onnxruntime runs them with another batch" "this Python has no onnx or no onnxruntime"
fi

wrong()
{
    exits "$1" "$2" "${@:3}"
    says err "$2"
}
wrong 2 "expected CHECKPOINT" export
wrong 2 "expected --output FILE" export lenet.safetensors
wrong 1 "nowhere" export nowhere -o x.onnx
wrong 1 "run does not tell --model" export run -o x.onnx
wrong 2 "--model 'lenett' did you mean lenet" export run --model lenett -o x.onnx
wrong 1 "--model mlp lenet.safetensors lenet" export lenet.safetensors --model mlp -o x.onnx
wrong 1 "--num-classes 7 10 outputs" export lenet.safetensors --num-classes 7 -o x.onnx
wrong 1 "do not fit mlp 1x28x28 run" export run --model mlp -o x.onnx
wrong 2 "--input 1,x expected 1,3,224,224" export lenet.safetensors --input 1,x -o x.onnx
wrong 2 "--input 0,1,28,28 above 0" export lenet.safetensors --input 0,1,28,28 -o x.onnx
wrong 1 "--input 1,28 images N,C,H,W" export lenet.safetensors --input 1,28 -o x.onnx
wrong 1 "--input 1,1,2,2 rows N,C" export rows.safetensors --input 1,1,2,2 -o x.onnx
wrong 1 "--input 1,500 gpt2 at most tokens" export gpt2 --model gpt2 --input 1,500 -o x.onnx
wrong 1 "--input 1 gpt2 tokens N,T" export gpt2 --model gpt2 --input 1 -o x.onnx
wrong 1 "nofolder/x.onnx" export lenet.safetensors -o nofolder/x.onnx
wrong 2 "--external-data stdout" export lenet.safetensors --external-data -o -
ok "nothing was left behind" [ ! -e x.onnx ]
finish
