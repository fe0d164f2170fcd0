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
nm -D --defined-only "$library" | awk '{ print $3 }' | sort > exported
"$sources/scripts/public-functions" | cut -f2 | sort -u > functions
"$sources/scripts/export-list" | grep -oE 'yk_[a-z0-9_]+' | sort -u > listed
ok "many" [ "$(wc -l < functions)" -gt 600 ]
comm -23 functions exported > out
ok "every function of the headers" [ ! -s out ]
comm -3 listed exported > out
ok "what is listed, and nothing else" [ ! -s out ]
comm -13 functions exported > out
ok "no more than objects besides" eval '[ -z "$(grep -vx "yk_ddp_.*_compress" out)" ]'
finish
