#!/bin/bash
# cxx.sh - yoke/yoke.h under g++ and clang++ without a warning, the example in C++ trains, and what callbacks throw is
# an error.
set -uo pipefail
build=$(dirname "${YOKE:-build/yoke}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries="-ljansson -lsodium -ljpeg -lpng -lz -lm -pthread -ldl"
flags="-std=c++20 -Wall -Wextra -Wpedantic -Werror -Iinclude"
[ -z "${SANITIZE:-}" ] || flags+=" -fsanitize=$SANITIZE"
echo "1..10"
n=0
for cxx in g++ clang++; do
    if ! command -v $cxx > /dev/null; then
        for i in 1 2 3 4 5; do echo "ok $((++n)) # SKIP $cxx is not installed"; done
        continue
    fi
    # A library that one compiler's sanitizer is in is linked by that compiler.
    if [ -n "${SANITIZE:-}" ] && [ $cxx != g++ ]; then
        for i in 1 2 3 4 5; do echo "ok $((++n)) # SKIP the sanitized library was made by gcc"; done
        continue
    fi
    result() { if [ "$1" = 0 ]; then echo "ok $((++n)) - $cxx: $2"; else echo "not ok $((++n)) - $cxx: $2"; fi; }
    $cxx $flags -c -o "$work/o.o" examples/train_module.cpp 2>&1 | sed 's/^/# /'
    result "${PIPESTATUS[0]}" "compiles without a warning"
    $cxx $flags -o "$work/program" "$work/o.o" "$build/libyoke.a" $libraries 2>&1 | sed 's/^/# /'
    result "${PIPESTATUS[0]}" "links"
    "$work/program" > "$work/said" 2>&1
    status=$?
    sed 's/^/# /' "$work/said"
    awk -v status=$status '
        /^loss of the first batch/ { learned = $6 + 0 > 2 && $NF + 0 < 0.7 * $6 }
        /^logits of 2 images: 10 classes/ { shaped = 1 }
        END { exit !(status == 0 && learned && shaped) }' "$work/said"
    result $? "trains"
    $cxx $flags -o "$work/exceptions" tests/cli/exceptions.cpp "$build/libyoke.a" $libraries 2>&1 | sed 's/^/# /'
    result "${PIPESTATUS[0]}" "callbacks that throw compile without a warning"
    "$work/exceptions" > "$work/said" 2>&1
    status=$?
    sed 's/^/# /' "$work/said"
    result $status "what callbacks throw is an error"
done
