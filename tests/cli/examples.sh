#!/bin/bash
# examples.sh - the programs of examples/ do what they say, in two processes where they are for several.
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE YOKE_DATA
examples=${YOKE%/*}/examples

# example CODE NAME COMMAND...: its exit code; the output is in out and err.
example()
{
    local expected=$1 name=$2
    shift 2
    "$@" > out 2> err < /dev/null
    code=$?
    ok "$name: exit code $expected" [ "$code" = "$expected" ]
}

# alike PATTERN COUNT: so many lines match, and what they end with is the same in all of them.
alike()
{
    ok "the ranks agree: $1" awk -v pattern="$1" -v count="$2" '
        $0 ~ pattern { seen++; if (seen > 1 && $NF != last) bad = 1; last = $NF }
        END { exit bad || seen != count }' out
}

# A set in CIFAR-10's form, each class of one colour: 100 images to train on, 20 to test.
cifar_like()
{
    mkdir -p data
    local label plane
    for label in 0 1 2 3 4 5 6 7 8 9; do
        printf "\\$(printf %03o "$label")"
        for plane in $((label % 3 * 100)) $((label / 3 * 70)) $((label % 2 * 200)); do
            head -c 1024 /dev/zero | tr '\0' "\\$(printf %03o "$plane")"
        done
    done > ten
    cat ten ten > data/test_batch.bin
    for label in 1 2 3 4 5; do
        cat ten ten > data/data_batch_$label.bin
    done
}

example 0 "train_lenet" "$examples/train_lenet"
ok "learns" awk '/^epoch 2/ { found = $NF > 0.95 } END { exit !found }' out

example 0 "attention" "$examples/attention"
ok "learns, and looks at the marks" awk '/^epoch 7/ { found = $6 + 0 < 0.001 && $NF > 0.9 } END { exit !found }' out

example 0 "parameter_server" "$YOKE" run --no-prefix -n 4 -- "$examples/parameter_server"
ok "three trainers see a network that has learned" [ "$(awk '/^worker[123]: test accuracy/ && $NF > 0.95' out | wc -l)" = 3 ]
ok "it is the same one" [ "$(sed -n 's/^worker[123]: test accuracy//p' out | sort -u | wc -l)" = 1 ]
example 2 "parameter_server alone" "$examples/parameter_server"
ok "says how to start it" grep -q "yoke run -n 4" err

example 0 "batched_updates" "$YOKE" run --no-prefix -n 4 -- "$examples/batched_updates"
ok "three trainers see one network that has learned" [ "$(awk '/^worker[123]: test accuracy/ && $NF > 0.85 { print $NF }' out | sort | uniq -c | awk '{ print $1 }')" = 3 ]
ok "its weights are those of one process" grep -qx "worker1: the weights are those of one process" out
example 2 "batched_updates alone" "$examples/batched_updates"
ok "says how to start it" grep -q "yoke run -n 4" err

rows="$examples/parameter_server_rows"
example 0 "parameter_server_rows" "$YOKE" run --no-prefix -n 2 --role ps "$rows" : -n 3 --role trainer "$rows"
ok "three trainers learn" [ "$(awk '/^trainer[012]: step 300/ && $7 + 0 < 0.05' out | wc -l)" = 3 ]
example 2 "parameter_server_rows alone" "$rows"
ok "says how to start it" grep -q "yoke run -n 2 --role ps" err

example 0 "rpc_pipeline" "$YOKE" run --no-prefix -n 3 -- "$examples/rpc_pipeline"
ok "the losses of three processes are those of one" [ "$(awk '/^step [012]: loss/ && $4 == $8' out | wc -l)" = 3 ]
example 2 "rpc_pipeline alone" "$examples/rpc_pipeline"
ok "says how to start it" grep -q "yoke run -n 3" err

example 0 "rpc_rnn" "$YOKE" run --no-prefix -n 2 -- "$examples/rpc_rnn"
ok "learns" awk '/^step 0:/ { first = $4 } /^step 59:/ { found = $4 < first / 5 } END { exit !found }' out
ok "the losses of two processes are those of one" awk '/^step/ { rows++; bad += $4 != $8 } END { exit bad || rows < 7 }' out
example 2 "rpc_rnn alone" "$examples/rpc_rnn"
ok "says how to start it" grep -q "yoke run -n 2" err

for size in 2 3; do
    example 0 "ddp_remote_embedding of $size" "$YOKE" run --no-prefix -n $size -- "$examples/ddp_remote_embedding"
    ok "learns, as one process does" awk '/^step 0:/ { first = $4 } /^step 120:/ { found = $4 < first / 20 } END { exit !found }' out
done
example 2 "ddp_remote_embedding of 7" "$YOKE" run --no-prefix -n 7 -- "$examples/ddp_remote_embedding"
ok "says how to start it" grep -q "yoke run -n 2" err

example 0 "diloco" "$YOKE" run --no-prefix -n 2 -- "$examples/diloco" 1
for way in ddp diloco; do
    alike "$way" 2
    ok "$way learns, the same on both ranks" [ "$(awk -v way="$way:" '$3 == way && $7 + 0 < 1.5 { print $7, $10 }' out | sort -u | wc -l)" = 1 ]
done
ok "with a tenth of the bytes" awk '$3 == "ddp:" { ddp = $NF } $3 == "diloco:" { diloco = $NF } END { exit !(diloco > 0 && diloco * 9 < ddp) }' out

for observers in 1 2 3; do
    example 0 "rl_cartpole of $observers observers" "$YOKE" run --no-prefix -n $((observers + 1)) -- "$examples/rl_cartpole" 8
    mv out cartpole.$observers
done
ok "it gets better" awk '/^round 0:/ { first = $NF } /^round 7:/ { found = $NF > first } END { exit !found }' cartpole.1
ok "and is the same for any number of observers" eval "cmp -s cartpole.1 cartpole.2 && cmp -s cartpole.2 cartpole.3"
example 2 "rl_cartpole alone" "$examples/rl_cartpole"
ok "says how to start it" grep -q "yoke run -n 4" err

example 0 "elastic on three processes" "$YOKE" run --no-prefix --virtual-ranks 6 -n 3 -- "$examples/elastic" runs 1
cp out epochs
example 0 "elastic goes on alone" env YOKE_VIRTUAL_RANKS=6 "$examples/elastic" runs 2
cat out >> epochs
example 0 "elastic on six processes" "$YOKE" run --no-prefix --virtual-ranks 6 -n 6 -- "$examples/elastic"
ok "the same losses, to the last digit" cmp -s out epochs
ok "which fall" [ "$(awk '/^epoch 2/ && $NF < 0.5' out | wc -l)" = 1 ]

example 0 "init_processes" "$YOKE" run --no-prefix -n 2 -- "$examples/init_processes"
for rank in 0 1; do
    ok "rank $rank says where it is" grep -qx "\[ [0-9]* \] world_size = 2, rank = $rank, backend=native" out
done

example 0 "ddp_basic" "$examples/ddp_basic"
alike "cpu:[02] and cpu:[02]" 2
alike "cpu:[02] and cpu:[13]" 2
ok "the ranks had inputs of their own" [ "$(sed 's/.*loss \([0-9.]*\),.*/\1/' out | sort -u | wc -l)" = 2 ]

for size in 8 2; do
    example 0 "ddp_devices in $size processes" "$YOKE" run --no-prefix -n $size -- "$examples/ddp_devices" --local_world_size=$size
    ok "each says what it found" [ "$(grep -cE "^\[[0-9]+\] Initializing process group with: \{'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '[0-9]+', 'RANK': '[0-9]', 'WORLD_SIZE': '$size'\}$" out)" = $size ]
    ok "and who it is" [ "$(grep -cE "^\[[0-9]+\]: world_size = $size, rank = [0-9], backend=native$" out)" = $size ]
done
for rank in 0 1; do
    ok "the block of rank $rank" grep -qE "^\[[0-9]+\] rank = $rank, world_size = 2, n = 4, device_ids = \[$((4 * rank)), $((4 * rank + 1)), $((4 * rank + 2)), $((4 * rank + 3))\]$" out
done
example 0 "ddp_devices, told its local rank" "$YOKE" run --no-prefix --pass-local-rank -n 2 -- "$examples/ddp_devices" --local_world_size=2
INIT_METHOD=file://$work/meeting example 0 "ddp_devices with INIT_METHOD" "$YOKE" run --no-prefix -n 2 -- "$examples/ddp_devices" --local_world_size=2
ok "which they used" [ -s meeting ]
example 2 "ddp_devices of another world" "$examples/ddp_devices" --local_rank 3 --local_world_size=2
example 1 "ddp_devices with too few devices" env YOKE_CPU_DEVICES=1 "$YOKE" run --no-prefix -n 2 -- "$examples/ddp_devices" --local_world_size=2
says err "1 devices are not enough for 2 processes"

example 0 "model_parallel" "$examples/model_parallel"
ok "both devices hold a part" awk '/^cpu:[01]: / && $2 > 1 { seen[$1] = 1 } END { exit !(seen["cpu:0:"] && seen["cpu:1:"]) }' out
ok "learns" awk '/^epoch/ { last = $4; if (first == "") first = $4 } END { exit !(last < 0.8 * first) }' out

example 0 "pipeline" "$examples/pipeline"
ok "steps of 1, 2, 4 and 8 micro-batches" [ "$(sed -n 's/^\([1248]\) micro-batches: .* ideal \([0-9]*\) %$/\1:\2/p' out | xargs)" = "1:50 2:33 4:20 8:11" ]
ok "learns" awk '/^loss/ { found = $2 < 1.9 } END { exit !found }' out

for size in 1 2 3; do
    example 0 "pipeline_processes in $size" "$YOKE" run --no-prefix -n $size -- "$examples/pipeline_processes"
    sort out > losses$size
    ok "each process saves its part" [ "$(ls saved/*.safetensors | wc -l)" = $size ]
    ok "under its number" grep -q "\"$((size - 1))\.0\.[a-z0-9.]*weight" saved/model.index.json
done
ok "the same losses, to the last digit, and the same accuracy" eval 'cmp -s losses1 losses2 && cmp -s losses1 losses3'
ok "learns" awk '/^test accuracy/ { found = $NF > 0.8 } END { exit !found }' losses1
example 2 "pipeline_processes in too many" "$YOKE" run --no-prefix -n 6 -- "$examples/pipeline_processes"
says err "6 processes for 5 layers"

mkdir temporary
TMPDIR=$work/temporary example 0 "ddp_checkpoint" "$examples/ddp_checkpoint"
alike "loaded weights" 2
alike "after a step" 2
ok "what was loaded are the weights, and a step changes them" awk '{ v[$NF] = 1 } $NF == 0 { bad = 1 }
    END { for (k in v) n++; exit bad || n != 2 }' out
ok "the file is gone" [ -z "$(ls temporary)" ]
TMPDIR=$work/nowhere example 1 "ddp_checkpoint without a folder" "$examples/ddp_checkpoint"
says err "rank 0 (pid"
says err "No such file or directory"

example 0 "fashion_mnist_ddp" "$YOKE" run --no-prefix -n 2 -- "$examples/fashion_mnist_ddp" glyphs 3
ok "the ranks see other images" [ "$(grep '^rank' out | sed 's/.* is //' | sort -u | wc -l)" = 2 ]
accuracy=$(sed -n 's/^epoch 3: .*accuracy //p' out)
ok "it learns" awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }'
exits 0 "one process tests what it saved" train --init saved_model.safetensors --epochs 0
ok "the two ranks together had the same accuracy" [ "$(tail -n 1 out)" = "test accuracy $accuracy" ]

example 0 "fashion_mnist_ddp --table" "$examples/fashion_mnist_ddp" --table glyphs
awk 'NR > 1 { printf "%d:%d:%d:%d\n", $6, $1, $(NF - 1), split($(NF - 2), each, ",") }' out > rows
ok "1, 2 and 4 processes: steps, epochs, memory of each" [ "$(xargs < rows)" = "1:3000:1:1 2:1500:1:2 4:750:1:4 4:1500:2:2 16:750:4:4" ]
ok "the loss rises with the ranks, and falls with as many epochs" awk 'NR > 1 { loss[NR - 1] = $NF }
    END { exit !(loss[1] < loss[2] && loss[2] < loss[3] && loss[4] < loss[2] && loss[5] < loss[3]) }' out
example 2 "fashion_mnist_ddp --table of no epochs" "$examples/fashion_mnist_ddp" --table glyphs 3

cifar_like
# At ten times this rate rounding decides what has been learned by then: 0.5 to 1.
arguments=(--batch_size 10 --learning_rate 0.001 --model_dir .)
example 0 "resnet_ddp" "$YOKE" run --no-prefix -n 2 -- "$examples/resnet_ddp" "${arguments[@]}" --num_epochs 11
ok "each rank trains each epoch" [ "$(grep -c '^Local Rank: [01], Epoch: [0-9]*, Training' out)" = 22 ]
ok "a new network has guessed" awk '/^Epoch: 0, Accuracy/ { found = $NF < 0.5 } END { exit !found }' out
ok "it has learned" awk '/^Epoch: 10, Accuracy/ { found = $NF > 0.8 } END { exit !found }' out
accuracy=$(sed -n 's/^Epoch: 10, //p' out)
example 0 "resnet_ddp goes on" "$YOKE" run --no-prefix --pass-local-rank -n 2 -- "$examples/resnet_ddp" "${arguments[@]}" \
    --num_epochs 1 --resume
ok "from what it saved" grep -qx "Epoch: 0, $accuracy" out
example 0 "the file is PyTorch's" "$YOKE" ckpt info resnet_distributed.pth
says out "module.layer1.0.conv1.weight"
example 2 "resnet_ddp with a flag that it has not" "$examples/resnet_ddp" --batchsize 3
for wrong in "--batch_size 0" "--num_epochs few" "--learning_rate 1e" "--random_seed -1"; do
    # shellcheck disable=SC2086
    example 2 "resnet_ddp $wrong" "$examples/resnet_ddp" $wrong
    says err "$wrong"
done
example 2 "fashion_mnist_ddp with no number of epochs" "$examples/fashion_mnist_ddp" glyphs few
finish
