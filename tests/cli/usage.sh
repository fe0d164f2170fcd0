#!/bin/bash
# usage.sh - what the program says to right and wrong command lines, and its exit codes.
. tests/support/tap.bash

exits 2 "no verb"
says err "usage yoke VERB"
exits 0 "--help" --help
says out "train"
says out "bench"
exits 0 "--version" --version
ok "--version is one line" [ "$(cat out)" = "yoke 0.3.0" ]
exits 2 "misspelt verb" trian
says err "unknown 'trian' 'train'"
exits 2 "option for a verb" --frobnicate
says err "unknown '--frobnicate'"
exits 0 "bench lists its subjects" bench
says out "step"
says out "loader"
exits 2 "misspelt subject" bench stp
says err "unknown 'stp' 'step'"

for command in train run doctor "bench step" "bench device" "bench data-parallel" "bench checkpoint" \
    "bench allreduce" "bench loader"; do
    # shellcheck disable=SC2086
    exits 0 "$command --help" $command --help
    says out "usage yoke $command"
    says out "examples:"
    ok "$command --help has a blank line before its options" [ -z "$(grep -B1 '^options \[default\]:' out | head -n 1)" ]
    ok "$command --help is silent on stderr" [ ! -s err ]
done
exits 0 "train --help" train --help
says out "--batch-size N [64]"
says out "--lr X [0.05 for sgd"
says out "mlp lenet resnet18 resnet18-cifar resnet34"

# wrong MESSAGE ARGUMENTS...: refused as wrong usage, with the message and where help is.
wrong()
{
    local message=$1
    shift
    exits 2 "yoke $*" "$@"
    says err "$message"
    ok "nothing on stdout" [ ! -s out ]
}
wrong "unknown --bacth-size --batch-size" train --bacth-size 3
wrong "--st several --steps --step-size" train --st 3
wrong "--master_ several --master-addr --master-port" run --master_=3 true
wrong "unknown --bacth-size --batch-size" train --bacth-size=3
wrong "unknown --xyzzyxyzzy" train --xyzzyxyzzy
wrong "unknown -q" train -q
wrong "'glyphs'" train glyphs
wrong "--lr value" train --lr
wrong "--no-shuffle no value" train --no-shuffle=yes
wrong "--lr 1e-3x 0" train --lr 1e-3x
wrong "--lr nan" train --lr nan
wrong "--lr -1 0" train --lr -1
wrong "--lr '': number" train --lr ""
wrong "--save empty" train --save ""
wrong "--log empty" train --log=
wrong "--checkpoint empty" train --checkpoint "" --resume
wrong "--init empty" train --init=
wrong "--data empty" train --data ""
wrong "--epochs 3.5 0 1000000000" train --epochs 3.5
wrong "--steps 0: integer from 1 to 1000000000000000" train --steps 0
wrong "--batch-size 99999999999999999999" train --batch-size 99999999999999999999
wrong "--threads 0 1 1024" train --threads 0
wrong "--model unknown 'lenett' 'lenet'" train --model lenett
wrong "--dtype unknown 'f16' 'f32'" train --dtype f16
wrong "--schedule unknown 'cosin' 'cosine'" train --schedule cosin
wrong "--schedule 'constantly' none step cosine" train --schedule constantly
wrong "--gamma needs --schedule step" train --gamma 0.5
wrong "--gamma needs --schedule step" train --schedule cosine --gamma 0.1
wrong "--step-size needs --schedule step" train --step-size 2
wrong 'unknown "glyps" "glyphs"' train --data glyps
wrong "--num-classes 9 glyphs 10" train --num-classes 9
wrong "device 'gpu' cpu" train --device gpu
for command in train "bench step" "bench device" "bench allreduce" "bench loader --data glyphs" "bench data-parallel"; do
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=two run $command
    ok "$command, a variable that is no number: exit code $code" [ $code != 0 ]
    ok "and it alone is named" grep -qx "yoke: OMP_NUM_THREADS=two: expected an integer from 1 to 1024" err
done
for command in train "bench step" "bench device" "bench allreduce"; do
    # shellcheck disable=SC2086
    {
        wrong "device 'nonsense' expected cpu, cpu:N, cuda or cuda:N" $command --device nonsense
        wrong "device cpu:99 does not exist" $command --device cpu:99
    }
done
wrong 'unknown "glyps" "glyphs"' bench loader --data glyps
wrong "--json no value" bench step --json=1
wrong "--precision bf16 --dtype f32" bench step --precision bf16 --dtype f64
wrong "--workers 0 1" bench loader --workers 0
wrong "--random-crop --resize" bench loader --random-crop 224 --resize 256
wrong "'ops' build/bench/operation_times" bench ops --list

# Files that cannot be written are said before anything is computed.
mkdir -p folder
: > empty
mkfifo pipe
exits 1 "--save FOLDER" train --data glyphs --model mlp --epochs 1 --save folder
says err "--save folder folder"
ok "before the run begins" [ ! -s out ]
exits 1 "--save PIPE" train --data glyphs --model mlp --epochs 1 --save pipe
says err "--save pipe regular file"
exits 1 "--log FOLDER" train --data glyphs --model mlp --epochs 1 --log folder
says err "--log folder Is a directory"
exits 1 "an empty file of weights" train --data glyphs --model mlp --epochs 0 --init empty
says err "empty torch.save 0 bytes"

WORLD_SIZE=2 RANK=2 "$YOKE" train --epochs 1 > /dev/null 2> err
ok "train as a process that the job has not: exit code 1" [ $? = 1 ]
says err "RANK=2 WORLD_SIZE=2"

"$YOKE" train --model mlp --steps 2 --no-eval --log log >&- 2> err
ok "a closed stdout: exit code 1" [ $? = 1 ]
says err "stdout Bad file descriptor"
ok "what was printed is not in another file" [ "$(grep -vc '^{.*}$' log)" = 0 ]

"$YOKE" --help > /dev/full 2> err
ok "a full stdout: exit code 1" [ $? = 1 ]
says err "stdout No space left on device"
finish
