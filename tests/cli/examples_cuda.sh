#!/bin/bash
# examples_cuda.sh - the programs of examples/, and README.md's, on GPUs of the emulator print what they print on the
# CPU. They are the ones that examples.sh runs, but for tests/cli/few_batches.c in front of the library.
sources=$PWD
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE YOKE_DATA CUDA_VISIBLE_DEVICES
build=${YOKE%/*}
examples=$build/examples
if [ ! -e "$build/emulator/yoke-cuda.so" ]; then
    echo "1..0 # SKIP this build has no emulator: it needs the headers of CUDA 12 or 13"
    exit 0
fi
backends="native"
[ ! -e "$build/emulator/yoke-nccl.so" ] || backends="native nccl"
mkdir none
flags="-I$sources/include -D_GNU_SOURCE ${SANITIZE:+-fsanitize=$SANITIZE}"
ok "few_batches.c is built" ${CC:-cc} $flags -shared -fPIC -o few.so "$sources/tests/cli/few_batches.c" -ldl
# A program of a sanitized build begins with the sanitizer's library by itself.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0

# few SAMPLES BATCHES COMMAND...: the command's output goes to out and err, its exit code to $code.
few()
{
    FEW_SAMPLES=$1 FEW_BATCHES=$2 LD_PRELOAD=$work/few.so "${@:3}" > out 2> err < /dev/null
    code=$?
}

# on_cpu SAMPLES BATCHES COMMAND...: what on_gpus is compared with, in the file expected.
on_cpu()
{
    YOKE_BACKEND_PATH=$work/none few "$@"
    ok "$(name "${@:3}") on the CPU" [ "$code" = 0 ]
    comparable > expected
}

# on_gpus COUNT BACKEND SAMPLES BATCHES COMMAND...
on_gpus()
{
    local gpus=$1 backend=$2
    shift 2
    YOKE_EMULATOR_GPUS=$gpus YOKE_COMM_BACKEND=$backend YOKE_BACKEND_PATH=$build/emulator few "$@"
    ok "$(name "${@:3}") on $gpus GPUs, $backend" [ "$code" = 0 ]
    comparable > got
    ok "prints what it does on the CPU" same
}

name()
{
    local word last
    for word; do
        [[ $word != "$examples"/* && $word != ./* ]] || last=${word##*/}
    done
    echo "$last"
}

# What is printed, in an order: without times, memory, processes and names of devices.
comparable()
{
    sed -E -e 's/\[[0-9.]+ s, [0-9.]+it\/s\]//; s/[0-9.]+ ms a step, idle .* of it/ms/; s/(cpu|cuda):[0-9]+/device/g' \
        -e 's/^\[ ?[0-9]+ ?\]//; /MASTER_ADDR/d; /MiB at most/d; s/n = .*//; s/backend=.*//' \
        -e '/^(stage|[0-9]) .*device|^stage  |^bubble|^these are times/d' out |
        sed -E 's/^([0-9]+it .* x [0-9]+ +[0-9]+ +[0-9]+) +[0-9.,]+/\1/' | sort
}

# Word by word, numbers but for what rounding does to them.
same()
{
    [ -s got ] && paste -d '\n' expected got | awk '
        NR % 2 { n = split($0, word); next }
        { if (NF != n) exit 1
          for (i = 1; i <= n; i++) {
              a = word[i]; b = $i
              sub(/[,:)]$/, "", a); sub(/[,:)]$/, "", b)
              if (a != b && (a + 0 == 0 || (a - b) ^ 2 > (0.001 * a) ^ 2)) exit 1
          } }' && [ "$(wc -l < expected)" = "$(wc -l < got)" ]
}

# uses_a_gpu SAMPLES BATCHES COMMAND...: it fails where the GPUs are lost.
uses_a_gpu()
{
    YOKE_EMULATOR_LOSE_AFTER=60 YOKE_EMULATOR_GPUS=2 YOKE_BACKEND_PATH=$build/emulator few "$@"
    ok "$(name "${@:3}") whose GPU is lost: exit code 1" [ $code = 1 ]
    says err "GPU is lost"
}

on_cpu 8 4 "$examples/train_lenet"
on_gpus 1 native 8 4 "$examples/train_lenet"
uses_a_gpu 8 4 "$examples/train_lenet"

on_cpu 8 4 "$examples/attention"
on_gpus 1 native 8 4 "$examples/attention"
uses_a_gpu 8 4 "$examples/attention"

# Two parts of the CPU are two GPUs there; with one GPU both stay on the CPU.
on_cpu 4 3 "$examples/model_parallel"
on_gpus 1 native 4 3 "$examples/model_parallel"
on_gpus 2 native 4 3 "$examples/model_parallel"
ok "both GPUs hold a part" awk '/^cuda:[01]: / && $2 > 0.3 { seen[$1] = 1 } END { exit !(seen["cuda:0:"] && seen["cuda:1:"]) }' out
uses_a_gpu 4 3 "$examples/model_parallel"

# The loss is the mean of the steps from the 50th on.
on_cpu 8 51 "$examples/pipeline"
on_gpus 2 native 8 51 "$examples/pipeline"
says out "these are times of the host"
uses_a_gpu 8 3 "$examples/pipeline"
on_cpu 8 10 "$YOKE" run --no-prefix -n 2 -- "$examples/pipeline_processes"
for backend in $backends; do
    on_gpus 2 $backend 8 10 "$YOKE" run --no-prefix -n 2 -- "$examples/pipeline_processes"
done

on_cpu 8 3 "$examples/ddp_basic"
for backend in $backends; do
    on_gpus 2 $backend 8 3 "$examples/ddp_basic"
done
ok "a GPU for each process" grep -q "^rank 1 on cuda:1 and cuda:1" out
on_gpus 4 native 8 3 "$examples/ddp_basic"
ok "two for each" grep -q "^rank 1 on cuda:2 and cuda:3" out

before=$TMPDIR
mkdir temporary
export TMPDIR=$work/temporary
on_cpu 8 3 "$examples/ddp_checkpoint"
on_gpus 1 native 8 3 "$examples/ddp_checkpoint"
for backend in $backends; do
    on_gpus 2 $backend 8 3 "$examples/ddp_checkpoint"
done
export TMPDIR=$before
uses_a_gpu 8 3 "$examples/ddp_checkpoint"

two=("$YOKE" run --no-prefix -n 2 --)
on_cpu 8 3 "${two[@]}" "$examples/init_processes"
for backend in $backends; do
    on_gpus 2 $backend 8 3 "${two[@]}" "$examples/init_processes"
    ok "which it says" grep -q "backend=$backend$" out
done

on_cpu 8 3 "${two[@]}" "$examples/ddp_devices" --local_world_size=2
on_gpus 4 native 8 3 "${two[@]}" "$examples/ddp_devices" --local_world_size=2
ok "a block of two GPUs each" grep -q "rank = 1, world_size = 2, n = 2, device_ids = \[2, 3\]" out
for backend in $backends; do
    on_gpus 2 $backend 8 3 "${two[@]}" "$examples/ddp_devices" --local_world_size=2
done
uses_a_gpu 8 3 "${two[@]}" "$examples/ddp_devices" --local_world_size=2

on_cpu 4 3 "${two[@]}" "$examples/fashion_mnist_ddp" glyphs 2
on_gpus 1 native 4 3 "${two[@]}" "$examples/fashion_mnist_ddp" glyphs 2
for backend in $backends; do
    on_gpus 2 $backend 4 3 "${two[@]}" "$examples/fashion_mnist_ddp" glyphs 2
done
uses_a_gpu 4 3 "${two[@]}" "$examples/fashion_mnist_ddp" glyphs 2
on_cpu 4 1 "$examples/fashion_mnist_ddp" --table glyphs
on_gpus 2 native 4 1 "$examples/fashion_mnist_ddp" --table glyphs

# Twice the size of the network: one step, and what it saves and goes on from.
mkdir -p data
head -c 61460 /dev/zero > data/test_batch.bin
for part in 1 2 3 4 5; do
    head -c 61460 /dev/zero > data/data_batch_$part.bin
done
resnet=("${two[@]}" "$examples/resnet_ddp" --batch_size 10 --learning_rate 0.001 --model_dir . --num_epochs 1)
on_cpu 2 1 "${resnet[@]}"
for backend in $backends; do
    on_gpus 2 $backend 2 1 "${resnet[@]}"
done
on_cpu 2 1 "${resnet[@]}" --resume
uses_a_gpu 2 1 "${resnet[@]}" --resume

# ---- programs that are built from what is shown
shared="$build/libyoke.so -Wl,-rpath,$build"
ok "train_module.cpp is built" ${CXX:-g++} -std=c++20 $flags -o train_module "$sources/examples/train_module.cpp" $shared
on_cpu 8 3 ./train_module
on_gpus 1 native 8 3 ./train_module
uses_a_gpu 8 3 ./train_module
# The lines that README.md names: where the network is, and where loaders give their batches.
awk '/^```/ { open = !open; if (open) { c = $0 == "```c" && !n++ } else c = 0; next } c' "$sources/README.md" |
    sed -e 's/yk_lenet(NULL);/yk_module_to(yk_lenet(NULL), yk_device_local());/' \
        -e 's/\.workers = 1)/.workers = 1, .device = yk_device_local())/' \
        -e 's/\.batch_size = 500)/.batch_size = 500, .device = yk_device_local())/' > readme.c
ok "three lines are changed" [ "$(grep -c yk_device_local readme.c)" = 3 ]
ok "README.md's program is built" ${CC:-cc} -std=c11 $flags -o readme readme.c $shared
YOKE_BACKEND_PATH=$build/emulator few 8 4 ./readme
ok "and trains on a GPU" [ $code = 0 ]
uses_a_gpu 8 4 ./readme

# As `make` leaves them: the plug-ins lie beside the library that the programs share.
mkdir -p made/examples
cp "$build/libyoke.so" made/libyoke.so.2
cp "$build/emulator/yoke-cuda.so" made
cp "$examples/ddp_basic" made/examples
YOKE_EMULATOR_GPUS=2 few 8 3 made/examples/ddp_basic
ok "an example finds the plug-in by itself" grep -q "^rank 1 on cuda:1" out
finish
