#!/bin/bash
# doctor.sh - `yoke doctor`: libraries and devices, an address step by step, and the nodes of a job next to each other.
. tests/support/tap.bash
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE YOKE_JOB_ID YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD
free_ports 30000 20
printf secret-of-the-job > job.secret
printf another-jobs-secret > other.secret
chmod 600 job.secret other.secret

exits 0 "doctor" doctor
for name in host version oneDNN libsodium jansson zlib libpng xxHash processor kernels cores memory /dev/shm GPUs "open files" "locked memory"; do
    ok "it tells $name" grep -qE "^  $name +[^ ]" out
done
ok "libraries have versions" grep -qE '^  zlib +[0-9]+\.[0-9]+' out
if ldconfig -p | grep -q 'libdnnl\.so\.[23]'; then
    ok "oneDNN is found under the name that the system has" grep -qE '^  oneDNN +[0-9]+\.[0-9]+\.[0-9]+$' out
else
    ok "oneDNN may be missing" grep -qE "^  oneDNN +not here: large matrix products are yoke's own$" out
fi
ok "backends of collectives" grep -qE '^  native, gloo +all operations of tensors on CPUs, and on GPUs' out
ok "NCCL's too" grep -qE '^  nccl +(all operations of tensors on GPUs|not here)' out
says out "no problems found"
ok "kernels as chosen" grep -qE '^  kernels +(v4|v3|base)' out
YOKE_LOG=verbose exits 1 "a level that is none" doctor
says out "problem: YOKE_LOG=verbose info, warn nothing is logged"
YOKE_LOG=OFF exits 0 "a level in capitals" doctor
run doctor
grep '^  kernels' out > chosen
YOKE_CPU_ISA='' run doctor
ok "an empty one is not set" [ "$(grep '^  kernels' out)" = "$(cat chosen)" ]
ok "oneDNN is not part of the start" eval '! ldd "$YOKE" | grep -E "libdnnl|libgomp"'
# Libraries by its names without a function, in place of it: with AVX-512 it is loaded at the first large product.
if command -v cc > /dev/null; then
    mkdir lacking
    for version in 2 3; do
        echo 'int nothing;' | cc -shared -x c -o lacking/libdnnl.so.$version -
    done
    LD_LIBRARY_PATH=lacking YOKE_LOG=warn run doctor
    ok "one that cannot be used" grep -qE "^  oneDNN +not here: large matrix products are yoke's own$" out
    ok "it is said once" [ "$(grep -c "oneDNN is not used: libdnnl.so.3 lacks" err)" = 1 ]
    LD_LIBRARY_PATH=lacking YOKE=${YOKE%/*}/bench/operation_times exits 0 "a product without it" --seconds 0 \
        --only '^matmul x=48x256x64 y=48x256x64 transposed=1 forward'
    says out "us forward matmul"
    # Debian 13 has the minor version in the name.
    mkdir minor
    cat > minor/dnnl.c << 'END'
typedef struct version {
    int major, minor, patch;
} version;
const version *dnnl_version(void)
{
    static const version v = {3, 6, 2};
    return &v;
}
int dnnl_sgemm(void) { return 1; }
int omp_get_max_threads(void) { return 1; }
void omp_set_num_threads(int n) { (void)n; }
END
    cc -shared -fPIC -o minor/libdnnl.so.3.6 minor/dnnl.c
    if ! ldconfig -p | grep -q 'libdnnl\.so\.3$'; then
        LD_LIBRARY_PATH=minor run doctor
        ok "a name with the minor version" grep -qE '^  oneDNN +3\.6\.2$' out
    fi
else
    skip "oneDNN is not there" "there is no cc"
fi
exits 0 "doctor --json" doctor --json
if command -v python3 > /dev/null; then
    ok "is JSON" python3 -c 'import json
d = json.load(open("out"))
assert d["yoke"]["version"] and d["libraries"]["zlib"] and d["devices"]["cores"] and d["problems"] == []'
fi
exits 2 "an unknown option" doctor --mastr a
says err "--master"
exits 2 "a secret without an address" doctor --secret-file job.secret
says err "--secret-file --master"
exits 2 "an address that is none" doctor --master a:b
says err "port 0 65535 host 'b'"
exits 1 "a secret that is not there" doctor --master 127.0.0.1:9 --secret-file none
says err "none: No such file"

# ---- an address: which step fails
YOKE_CPU_DEVICES=x exits 1 "a wrong setting is a problem" doctor
says out "CPU YOKE_CPU_DEVICES"
exits 1 "a name that is not there" doctor --timeout 2 --master no-such-host.invalid:1
says out "resolve FAILED 'no-such-host.invalid'"
exits 1 "nothing listens" doctor --master 127.0.0.1:$port
ok "resolved" grep -qE '^  resolve +ok +127.0.0.1$' out
ok "the interface" grep -qE '^  route +ok +127.0.0.1: from 127.0.0.1, interface lo$' out
says out "connect FAILED refused"
if command -v python3 > /dev/null; then
    python3 -c "
import socket, time
s = socket.create_server(('127.0.0.1', 0))
q = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], q.getsockname()[1], flush=True)
while True:
    c = s.accept()[0]
    c.sendall(b'SSH-2.0-none\r\n')
    c.close()" > ports &
    other=$!
    wait_until 20 eval '{ read -r strange silent < ports; } 2> /dev/null'
    exits 1 "another program" doctor --master 127.0.0.1:$strange
    ok "connected" grep -qE '^  connect +ok +127.0.0.1:[0-9]+ .*[0-9.]+ ms$' out
    says out "handshake FAILED protocol"
    exits 1 "one that says nothing" doctor --timeout 0.4 --master 127.0.0.1:$silent
    says out "handshake FAILED no answer"
    { kill $other; wait $other; } 2> /dev/null
else
    skip "another program, one that says nothing" "there is no python3 to be them"
fi
# A launcher that waits for its other node.
"$YOKE" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port --secret-file job.secret --job-id night true > node.out 2> node.err < /dev/null &
node=$!
wait_until 10 eval 'run doctor --master 127.0.0.1:$port --secret-file job.secret --job-id night; [ $code = 0 ]'
ok "a launcher: exit code 0" [ $code = 0 ]
ok "it is known" grep -qE "^  handshake +ok +.*launcher .*'night' .*$(uname -n) \(pid [0-9]+\).* [0-9.]+ \(protocol [0-9]+\)" out
(umask 077 && { cat job.secret; printf '\r\n'; } > dos.secret)
exits 0 "the same secret, whose line ends otherwise" doctor --master 127.0.0.1:$port --secret-file dos.secret --job-id night
exits 1 "another job" doctor --master 127.0.0.1:$port --secret-file job.secret
says out "wrong job"
exits 1 "another secret" doctor --master 127.0.0.1:$port --secret-file other.secret --job-id night
says out "secret file"
chmod 644 other.secret
exits 1 "a secret that others may read" doctor --master 127.0.0.1:$port --secret-file other.secret --job-id night
says out "other.secret 600"
exits 1 "no secret" doctor --master 127.0.0.1:$port --job-id night
says out "no secret --secret-file"
exits 1 "another secret, JSON" doctor --json --master 127.0.0.1:$port --secret-file other.secret --job-id night
ok "the steps" grep -q '"step": "handshake"' out
ok "the problem" grep -qE '"127.0.0.1:'$port': handshake: wrong secret' out
YOKE_JOB_SECRET_FILE=$PWD/job.secret YOKE_JOB_ID=night exits 0 "job and secret from the environment" doctor --master 127.0.0.1:$port
kill $node
wait $node
ok "the launcher took no harm: it ends by SIGTERM" [ $? = 143 ]

# ---- the nodes of a job
exits 0 "two processes of one node" run -n 2 --no-prefix "$YOKE" doctor
ok "one report" [ "$(grep -c '^libraries' out)" = 1 ]
says out "no problems found"
for number in 0 1; do
    YOKE_CPU_DEVICES=$((number + 1)) "$YOKE" run --nnodes 2 --node-rank $number -n 2 --no-prefix --master-addr 127.0.0.1 --master-port $((port + 10)) \
        "$YOKE" doctor > out.$number 2> err.$number < /dev/null &
done
wait
cat out.0 out.1 > out
cat err.0 err.1 > err
ok "two nodes: one report" [ "$(grep -c '^libraries' out)" = 1 ]
says out.0 "2 nodes, 4 processes"
ok "what differs is told by node" grep -qE '^  CPU devices +1 with [0-9]+ threads each   \(node 0\)$' out.0
ok "and by the other" grep -qE '^  +2 with [0-9]+ threads each   \(node 1\)$' out.0
says out.0 "no problems found"

# ---- GPUs, as an old driver's library would tell them
if command -v cc > /dev/null; then
    cat > nvml.c << 'C'
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strncpy(t, "999.1", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(1L + i); return 0; }
int nvmlDeviceGetName(void *d, char *t, unsigned n) { strncpy(t, d == (void *)1 ? "Ox" : "Cow", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { (void)d; m[0] = 8ull << 30; m[1] = 6ull << 30; m[2] = 2ull << 30; return 0; }
C
    cc -shared -fPIC -o libnvidia-ml.so.1 nvml.c
    LD_LIBRARY_PATH=$PWD exits 0 "a driver with two GPUs" doctor
    ok "they are counted" grep -qE '^  GPUs +2, driver 999.1$' out
    ok "and named" grep -qE '^  GPU 1 +Cow, 8.0 GiB, 2.0 GiB in use$' out

    # NVIDIA's libraries, where the plug-ins look: first in the folders that are named, then as the loader does, then in
    # PyTorch's wheels.
    mkdir -p named venv/lib/python3.11/site-packages/nvidia/nccl/lib
    echo 'int ncclGetVersion(int *v) { *v = 21903; return 0; }' | cc -shared -fPIC -o named/libnccl.so.2 -x c -
    YOKE_LIBRARY_PATH=$work/other:$work/named exits 0 "a folder that is named" doctor
    ok "its library is the one" grep -qxF "  NCCL                   2.19.3, $work/named/libnccl.so.2" out
    cp named/libnccl.so.2 venv/lib/python3.11/site-packages/nvidia/nccl/lib
    echo 'int nothing;' | cc -shared -o lacking/libnccl.so.2 -x c - # the loader finds this, whatever the machine has
    CUDA_HOME= LD_LIBRARY_PATH=$work/lacking VIRTUAL_ENV=$work/venv exits 0 "PyTorch's wheels" doctor
    ok "it is found there" grep -qxF \
        "  NCCL                   2.19.3, $work/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2" out
else
    skip "a driver with two GPUs" "there is no compiler to make one"
fi
finish
