#!/bin/bash
# weights.sh - --init and --save: weights that fit, that need a cast, and that do not fit.
. tests/support/tap.bash

exits 0 "train and save" train --steps 20 --save a.safetensors
trained=$(tail -n 1 out)
exits 0 "--epochs 0 tests what was saved" train --init a.safetensors --epochs 0 --save b.safetensors
ok "with the same result" [ "$(tail -n 1 out)" = "$trained" ]
ok "and saves the same bytes" cmp -s a.safetensors b.safetensors
exits 0 "f32 weights into an f64 network" train --init a.safetensors --dtype f64 --epochs 0 --save c.safetensors
ok "which is twice as large" [ "$(stat -c %s c.safetensors)" -gt $(($(stat -c %s a.safetensors) * 19 / 10)) ]
exits 0 "f64 weights into an f32 network" train --init c.safetensors --epochs 0 --save d.safetensors
ok "lose nothing on the way there and back" cmp -s a.safetensors d.safetensors

exits 1 "weights of another network" train --model mlp --init a.safetensors
says err "--init a.safetensors: lenet mlp --model lenet"
ok "in one line" [ "$(wc -l < err)" = 1 ]
exits 1 "of other classes" train --num-classes 11 --init a.safetensors
says err "--init a.safetensors: 10 outputs 11"
# A file that does not tell what it is of: the names and shapes that do not fit are listed.
"$YOKE" ckpt strip a.safetensors bare.safetensors > out
exits 1 "weights of an unknown network" train --model mlp --init bare.safetensors
says err "yoke: --init: mlp 10 bare.safetensors: load_state_dict"
says err "unexpected conv1.bias conv1.weight"
says err "fc1.weight (120, 256) (128, 784)"
exits 1 "more classes than the file has" train --num-classes 11 --init bare.safetensors
says err "fc3.weight (10, 84) (11, 84)"
exits 1 "fewer names than the network has" train --model resnet18-cifar --init bare.safetensors
says err "missing: "
exits 1 "no such file" train --init none.safetensors
says err "none.safetensors No such file or directory"
head -c 1000 a.safetensors > short.safetensors
exits 1 "a truncated file" train --init short.safetensors
says err "short.safetensors: tensor '"
head -c 100 /dev/zero > zero.safetensors
exits 1 "not a safetensors file" train --init zero.safetensors
says err "zero.safetensors: not safetensors"
finish
