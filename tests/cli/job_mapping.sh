#!/bin/bash
# job_mapping.sh - `yoke run --hpc-job-mapping-dir`: which GPUs have the job, while it runs and no longer, among lines of
# others; what is left where a launcher was killed.
. tests/support/tap.bash
needs_proc "processes are looked for there"
pids=()
end_all()
{
    local pid
    for pid in "${pids[@]}"; do
        kill -KILL "$pid"
    done 2> /dev/null
    wait
    rm -rf "$work"
}
trap end_all EXIT
export YOKE_RUN_DIR=$work/runs YOKE_NVIDIA_DRIVER=$work/driver
unset CUDA_VISIBLE_DEVICES DCGM_HPC_JOB_MAPPING_DIR
for gpu in 0 1 2; do
    mkdir -p "driver/gpus/0000:0$gpu:00.0"
    printf 'Device Minor: \t %d\n' $gpu > "driver/gpus/0000:0$gpu:00.0/information"
    : > driver/nvidia$gpu
done
mkdir map
# has GPU TEXT: the file of the GPU is this; "": it is not there.
has()
{
    if [ -z "$2" ]; then
        [ ! -e "map/$1" ]
    else
        [ "$(cat "map/$1" 2> /dev/null)" = "$2" ]
    fi
}
# begin NAME ARGUMENTS...: a run, which goes on until it is ended; its launcher's pid goes to $launcher.
begin()
{
    "$YOKE" run --job-id "$1" --hpc-job-mapping-dir map "${@:2}" sleep 600 > run.out 2> run.err < /dev/null &
    launcher=$!
    pids+=($launcher)
    wait_until 60 eval 'grep -q "\"launcher\":$launcher," runs/*.json 2> /dev/null'
}
stop()
{
    "$YOKE" stop --timeout 120 "$1" > out 2> err
    wait "$1"
}
nothing_is_left()
{
    [ -z "$(ls -A map)" ]
}

begin night -n 2
ok "each rank has a GPU" eval 'has 0 night && has 1 night && has 2 ""'
ok "others may read it, whatever the umask" [ "$(stat -c %a map/0)" = 644 ]
stop $launcher
ok "and no longer" nothing_is_left

# Lines of others stay, the same name too.
printf 'slurm-7\nnight' > map/0
printf 'slurm-8\n' > map/1
begin night -n 3
ok "among lines of others" eval 'has 0 "slurm-7
night" && has 1 "slurm-8
night" && has 2 night'
stop $launcher
ok "they stay" eval 'has 0 "slurm-7
night" && has 1 slurm-8 && has 2 ""'
rm map/0 map/1

(umask 077 && CUDA_VISIBLE_DEVICES=2,0 DCGM_HPC_JOB_MAPPING_DIR=map "$YOKE" run -n 1 --job-id 'a"b\c' \
    bash -c 'for i in {1..500}; do [ -s map/0 ] && [ -s map/2 ] && break; sleep 0.02; done # its launcher starts it first
        cat map/0 map/2; stat -c %a map/0; ls map' > seen 2> err)
ok "one process has all that it sees; the variable; no character that dcgm-exporter would have to escape" \
    [ "$(sed 's/^[^ ]* //' seen | tr '\n' ' ')" = "a_b_c a_b_c 644 0 2 " ]
ok "no longer" nothing_is_left
YOKE_NVIDIA_DRIVER=$work/none exits 0 "without a GPU" run -n 2 --hpc-job-mapping-dir map true
ok "nothing is written" nothing_is_left

# The same name twice is one line, until both have ended.
begin twin -n 1
first=$launcher
begin twin -n 2
ok "one line" eval 'has 0 twin && has 1 twin'
stop $first
ok "which the other needs" eval 'has 0 twin && has 1 twin && has 2 ""'
stop $launcher
ok "until it ends" nothing_is_left
exits 1 "a job that fails, and again" run -n 2 --max-restarts 1 --hpc-job-mapping-dir map \
    bash -c '[ "$(cat map/0)" = "$TORCHELASTIC_RUN_ID" ] && exit 1; exit 9'
ok "leaves nothing" nothing_is_left

# A launcher that is killed: by its other process, or by the next run.
begin front -n 1
kill -KILL $launcher
wait $launcher
ok "its supervisor takes the lines away" wait_until 20 nothing_is_left
begin both -n 3
supervisor=$(sed -n 's/.*"pid":\([0-9]*\),.*/\1/p' runs/*.json | head -n 1)
pids+=("$supervisor")
kill -STOP $launcher "$supervisor"
kill -KILL $launcher "$supervisor"
wait $launcher
ok "of both nobody is left to do it" eval 'has 0 both && has 2 both'
begin next -n 1
ok "the next run does" eval 'has 0 next && has 1 next && has 2 next'
stop $launcher
ok "and goes" nothing_is_left

# What cannot be written is said in a line.
exits 0 "a folder that is not there" run -n 1 --hpc-job-mapping-dir none true
says err "none No such file dcgm-exporter"
ok "in one line" [ "$(wc -l < err)" = 1 ]
mkdir map/0
exits 0 "a folder in the place of a file" run -n 3 --hpc-job-mapping-dir map true
says err "map dcgm-exporter"
ok "the other files are as they were" [ "$(ls -A map)" = 0 ]
rmdir map/0
ln -s "$work/elsewhere" map/0
echo own > elsewhere
exits 0 "a link" run -n 1 --hpc-job-mapping-dir map true
ok "is not followed" [ "$(cat elsewhere)" = own ]
finish
