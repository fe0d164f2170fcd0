#!/bin/bash
# install.sh - `make install`: programs find the plug-ins where it put them, wherever they lie and however they link.
sources=$PWD
. tests/support/tap.bash
build=${YOKE%/*}
prefix=$work/prefix libdir=$work/prefix/lib64/deep

# With the flags that this folder was built with, and its instruction sets, where `make install` by itself has all.
make_again()
{
    MAKEFLAGS="-s -- $(cat "$build/made-of/options")" make -C "$sources" --no-print-directory BUILD="$build" \
        CPU_ISAS="$(cat "$build/made-of/isas")" "$@" > out 2> err
}
make_again PREFIX="$prefix" LIBDIR="$libdir" install
ok "make install" [ $? = 0 ]
ok "the plug-ins of the build are there" [ "$(cd "$build" && ls | grep '^yoke-.*\.so$')" = "$(ls "$libdir/yoke" 2> /dev/null)" ]
# A plug-in that nobody can load stands in for the real one: an error about the object says that it was found.
mkdir -p "$libdir/yoke"
echo "not an object" > "$libdir/yoke/yoke-mpi.so"
cat > program.c << 'END'
#include <yoke/yoke.h>
int main(void)
{
    if (yk_init_process_group(YK_OPTIONS(yk_init_options, .backend = "mpi")))
        return yk_report_error(stderr);
    return 0;
}
END
# pkg-config may not be there; what it prints stands in the file.
field()
{
    sed -n "s/^$1: //p" "$libdir/pkgconfig/yoke.pc" | sed "s#\${libdir}#$libdir#g; s#\${includedir}#$prefix/include#g"
}
flags=
[ -z "${SANITIZE:-}" ] || flags=-fsanitize=$SANITIZE
mkdir elsewhere
ok "a program that links libyoke.a" ${CC:-cc} $flags -o elsewhere/static $(field Cflags) program.c "$libdir/libyoke.a" \
    $(field Libs.private)
ok "a program that shares libyoke.so" ${CC:-cc} $flags -o elsewhere/shared $(field Cflags) program.c $(field Libs) \
    -Wl,-rpath,"$libdir" $flags
ok "the shared one needs libyoke.so.2, as its soname is" eval 'readelf -d elsewhere/shared | grep -q "libyoke\.so\.2\]"'
make_again "$build/libyoke.so"
ok "one that shares the library where it was built" ${CC:-cc} $flags -o elsewhere/built $(field Cflags) program.c \
    "$build/libyoke.so" -Wl,-rpath,"$build" $flags
ok "the built library is found by its soname" eval 'ldd elsewhere/built | grep -q "libyoke\.so\.2 => $build/"'
ok "the header says the library's version" [ -e "$libdir/libyoke.so.$(sed -n 's/^#define YK_VERSION "\(.*\)"/\1/p' \
    "$prefix/include/yoke/base.h")" ]
for kind in static shared; do
    elsewhere/$kind > out 2> err
    ok "$kind: fails" [ $? = 1 ]
    says err "'mpi' loaded $libdir/yoke/yoke-mpi.so"
done
YOKE=$prefix/bin/yoke run bench allreduce --backend mpi --bytes 4
says err "'mpi' loaded $libdir/yoke/yoke-mpi.so"
rm "$libdir/yoke/yoke-mpi.so"
elsewhere/static > out 2> err
says err "'mpi' not there $libdir/yoke/yoke-mpi.so"

# README.md's program, by README.md's own line.
. "$sources/tests/support/transcript.bash"
unfold_page "$sources/README.md"
line=$(cat ./*.command | grep '^cc .*pkg-config' | head -n 1)
compiler=${CC:-gcc}
[ "$compiler" != cc ] || compiler=$(command -v cc) # not the one below
mkdir bin
printf '#!/bin/sh\nexec %s %s "$@"\n' "$compiler" "$flags" > bin/cc
chmod +x bin/cc
ok "README.md builds its program with pkg-config" [ -n "$line" ]
if command -v pkg-config > /dev/null; then
    ok "$line" env PATH="$PWD/bin:$PATH" PKG_CONFIG_PATH="$libdir/pkgconfig" bash -c "$line"
    ok "it finds the installed library" eval 'LD_LIBRARY_PATH=$libdir ldd digits | grep -q "libyoke\.so\.[0-9]* => $libdir/"'
else
    skip "$line" "there is no pkg-config"
fi
finish
