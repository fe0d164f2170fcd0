#!/bin/bash
# documents.sh - what README.md and docs/ show works as it stands there: blocks of C are built without a warning and run,
# command lines are understood. Whole programs, which name their file, are those of transcripts.sh.
root=$PWD
build=$(realpath "$(dirname "${YOKE:-build/yoke}")")
. tests/support/tap.bash
CC=${CC:-gcc}
flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I$root/include -I$work -O1"
libraries="-ljansson -lsodium -ljpeg -lpng -lz -lm -pthread -ldl"
[ -z "${SANITIZE:-}" ] || flags+=" -fsanitize=$SANITIZE -fno-sanitize-recover=all"

# Block N of C of FILE, whole programs apart, goes to FILE.N; hosts and ports to some of this machine.
blocks()
{
    awk -v name="$(basename "$1")" '
        /^```/ { open = !open; c = first = open && $0 == "```c"; next }
        first { first = 0; c = $0 !~ /^\/\* [A-Za-z0-9_]+\.[ch] - /; n += c }
        c { print > (name "." n) }' "$1"
}
for file in "$root"/README.md "$root"/docs/*.md; do
    [ "$(basename "$file")" = adding-an-op.md ] || blocks "$file"
done
sed -i -e 's/"node0"/"127.0.0.1"/; s/29500/0/' stores.md.*

# Every link of a page leads to a file that is there, and docs/README.md leads to every page.
links_lead_somewhere()
{
    local page link
    for page in "$root"/README.md "$root"/docs/*.md "$root"/docs/*/*.md "$root"/bench/notes/*.md; do
        for link in $(grep -oE '\]\([^)#:]+' "$page" | cut -c3-); do
            [[ $link == http* ]] || [ -e "$(dirname "$page")/$link" ] || echo "${page#"$root/"}: $link is not there"
        done
    done > out
    [ ! -s out ]
}
ok "links lead to files that are there" links_lead_somewhere
index_is_whole()
{
    local page
    for page in "$root"/docs/*.md; do
        [ "${page##*/}" = README.md ] || grep -qF "](${page##*/})" "$root/docs/README.md" || echo "${page##*/}"
    done > out
    [ ! -s out ]
}
ok "docs/README.md has every page" index_is_whole

every_block_is_built()
{
    local missing=0 block
    for block in *.md.*; do
        grep -qF "\"$block\"" "$root/tests/documents/blocks.c" || { echo "$block is in no test"; missing=1; }
    done > out
    [ $missing = 0 ] && [ "$(ls -- *.md.* | wc -l)" -gt 15 ]
}
ok "tests/documents/blocks.c has every block" every_block_is_built

built()
{
    $CC $flags -o "$1" "$2" "$build/libyoke.a" $libraries > out 2> err
}
ok "blocks.c is built" built ./blocks "$root/tests/documents/blocks.c"
YOKE_DEBUG=0 ./blocks > ran 2> err
while IFS= read -r line; do
    ok "${line%: *}" [ "${line##*: }" = passed ]
done < ran
ok "blocks.c ran to its end" [ "$(wc -l < ran)" = "$(grep -c '^        {"' "$root/tests/documents/blocks.c")" ]

# What stands in README.md as a command of the program is one: without the data that it names it fails, but not for how
# it is called.
unset YOKE_DATA
commands=0
while IFS= read -r line; do
    line=${line%%#*}
    case $line in
    "build/yoke "* | "yoke train "*) ;;
    *) continue ;;
    esac
    commands=$((commands + 1))
    case $line in *"bench step"*) line="$line --steps 1" ;; esac
    read -r -a words <<< "${line#*yoke }"
    for ((i = 0; i < ${#words[@]}; i++)); do
        [ "${words[i]}" != build/yoke ] || words[i]=$YOKE
    done
    understood()
    {
        timeout $(patience 20) "$YOKE" "${words[@]}" > out 2> err < /dev/null
        code=$?
        # 124: it was at work still
        [ $code -le 124 ] && ! grep -q '^try: ' err
    }
    ok "${line#build/}" understood
done <<< "$(awk '/^```/ { open = !open; next } open' "$root/README.md" "$root"/docs/{checkpoints,launcher}.md)"
ok "command lines were found" [ $commands -ge 6 ]
echo "1..$tests"
