#!/bin/bash
# bench_data_parallel.sh - yoke bench data-parallel: the table, its JSON, the same loss on every number of devices, and
# what is wrong on the command line.
. tests/support/tap.bash
unset YOKE_CPU_DEVICES YOKE_CPU_VISIBLE_DEVICES

# value LINE NAME: that number of the JSON object in line N of out
value()
{
    sed -n "$1p" out | sed -n "s/.*\"$2\": *\([0-9.eE+-]*\).*/\1/p"
}
# near A B: within a thousandth
near()
{
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d * d <= 1e-6 * b * b) }'
}

exits 0 "bench data-parallel" bench data-parallel --model lenet --devices 1,2,4 --batch-size 8 --steps 30 --json
ok "a line for each number of devices" [ "$(wc -l < out)" = 3 ]
ok "which it names" [ "$(value 1 devices) $(value 2 devices) $(value 3 devices)" = "1 2 4" ]
number='[0-9.e+-]+'
ok "each is of this form" [ "$(grep -cE "^\{\"devices\":[124],\"iterations_per_second\":$number,\"loss\":$number,\"peak_memory_mb\":\[$number(,$number)*\]\}$" out)" = 3 ]
for line in 1 2 3; do
    ok "line $line: a rate" awk -v rate="$(value $line iterations_per_second)" 'BEGIN { exit !(rate > 0) }'
done
ok "the loss of two devices is one device's" near "$(value 2 loss)" "$(value 1 loss)"
ok "and that of four" near "$(value 3 loss)" "$(value 1 loss)"
ok "the memory of four devices" grep -qE '"devices":4,.*"peak_memory_mb":\[[0-9.]+,[0-9.]+,[0-9.]+,[0-9.]+\]' out
ok "the first has the most" awk -F'[][,]' '/"devices":4/ { exit !($(NF - 4) > $(NF - 3) && $(NF - 1) > 0) }' out
cp out gathered
exits 0 "--no-gather" bench data-parallel --devices 2 --batch-size 8 --steps 30 --no-gather --json
ok "the same loss" near "$(value 1 loss)" "$(sed -n 2p gathered | sed 's/.*"loss":\([0-9.e+-]*\).*/\1/')"
exits 0 "as text, made-up images, threads" bench data-parallel --model resnet18 --devices 2 --batch-size 4 --steps 2 --threads 2
says out "resnet18 4 2 threads device"
says out "devices it/s loss memory MiB"

exits 0 "a range, as text" bench data-parallel --devices 1..3,2 --batch-size 4 --steps 30
ok "its rows" [ "$(awk 'NR > 2 { printf "%s:%s:%s ", $1, $2, NF }' out)" = "1:30:5 2:30:6 3:30:7 2:30:6 " ]

for list in 0 65 1,,2 1, x -1 "" 1.. ..2 3..2 1...2 1..99 2x; do
    exits 2 "--devices '$list'" bench data-parallel --devices="$list" --steps 2
    says err "numbers 1 64"
done
exits 2 "no steps" bench data-parallel --steps 1
for json in "" --json; do
    # shellcheck disable=SC2086
    YOKE_CPU_DEVICES=2 run bench data-parallel --devices 1,4,2 --steps 2 $json
    ok "more than the environment allows $json: exit code 1" [ "$code" = 1 ]
    says err "2 4 YOKE_CPU_DEVICES"
    says out "2 4 YOKE_CPU_DEVICES"
    ok "the others are measured all the same $json" [ "$(grep -c "^ *[12]  \|\"devices\":[12],\"it" out)" = 2 ]
done
ok "its row is an object, too" grep -qE '^\{"devices":4,"error":".*2 .*YOKE_CPU_DEVICES.*"\}$' out
finish
