#!/bin/bash
# survive_cut.sh - a network that is cut between the nodes of a program that survives: the side with most nodes goes on, if
# it has enough of them, when no process of the other side is left; that one says so, comes back, and the weights are those
# of a run without a fault. The nodes are network namespaces of this machine, joined by a bridge in a fourth.
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY
needs_built tests/elastic/survive_test
worker=$built
missing=
[ "$(id -u)" = 0 ] || missing="it takes root"
command -v ip > /dev/null || missing="it takes ip (iproute2)"
spaces=()
for n in 0 1 2 x; do
    spaces+=("yv$$$n")
done
pids_of()
{
    ip netns pids "${spaces[$1]}" 2> /dev/null
}
cleanup()
{
    local n pid
    for n in 0 1 2; do
        for pid in $(pids_of $n); do
            kill -KILL "$pid" 2> /dev/null
        done
    done
    for n in 0 1 2 3; do
        ip netns del "${spaces[n]}" 2> /dev/null
    done
    rm -rf "$work"
}
# The bridge is in the last namespace, node N has the address 10.217.78.(N + 1).
make_network()
{
    local n
    for n in 0 1 2 3; do
        ip netns add "${spaces[n]}" || return 1
    done
    ip -n "${spaces[3]}" link add bridge type bridge && ip -n "${spaces[3]}" link set bridge up || return 1
    for n in 0 1 2; do
        ip link add e$n netns "${spaces[n]}" type veth peer name p$n netns "${spaces[3]}" || return 1
        ip -n "${spaces[3]}" link set p$n master bridge up
        ip -n "${spaces[n]}" addr add 10.217.78.$((n + 1))/24 dev e$n
        ip -n "${spaces[n]}" link set lo up
        ip -n "${spaces[n]}" link set e$n up
    done
}
if [ -z "$missing" ]; then
    trap '[ $BASHPID != $$ ] || cleanup' EXIT
    trap 'exit 1' INT TERM HUP
    make_network 2> err || missing="no such network can be made here: $(head -n 1 err)"
fi
if [ -n "$missing" ]; then
    skip "networks that are cut" "$missing"
    finish
    exit
fi
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret)
export OMP_NUM_THREADS=1 YOKE_LOG=info
silence=$(patience 1.5)

# node NUMBER ARGUMENTS...: the launcher of the node; its output goes to out.NUMBER and err.NUMBER.
node()
{
    local number=$1
    shift
    YOKE_HOST_ID=host$number ip netns exec "${spaces[number]}" "$YOKE" run --nnodes 2:3 --master-addr 10.217.78.1 \
        --secret-file secret --node-timeout "$silence" --last-call 30 "$@" -- "$worker" worker result \
        > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
link()
{
    ip -n "${spaces[3]}" link set p"$1" "$2"
}
# works NUMBER: whether a process of the program is left on the node.
works()
{
    local one
    for one in $(pids_of "$1"); do
        grep -qz '^worker$' "/proc/$one/cmdline" 2> /dev/null && return
    done
    return 1
}
ended()
{
    local expected=$1 all=0 number
    shift
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null
        [ $? = "$expected" ] || all=1
    done
    cat err.* > err
    return $all
}
at()
{
    wait_until 60 [ -e at."$1" ]
}

exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected
export SURVIVE_PLAN="0.0 6 stepped wait 0.0 14 stepped wait"
for n in 0 1 2; do
    node $n
done
ok "three nodes train" at 6
ok "a process on each" works 2
link 2 down
: > go.6
ok "one is cut off: the others go on without it" wait_for err.0 "nothing was heard of it"
ok "when nothing of it is left" eval '! works 2'
says err.0 "node lost nothing was heard $silence s the others go on 2 nodes 2 ranks"
ok "its side says so, and ends with 1" ended 1 2
says err.2 "node 0 cannot be reached this side of the cut ends"
ok "those that are left make the step again" at 14
says err.0 "2 processes go on in view 2"
link 2 up
node 2
ok "it comes back" wait_for err.2 "asks to join"
: > go.14
ok "and all end well" ended 0 0 1 2
says err.2 "has joined the others in view 3"
ok "the weights are those of a run without a fault" cmp -s result expected

# Of two nodes that train, the one that still reaches a node 0 without processes goes on; it need not be that of rank 0.
rm -f at.* go.* out.* err.* result
export SURVIVE_PLAN="0.0 6 stepped wait 1.0 6 stepped wait"
node 0 --node-rank 0 -n 0
node 1
node 2
at 6
link 1 down
: > go.6
ok "node 0 only keeps the list: one of two that train goes on without the other" ended 0 0 2
ok "which ends" ended 1 1
says err.1 "node 0 cannot be reached this side of the cut ends"
ok "with the same weights" cmp -s result expected
link 1 up

# Node 0 is cut off: it ends, before another launcher keeps the list, and the others go on.
silence=$(patience 6)
rm -f at.* go.* out.* err.* result
export SURVIVE_PLAN="0.0 6 stepped wait"
for n in 0 1 2; do
    node $n
done
at 6
pause $(patience 0.5) # so that the launchers know that these survive
link 0 down
: > go.6
ok "node 0 is cut off: the others go on without it" ended 0 1 2
ok "it ends with 1" ended 1 0
says err.0 "keeps the list of nodes, and too few of the others have answered it this side of the cut ends"
says err "node 0 is lost, and node keeps the list of nodes the others go on: 2 nodes with 2 ranks"
ok "with the same weights" cmp -s result expected
link 0 up

# Each is alone: none is a majority, and all end.
rm -f at.* go.* out.* err.* result
for n in 0 1 2; do
    node $n --grace 0.2
done
at 6
pause $(patience 0.5)
link 0 down
link 1 down
: > go.6
ok "each is alone: all end with 1" ended 1 0 1 2
says err.0 "too few of the others have answered it this side of the cut ends"
for n in 1 2; do
    says err.$n "cannot be reached this side of the cut ends"
done
ok "without a result" [ ! -e result ]
ok "and nothing is left" eval '! works 0 && ! works 1 && ! works 2'
finish
