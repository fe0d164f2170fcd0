#!/bin/bash
# links.sh - a job on three hosts, which are network namespaces on one bridge: a link that is cut between two of them,
# one that loses packets, and signals while ranks wait for what cannot come. Nothing outside the namespaces is touched.
. tests/support/tap.bash
needs_proc "processes are looked for there"

missing=
[ "$(id -u)" = 0 ] || missing="it takes root"
command -v ip > /dev/null || missing="it takes ip (iproute2)"
command -v nft > /dev/null || missing="it takes nft (nftables)"
if [ -z "$missing" ] && ! ip netns add yl$$x 2> err; then
    missing="no network namespace can be made: $(head -n 1 err)"
fi
if [ -n "$missing" ]; then
    skip "three hosts" "$missing"
    finish
    exit
fi
cleanup()
{
    local pid space
    for space in yl$$0 yl$$1 yl$$2 yl$$x; do
        for pid in $(ip netns pids $space 2> /dev/null); do
            kill -9 "$pid" 2> /dev/null
        done
        ip netns del $space 2> /dev/null
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# The bridge is in the namespace x, host N has the address 10.214.77.(N + 1) and the interface eN.
if ! ip -n yl$$x link add bridge type bridge 2> err; then
    skip "three hosts" "they cannot be joined here: $(head -n 1 err)"
    finish
    exit
fi
ip -n yl$$x link set bridge up
for n in 0 1 2; do
    ip netns add yl$$$n
    ip link add e$n netns yl$$$n type veth peer name p$n netns yl$$x
    ip -n yl$$x link set p$n master bridge up
    ip -n yl$$$n addr add 10.214.77.$((n + 1))/24 dev e$n
    ip -n yl$$$n link set lo up
    ip -n yl$$$n link set e$n up
done
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret)

# node N COUNT ARGUMENTS...: the launcher of node N of so many, in the background; its output goes to outN and errN.
node()
{
    local n=$1 count=$2
    shift 2
    YOKE_HOST_ID=host$n timeout $(patience 200) ip netns exec yl$$"$n" "$YOKE" run --nnodes "$count" --node-rank "$n" \
        --master-addr 10.214.77.1 --master-port 29511 --secret-file secret --grace 6 --join-timeout $(patience 20) "$@" \
        > "out$n" 2> "err$n" < /dev/null &
    node[n]=$!
}

ended()
{
    local n
    for n in "$@"; do
        { wait "${node[n]}"; } 2> /dev/null
        code[n]=$?
    done
    cat out? > out
    cat err? > err
}

# Hosts 1 and 2 do not reach each other any more, and both reach host 0: that is what all say, and not that rank 0 failed.
rm -f log
YOKE_COMM_TIMEOUT=3
export YOKE_COMM_TIMEOUT
for n in 0 1 2; do
    node $n 3 -- "$YOKE" train --epochs 100000 --no-eval --batch-size 8 --log log
done
ok "three hosts train" wait_for log '"step":20,'
ip netns exec yl$$1 nft -f - << 'RULES'
table inet yoke {
    chain input {
        type filter hook input priority 0;
        ip saddr 10.214.77.3 drop
    }
}
RULES
ended 0 1 2
ok "a cut between hosts 1 and 2: all end with 1" [ "${code[*]}" = "1 1 1" ]
for n in 0 1 2; do
    ok "a cut between hosts 1 and 2: launcher $n blames one of them" grep -qE "^yoke run: rank [12] " err$n
done
ok "a cut between hosts 1 and 2: both ranks are named" grep -qE "rank [12] \(.*rank [12] \(host" err0
ip netns exec yl$$1 nft flush ruleset
unset YOKE_COMM_TIMEOUT

# Ranks that would save a checkpoint when they are asked to end, and cannot take another step: the link is cut.
rm -f log
for n in 0 1; do
    node $n 2 -- bash -c 'echo $$ > pid.$RANK; exec "$@"' - "$YOKE" train --epochs 100000 --no-eval --batch-size 8 \
        --log log --checkpoint ck$n
done
ok "two hosts train" wait_for log '"step":20,'
ip -n yl$$x link set p1 down
sleep 2.5
began=${EPOCHREALTIME/./}
kill -TERM "$(cat pid.0)" "$(cat pid.1)"
wait_until 5 [ ! -e "/proc/$(cat pid.0)" ]
took=$((${EPOCHREALTIME/./} - began))
ok "SIGTERM in a collective over a cut link is obeyed at once ($took us)" in_time $took 1
kill -TERM "${node[0]}" "${node[1]}"
ended 0 1
ok "the rank says which link does not answer" grep -qE "rank 0 \(.*SIGTERM.*rank 0 \(.*rank 1 \(" err0
ip -n yl$$x link set p1 up
finish
