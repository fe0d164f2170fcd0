#!/bin/bash
# mpi.sh - the mpi backend as users meet it: `yoke bench allreduce` under mpirun, and what is said where it cannot work.
. tests/support/tap.bash
unset YOKE_COMM_BACKEND RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # Open MPI leaks; see tests/comm/mpi_test.c
export TMPDIR=$work # where Open MPI keeps the files of a process that it did not start
mpirun=(timeout -k 5 $(patience 200) mpirun --allow-run-as-root --oversubscribe --mca orte_tmpdir_base "$work")

# under_mpirun RANKS ARGUMENTS...: as `run`
under_mpirun()
{
    local ranks=$1
    shift
    "${mpirun[@]}" -n "$ranks" "$YOKE" "$@" > out 2> err < /dev/null
    code=$?
}

if ! command -v mpirun > /dev/null; then
    skip "the mpi backend" "there is no mpirun (Debian: openmpi-bin)"
elif [ ! -e "${YOKE%/*}/yoke-mpi.so" ]; then
    skip "the mpi backend" "this build has no yoke-mpi.so (Debian: libopenmpi-dev)"
else
    under_mpirun 2 bench allreduce --backend mpi --bytes 4,64K,3M --seconds 0.05 --json
    ok "bench under mpirun: exit code 0" [ $code = 0 ]
    ok "bench under mpirun: a line a size, from rank 0 alone" [ "$(grep -c '^{.*"backend":"mpi".*}$' out)" = 3 ]
    says out '"bytes":3145728,"time_us_median":'

    YOKE_COMM_BACKEND=mpi under_mpirun 3 bench allreduce --bytes 4 --seconds 0.05 --json
    says out '"ranks":3 "backend":"mpi"'

    under_mpirun 2 bench allreduce --bytes 4 --seconds 0.05 --json
    says out '"ranks":2 "backend":"native"'

    exits 0 "a world of one needs no mpirun" bench allreduce --backend mpi --bytes 4 --seconds 0.05

    # Each is a job of its own to Open MPI, and the first to end would remove the folder that both keep their files in.
    exits 1 "under yoke run" run -n 2 -- bash -c 'mkdir "$TMPDIR/$RANK" && TMPDIR=$TMPDIR/$RANK exec "$0" bench allreduce --backend mpi --bytes 4' "$YOKE"
    says err "2 ranks MPI 1 process"
    says err "mpirun -n 2 PROGRAM"
fi

YOKE_BACKEND_PATH=$work run bench allreduce --backend mpi --bytes 4
ok "without the object: exit code 1" [ $code = 1 ]
says err "'mpi' not there $work/yoke-mpi.so"
says err "apt-get libopenmpi-dev openmpi-bin"

echo "not an object" > yoke-mpi.so
YOKE_BACKEND_PATH=$work run bench allreduce --backend mpi --bytes 4
ok "with something else in its place: exit code 1" [ $code = 1 ]
says err "cannot be loaded"

YOKE_COMM_BACKEND=glow run bench allreduce --bytes 4
ok "another backend: exit code 1" [ $code = 1 ]
says err "unknown backend 'glow' 'native' 'gloo' 'mpi'"
finish
