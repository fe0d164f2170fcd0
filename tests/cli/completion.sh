#!/bin/bash
# completion.sh - what bash completes of yoke's command line: verbs, options, their choices, files.
sources=$PWD
. tests/support/tap.bash
mkdir bin files
ln -s "$YOKE" bin/yoke
export PATH=$work/bin:$PATH
: > files/a.csv
: > "files/two words.pt"
. "$sources/scripts/yoke.bash"
ok "is the completion of yoke" eval '[ "$(complete -p yoke)" = "complete -F _yoke yoke" ]'

# completes EXPECTED WORDS...: the last of the words is the one that is written; = is a word, as readline has it.
completes()
{
    local expected=$1
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _yoke 2> err
    printf '%s\n' "${COMPREPLY[@]}" | sort > out
    ok "${*:-nothing}" [ "$(tr '\n' '|' < out)" = "$expected" ]
    ok "in silence" [ ! -s err ]
}
# has WORD WORDS...
has()
{
    local expected=$1
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _yoke 2> err
    printf '%s\n' "${COMPREPLY[@]}" > out
    ok "$* has $expected" grep -qx -e "$expected" out
}
completes "train|" yoke trai
completes "trace|train|" yoke tra
has doctor yoke ""
completes "--version|" yoke --v
completes "--lr|" yoke train --lr
completes "--save|--save-best|--save-every|" yoke train --save
completes "adadelta|adagrad|adam|adamax|adamw|" yoke train --optimizer ad
completes "adadelta|adagrad|adam|adamax|adamw|" yoke train --optimizer = ad
completes "adadelta|adagrad|adam|adamax|adamw|nadam|radam|rmsprop|sgd|" yoke train --lr 1 --optimizer =
completes "|" yoke train --lr ""
completes "files/a.csv|" yoke train --data files/a
completes "files/two words.pt|" yoke train --init files/tw
completes "files/two words.pt|" yoke predict files/tw
completes "check|" yoke data ch
completes "--target|" yoke data check --ta
completes "convert|" yoke ckpt con
completes "--strip-module|" yoke ckpt strip --strip
completes "report|" yoke trace rep
completes "data-parallel|" yoke bench data
completes "--optimizer|" yoke run -n 2 -- yoke train --opt
completes "lenet|" yoke run -n 2 -- bin/yoke train --model len
completes "files/a.csv|" yoke run -n 2 -- ./prog files/a
has seq yoke run -n 2 -- se
completes "|" yoke nonsense --x
has --max-restarts yoke run --max
mv bin/yoke bin/other
completes "files/a.csv|" other train files/a.c
finish
