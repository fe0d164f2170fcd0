#!/bin/bash
# no_proc.sh - a system without /proc, and with an empty /etc/hosts, as a chroot that debootstrap made: ranks share
# memory, their ends are seen, output is relayed, a name of this host is found, nothing is left behind.
. tests/support/tap.bash
if [ -n "${SANITIZE:-}" ]; then
    echo "1..0 # SKIP the sanitizers read their options, and search for leaks, in /proc"
    exit 0
fi

# bare COMMAND...: where there is a /proc, in a mount namespace in which it is hidden.
if [ -e /proc/self/stat ]; then
    : > empty
    hide='mount -t tmpfs none /proc && { [ ! -e /etc/hosts ] || mount --bind '$work'/empty /etc/hosts; } && exec "$@"'
    how="unshare --mount"
    $how bash -c "$hide" - true 2> /dev/null || how="unshare --map-root-user --mount"
    if ! $how bash -c "$hide" - [ ! -e /proc/self ] 2> /dev/null; then
        echo "1..0 # SKIP there is a /proc, and hiding it takes a mount namespace"
        exit 0
    fi
    bare()
    {
        $how bash -c "$hide" - "$@"
    }
else
    bare()
    {
        "$@"
    }
fi

# the allreduce of two ranks, its sums checked by the ranks; and a training that does not end by itself
endless="train --data glyphs --model mlp --epochs 100000"
reduce="bench allreduce --bytes 4,64K,4M --seconds 0.02 --json"
bare "$YOKE" run -n 2 --no-prefix "$YOKE" $reduce > out 2> err
ok "two ranks" [ $? = 0 ]
ok "three sizes" [ "$(grep -c '"bytes"' out)" = 3 ]
ok "share memory" [ "$(grep -c '"path":"shared memory"' out)" = 3 ]
YOKE_SHARED_MEMORY=0 bare "$YOKE" run -n 2 --no-prefix "$YOKE" $reduce > out 2> err
ok "two ranks over TCP" [ $? = 0 ]
ok "three sizes over TCP" [ "$(grep -c '"bytes"' out)" = 3 ]
ok "share none" [ "$(grep -c '"path":"TCP"' out)" = 3 ]

# an end is seen: by the other rank in its collective, which says so, and by the launcher
bare "$YOKE" run -n 2 bash -c '[ $RANK = 0 ] || { (sleep 0.5; kill -KILL $$) & } 2> /dev/null
    exec "$0" $1' "$YOKE" "$endless" > out 2> err
ok "a rank that is killed ends the run: 137" [ $? = 137 ]
says err "rank 1"

# ranks that do not get on are named, by what they wrote into the launcher's memory
bare "$YOKE" run -n 2 --hang-timeout 1 --hang-stacks bash -c '[ $RANK = 0 ] || { (sleep 0.5; kill -STOP $$) & } 2> /dev/null
    exec "$0" $1' "$YOKE" "$endless" > out 2> err
ok "a rank that is stopped is a hang: 124" [ $? = 124 ]
ok "the operation is named" grep -qE "rank 0 .*(all_reduce|barrier|all_gather|broadcast) #[0-9]+ " err
ok "with the stack of the rank that waits" grep -q "stack of thread" err

# what left its process group is found, too
bare "$YOKE" run -n 1 --grace 1 bash -c 'setsid bash -c "trap : TERM; echo \$\$ > orphan; while :; do sleep 0.1; done" > /dev/null 2>&1 &
    until [ -s orphan ]; do sleep 0.02; done' > out 2> err
ok "an orphan does not keep the run" [ $? = 0 ]
ok "and does not stay" bash -c '! kill -0 "$(cat orphan)" 2> /dev/null'

# output through a pipe: whole lines, and a reader that does not read does not keep a signal from the launcher
bare "$YOKE" run -n 2 --no-prefix seq 50000 | sort -n | uniq -c | awk '$1 != 2 || $2 != NR { bad = 1 } END { exit bad || NR != 50000 }'
ok "all lines come" [ "${PIPESTATUS[*]}" = "0 0 0 0" ]
mkfifo idle
exec 7<> idle
bare bash -c 'echo $$ > launcher; exec "$0" "$@"' "$YOKE" run -n 1 --no-prefix --grace 1 bash -c 'echo $$ > writer; exec seq 3000000' \
    > idle 2> err &
until [ -s writer ]; do sleep 0.02; done
sleep 0.5
kill -TERM "$(cat launcher)"
ended=no
! wait_until 30 eval '! kill -0 "$(cat launcher)" 2> /dev/null' || ended=yes
ok "SIGTERM ends a run whose reader does not read" [ $ended = yes ]
ok "and what it ran" bash -c '! kill -0 "$(cat writer)" 2> /dev/null'
[ $ended = yes ] || kill -KILL "$(cat launcher)"
wait
exec 7>&-

# the job's secret, and a plug-in's folder that the program's own place gives
ok "the secret comes by a descriptor of its own" bare "$YOKE" run -n 2 bash -c '[ "$(wc -c <&60)" = 32 ]'
bare "$YOKE" run -n 1 --no-prefix -- "$YOKE" doctor > out 2> err
ok "yoke doctor runs" grep -q "shared memory" out

# localhost
bare "$YOKE" run --nnodes 1 -n 2 --master-addr localhost "$YOKE" bench allreduce --bytes 4 --seconds 0.01 > out 2> err
ok "localhost without /etc/hosts" [ $? = 0 ]
finish
