#!/bin/bash
# survive_keeper.sh - the launcher that keeps the list of nodes and the store of the job is killed, that of node 0 and the
# one that has come in its place: another one keeps them, the processes of the others go on, and the weights are those of
# a run without a fault. survive_cut.sh has the networks that are cut.
#
# That a keeper has ended is known at once, whatever it had not read yet: else it would take --node-timeout to be sure.
. tests/support/tap.bash
needs_proc "processes are looked for there"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD YOKE_SHARED_MEMORY
needs_built tests/elastic/survive_test
worker=$built
export OMP_NUM_THREADS=1 YOKE_LOG=info
free_ports 32100 12
program=("$worker" worker result)
trap '[ $BASHPID != $$ ] || { kill -KILL "${pid[@]}" 2> /dev/null; rm -rf "$work"; }' EXIT

# node NUMBER MIN:MAX ARGUMENTS...: a launcher in the background; its output goes to out.NUMBER and err.NUMBER.
node()
{
    local number=$1 nodes=$2
    shift 2
    "$YOKE" run --nnodes "$nodes" --master-addr 127.0.0.1 --master-port $port --last-call 20 "$@" -- "${program[@]}" \
        > out.$number 2> err.$number < /dev/null &
    pid[number]=$!
}
listens()
{
    grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp
}
# nodes COUNT MIN:MAX ARGUMENTS...: so many; those behind the first get their numbers as they come.
nodes()
{
    local number count=$1
    shift
    for ((number = 0; number < count; number++)); do
        node $number "$@"
        [ $number != 0 ] || wait_until 30 listens
    done
}
ended()
{
    local expected=$1 all=0 number code
    shift
    for number in "$@"; do
        { wait "${pid[number]}"; } 2> /dev/null
        code=$?
        [ $code = "$expected" ] || { all=1; echo "# node $number ended with $code"; }
        unset "pid[number]"
    done
    cat err.* > err
    return $all
}
at()
{
    wait_until 60 [ -e at."$1" ]
}
killed()
{
    kill -KILL "${pid[$1]}"
    { wait "${pid[$1]}"; } 2> /dev/null
    unset "pid[$1]"
}
# keeper OF: the port of the store that another launcher keeps after node OF, and which launcher that is.
keeper()
{
    local line inode
    line=$(grep -h "node $1 .*is lost, and node [0-9]* keeps" err.* | head -n 1)
    where=${line#*127.0.0.1:}
    where=${where%%;*}
    inode=$(sed -n "s/.*:$(printf %04X "$where") 00000000:0000 0A \([^ ]* *\)\{6\}\([0-9]*\) .*/\2/p" /proc/net/tcp)
    for now in "${!pid[@]}"; do
        [ -z "$(find /proc/"${pid[now]}"/fd -lname "socket:\[$inode\]" 2> /dev/null)" ] || return 0
    done
}
next()
{
    port=$((port + 3))
    rm -f at.* go.* out.* err.* result
}
same()
{
    cmp -s result expected
}

exits 0 "one process, without a fault" run -n 1 -- "$worker" worker expected

# ---- node 0's launcher is killed, a node comes, and the launcher that has taken its place is killed
export SURVIVE_PLAN="0.0 4 stepped wait 1.0 9 stepped wait 2.0 9 stepped wait 3.0 9 stepped wait"
SURVIVE_PLAN+=" 1.0 15 stepped wait 2.0 15 stepped wait 3.0 15 stepped wait 4.0 15 stepped wait"
nodes 4 2:4
ok "four nodes train" at 4
pause $(patience 0.5) # so that the launchers know that these survive
killed 0
: > go.4
ok "node 0 is killed, and the others go on" at 9
keeper 0
says err.$now "node 0 is lost, and node keeps the list of nodes at 127.0.0.1: the others go on: 3 nodes with 3 ranks"
says err.$now "3 processes go on in view 2, a step done"
number=$port
port=$where
node 4 2:4
ok "one comes to it" wait_for err.4 "asks to join"
pause 0.3 # so that the others look for it with the next step
: > go.9
ok "and takes part" wait_for err.4 "has joined the others in view"
ok "in the middle of the run" at 15
port=$number
first=$now
killed "$first"
: > go.15
rest=()
for one in 1 2 3 4; do
    [ "$one" = "$first" ] || rest+=("$one")
done
ok "the second keeper is killed, and the others end well" ended 0 "${rest[@]}"
ok "with the weights of one process without a fault" same
says err "node is lost, and node keeps the list of nodes the others go on: 3 nodes with 3 ranks"
ok "nothing was started again" [ "$(grep -c "attempt\|started again" err)" = 0 ]

# ---- of two nodes that train and one that only keeps the list, this one is killed
next
export SURVIVE_PLAN="0.0 6 stepped wait 0.0 9 batch kill" SURVIVE_WAITS=1 # for who comes back
program=(./nowhere)
node 0 2:3 --node-rank 0 -n 0 --max-restarts 1
wait_until 30 listens
program=("$worker" worker result)
node 1 2:3 -n 2 --max-restarts 1
node 2 2:3 --max-restarts 1
at 6
pause $(patience 0.5) # so that the launchers know that these survive
killed 0
: > go.6
ok "the launcher that only keeps the list is killed; a process then, which comes back" ended 0 1 2
ok "with the same weights" same
says err "node 0 is lost, and node keeps the list of nodes the others go on: 2 nodes with 3 ranks"
says err "rank 0 has joined the others in view"

# ---- a keeper that has not read all that had come to it, so that its system resets the connections when it is killed
next
unset SURVIVE_WAITS
export SURVIVE_PLAN="0.0 6 stepped wait 1.0 6 stepped wait 2.0 6 stepped wait"
program=("$worker" worker result)
unread() # whether something of both other launchers waits there
{
    local number all inodes
    for number in 1 2; do
        read -ra all < "/proc/${pid[number]}/task/${pid[number]}/children"
        inodes=$(find "/proc/${all[0]}/fd" -lname 'socket:*' -printf '%l ' 2> /dev/null)
        awk -v here="$(printf ':%04X' $port)" -v inodes="$inodes" '
            substr($2, 9) == here && $5 !~ /:00000000$/ { waits[$3] = 1 }
            substr($3, 9) == here && index(inodes, "[" $10 "]") { its[$2] = 1 }
            END { for (one in its) any = any || one in waits; exit !any }' /proc/net/tcp || return 1
    done
}
nodes 3 2:3 --node-timeout 40
ok "three nodes train" at 6
pause $(patience 0.5)
read -ra all < "/proc/${pid[0]}/task/${pid[0]}/children"
kill -STOP "${all[@]}"
ok "the launcher that keeps the list stands, and has not read what the others say" wait_until 15 unread
kill -KILL "${all[@]}"
killed 0
: > go.6
ok "it is killed, and the others end well" ended 0 1 2
ok "with the same weights as well" same
ok "they have found at once that it has ended" grep -q "for term 2: the keeper has ended" err

# ---- a keeper that stands until others go on without it, and finds then that its own process has ended
next
nodes 3 2:3 --node-timeout "$(patience 5)" --max-restarts 1
ok "three nodes train again" at 6
pause $(patience 0.5)
read -ra all < "/proc/${pid[0]}/task/${pid[0]}/children"
read -ra its < "/proc/${all[0]}/task/${all[0]}/children"
kill -STOP "${pid[0]}" "${all[@]}"
kill -KILL "${its[@]}"
: > go.6
ok "node 0 stands, and another launcher keeps the list" wait_for err.1 "is lost, and node"
kill -CONT "${pid[0]}" "${all[@]}"
ok "it ends, and starts nothing again" ended 1 0
ok "the others end well" ended 0 1 2
ok "with the same weights once more" same
finish
