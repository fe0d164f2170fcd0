#!/bin/bash
# hosts.sh - a job on two hosts, which are two network namespaces of this machine joined by a pair of virtual
# interfaces: that it works, and what a firewall and a cut link come to. Nothing outside the namespaces is touched.
. tests/support/tap.bash

missing=
[ "$(id -u)" = 0 ] || missing="it takes root"
command -v ip > /dev/null || missing="it takes ip (iproute2)"
a=yk$$a b=yk$$b
if [ -z "$missing" ] && ! ip netns add $a 2> err; then
    missing="no network namespace can be made: $(head -n 1 err)"
fi
if [ -n "$missing" ]; then
    skip "two hosts" "$missing"
    finish
    exit
fi
cleanup()
{
    local pid
    for pid in $(ip netns pids $a 2> /dev/null) $(ip netns pids $b 2> /dev/null); do
        kill -9 "$pid" 2> /dev/null
    done
    ip netns del $a 2> /dev/null
    ip netns del $b 2> /dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

if ! { ip netns add $b && ip link add yk$$0 netns $a type veth peer name yk$$1 netns $b; } 2> err; then
    skip "two hosts" "they cannot be joined here: $(head -n 1 err)"
    finish
    exit
fi
ip -n $a addr add 10.213.77.1/24 dev yk$$0
ip -n $b addr add 10.213.77.2/24 dev yk$$1
for space in $a $b; do
    ip -n $space link set lo up
done
ip -n $a link set yk$$0 up
ip -n $b link set yk$$1 up
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret0 && cp secret0 secret1)

# node N NAMESPACE PROCESSES ARGUMENTS...: the launcher of node N; its output goes to outN and errN.
node()
{
    local n=$1 space=$2 processes=$3
    shift 3
    YOKE_HOST_ID=host$n timeout $(patience 200) ip netns exec "$space" "$YOKE" run --nnodes 2 --node-rank "$n" -n "$processes" \
        --master-addr 10.213.77.1 --master-port 29511 --secret-file "secret$n" --grace 2 --join-timeout "$join" \
        -- "$@" > out$n 2> err$n < /dev/null
}

join=$(patience 20) # seconds; few where a node is not let in
# both PROCESSES ARGUMENTS...: the job on both nodes; exit codes in $code0 and $code1, and the time in $seconds.
both()
{
    local processes=$1 began=$SECONDS
    shift
    node 1 $b "$processes" "$@" &
    local other=$!
    node 0 $a "$processes" "$@"
    code0=$?
    wait $other
    code1=$?
    seconds=$((SECONDS - began))
    cat out0 out1 > out
    cat err0 err1 > err
}

bench=("$YOKE" bench allreduce --seconds 0.05 --json)
both 1 "${bench[@]}" --bytes 4,16K,1M
ok "two hosts with a rank each" [ $code0 = 0 -a $code1 = 0 ]
says out0 '"ranks":2,'
says out0 '"bytes":1048576,'
both 2,1 "${bench[@]}" --bytes 4,1M,20M
ok "two hosts with two ranks and one" [ $code0 = 0 -a $code1 = 0 ]
says out0 '"ranks":3,'
says out0 '"bytes":20971520,'

# Debian's installer and cloud-init give a host its own name as 127.0.1.1; host 1 knows the address. Host 0 has no default
# route here, which says that it listens at all addresses and not at one that it guesses.
printf '127.0.0.1 localhost\n127.0.1.1 nodezero.cluster.test nodezero\n' > hosts0
printf '127.0.0.1 localhost\n10.213.77.1 nodezero.cluster.test nodezero\n' > hosts1
# named N NAMESPACE HOSTNAME COMMAND...: the command on host N, which has that name; its output goes to outN and errN.
named()
{
    local n=$1 space=$2 name=$3
    shift 3
    YOKE_HOST_ID=host$n timeout $(patience 100) ip netns exec "$space" unshare -mu sh -c '
        hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"' sh "$name" "hosts$n" \
        "$@" > out$n 2> err$n < /dev/null
}
port=29520
for own in nodezero nodezero.cluster.test; do
    for name in nodezero NodeZero nodezero.cluster.test NODEZERO.cluster.test; do
        port=$((port + 2))
        for how in "--node-rank 1" ""; do
            launch=("$YOKE" run --nnodes 2 -n 2,1 --master-addr $name --master-port $port --join-timeout $join)
            launch+=(--grace 2)
            named 1 $b nodeone "${launch[@]}" $how --secret-file secret1 -- "${bench[@]}" --bytes 4,1M &
            named 0 $a $own "${launch[@]}" ${how/1/0} --secret-file secret0 -- "${bench[@]}" --bytes 4,1M
            code0=$?
            wait $!
            code1=$?
            ok "host 0 is $own, --master-addr $name $how" [ $code0 = 0 -a $code1 = 0 ]
            says out0 '"ranks":3,'
        done
    done
    ranks=(WORLD_SIZE=2 MASTER_ADDR=NodeZero.cluster.test MASTER_PORT=$port YOKE_JOIN_TIMEOUT=$join)
    named 1 $b nodeone env RANK=1 "${ranks[@]}" YOKE_JOB_SECRET_FILE=secret1 "${bench[@]}" --bytes 4,1M &
    named 0 $a $own env RANK=0 "${ranks[@]}" YOKE_JOB_SECRET_FILE=secret0 "${bench[@]}" --bytes 4,1M
    code0=$?
    wait $!
    code1=$?
    ok "host 0 is $own, ranks without a launcher" [ $code0 = 0 -a $code1 = 0 ]
    says out0 '"ranks":2,'
done
# Without a secret only this host is meant, and loopback is enough, as it is for a name that resolves to 127.0.0.1.
named 0 $a nodezero "$YOKE" run --nnodes 1 --master-addr NodeZero -n 2 -- "${bench[@]}" --bytes 4
ok "host 0 alone, by its name and without a secret" [ $? = 0 ]
says out0 '"ranks":2,'

# The secret is what lets a node in: another one is told so, and the job does not start.
export YOKE_JOIN_TIMEOUT=3
cp secret1 good
echo "the secret of another job" > secret1
join=$(patience 2)
both 1 "${bench[@]}" --bytes 4
join=$(patience 20)
ok "a node with another secret does not join" [ $code0 = 1 -a $code1 = 1 ]
says err1 "wrong secret"
cp good secret1

# A firewall on host 0 lets in connections to the launcher and to the store, which has the next port, alone.
if ! command -v nft > /dev/null; then
    skip "a firewall" "it takes nft (nftables)"
elif ! ip netns exec $a nft -f - 2> err << 'RULES'; then
table inet yoke {
    chain input {
        type filter hook input priority 0;
        tcp dport != { 29511, 29512 } tcp flags & (syn | ack) == syn drop
    }
}
RULES
    skip "a firewall" "this system takes no rules: $(head -n 1 err)"
else
    both 1 "${bench[@]}" --bytes 4
    ok "a firewall that drops: both nodes fail" [ $code0 = 1 -a $code1 = 1 ]
    ok "a firewall that drops: in bounded time ($seconds s)" in_time $((seconds * 1000000)) 60
    says err1 "rank 0 (host"
    says err1 "at 10.213.77.1:"
    says err1 "firewall"
    ok "a firewall that drops: the other side names the rank" grep -qE "rank 1 \(host" err0
    ip netns exec $a nft flush ruleset

    # One that rejects says so, but not to every packet.
    ip netns exec $a nft -f - << 'RULES'
table inet yoke {
    chain input {
        type filter hook input priority 0;
        tcp dport 29511 reject with icmp type host-prohibited
    }
}
RULES
    join=$(patience 2)
    both 1 true
    join=$(patience 20)
    ok "a firewall that rejects: both nodes fail" [ $code0 = 1 -a $code1 = 1 ]
    says err1 "10.213.77.1:29511 No route to host"
    says err1 "10.213.77.1:29511 firewall"
    sleep 1 # the system answers one packet a second
    ip netns exec $b "$YOKE" doctor --timeout 3 --master 10.213.77.1:29511 --secret-file secret1 > out
    says out "connect FAILED No route to host firewall"
    ip netns exec $a nft flush ruleset
fi

# The link is cut while the ranks work: no packet says so.
unset YOKE_JOIN_TIMEOUT
export YOKE_COMM_TIMEOUT=3
rm -f out0
(
    wait_for out0 '"bytes":4,'
    sleep 0.5
    ip -n $b link set yk$$1 down
    date +%s > cut
) &
cutter=$!
both 1 "$YOKE" bench allreduce --seconds 1 --bytes 4,4M,8M,16M,32M,64M,128M --json
wait $cutter
ok "a cut link: both nodes fail" [ $code0 = 1 -a $code1 = 1 ]
ok "a cut link: in bounded time ($(($(date +%s) - $(cat cut))) s)" in_time $((($(date +%s) - $(cat cut)) * 1000000)) 60
ok "a cut link: host 0 names rank 1" said err0 "rank 0 3 s rank 1 (host" 1
ok "a cut link: host 1 names rank 0" said err1 "rank 1 3 s rank 0 (host" 1
finish
