#!/bin/bash
# cuda.sh - what is said where a GPU, its driver or the plug-in is missing; logical devices; what `make` finds of CUDA.
sources=$PWD
. tests/support/tap.bash
build=${YOKE%/*}
cases=$build/tests/gpu/gpu_cases

# ---- the plug-in itself
mkdir none
YOKE_BACKEND_PATH=$work/none exits 1 "without the plug-in" train --device cuda
says err "'cuda' device backend $work/none/yoke-cuda.so"
YOKE_BACKEND_PATH=$work/none exits 0 "auto takes the CPU" train --steps 1 --device auto
YOKE_BACKEND_PATH=$work/none exits 0 "doctor without it" doctor
ok "doctor says so" grep -qE '^  cuda backend +not here' out
if [ ! -e "$build/yoke-cuda.so" ]; then
    skip "the plug-in" "this build has no yoke-cuda.so (make names what is missing: scripts/find-cuda)"
else
    exits 0 "doctor" doctor
    ok "doctor says what it was built with" grep -qE '^  cuda backend +built with CUDA 1[23]\.[0-9]+' out
    if ldconfig -p | grep -q libcuda.so.1; then
        skip "no driver" "there is one here"
    else
        exits 2 "no driver" train --device cuda
        says err "NVIDIA driver libcuda.so.1"
        exits 0 "auto takes the CPU without a driver" train --steps 1 --device auto
        run doctor
        ok "doctor says why there is no device" grep -qE '^  CUDA devices +none: .*no NVIDIA driver' out
    fi
fi

# ---- the emulator, in place of drivers that nobody has
if [ ! -e "$build/emulator/yoke-cuda.so" ]; then
    skip "the emulator" "this build has none: it needs the headers of CUDA 12 or 13"
else
    export YOKE_BACKEND_PATH=$build/emulator
    devices()
    {
        "$cases" devices > out 2> err
        code=$?
    }
    devices
    ok "one GPU" grep -qx '1 cuda devices' out
    mkdir -p driver/gpus
    YOKE_NVIDIA_DRIVER=$work/driver devices
    ok "one that the driver's files do not show" grep -qx '1 cuda devices' out
    YOKE_EMULATOR_GPUS=2 YOKE_CUDA_DEVICES_PER_GPU=3 devices
    ok "logical devices" grep -qx '6 cuda devices' out
    YOKE_EMULATOR_GPUS=0 devices
    ok "no GPU: exit code 3" [ $code = 3 ]
    says out "no GPU"
    YOKE_EMULATOR_GPUS=0 CUDA_VISIBLE_DEVICES=7 devices
    says out "no GPU CUDA_VISIBLE_DEVICES=7"
    # The variable is read as CUDA reads it: the list ends before what is no GPU, one named twice leaves none.
    for list in "0,1=2" "1=1" "0,7,1=1" "0,0=0" "-1=0" "abc=0" "=0"; do
        YOKE_EMULATOR_GPUS=2 CUDA_VISIBLE_DEVICES=${list%=*} devices
        case $list in
        *=0) says out "sees no GPU: CUDA_VISIBLE_DEVICES=${list%=*}" ;;
        *) ok "CUDA_VISIBLE_DEVICES=${list%=*}" grep -qx "${list#*=} cuda devices" out ;;
        esac
    done
    YOKE_EMULATOR_DRIVER=11040 devices
    says out "NVIDIA driver CUDA 11.4 CUDA"
    YOKE_EMULATOR_DRIVER=0 devices
    says out "no NVIDIA driver"
    YOKE_CUDA_DEVICES_PER_GPU=many devices
    says out "YOKE_CUDA_DEVICES_PER_GPU=many 1 64"
    for switch in YOKE_CUDA_TF32=on YOKE_CUDA_LIBRARIES=own YOKE_CUDA_FUSED_ATTENTION=never YOKE_CUDA_SYNCHRONOUS=yes YOKE_BENCHMARK=true YOKE_DETERMINISTIC=false; do
        (export "$switch" && devices)
        says out "$switch: expected an integer from 0 to 1"
    done
    # A GPU that its driver's files show, and that cannot be used.
    mkdir -p "shown/gpus/0000:01:00.0"
    printf 'GPU UUID: \t GPU-01234567\nDevice Minor: \t 0\n' > "shown/gpus/0000:01:00.0/information"
    touch shown/nvidia0
    export YOKE_NVIDIA_DRIVER=$work/shown
    YOKE_CUDA_DEVICES_PER_GPU=0 exits 0 "auto where a GPU is misconfigured" train --steps 1 --device auto
    says err "there is a GPU here, and --device auto takes the CPU: device cuda:0: YOKE_CUDA_DEVICES_PER_GPU=0: expected"
    YOKE_BACKEND_PATH=$work/none exits 0 "auto where there is a GPU and no plug-in" train --steps 1 --device auto
    says err "there is a GPU here, and --device auto takes the CPU: the 'cuda' device backend is not there"
    YOKE_CUDA_DEVICES_PER_GPU=0 exits 1 "doctor where a GPU is misconfigured" doctor
    says out "problem: there is a GPU, and none can be used: device cuda:0: YOKE_CUDA_DEVICES_PER_GPU=0: expected"
    exits 0 "doctor where it can be used" doctor
    exits 0 "auto where it can be used" train --steps 1 --device auto --model mlp --no-eval
    ok "nothing is said then" [ ! -s err ]
    unset YOKE_NVIDIA_DRIVER
    for name in gpu cuda: CUDA; do
        exits 2 "the device $name" train --device "$name"
        says err "--device: device '$name': expected cpu, cpu:N, cuda or cuda:N; auto takes a GPU where there is one"
    done
    exits 2 "a device that is not there" train --device cuda:1
    ok "that alone, where no variable is set" grep -qx "yoke: device cuda:1 does not exist: there is 1 cuda device" err
    CUDA_VISIBLE_DEVICES=0 YOKE_CUDA_DEVICES_PER_GPU=1 exits 2 "one that is hidden" train --device cuda:1
    says err "device cuda:1 1 device (CUDA_VISIBLE_DEVICES=0 and YOKE_CUDA_DEVICES_PER_GPU=1)"
    exits 2 "a name with an end of line" train --device $'cu\nda'
    says err "device 'cu\\nda': expected cpu, cpu:N, cuda or cuda:N"
    # Ranks of a GPU and of a CPU: their steps are not the same calls.
    mixed='d=cuda:0; [ $RANK = 1 ] && d=cpu; exec "$0" "$@" --device $d --model mlp --steps 3'
    for backend in native $([ ! -e "$build/emulator/yoke-nccl.so" ] || echo nccl); do
        for command in "train --no-eval" "bench step"; do
            YOKE_COMM_BACKEND=$backend exits 1 "$backend, $command: a rank on the CPU" \
                run -n 2 -- bash -c "$mixed" "$YOKE" $command
            says err "rank 1 (host has a CPU as its --device, but rank 0 has a GPU as its --device"
        done
    done
    # Of a host's processes each has a GPU of its own, which NCCL insists on.
    if [ -e "$build/emulator/yoke-nccl.so" ]; then
        YOKE_EMULATOR_GPUS=2 YOKE_COMM_BACKEND=nccl exits 0 "two processes with NCCL" \
            run -n 2 -- "$YOKE" train --device cuda --steps 1 --batch-size 4 --no-eval
        reduce=(bench allreduce --device cuda --bytes 4,64K --seconds 0.01)
        YOKE_EMULATOR_GPUS=2 exits 0 "all_reduce with NCCL" run -n 2 -- "$YOKE" "${reduce[@]}" --backend nccl --json
        ok "which it says" grep -qE '"ranks":2,"device":"cuda","backend":"nccl","path":"NCCL","bytes":65536,' out
        YOKE_EMULATOR_GPUS=1 exits 1 "two processes with NCCL on one GPU" \
            run -n 2 -- "$YOKE" "${reduce[@]}" --backend nccl
        says err "are on one GPU give every rank a GPU of its own, or take the backend 'native', whose ranks may share one"
        YOKE_EMULATOR_GPUS=1 exits 0 "and with native" run -n 2 -- "$YOKE" "${reduce[@]}" --backend native
        says out "all_reduce, 2 ranks, cuda, native, the host's pinned memory"
        YOKE_EMULATOR_GPUS=2 YOKE_EMULATOR_NCCL_FAILS=1 exits 1 "NCCL that cannot start on a rank" \
            run -n 2 -- "$YOKE" "${reduce[@]}" --backend nccl
        says err "all_reduce of rank 1 (host ncclCommInitRankConfig: NCCL says: unhandled system error: Bootstrap : no socket"
        lose='[ $RANK = 1 ] && export YOKE_EMULATOR_LOSE_AFTER=600; exec "$0" "$@"'
        YOKE_EMULATOR_GPUS=2 exits 1 "a GPU that is lost while a collective is queued" \
            run -n 2 -- bash -c "$lose" "$YOKE" bench allreduce --device cuda --bytes 64K --seconds 20 --backend nccl
        says err "cuda:1: GPU 1 is lost this process cannot use it any more"
        says err "yoke run: rank failed" # rank 0, which is told why, may end before rank 1
        exits 1 "NCCL on a CPU" bench allreduce --backend nccl --bytes 4
        says err "NCCL moves tensors of GPUs alone: add --device cuda"
    else
        skip "two processes with NCCL" "this build has no nccl backend"
    fi
    step=(bench step --model mlp --batch-size 2 --steps 3)
    exits 0 "a step on a GPU" "${step[@]}" --device cuda
    says out "mlp, batch 2 f32, cuda:0 ms a step"
    ok "how long the host is kept" grep -qE '^the host is kept for [0-9.]+ us by a step$' out
    exits 0 "steps that are recorded, in bf16" "${step[@]}" --device cuda --record --precision bf16 --channels-last --json
    ok "they are" grep -qE '"device":"cuda:0","precision":"bf16","channels_last":true,"recorded":true,' out
    exits 0 "on a CPU nothing is" "${step[@]}" --record
    says out "steps were not recorded: cpu:0"
    exits 2 "a step on a GPU that is not there" "${step[@]}" --device cuda:5
    says err "device cuda:5 1 cuda device"
    rates=(bench device --megabytes 1 --size 8 --seconds 0.001)
    YOKE_EMULATOR_GPUS=2 exits 0 "rates of GPUs" "${rates[@]}"
    ok "copies and products of each" [ "$(grep -cE '^cuda:[01] +(from the host|to the host|copy, read and written|from cuda:[01]|matrix product) +(float|bfloat)[0-9]+ +[0-9]+\.[0-9]+ (GB|TFLOP)/s$' out)" = 16 ]
    exits 0 "of the CPU" "${rates[@]}" --device cpu --json
    ok "rows of JSON" [ "$(grep -cE '^\{"subject":"device","device":"cpu:0","row":"[a-z, ]+","dtype":"b?float[0-9]+","rate":[0-9.e+-]+,"unit":"' out)" = 5 ]
    exits 2 "rates of no such GPU" "${rates[@]}" --device cuda:1
    says err "device cuda:1 does not exist"

    # ---- GPUs that are full, lost, or faulted
    few=(train --device cuda --model mlp --batch-size 8 --steps 20 --no-eval)
    YOKE_EMULATOR_DRIVER=12080 exits 2 "a driver that is too old" "${few[@]}"
    says err "the NVIDIA driver here serves CUDA 12.8, and yoke was built with CUDA 13"
    YOKE_EMULATOR_GPUS=0 exits 2 "no GPU" "${few[@]}"
    says err "sees no GPU"
    export LD_LIBRARY_PATH=$build/emulator
    YOKE_EMULATOR_HOLDERS="1:2.5 4194300:0.25" YOKE_EMULATOR_MEMORY=1 exits 1 "a GPU that is full" "${few[@]}"
    says err "cuda:0: out of memory MiB were asked for GPU 0 MiB free of 1.0 MiB; it is held by process 1"
    says err "2.5 GiB, process 4194300 0.2 GiB (a smaller batch, or bf16, needs less); tensors hold"
    # CUDA's GPU 1 is the machine's GPU 0, which is the one that process 77 holds.
    CUDA_VISIBLE_DEVICES=1,0 YOKE_EMULATOR_GPUS=2 YOKE_EMULATOR_HOLDERS=77:2.5 YOKE_EMULATOR_MEMORY=1 \
        exits 1 "the GPUs of CUDA_VISIBLE_DEVICES" "${few[@]}" --device cuda:1
    says err "GPU 1 has MiB free of 1.0 MiB, as CUDA_VISIBLE_DEVICES=1,0 numbers them; it is held by process 77 2.5 GiB"
    CUDA_VISIBLE_DEVICES=0 YOKE_EMULATOR_LOSE_AFTER=40 exits 1 "a lost one of them" "${few[@]}"
    says err "GPU 0, as CUDA_VISIBLE_DEVICES=0 numbers them, is lost"
    for call in 2 40 120 300; do
        YOKE_EMULATOR_LOSE_AFTER=$call exits 1 "a GPU that is lost at call $call" "${few[@]}"
        says err "cuda:0: GPU 0 is lost cudaErrorUnknown noticed; this process cannot use it any more dmesg: Xid"
        ok "said once" [ "$(wc -l < err)" = 1 ]
        ok "to the end of an operation" grep -qE '(newest|float[0-9]+|int[0-9]+|bool)$' err
    done
    YOKE_EMULATOR_LOSE_AFTER=300 exits 1 "a rank whose GPU is lost" run -n 2 -- "$YOKE" "${few[@]}" --device cuda:0
    says err "GPU 0 is lost"
    YOKE_EMULATOR_FAULT=sgd exits 1 "a kernel that faults" "${few[@]}" --steps 1
    says err "an operation failed on the GPU it was one of: cross_entropy_backward (8, 10) float32; sgd (128, 784) float32; noticed it"
    says err "YOKE_CUDA_SYNCHRONOUS=1 finds which it is"
    YOKE_EMULATOR_FAULT=cross_entropy YOKE_CUDA_SYNCHRONOUS=1 exits 1 "the same, one by one" "${few[@]}"
    ok "it alone is named" grep -qE 'it was cross_entropy \(\) float32, \(8, 10\) float32, \(8\) int64\. ' err
    YOKE_EMULATOR_GPUS=2 YOKE_EMULATOR_HOLDERS="$$:1 77:-1" exits 0 "doctor knows GPUs" doctor
    says out "GPUs 2, driver 580.00"
    says out "GPU 0 Emulated 0, 4.0 GiB, 3.0 GiB in use; PCIe 5 x16, 4 NVLinks; held by process $$"
    says out "1.0 GiB, process 77"
    ok "the other GPU" grep -qE 'GPU 1 +Emulated 1, 4.0 GiB, 3.0 GiB in use; PCIe 5 x16, 4 NVLinks$' out
    unset LD_LIBRARY_PATH YOKE_BACKEND_PATH
fi

# ---- what `make` finds
find_cuda()
{
    "$sources/scripts/find-cuda" > out 2> err
    code=$?
}
CUDA_HOME=$work/none find_cuda
ok "a folder that is no toolkit" [ $code = 0 ]
says out "- $work/none include/cuda_runtime_api.h"
mkdir -p toolkit/bin toolkit/include toolkit/lib64
printf '#!/bin/sh\necho "Cuda compilation tools, release 12.4, V12.4.1"\n' > toolkit/bin/nvcc
chmod +x toolkit/bin/nvcc
echo '#define CUDART_VERSION  13000' > toolkit/include/cuda_runtime_api.h
CUDA_HOME=$work/toolkit find_cuda
says out "- nvcc CUDA 12.4 headers CUDA 13.0"
echo '#define CUDART_VERSION  12040' > toolkit/include/cuda_runtime_api.h
CUDA_HOME=$work/toolkit find_cuda
says out "- libcudart_static.a"
touch toolkit/lib64/libcudart_static.a toolkit/include/cublasLt.h
echo '#define CUBLAS_VER_MAJOR 13' > toolkit/include/cublas_api.h
CUDA_HOME=$work/toolkit find_cuda
says out "- cuBLASLt CUDA 13 rest CUDA 12.4"
printf '#define CUBLAS_VER_MAJOR 12\n#define CUBLAS_VER_MINOR 4\n#define CUBLAS_VER_PATCH 5\n' > toolkit/include/cublas_api.h
echo '#define CUDNN_MAJOR 8' > toolkit/include/cudnn_version.h
CUDA_HOME=$work/toolkit find_cuda
says out "- cuDNN 8 cuDNN 9"
printf '#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n' > toolkit/include/cudnn_version.h
printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n#define NCCL_PATCH 5\n' > toolkit/include/nccl.h
CUDA_HOME=$work/toolkit find_cuda
ok "a toolkit that fits together" grep -qxF \
    "$work/toolkit 12.4 $work/toolkit/lib64 CUDA_12.4,_cuBLASLt_12.4.5,_cuDNN_9.1.0,_NCCL_2.21.5" out
make -n -s -C "$sources" --no-print-directory BUILD="$work/build" CUDA=1 CUDA_HOME="$work/none" help > out 2> err
ok "make CUDA=1 with a CUDA_HOME that is none fails" [ $? != 0 ]
says err "CUDA=1 $work/none include/cuda_runtime_api.h"
make -n -p -C "$sources" --no-print-directory BUILD="$work/build" CUDA=0 help > out 2> err
ok "CUDA=0 leaves it out" grep -qE '^BACKENDS :=( [^ ]*yoke-(mpi|ucx)\.so)* *$' out
finish
