#!/bin/bash
# ucx.sh - the ucx backend as users meet it: `yoke bench allreduce`, and what is said where it cannot work.
. tests/support/tap.bash
unset YOKE_COMM_BACKEND UCX_TLS UCX_NET_DEVICES UCX_LOG_LEVEL RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

if [ ! -e "${YOKE%/*}/yoke-ucx.so" ]; then
    skip "the ucx backend" "this build has no yoke-ucx.so (Debian: libucx-dev)"
else
    for transports in tcp shm; do
        UCX_TLS=$transports exits 0 "bench over $transports" run -n 2 -- "$YOKE" bench allreduce --backend ucx --bytes 4,64K,3M --seconds 0.02 --json
        ok "bench over $transports: a line a size" [ "$(grep -c '{.*"backend":"ucx","path":"UCX".*}$' out)" = 3 ]
    done
    ok "nothing is said of UCX" [ ! -s err ]

    UCX_TLS=nonsense exits 1 "transports that are none" run -n 2 -- "$YOKE" bench allreduce --backend ucx --bytes 4
    says err "ucx backend UCX says UCX_TLS=nonsense ucx_info -d"

    # The signals that UCX takes over are this program's.
    UCX_TLS=tcp exits 139 "a rank that is killed" run -n 2 -- bash -c '[ $RANK = 0 ] || (sleep 1; kill -SEGV $$) & exec "$0" bench allreduce --backend ucx --bytes 16M --seconds 60' "$YOKE"
    says err "SIGSEGV"
fi

exits 1 "in a job that is encrypted" run -n 2 --encrypt -- "$YOKE" bench allreduce --backend ucx --bytes 4
says err "job encrypted what goes by UCX cannot be"

YOKE_BACKEND_PATH=$work run bench allreduce --backend ucx --bytes 4
ok "without the object: exit code 1" [ $code = 1 ]
says err "'ucx' not there $work/yoke-ucx.so"
says err "apt-get libucx-dev"

echo "not an object" > yoke-ucx.so
YOKE_BACKEND_PATH=$work run bench allreduce --backend ucx --bytes 4
ok "with something else in its place: exit code 1" [ $code = 1 ]
says err "cannot be loaded"
finish
