#!/bin/bash
# cxx.sh - yoke/yoke.h and yoke.hpp under g++ and clang++ without a warning, the example in C++ trains, values compute and are
# freed, what callbacks throw is an error, and options have the same defaults in C and C++, without a warning under either
# language's compilers.
set -uo pipefail
build=$(dirname "${YOKE:-build/yoke}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries="-ljansson -lsodium -ljpeg -lpng -lz -lm -pthread -ldl"
flags="-std=c++20 -Wall -Wextra -Wpedantic -Werror -Iinclude"
[ -z "${SANITIZE:-}" ] || flags+=" -fsanitize=$SANITIZE"
echo "1..24"
n=0
for cxx in g++ clang++; do
    if ! command -v $cxx > /dev/null; then
        for i in 1 2 3 4 5 6 7; do echo "ok $((++n)) # SKIP $cxx is not installed"; done
        continue
    fi
    # A library that one compiler's sanitizer is in is linked by that compiler.
    if [ -n "${SANITIZE:-}" ] && [ $cxx != g++ ]; then
        for i in 1 2 3 4 5 6 7; do echo "ok $((++n)) # SKIP the sanitized library was made by gcc"; done
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

    # yoke/yoke.hpp
    older="${flags/c++20/c++17} -Wshadow"
    $cxx $older -o "$work/values" tests/cli/values.cpp "$build/libyoke.a" $libraries 2>&1 | sed 's/^/# /'
    result "${PIPESTATUS[0]}" "yoke.hpp compiles as C++17 without a warning"
    (cd "$work" && ./values) > "$work/said" 2>&1
    status=$?
    sed 's/^/# /' "$work/said"
    result $status "values, operators, errors and modules of yoke.hpp"
done

# The program of docs/own-program.md.
for cxx in g++ clang++ none; do
    ! command -v $cxx > /dev/null || [ -n "${SANITIZE:-}" -a $cxx != g++ ] || break
done
if [ $cxx = none ]; then
    for i in 1 2; do echo "ok $((++n)) # SKIP there is no compiler of C++"; done
else
    awk '/^```cpp$/ { open = 1; next } /^```$/ { open = 0 } open' docs/own-program.md > "$work/sine.cpp"
    $cxx $flags -o "$work/sine" "$work/sine.cpp" "$build/libyoke.a" $libraries 2>&1 | sed 's/^/# /'
    result "${PIPESTATUS[0]}" "the page's program compiles as C++20 without a warning"
    (cd "$work" && ./sine) > "$work/said" 2>&1
    status=$?
    sed 's/^/# /' "$work/said"
    [ $status = 0 ] && [ -s "$work/sine.safetensors" ] &&
        awk '/^epoch/ { lines++; good = $NF < 0.01 } END { exit !(lines == 4 && good) }' "$work/said"
    result $? "and trains"
fi

# Options in both languages. A warning that a program asks for is still given behind a use of YK_OPTIONS.
tests/support/make-header-tables > "$work/header_tables.h"
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -Iinclude -I$work"
cat > "$work/overrides.c" << 'end'
#include <yoke/yoke.h>
double rate(void);
double rate(void)
{
    double lr = YK_OPTIONS(yk_sgd_options, .lr = 0, .momentum = 0.9)->lr;
    const struct { int a; } twice = {.a = 1, .a = 2};
    return lr + twice.a;
}
end
for compiler in "gcc -std=c11" "gcc -std=gnu11 -O2" "clang -std=c11" "clang -std=gnu11 -O2" "g++ -x c++ -std=c++20 -O2" \
    "clang++ -x c++ -std=c++20 -O2"; do
    if ! command -v "${compiler%% *}" > /dev/null; then
        echo "ok $((++n)) # SKIP ${compiler%% *} is not installed"
        continue
    fi
    $compiler $warnings -o "$work/defaults" tests/cli/option_defaults.c > "$work/said" 2>&1 &&
        "$work/defaults" > "$work/defaults.now" && [ "$(wc -l < "$work/defaults.now")" -gt 200 ]
    status=$?
    sed 's/^/# /' "$work/said"
    [ -e "$work/defaults.first" ] || cp "$work/defaults.now" "$work/defaults.first"
    [ $status = 0 ] && diff "$work/defaults.first" "$work/defaults.now" | sed 's/^/# /'
    if [ $status = 0 ] && cmp -s "$work/defaults.first" "$work/defaults.now"; then
        echo "ok $((++n)) - $compiler: options have their defaults without a warning"
    else
        echo "not ok $((++n)) - $compiler: options have their defaults without a warning"
    fi
done
for compiler in gcc clang; do
    if ! command -v $compiler > /dev/null; then
        echo "ok $((++n)) # SKIP $compiler is not installed"
        continue
    fi
    $compiler -std=c11 -Wall -Wextra -Iinclude -fsyntax-only "$work/overrides.c" > "$work/said" 2>&1
    if [ "$(grep -c 'overrid\|overwritten' "$work/said")" -gt 0 ] && ! grep -q YK_OPTIONS "$work/said"; then
        echo "ok $((++n)) - $compiler: the program's own warnings stay"
    else
        sed 's/^/# /' "$work/said"
        echo "not ok $((++n)) - $compiler: the program's own warnings stay"
    fi
done
