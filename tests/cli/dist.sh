#!/bin/bash
# dist.sh - `make dist`: a file of what is committed, which builds without git and makes the same bytes again.
sources=$PWD
. tests/support/tap.bash
build=${YOKE%/*}
if ! git -C "$sources" rev-parse -q --verify HEAD > /dev/null 2>&1; then
    skip "make dist" "this is no checkout of git"
    finish
    exit
fi
version=$(sed -n 's/^#define YK_VERSION "\(.*\)"/\1/p' "$sources/include/yoke/base.h")
# dist FOLDER: in silence but for the file's name
dist()
{
    env -u MAKEFLAGS make -s --no-print-directory -C "$sources" BUILD="$work/$1" dist > out 2> err
}
ok "make dist" dist first
file=$work/first/yoke-$version.tar.gz
ok "says where the file is" [ "$(tail -n 1 out)" = "$file" ]
ok "make dist, again" dist second
ok "the same bytes" cmp "$file" "second/yoke-$version.tar.gz"
tar xzf "$file"
ok "one folder" [ -d "yoke-$version" ]
git -C "$sources" ls-tree -r --name-only HEAD | sort > committed
(cd "yoke-$version" && find . -type f -o -type l) | sed 's#^\./##' | sort > packed
ok "all files, and no other" cmp committed packed
ok "no folder of git" [ ! -e "yoke-$version/.git" ]

# It builds: make plans all of it, and makes an object, the version script and the static library's first part.
cd "yoke-$version" || exit 1
made()
{
    # The flags of this folder, and a place for git that has none.
    env -u MAKEFLAGS GIT_DIR=/nonexistent MAKEFLAGS="-s -- $(cat "$build/made-of/options")" make --no-print-directory "$@" > ../out 2> ../err
}
ok "make -n all" made -n all
ok "a few objects" made build/src/base/error.o build/src/cli/new/new.o build/src/observe/page.o build/exports
ok "are there" [ -s build/src/cli/new/new.o -a -s build/exports ]
cmp -s build/exports "$build/exports"
ok "the same names are exported" [ $? = 0 -o -n "$(git -C "$sources" status --porcelain -- include scripts)" ]
made dist
ok "make dist says that there is no git" [ $? != 0 ]
cd ..
says err "make dist: no checkout of git"
finish
