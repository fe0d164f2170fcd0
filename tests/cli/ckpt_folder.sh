#!/bin/bash
# ckpt_folder.sh - `yoke ckpt` on training checkpoints and folders of them, in both directions to PyTorch's form; and
# `yoke train --init` with each format.
here=$PWD
. tests/support/tap.bash

train=(train --model lenet --data glyphs --batch-size 8 --no-eval --momentum 0.9 --schedule step --warmup 2)
exits 0 "a run" "${train[@]}" --steps 8 --checkpoint run --save-every 2 --keep 4
rm -r run/step-00000008 # as one that was stopped
last=run/step-00000006

exits 0 "info" ckpt info $last
says out "$last training 20 tensors 88852 elements 355408 bytes"
ok "a weight by its full name" grep -qE '^model\.fc1\.weight +float32 \(120, 256\)$' out
ok "state under its number" grep -qE '^optimizer\.state\.0\.momentum_buffer +float32 ' out
ok "and the number's name" grep -qE '^optimizer\.param_groups\.0\.param_names\.0 +"conv1.weight"$' out
exits 0 "info --json of the folder of all" ckpt info --json run
says out '"format":"training"'
says out '"checkpoint":"run/step-00000006","broken":0'
exits 0 "verify" ckpt verify $last
says out "$last valid training 20 tensors"
exits 0 "verify the folder of all" ckpt verify run
says out "run/step-00000006 valid run"
exits 1 "diff of two steps" ckpt diff run/step-00000002 $last
says out "step values 2 6"
ok "a weight differs" grep -qE '^model\.conv1\.weight: values differ by up to' out
exits 1 "diff --json" ckpt diff --json run/step-00000002 $last
says out '"only_a":[],"only_b":[]'

# There and back: the same bytes.
for ending in .pt .safetensors; do
    exits 0 "to $ending" ckpt convert $last there$ending
    exits 0 "and back" ckpt convert there$ending back
    exits 0 "nothing differs" ckpt diff $last back
    ok "and the folder has the same bytes" diff -r $last back
    rm -r back
done
exits 0 "convert the newest of a folder" ckpt convert --json run newest.pt
says out '"notice":null'
exits 0 "it is the last one" ckpt diff newest.pt $last
exits 0 "strip" ckpt strip run weights.safetensors
exits 0 "strip to a folder" ckpt strip $last weights
exits 0 "verify of weights alone" ckpt verify weights
says out "valid training 10 tensors"

# The run goes on from the converted checkpoint to the bit.
exits 1 "a folder in one that is not there" ckpt convert there.pt converted/step-00000006
mkdir converted
exits 0 "a folder from the .pt" ckpt convert there.pt converted/step-00000006
exits 0 "goes on" "${train[@]}" --steps 8 --checkpoint converted --save-every 2 --resume
exits 0 "as the run itself does" "${train[@]}" --steps 8 --checkpoint run --save-every 2 --resume
ok "to the bit" diff -r run/step-00000008 converted/step-00000008

# Damage.
cp -r run broken
printf 'x' | dd of=broken/step-00000008/model.safetensors bs=1 seek=5000 conv=notrunc 2> /dev/null
exits 1 "verify of a damaged one" ckpt verify broken/step-00000008
says err "model.safetensors checksum"
exits 1 "with --json" ckpt verify --json broken/step-00000008
says out '"valid":false'
exits 0 "the folder of all falls back" ckpt verify broken
says out "broken/step-00000006 valid"
says err "1 newer one is broken"
rm broken/step-00000006/optimizer.safetensors broken/step-00000004/state.json
exits 1 "none is left" ckpt verify broken
says err "no valid checkpoint"
mkdir empty
exits 1 "a folder without any" ckpt info empty
says err "empty: no checkpoint"

# Weights from every format; "module." in front of names on either side is understood.
for from in there.pt there.safetensors weights.safetensors weights $last run; do
    exits 0 "--init $from" train --model lenet --data glyphs --epochs 0 --no-eval --init $from --save init.safetensors
    [ -e first.safetensors ] || cp init.safetensors first.safetensors
done
exits 1 "the weights of the last are of another step" ckpt diff init.safetensors first.safetensors
exits 0 "weights to compare" ckpt strip there.pt bare.safetensors
exits 0 "they are these weights" ckpt diff first.safetensors bare.safetensors
exits 1 "another model" train --model resnet18 --data glyphs --epochs 0 --no-eval --init there.pt
says err "there.pt load_state_dict ResNet missing"

if ! find_python torch; then
    skip "PyTorch goes on" "there is no Python with torch"
    finish
    exit
fi
python_ok()
{
    local name=$1
    shift
    "$python" "$here/tests/checkpoint/torch_goes_on.py" "$@" > out 2> err
    ok "$name" [ $? = 0 ]
}
python_ok "PyTorch loads model, optimizer and schedule, and goes on" go there.pt on.pt
exits 0 "what it saved becomes a training checkpoint" ckpt convert on.pt on
exits 0 "which is valid" ckpt verify on
exits 0 "and has everything" ckpt info on
ok "the step PyTorch came to" grep -qE '^step +9$' out
ok "what PyTorch alone keeps" grep -qE '^best +-inf$' out
ok "its schedule" grep -qE '^yoke\.schedule\.time +9$' out
ok "the groups" grep -qE '^optimizer\.param_groups\.0\.lr ' out
exits 0 "back to .pt" ckpt convert on on2.pt
python_ok "PyTorch finds the same, and writes DataParallel's names" same on.pt on2.pt wrapped.pt
exits 0 "--init with module. in front" train --model lenet --data glyphs --epochs 0 --no-eval --init wrapped.pt --save a.safetensors
exits 0 "--init without" train --model lenet --data glyphs --epochs 0 --no-eval --init on.pt --save b.safetensors
ok "are the same weights" cmp -s a.safetensors b.safetensors
finish
