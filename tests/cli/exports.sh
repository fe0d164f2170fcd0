#!/bin/bash
# exports.sh - libyoke.so exports what the headers declare, and nothing else: what they do not declare may change.
sources=$PWD
. tests/support/tap.bash
library=${YOKE%/*}/libyoke.so
if ! command -v nm > /dev/null; then
    skip "names" "there is no nm"
    finish
    exit
fi
MAKEFLAGS="-s -- $(cat "${library%/*}/made-of/options")" make -C "$sources" --no-print-directory BUILD="${library%/*}" "$library" > out 2> err
ok "the library" [ -e "$library" ]
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort > versioned
sed 's/@.*//' versioned | sort > exported
"$sources/scripts/public-functions" | cut -f2 | sort -u > functions
"$sources/scripts/export-list" | grep -oE 'yk_[a-z0-9_]+' | sort -u > listed
ok "many" [ "$(wc -l < functions)" -gt 600 ]
comm -23 functions exported > out
ok "every function of the headers" [ ! -s out ]
comm -3 listed exported > out
ok "what is listed, and nothing else" [ ! -s out ]
comm -13 functions exported > out
ok "no more than objects besides" eval '[ -z "$(grep -vx "yk_ddp_.*_compress" out)" ]'
# The program stands for the library to networks of a user's own (yoke train --model ./libnet.so).
ok "each of the library's version" [ "$(sed 's/.*@@//' versioned | sort -u)" = "YOKE_$(sed -n 's/^SOVERSION := //p' "$sources/Makefile")" ]
nm -D --defined-only "$YOKE" | awk '{ print $3 }' | grep '^yk_' | sort > program
comm -3 versioned program > out
ok "the program exports the same" [ ! -s out ]
soname()
{
    readelf -d "$1" | sed -n 's/.*soname: \[\(.*\)\]/\1/p'
}
ok "under the library's name" [ "$(soname "$YOKE")" = "$(soname "$library")" ]
ok "whose number networks have" grep -qx "#define YK_NETWORK_ABI $(soname "$library" | sed 's/.*\.//')" "$sources/include/yoke/nn.h"
finish
