#!/bin/bash
# new.sh - `yoke new`: what it writes is built by its Makefile without a warning, trains, goes on, is drawn by yoke plot's
# log, runs in two processes; and what it refuses.
sources=$PWD
. tests/support/tap.bash
build=${YOKE%/*}

exits 0 "new" new digits
says out "wrote digits/digits.c digits/Makefile cd digits && make && ./digits"
ok "two files" [ "$(ls digits | sort | tr '\n' ' ')" = "Makefile digits.c " ]
ok "no mark is left" eval '! grep -r @NAME@ digits'
exits 1 "the same again" new digits
says err "digits is there already"
mkdir empty
exits 1 "a folder that is empty" new empty
says err "empty is there already"
ok "stays empty" [ -z "$(ls empty)" ]
exits 0 "in another folder" new empty/net-2
ok "its file has the last name" [ -e empty/net-2/net-2.c ]
exits 1 "in one that is not there" new nowhere/net
says err "nowhere/net: No such file"
exits 2 "no name" new
says err "name"
exits 2 "two names" new one two
says err "one name 2"
for name in 2net "a b" clean "../" ./ -- "net.c" "$(printf 'n%.0s' {1..65})"; do
    exits 2 "'$name'" new "./$name"
done
ok "they wrote nothing" [ "$(ls)" = "$(printf '%s\n' digits empty err out)" ]

# ---- it trains ----
if ! command -v pkg-config > /dev/null || ! command -v make > /dev/null; then
    skip "it is built" "there is no pkg-config or no make"
    finish
    exit
fi
printf '%s\n' 'Name: yoke' 'Description: the one that is tested' 'Version: 0' "libdir=$build" "Cflags: -I$sources/include" \
    "Libs: -L$build -lyoke" > yoke.pc
MAKEFLAGS="-s -- $(cat "$build/made-of/options")" make -C "$sources" --no-print-directory BUILD="$build" \
    "$build/libyoke.so" > out 2> err
ok "the library" [ -e "$build/libyoke.so" ]
flags="-std=c11 -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror"
[ -z "${SANITIZE:-}" ] || flags+=" -fsanitize=$SANITIZE"
built()
{
    env -u MAKEFLAGS PKG_CONFIG_PATH="$1" make -C digits CC="${CC:-gcc}" CFLAGS="$flags" > out 2> err
}
mkdir none
ok "without the library make fails" eval '! PKG_CONFIG_LIBDIR=$work/none built "$work/none"'
says err "'yoke' found"
ok "make" built "$work"
cd digits || exit 1
# trained FROM TO: its lines are of these epochs, and so are those of the log, in their order
trained()
{
    [ "$(sed -n 's/.*epoch \([0-9]*\): loss.*/\1/p' ../out | tr '\n' ' ')" = "$(seq -s ' ' "$1" "$2") " ] &&
        [ "$(grep -c '"event":"step"' digits.log)" = "$2" ] && [ "$(grep -c '"event":"eval"' digits.log)" = "$2" ]
}
./digits 1 > ../out 2> ../err
ok "an epoch" [ $? = 0 ]
ok "is said, and in the log" trained 1 1
ok "it learns" awk '{ found = $NF > 0.7 } END { exit !found }' ../out
./digits 1 > ../out 2> ../err
ok "no more than asked for" [ $? = 0 -a ! -s ../out ]
"$YOKE" run --no-prefix -n 2 -- ./digits 2 > ../out 2> ../err
ok "it goes on in two processes" [ $? = 0 ]
ok "one of them says and writes it" trained 2 2
ok "each takes half of the images" grep -q '"step":360,' digits.log
ok "it is better than before" awk '/accuracy/ { found = $NF > 0.85 } END { exit !found }' ../out
[ -d digits.saved/step-00000360 ]
ok "and saved" [ $? = 0 ]
./digits 0 > ../out 2> ../err
ok "no epochs: wrong usage" [ $? = 2 ]
damaged()
{
    local file
    for file in digits.saved/*/model.safetensors; do
        echo x >> "$file"
    done
    ! ./digits 3 > ../out 2> ../err && grep -q '^error: ' ../err
}
ok "checkpoints that are all broken are an error" damaged
cd ..
ok "make clean" make -C digits clean
ok "takes the program away" [ ! -e digits/digits ]
finish
