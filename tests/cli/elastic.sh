#!/bin/bash
# elastic.sh - `--virtual-ranks V`: the weights and losses of a run depend on V alone, not on the number of processes,
# the transport between them, or who saved the checkpoint that they go on from; what cannot be is refused.
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE YOKE_VIRTUAL_RANKS YOKE_SHARED_MEMORY YOKE_HOST_ID

losses()
{
    sed 's/,"samples_per_second":[^}]*//' "$1"
}

train=("$YOKE" train --data glyphs --model lenet --batch-size 30 --lr 0.05 --schedule cosine --warmup 2 --steps 20
    --threads 1 --no-eval)

# plain V ARGUMENTS...: V processes without virtual ranks; the weights are in plain.V.
plain()
{
    local count=$1
    shift
    exits 0 "plain DDP on $count" run --no-prefix -n "$count" -- "${train[@]}" --save "plain.$count" --log plain.log "$@"
    losses plain.log > "losses.$count"
}

# virtual V P ARGUMENTS...: V virtual ranks on P processes.
virtual()
{
    local count=$1 processes=$2
    shift 2
    exits 0 "$count on $processes" run --no-prefix --virtual-ranks "$count" -n "$processes" -- "${train[@]}" \
        --save weights --log log "$@"
}

# same V NAME: the weights, and the log, of plain DDP on V processes.
same()
{
    ok "$2: the weights of $1 processes" cmp -s "plain.$1" weights
    ok "$2: their losses" [ "$(losses log)" = "$(cat "losses.$1")" ]
}

plain 4 --checkpoint all --save-every 1 --keep 99
ok "there are steps to compare" [ "$(grep -c step losses.4)" = 21 ]
for processes in 1 2 3; do
    virtual 4 $processes
    says out "batches of 30 in each of 4 virtual ranks on $processes process"
    ok "4 on $processes: idle time is said where it is" [ "$(grep -c 'of their time is waited' out)" = $((processes == 3)) ]
    same 4 "4 on $processes"
done
says out "4 virtual ranks do not divide by 3 processes: 33%"
exits 0 "one process without a launcher" "${train[@]:1}" --virtual-ranks 4 --save weights --log log
same 4 "4 alone"
YOKE_SHARED_MEMORY=0 virtual 4 3
same 4 "4 on 3 over TCP"
# shellcheck disable=SC2016
exits 0 "two hosts" run --no-prefix --virtual-ranks 4 -n 3 -- sh -c 'YOKE_HOST_ID=host$((RANK / 2)) exec "$@"' - \
    "${train[@]}" --save weights --log log
same 4 "4 on two hosts"

plain 12 --batch-size 10
for processes in 1 2 3 4 6; do
    virtual 12 $processes --batch-size 10
    same 12 "12 on $processes"
done

virtual 12 3 --batch-size 10 --balance
same 12 "12 on 3, by speed"

# In halves, with two batches of each shard, the loss scaled.
plain 3 --precision fp16 --accumulate 2
virtual 3 2 --precision fp16 --accumulate 2
same 3 "fp16, accumulated, 3 on 2"

# Any number of processes goes on from the checkpoint of any other. The line: who saves, who goes on.
folder=all
for leg in "1 3 1" "3 2 7" "2 4 12" "4 1 19"; do
    read -r processes next step <<< "$leg"
    rm -rf ck next
    mkdir ck
    cp -r "$folder/$(printf 'step-%08d' "$step")" ck
    virtual 4 "$processes" --checkpoint ck --save-every 1 --keep 99 --resume
    says out "going on ck/$(printf 'step-%08d' "$step")"
    ok "resumed on $processes: the weights of 4 processes" cmp -s plain.4 weights
    rm -rf saved
    mv ck saved
    folder=saved
done
rm -rf ck
mkdir ck
cp -r saved/step-00000020 ck
exits 0 "plain DDP goes on" run --no-prefix -n 4 -- "${train[@]}" --save weights --checkpoint ck --save-every 1 --resume
ok "plain DDP, from one process's checkpoint: its own weights" cmp -s plain.4 weights

# A rank dies, and the job goes on with fewer processes.
rm -rf ck
# shellcheck disable=SC2016
exits 137 "a rank dies" run --no-prefix --virtual-ranks 4 -n 3 -- \
    sh -c '"$@" --steps 5; [ $RANK != 1 ] || kill -KILL $$; sleep 60' - "${train[@]}" --checkpoint ck --save-every 1 \
    --schedule none --warmup 0
virtual 4 2 --checkpoint ck --save-every 1 --resume --schedule none --warmup 0
says out "going on ck/step-00000005"
mv weights after
exits 0 "unbroken" run --no-prefix -n 4 -- "${train[@]}" --save weights --schedule none --warmup 0
ok "gone on with fewer processes: the same weights" cmp -s weights after

# refused CODE MESSAGE ARGUMENTS...
refused()
{
    local expected=$1 message=$2
    shift 2
    exits "$expected" "refused: $message" "$@"
    says err "$message"
}
exits 0 "processes beyond the virtual ranks are spares" run --virtual-ranks 2 -n 4 --no-prefix -- \
    sh -c 'echo "$RANK of $WORLD_SIZE"'
ok "those that begin are as many as virtual ranks" [ "$(sort out)" = "0 of 2
1 of 2" ]
says err "--virtual-ranks 2: each process computes a virtual rank at least, so 2 of the 4 are spares"
says err "--virtual-ranks 2: of the spares none was started"
refused 2 "--virtual-ranks 2: 3 processes" run --virtual-ranks 2 -n 3 --on-failure continue -- true
refused 2 "--evict-stalled go on by themselves --on-failure --hang-timeout" run --evict-stalled 3 --on-failure restart -- true
refused 2 "--evict-stalled several roles" run --evict-stalled 3 -n 1 --role a true : -n 1 --role b true
refused 2 "--spares go on by themselves --on-failure" run --spares 1 --on-failure continue -- true
refused 2 "--spares 1 one node MAX --nnodes MIN:MAX 2" run --spares 1 --nnodes 2 --master-addr localhost -- true
refused 2 "--spares 4096 with 2 processes" run --spares 4096 -n 2 -- true
exits 0 "spares of a program that does not survive" run --spares 2 -n 2 -- true
says err "--spares 2: none was started"
refused 2 "--evict-stalled -1 0" run --evict-stalled -1 -- true
refused 2 "--balance --virtual-ranks V" train --balance
refused 2 "--virtual-ranks 0 1" run --virtual-ranks 0 -n 1 -- true
refused 2 "--virtual-ranks many" run --virtual-ranks many -n 1 -- true
refused 2 "--virtual-ranks 70000 65536" train --virtual-ranks 70000
refused 2 "--sync-bn forward --virtual-ranks 4" train --virtual-ranks 4 --sync-bn
YOKE_VIRTUAL_RANKS=4 refused 2 "--sync-bn forward --virtual-ranks 4" train --sync-bn
YOKE_VIRTUAL_RANKS=x refused 2 "YOKE_VIRTUAL_RANKS x" train
refused 2 "--virtual-ranks 2: there are 3 processes" run --no-prefix -n 3 -- "${train[@]}" --virtual-ranks 2
# shellcheck disable=SC2016
refused 1 "rank 1 --virtual-ranks 4 rank 0 --virtual-ranks 3" run --no-prefix -n 2 -- \
    sh -c 'exec "$@" --virtual-ranks $((3 + RANK))' - "${train[@]}"
exits 0 "the variable, without the option" run --virtual-ranks 3 -n 1 --no-prefix -- sh -c 'echo "$YOKE_VIRTUAL_RANKS"'
ok "--virtual-ranks sets the variable" [ "$(cat out)" = 3 ]
finish
