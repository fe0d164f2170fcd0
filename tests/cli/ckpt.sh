#!/bin/bash
# ckpt.sh - `yoke ckpt`: command lines, and files made by the program itself, converted there and back.
here=$PWD
. tests/support/tap.bash

exits 2 "no verb" ckpt
says err "usage yoke ckpt VERB"
exits 0 "--help" ckpt --help
says out "convert"
exits 2 "misspelt verb" ckpt inof
says err "unknown 'inof' 'info'"
exits 2 "no path" ckpt info
says err "ckpt info PATH 0"
exits 2 "an unknown ending" ckpt convert a.pt b.bin
says err "b.bin format .pt .pth .safetensors"
exits 2 "an unknown option" ckpt info --jsn a.pt
says err "unknown --jsn --json"
for verb in info verify convert diff strip; do
    exits 0 "$verb --help" ckpt $verb --help
    says out "usage yoke ckpt $verb"
done
exits 2 "an empty path" ckpt info ""
says err "ckpt info PATH path 1 empty"
exits 2 "one path of two" ckpt diff a.pt
says err "ckpt diff A B 1 argument"
exits 2 "too many paths" ckpt verify a.pt b.pt
says err "ckpt verify PATH 2 arguments"
exits 1 "a device" ckpt info /dev/zero
says err "/dev/zero regular file"
: > empty.pt
exits 1 "an empty file" ckpt info empty.pt
says err "empty.pt torch.save 0 bytes"
exits 1 "no such file" ckpt verify none.pt
says err "none.pt No such file or directory"

# A nested state, as it stands in a .pt: {"model": ..., "optimizer": ..., "epoch": 70000, ...}.
for name in zip_1 zip_2 legacy_1 legacy_2 plain_zip plain_legacy deflated; do
    cp "$here/tests/checkpoint/golden/$name.pt" "pt_$name.pt"
done
exits 0 "info" ckpt info pt_zip_2.pt
says out "pt_zip_2.pt 17 tensors 46 elements 169 bytes"
ok "a tensor by its full name" grep -qE '^model\.f32 +float32 \(2, 3\)$' out
ok "a number of the optimizer" grep -qE '^optimizer\.param_groups\.0\.betas\.1 +0\.999' out
ok "a text" grep -qE '^name +"na.+ve"$' out
exits 0 "info --json, behind the path" ckpt info pt_zip_2.pt --json
says out '{"dtype":"bfloat16","shape":[2],"name":"model.bf16"}'
says out '{"kind":"int","value":70000,"name":"epoch"}'
for name in pt_zip_1 pt_zip_2 pt_legacy_1 pt_legacy_2; do
    exits 0 "$name: verify" ckpt verify $name.pt
    says out "$name.pt valid 17 tensors 169 bytes"
    exits 0 "$name: nothing differs from the others" ckpt diff $name.pt pt_zip_2.pt
    exits 0 "$name: to safetensors" ckpt convert $name.pt a.safetensors
    says err "notice a.safetensors 2 tensors"
    exits 0 "$name: and back" ckpt convert a.safetensors b.pth
    exits 0 "$name: nothing is lost" ckpt diff $name.pt b.pth
    exits 0 "$name: rewritten" ckpt convert $name.pt c.pt
    exits 0 "$name: nothing is lost" ckpt diff --json $name.pt c.pt
    says out '"differences":0'
done

# What yoke has no kind for is left out, and said.
exits 0 "info of a file of which something is left out" ckpt info pt_plain_zip.pt
says out "pt_plain_zip.pt 4 tensors 12 elements"
ok "lists what is read" grep -qE '^model\.fc\.weight +float32 \(2, 3\)$' out
ok "lists what is left out" grep -qx 'model.i8  left out: int8 tensor of shape (2, 3)' out
ok "with its key" grep -qx 'keys.(0, 1)  left out: what is under a key that is a tuple' out
exits 0 "as JSON" ckpt info --json pt_plain_zip.pt
says out '{"name":"model.f8","what":"float8_e4m3fn tensor of shape (2, 3)"}'
exits 0 "verify" ckpt verify pt_plain_zip.pt
says out "valid 4 tensors"
says err "notice pt_plain_zip.pt 24 values left out model.fc.bias complex64 ckpt info"
exits 0 "convert" ckpt convert pt_plain_zip.pt plain.safetensors
says err "notice pt_plain_zip.pt 24 values left out"
exits 0 "what was converted" ckpt info plain.safetensors
says out "4 tensors"
ok "has nothing that is left out" [ "$(grep -c "left out" out)" = 0 ]
exits 0 "strip" ckpt strip pt_plain_zip.pt plain.pt
says err "notice pt_plain_zip.pt left out"
exits 1 "what is left out cannot be compared" ckpt diff pt_plain_zip.pt pt_plain_zip.pt
says out "model.i8 left out, not compared"
exits 1 "--init of it" train --model mlp --init pt_plain_zip.pt
says err "pt_plain_zip.pt load_state_dict MLP"
exits 0 "deflated members" ckpt verify pt_deflated.pt

exits 0 "strip" ckpt strip pt_zip_1.pt weights.safetensors
exits 0 "what is left" ckpt info weights.safetensors
says out "15 tensors"
ok "has the model's own names" grep -qE '^every\.second ' out
ok "and no optimizer" [ "$(grep -c exp_avg out)" = 0 ]
mkdir mine
echo precious > mine/notes.txt
exits 1 "a folder of somebody's own as target" ckpt convert weights.safetensors mine/
says err "mine 'notes.txt' checkpoint"
ok "keeps its files" [ "$(ls mine)" = notes.txt ]
exits 0 "strip what is stripped" ckpt strip weights.safetensors again.pt
exits 0 "changes nothing" ckpt diff weights.safetensors again.pt
exits 1 "diff finds what is missing" ckpt diff pt_zip_1.pt weights.safetensors
says out "epoch pt_zip_1.pt"
says out "f64 weights.safetensors"
exits 1 "and says so in JSON" ckpt diff --json pt_zip_1.pt weights.safetensors
says out '"only_b":["i64","f64"'

# One byte of the 16 of 0.25, 0.75 in exp_avg: 0.25 is 00 00 80 3e.
LC_ALL=C sed 's/\x00\x00\x80\x3e\x00\x00\x40\x3f/\x00\x00\x00\x3f\x00\x00\x40\x3f/' pt_legacy_1.pt > other.pt
exits 1 "another value" ckpt diff pt_legacy_1.pt other.pt
says out "optimizer.state.0.exp_avg values 0.25"
says out "1 different"
LC_ALL=C sed 's/\x00\x00\x80\x3e\x00\x00\x40\x3f/\x00\x00\x00\x3f\x00\x00\x40\x3f/' pt_zip_1.pt > bad.pt
exits 1 "a changed byte in a zip file" ckpt verify bad.pt
says err "bad.pt: zip: member 'archive/data/"
says err "'archive/data/ checksum"
for verb in "verify" "info" "diff pt_zip_1.pt"; do
    # shellcheck disable=SC2086
    exits 1 "$verb --json" ckpt $verb --json bad.pt
    says out '"valid":false'
done
head -c 3000 pt_zip_1.pt > short.pt
exits 1 "a truncated file" ckpt verify short.pt
says err "short.pt zip end record"
printf '\200\002cposix\nsystem\nX\004\000\000\000true\205R.' > evil.pt
exits 1 "a pickle alone" ckpt info evil.pt
says err "evil.pt pickle torch.save"
mkfifo pipe.pt pipe.safetensors
for name in pipe.pt pipe.safetensors; do
    exits 1 "a pipe" ckpt verify $name
    says err "$name regular file"
done
exits 1 "a failed conversion" ckpt convert bad.pt kept.pt
ok "leaves nothing behind" [ ! -e kept.pt ]

# What a stranger's safetensors file says of nested state: a dtype's name would become an instruction of a pickle.
# described TEXT [TENSORS]: a file whose state has this description, with these entries of tensors without elements.
described()
{
    local header
    header="{${2-}\"__metadata__\":{\"yoke.state\":\"$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')\"}}"
    # shellcheck disable=SC2059
    printf "$(printf '\\x%02x\\x%02x' $((${#header} % 256)) $((${#header} / 256)))\0\0\0\0\0\0%s" "$header" > described.safetensors
}
described '[{"dtype": "torch.int8"}, {"size": [2, 3]}, {"device": "cuda:1"}]'
exits 0 "a description of Python's types" ckpt info described.safetensors
says out '2 "cuda:1"'
described '{"dtype": "torch.float16\nq"}'
exits 1 "a dtype that is none" ckpt convert described.safetensors evil.pt
says err "described.safetensors description dtype"
described '[{"tensor": "x"}]'
exits 1 "a tensor that is none" ckpt info described.safetensors
says err "described.safetensors tensor \"x\" 0"
described '[{"tensor": "x"}, {"tensor": "x"}]' '"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
exits 1 "a tensor twice" ckpt info described.safetensors
says err "described.safetensors tensor 'x' twice"
described '[]' '"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
exits 1 "a tensor that is left out" ckpt info described.safetensors
says err "described.safetensors tensor 'x' not"
described '{"size": ["x"]}'
exits 1 "a size that is none" ckpt convert described.safetensors evil.pt
says err "described.safetensors size integers"

# Of safetensors, too, what yoke has no dtype for is left out, and said.
header='{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}'
# shellcheck disable=SC2059
printf "$(printf '\\x%02x' ${#header})\0\0\0\0\0\0\0%sxyz" "$header" > foreign.safetensors
exits 0 "info of safetensors of which something is left out" ckpt info foreign.safetensors
ok "lists what is left out of safetensors" grep -qx 'a  left out: float8_e4m3fn tensor of shape (2,)' out
exits 0 "the rest becomes another file" ckpt convert foreign.safetensors foreign.pt
says err "notice foreign.safetensors 1 value left out a float8_e4m3fn"
exits 0 "the rest is read" ckpt info foreign.pt
ok "has the tensor that yoke has a dtype for" grep -q '^b ' out

# One long key above many leaves is in the name of each.
key=$(printf 'k%.0s' {1..20000})
described "{\"dict\": [[\"$key\", [$(printf '1,%.0s' {1..5000})1]]]}"
for args in "verify described.safetensors" "info described.safetensors" "convert described.safetensors nested.pt" \
    "diff pt_zip_1.pt described.safetensors"; do
    # shellcheck disable=SC2086
    exits 1 "names that nest: $args" ckpt $args
    says err "described.safetensors names texts 100048896 bytes"
done
ok "nothing was written" [ ! -e nested.pt ]

# A schedule that yoke has not is none of yoke's that has a constant in common; PyTorch gets it back.
state='{"dict": [["model", {"dict": [["w", {"tensor": "model.w"}]]}], '
state+='["scheduler", {"dict": [["gamma", 0.9], ["last_epoch", 3], ["max_lrs", [0.5]]]}]]}'
described "$state" '"model.w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
exits 0 "a CyclicLR to a training checkpoint" ckpt convert described.safetensors cyclic
says err "'max_lrs' constant StepLR"
says err "'max_lrs' PyTorch"
ok "is no ExponentialLR" [ "$(grep -c exponential_lr cyclic/state.json)" = 0 ]
exits 0 "and back" ckpt convert cyclic cyclic.pt
exits 0 "what came back" ckpt info cyclic.pt
says out 'scheduler.max_lrs.0'

# Python, where it has torch.
if ! find_python torch; then
    skip "interchange with PyTorch" "there is no Python with torch"
    finish
    exit
fi
"$python" "$here/tests/checkpoint/interchange.py" write > out 2> err
ok "PyTorch trains and saves" [ $? = 0 ]
checks=()
for form in zip legacy; do
    exits 0 "$form: read and rewritten" ckpt convert "$form.pt" "$form.ours.pt"
    exits 0 "$form: to safetensors" ckpt convert "$form.pt" "$form.safetensors"
    exits 0 "$form: and back" ckpt convert "$form.safetensors" "$form.back.pt"
    exits 0 "$form: stripped" ckpt strip --strip-module "$form.pt" "$form.weights.pt"
    checks+=(same $form.pt $form.ours.pt values $form.pt $form.back.pt weights $form.pt $form.weights.pt)
done
# All in one process: PyTorch takes longer to start than to compare.
"$python" "$here/tests/checkpoint/interchange.py" "${checks[@]}" > out 2> err
for form in zip legacy; do
    ok "$form: PyTorch reads the same state" grep -qx "same $form.pt $form.ours.pt" out
    ok "$form: PyTorch reads the same values" grep -qx "values $form.pt $form.back.pt" out
    ok "$form: the weights load into the model" grep -qx "weights $form.pt $form.weights.pt" out
done
# ---- names that would give orders to a terminal
header='{"evil\u001b[2J\u009b\u202e":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
printf "$(printf '\\x%02x' ${#header})\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0" "$header" > evil.safetensors
exits 0 "a file with control characters in a name" ckpt info evil.safetensors
ok "they are escaped" grep -qF 'evil\x1b[2J\xc2\x9b\xe2\x80\xae' out
ok "none is left" bash -c '! LC_ALL=C grep -qP "[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae" out'
exits 0 "as JSON" ckpt info --json evil.safetensors
ok "none is left in JSON" bash -c '! LC_ALL=C grep -qP "[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae" out'
finish
