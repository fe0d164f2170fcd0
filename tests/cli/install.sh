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

# ---- what else is installed ----
[ -e "$prefix/share/man/man1/yoke.1" ] && [ -e "$prefix/share/man/man1/yoke-train.1" ]
ok "pages of the manual" [ $? = 0 ]
ok "completion for bash" cmp "$sources/scripts/yoke.bash" "$prefix/share/bash-completion/completions/yoke"
ok "the header of C++" [ -e "$prefix/include/yoke/yoke.hpp" ]
if command -v cmake > /dev/null; then
    mkdir cmake
    cp program.c cmake/
    cat > cmake/CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.13)
project(program C)
set(CMAKE_BUILD_RPATH_USE_ORIGIN OFF)
find_package(yoke 0.3 REQUIRED)
foreach(kind yoke static)
  add_executable(with_${kind} program.c)
  target_link_libraries(with_${kind} PRIVATE yoke::${kind})
endforeach()
find_package(yoke 0.2 QUIET)
if(yoke_FOUND)
  message(FATAL_ERROR "0.3 is taken for 0.2")
endif()
END
    cmake -S cmake -B cmake/build -DCMAKE_PREFIX_PATH="$prefix" -Dyoke_DIR="$libdir/cmake/yoke" \
        -DCMAKE_C_COMPILER="${CC:-gcc}" -DCMAKE_C_FLAGS="$flags" > out 2> err
    ok "CMake finds it" [ $? = 0 ]
    make -s -C cmake/build > out 2> err
    ok "and builds with it" [ $? = 0 ]
    for kind in yoke static; do
        cmake/build/with_$kind > out 2> err
        ok "yoke::$kind runs" [ $? = 1 ]
        says err "'mpi' not there $libdir/yoke/yoke-mpi.so"
    done
    ok "yoke::yoke is the shared one" eval 'ldd cmake/build/with_yoke | grep -q "libyoke\.so\.2 => $libdir/"'
    mv "$libdir/libyoke.so.$(sed -n 's/^#define YK_VERSION "\(.*\)"/\1/p' "$prefix/include/yoke/base.h")" kept
    ok "where the library is gone CMake says so" eval '! cmake -S cmake -B cmake/again -Dyoke_DIR="$libdir/cmake/yoke" > out 2> err'
    says err "yoke installed in"
    mv kept "$libdir/libyoke.so.$(sed -n 's/^#define YK_VERSION "\(.*\)"/\1/p' "$prefix/include/yoke/base.h")"
else
    skip "CMake" "it is not there"
fi

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
make_again PREFIX="$prefix" LIBDIR="$libdir" uninstall
ok "make uninstall leaves no file" [ -z "$(find "$prefix" -name '*yoke*' -not -type d)" ]
finish
