#!/bin/bash
# Mistakes that the compiler finds: each program of tests/api/refused fails to compile, with the words of its first line.
set -uo pipefail
cc=${CC:-cc}
programs=(tests/api/refused/*.c)
echo "1..$((2 * ${#programs[@]}))"
n=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in "${programs[@]}"; do
    words=$(sed -n '1s/^.*refused: \(.*[^ ]\) *\*\/$/\1/p' "$program")
    [ -n "$words" ] || { echo "Bail out! $program does not say why it is refused"; exit 1; }
    n=$((n + 1))
    # -O1: an attribute on the function that would be called speaks when the call is compiled.
    if $cc -std=gnu11 -O1 -Wall -Werror=format -Iinclude -c -o "$work/out.o" "$program" 2> "$work/said"; then
        echo "not ok $n - $program is refused"
    else
        echo "ok $n - $program is refused"
    fi
    n=$((n + 1))
    if grep -qF "$words" "$work/said"; then
        echo "ok $n - $program: $words"
    else
        echo "not ok $n - $program: $words"
        sed 's/^/# /' "$work/said"
    fi
done
