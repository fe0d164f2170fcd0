#!/bin/bash
# usage.sh - what the program says to right and wrong command lines, and its exit codes.
. tests/support/tap.bash

exits 2 "no verb"
says err "usage: yoke VERB"
exits 0 "--help" --help
says out "train"
says out "bench"
exits 0 "--version" --version
ok "--version is one line" [ "$(cat out)" = "yoke 0.2.0" ]
exits 2 "misspelt verb" trian
says err "unknown verb 'trian', did you mean 'train'?"
exits 2 "option for a verb" --frobnicate
says err "unknown option '--frobnicate'"
exits 0 "bench lists its subjects" bench
says out "step"
says out "loader"
exits 2 "misspelt subject" bench stp
says err "unknown subject 'stp', did you mean 'step'?"

for command in train "bench step" "bench ops" "bench loader"; do
    # shellcheck disable=SC2086
    exits 0 "$command --help" $command --help
    says out "usage: yoke $command [options]"
    says out "examples:"
    ok "$command --help is silent on stderr" [ ! -s err ]
done
exits 0 "train --help" train --help
says out "--batch-size N            images per step, of each process [64]"
says out "--lr X                    learning rate of SGD [0.05]"
says out "the network: mlp, lenet, resnet18, resnet18-cifar [lenet]"

# wrong MESSAGE ARGUMENTS...: refused as wrong usage, with the message and where help is.
wrong()
{
    local message=$1
    shift
    exits 2 "yoke $*" "$@"
    says err "$message"
    ok "nothing on stdout" [ ! -s out ]
}
wrong "unknown option --bacth-size, did you mean --batch-size?" train --bacth-size 3
wrong "unknown option --bacth-size, did you mean --batch-size?" train --bacth-size=3
wrong "unknown option --xyzzyxyzzy" train --xyzzyxyzzy
wrong "unknown option -q" train -q
wrong "unexpected argument 'glyphs'" train glyphs
wrong "--lr needs a value" train --lr
wrong "--no-shuffle takes no value" train --no-shuffle=yes
wrong "--lr 1e-3x: expected a number, 0 or more" train --lr 1e-3x
wrong "--lr nan: expected a number" train --lr nan
wrong "--lr -1: expected a number, 0 or more" train --lr -1
wrong "--lr : expected a number" train --lr ""
wrong "--save: the value is empty" train --save ""
wrong "--log: the value is empty" train --log=
wrong "--checkpoint: the value is empty" train --checkpoint "" --resume
wrong "--init: the value is empty" train --init=
wrong "--data: the value is empty" train --data ""
wrong "--epochs 3.5: expected an integer from 0 to 1000000000" train --epochs 3.5
wrong "--steps 0: expected an integer from 1" train --steps 0
wrong "--batch-size 99999999999999999999: expected an integer" train --batch-size 99999999999999999999
wrong "--threads 0: expected an integer from 1 to 1024" train --threads 0
wrong "--model: unknown value 'lenett', did you mean 'lenet'?" train --model lenett
wrong "--dtype: unknown value 'f16', did you mean 'f32'?" train --dtype f16
wrong "--schedule: unknown value 'cosin', did you mean 'cosine'?" train --schedule cosin
wrong "--schedule: unknown value 'constantly'; there are none, step, cosine" train --schedule constantly
wrong 'unknown data set "glyps"; did you mean "glyphs"?' train --data glyps
wrong "--num-classes 9: glyphs has 10 classes" train --num-classes 9
wrong "device 'gpu': expected cpu" train --device gpu
wrong "--json takes no value" bench step --json=1
wrong "--workers 0: expected an integer from 1" bench loader --workers 0
wrong "--only 'conv3d': no row matches; --list prints them all" bench ops --only conv3d
wrong "--only '(': not a regular expression: " bench ops --only '('
wrong "--only needs a value" bench ops --only
wrong "--seconds -1: expected a number, 0 or more" bench ops --seconds -1

# Files that cannot be written are said before anything is computed.
mkdir -p folder
: > empty
mkfifo pipe
exits 1 "--save FOLDER" train --data glyphs --model mlp --epochs 1 --save folder
says err "--save folder: it is a folder"
ok "before the run begins" [ ! -s out ]
exits 1 "--save PIPE" train --data glyphs --model mlp --epochs 1 --save pipe
says err "--save pipe: it is not a regular file"
exits 1 "--log FOLDER" train --data glyphs --model mlp --epochs 1 --log folder
says err "--log: folder: Is a directory"
exits 1 "an empty file of weights" train --data glyphs --model mlp --epochs 0 --init empty
says err "empty: not a file of torch.save: it has 0 bytes"

WORLD_SIZE=2 RANK=2 "$YOKE" train --epochs 1 > /dev/null 2> err
ok "train as a process that the job has not: exit code 1" [ $? = 1 ]
says err "RANK=2 is outside a world of WORLD_SIZE=2"

"$YOKE" --help > /dev/full 2> err
ok "a full stdout: exit code 1" [ $? = 1 ]
says err "yoke: stdout: No space left on device"
finish
