#!/bin/bash
# generate.sh - yoke train on text, and yoke generate: from what --save and --checkpoint wrote, and from a folder in the
# published form; bad input.
. tests/support/tap.bash
golden=$YOKE_TEST_SOURCES/tests/golden
head -c 6000 < /dev/zero | tr '\0' 'a' | sed 's/aaaaa/abcde/g' > letters.txt

exits 0 "learns to say what follows" train --data text:letters.txt --block 16 --n-layer 1 --n-embd 32 --epochs 2 --lr 0.01 \
    --save letters.safetensors --checkpoint run --log log.jsonl
says out "gpt2 f32 text:letters.txt 337 blocks of 16 256 tokens batches of 16"
says out "held out for the test: the last 600 of 6000 tokens (--val-split)"
accuracy=$(sed -n 's/.*test accuracy \([0-9.]*\).*/\1/p' out | tail -1)
ok "and does so" awk "BEGIN { exit !($accuracy > 0.95) }"
exits 0 "greedy" generate letters.safetensors --prompt eabcd --max-tokens 40 --temperature 0
ok "goes on" [ "$(cat out)" = "$(printf 'eabcd%.0s' {1..9})" ]
cp out greedy
exits 0 "without kept keys and values" generate letters.safetensors --prompt eabcd --max-tokens 40 --temperature 0 --no-cache
ok "says the same" cmp -s out greedy
exits 0 "from the folder of checkpoints" generate run --prompt eabcd --max-tokens 40 --temperature 0
ok "says the same" cmp -s out greedy
exits 0 "drawn" generate letters.safetensors --max-tokens 30 --temperature 3 --top-k 50 --top-p 0.99 --seed 4
cp out drawn
exits 0 "drawn again" generate letters.safetensors --max-tokens 30 --temperature 3 --top-k 50 --top-p 0.99 --seed 4
ok "says the same" cmp -s out drawn
exits 0 "by another seed" generate letters.safetensors --max-tokens 30 --temperature 3 --top-k 50 --top-p 0.99 --seed 5
ok "says another thing" eval '! cmp -s out drawn'

exits 0 "as PyTorch's file" train --data text:letters.txt --block 16 --n-layer 1 --n-embd 12 --n-head 3 --steps 30 --lr 0.05 --no-eval \
    --accumulate 2 --save three.pt --checkpoint three
exits 0 "which says the number of heads" generate three.pt --max-tokens 40
cp out three.out
exits 0 "as the folder of its checkpoints does" generate three --max-tokens 40
ok "says the same" cmp -s out three.out
exits 0 "as one head" generate three --max-tokens 40 --n-head 1
ok "says another thing" eval '! cmp -s out three.out'
exits 0 "goes on from these weights" train --data text:letters.txt --block 16 --n-layer 1 --n-embd 12 --n-head 3 --epochs 0 \
    --init three.pt

exits 0 "through a tokenizer" train --data text:letters.txt --tokenizer "$golden/bpe" --block 8 --n-layer 1 --n-embd 8 \
    --steps 2 --save bpe.safetensors
says out "704 tokens in the vocabulary"
exits 0 "which the file names" generate bpe.safetensors --prompt "the token" --max-tokens 3
says out "the token"

# The published form, in one file and in two with an index.
mkdir one two
cp "$golden/gpt2/model.safetensors" one/
echo '{"n_head": 3}' > one/config.json
awk 'BEGIN { printf "{"; for (i = 0; i < 37; i++) printf "%s\"%s%c\": %d", i ? ", " : "", i == 27 ? "\\" : "", 65 + i, i; print "}" }' \
    > vocab.json
echo '#version: 0.2' > merges.txt
cp vocab.json merges.txt one/
exits 0 "a published folder" generate one --prompt DBE --max-tokens 7 --temperature 0
expected=$(awk '/^\[greedy\]/ { getline; for (i = 1; i <= NF; i++) printf "%c", 65 + $i }' "$golden/gpt2.golden")
ok "says what the twin says" [ "$(cat out)" = "$expected" ]

exits 0 "trains on from it" train --data text:letters.txt --tokenizer one --block 10 --n-layer 2 --n-embd 12 --n-head 3 \
    --steps 1 --no-eval --init one/model.safetensors
cp "$golden/gpt2/model.safetensors" two/weights.safetensors
names=$(python3 -c 'import json, struct, sys
f = open(sys.argv[1], "rb"); header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
print(json.dumps({"weight_map": {n: "weights.safetensors" for n in header if n != "__metadata__"}}))' two/weights.safetensors)
echo "$names" > two/model.safetensors.index.json
exits 0 "and from the folder, by its index" train --data text:letters.txt --tokenizer one --block 10 --n-layer 2 --n-embd 12 \
    --n-head 3 --steps 1 --no-eval --init two
wrong()
{
    exits "$1" "$2" "${@:3}"
    says err "$2"
}
wrong 2 "expected PATH" generate
wrong 1 "nowhere" generate nowhere
wrong 1 "one 5 heads n_embd 12" generate one --n-head 5
rm one/vocab.json
wrong 1 "one 37 tokens no tokenizer --tokenizer" generate one
wrong 1 "bpe 704 tokens network one 37" generate one --tokenizer "$golden/bpe"
wrong 1 "--init one/model.safetensors n_embd 12 n_layer 2 gpt2" train --data text:letters.txt --init one/model.safetensors
wrong 2 "--model lenet images text gpt2" train --model lenet --data text:letters.txt
wrong 2 "--model gpt2 text --data cifar10" train --model gpt2 --data cifar10
wrong 2 "--confusion images --data text" train --data text --confusion
wrong 2 "--tokenizer text --data glyphs" train --tokenizer x
wrong 2 "--n-head 5 does not divide --n-embd 128" train --data text:letters.txt --n-head 5
wrong 1 "text:letters.txt 6000 tokens --block 5990 needs" train --data text:letters.txt --block 5990
finish
