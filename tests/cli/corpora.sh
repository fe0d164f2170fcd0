#!/bin/bash
# corpora.sh - the files that fuzzing (make fuzz) found or began with are read again by the parsers: none crashes, and a
# sanitizer finds nothing.
sources=$PWD
. tests/support/tap.bash
build=${YOKE%/*}
for folder in "$sources"/tests/fuzz/corpus/*/; do
    name=$(basename "$folder")
    if [ ! -x "$build/tests/replay/$name" ]; then
        ok "$name is built (make replays)" false
        continue
    fi
    "$build/tests/replay/$name" "$folder" > out 2> err
    ok "$name" [ $? = 0 ]
    ok "$name: all files" [ "$(tail -n 1 out)" = "$(ls "$folder" | wc -l) files" ]
done
ok "every parser has files" [ "$(ls "$sources"/tests/fuzz/fuzz_*.c | wc -l)" = "$(ls -d "$sources"/tests/fuzz/corpus/*/ | wc -l)" ]
finish
