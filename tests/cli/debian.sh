#!/bin/bash
# debian.sh - what packaging/debian says beside what the tree says: versions, libraries, packages of the compiler; and that
# scripts/make-deb makes a source package. .ci/debian-package (make nightly) builds, installs and uses the packages.
sources=$PWD
. tests/support/tap.bash
debian=$sources/packaging/debian

version=$(sed -n 's/^#define YK_VERSION "\(.*\)"/\1/p' "$sources/include/yoke/base.h")
abi=$(sed -n 's/^#define YK_NETWORK_ABI //p' "$sources/include/yoke/nn.h")
ok "the changelog begins with this version" [ "$(sed -n '1s/^yoke (\(.*\)-[0-9]*) .*/\1/p' "$debian/changelog")" = "$version" ]
ok "so do the symbols" [ "$(sed -n 's/^ (symver)YOKE_[0-9]* //p' "$debian/libyoke2.symbols")" = "$version" ]
ok "the library's package has its number" eval 'grep -qx "Package: libyoke$abi" "$debian/control" && [ -e "$debian/libyoke$abi.install" ]'
ok "and its symbols its soname and version" eval '[ "$(cat "$debian/libyoke$abi.symbols")" = \
    "$(printf "libyoke.so.%d libyoke%d #MINVER#\n (symver)YOKE_%d %s" "$abi" "$abi" "$abi" "$version")" ]'

# What scripts/install-deps installs for `make` is what Build-Depends names, but for what every build of Debian has.
sed -n '/^Build-Depends:/,/^[A-Z][a-z-]*: *[^ ]*$/p' "$debian/control" | grep -oE '[a-z0-9+-]+-dev\b' | sort > named
sed -n 's/^build |[^|]*|[^|]*| *\([^|]*[^ |]\) *|.*/\1/p' "$sources/scripts/install-deps" | tr ' ' '\n' |
    grep -vxE 'make|gcc|libc6-dev' | sort > installed
ok "Build-Depends has what scripts/install-deps installs" [ -s named -a "$(cat named)" = "$(cat installed)" ]
# libxxhash is all header; the others are what a program needs that links libyoke.a.
sed -n '/^Package: libyoke-dev/,/^$/s/^\(Depends:\)\{0,1\} *\(lib[a-z0-9-]*-dev\|zlib1g-dev\),*$/\2/p' "$debian/control" | sort > static
ok "libyoke-dev has what linking libyoke.a takes" [ "$(grep -vx libxxhash-dev named)" = "$(cat static)" ]
ok "the rules install nothing" eval '! grep -v "^#" "$debian/rules" | grep -qE "install-deps|apt|curl|wget|git "'
ok "all instruction sets" grep -q 'CPU_ISAS=all' "$debian/rules"

if ! command -v dpkg-source > /dev/null; then
    skip "scripts/make-deb --source" "there is no dpkg-source"
elif ! git -C "$sources" rev-parse -q --verify HEAD > /dev/null 2>&1; then
    skip "scripts/make-deb --source" "this is no checkout of git"
else
    DEBEMAIL=somebody@example.org DEBFULLNAME="Some Body" PACK="gzip -n -1" "$sources/scripts/make-deb" --source deb > out 2> err
    ok "scripts/make-deb --source" [ $? = 0 ]
    ok "says where it is" [ "$(cat out)" = "$work/deb/yoke_$version-1.dsc" ]
    mv "deb/yoke-$version" unpacked
    ok "whose it is" grep -qx 'Maintainer: Some Body <somebody@example.org>' "deb/yoke_$version-1.dsc"
    ok "also in the changelog" grep -q '^ -- Some Body <somebody@example.org>  [A-Z]' unpacked/debian/changelog
    ok "all files are there" [ -x unpacked/debian/rules -a -x unpacked/debian/tests/build -a -e unpacked/Makefile ]
    ok "dpkg reads the changelog" [ "$(dpkg-parsechangelog -l unpacked/debian/changelog -S Version)" = "$version-1" ]
    # Each file that `make install` copies belongs to a package, and the other way round.
    (cd unpacked && env -u MAKEFLAGS make -n --no-print-directory BUILD=debian/build MPI=0 UCX=0 CUDA=0 PREFIX=/usr \
        LIBDIR=/usr/lib/any DESTDIR=/tmp install) > planned 2> err
    for part in usr/bin usr/include/yoke usr/lib/any/libyoke.a usr/lib/any/pkgconfig usr/lib/any/cmake usr/share/man/man1 \
        usr/share/bash-completion/completions; do
        ok "$part is installed and packed" eval 'grep -q "/tmp/$part" planned && cat unpacked/debian/*.install | tr -d "*" |
            grep -q "^$(sed "s#/any#/#" <<< "$part")"'
    done
fi
finish
