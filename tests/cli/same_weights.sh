#!/bin/bash
# same_weights.sh - the weights of a run of several processes depend neither on what carried the gradients (TCP, shared
# memory, hosts of several ranks, MPI), nor on having been resumed from any step, which lays DDP's buckets anew, nor on
# a restart after a failure.
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE YOKE_SHARED_MEMORY YOKE_HOST_ID YOKE_COMM_BACKEND

steps=12
train=("$YOKE" train --data glyphs --model mlp --steps $steps --batch-size 32 --lr 0.1 --no-eval)

# launched NAME COUNT ARGUMENTS...: a job; its exit code is 0
launched()
{
    local name=$1 count=$2
    shift 2
    exits 0 "$name" run --no-prefix -n "$count" -- "${train[@]}" "$@"
}

# same NAME WEIGHTS: those of this number of ranks
same()
{
    ok "$1: the same weights" cmp -s "whole.$ranks" "$2"
}

for ranks in 3 4; do
    export YOKE_SHARED_MEMORY=0
    launched "$ranks ranks over TCP" $ranks --checkpoint all --save-every 1 --keep 99 --save whole.$ranks
    for ((step = 1; step < steps; step++)); do
        [ $ranks = 3 ] || [ $((step % 4)) = 1 ] || continue
        rm -rf ck
        mkdir ck
        for ((i = 1; i <= step; i++)); do
            cp -r "all/$(printf 'step-%08d' $i)" ck
        done
        launched "resumed from step $step" $ranks --checkpoint ck --save-every 1 --resume --save resumed
        says out "going on ck/$(printf 'step-%08d' $step)"
        same "resumed from step $step" resumed
    done
    unset YOKE_SHARED_MEMORY

    launched "shared memory" $ranks --save shared
    same "shared memory" shared
    exits 0 "two hosts" run --no-prefix -n $ranks -- \
        sh -c 'YOKE_HOST_ID=host$((RANK / 2)) exec "$@"' - "${train[@]}" --save blocks
    same "two hosts" blocks
    exits 0 "two hosts in turns" run --no-prefix -n $ranks -- \
        sh -c 'YOKE_HOST_ID=host$((RANK % 2)) exec "$@"' - "${train[@]}" --save turns
    same "two hosts in turns" turns

    # Rank 1 dies after five steps, while the others live; all are started again and go on from the last checkpoint.
    for shared in 0 1; do
        rm -rf ck
        # shellcheck disable=SC2016
        YOKE_SHARED_MEMORY=$shared exits 0 "restarted ($shared)" run --no-prefix --max-restarts 2 -n $ranks -- \
            sh -c 'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then "$@" --steps 5; [ $RANK != 1 ] || kill -KILL $$; sleep 60
                fi; exec "$@"' - "${train[@]}" --checkpoint ck --save-every 1 --resume --save restarted
        says err "restart 1 of 2"
        says out "going on ck/step-00000005"
        same "restarted ($shared)" restarted
    done
    rm -rf all

    if command -v mpirun > /dev/null && [ -e "${YOKE%/*}/yoke-mpi.so" ]; then
        # Open MPI leaks; see tests/comm/mpi_test.c.
        ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 TMPDIR=$work YOKE_COMM_BACKEND=mpi \
            timeout -k 5 $(patience 200) mpirun --allow-run-as-root --oversubscribe --mca orte_tmpdir_base "$work" -n $ranks \
            "${train[@]}" --save mpi > out 2> err < /dev/null
        ok "MPI: exit code 0" [ $? = 0 ]
        same "MPI" mpi
    else
        skip "MPI, $ranks ranks" "there is no mpirun, or no yoke-mpi.so (Debian: openmpi-bin, libopenmpi-dev)"
    fi
done
finish
