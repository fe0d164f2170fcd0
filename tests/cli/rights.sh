#!/bin/bash
# rights.sh - ranks of one machine that may not open one another's memory: each in a user namespace of its own, as
# apptainer makes one for every rank that srun or mpirun starts; of a program that the kernel keeps closed. They use TCP.
. tests/support/tap.bash

export YOKE_LOG=warn
bench=("$YOKE" bench allreduce --seconds 0.02 --bytes 4,100K)
# apart NAME RANKS COMMAND...: a job of so many ranks that do not share memory, which is said once.
apart()
{
    local name=$1 ranks=$2
    shift 2
    "$@" > out 2> err
    ok "$name: the job runs" [ $? = 0 ]
    says out "all_reduce, $ranks ranks, cpu, native, TCP"
    ok "$name: the log says it once" [ "$(grep -c 'may not open one another' err)" = 1 ]
}

if ! unshare -r true 2> err; then
    skip "user namespaces" "they cannot be made here: $(head -n 1 err)"
else
    for how in "unshare -r" "unshare -U" "unshare -r -m"; do
        apart "ranks by '$how'" 3 "$YOKE" run -n 3 -- $how "${bench[@]}"
    done
    says err "group 'world': ranks 0, 1, 2 are on one machine"
    apart "one rank of three by 'unshare -r'" 3 "$YOKE" run -n 3 -- sh -c \
        '[ $RANK = 1 ] && exec unshare -r "$@"; exec "$@"' sh "${bench[@]}"
    "$YOKE" run -n 3 -- "${bench[@]}" > out 2> err
    ok "ranks with the same rights" [ $? = 0 ]
    says out "native, shared memory"
    ok "ranks with the same rights: nothing is said" [ ! -s err ]
    "$YOKE" run -n 2 -- unshare -r "$YOKE" train --data glyphs --model mlp --steps 3 --no-eval --threads 1 > out 2> err
    ok "training by 'unshare -r'" [ $? = 0 ]
fi

# A program that its user may run and not read is one whose memory its user may not read.
if [ "$(id -u)" != 0 ] || ! command -v setpriv > /dev/null; then
    skip "a program that cannot be read" "it takes root and setpriv (util-linux)"
else
    cp "$YOKE" closed && chmod 711 closed && chmod 755 .
    plain=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    if ! "${plain[@]}" ./closed --version > out 2> err; then
        skip "a program that cannot be read" "another user cannot start it here: $(head -n 1 err)"
    else
        apart "a program that cannot be read" 2 "${plain[@]}" ./closed run -n 2 -- ./closed "${bench[@]:1}"
    fi
fi
finish
