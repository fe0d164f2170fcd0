#!/bin/bash
# build.sh - what the Makefile decides to build: instruction sets, backends that can or cannot be built, and what is built
# anew when flags change.
sources=$PWD
. tests/support/tap.bash
unset MAKEFLAGS MFLAGS MAKELEVEL MAKE_RESTARTS CC CXX CFLAGS CPPFLAGS LDFLAGS OPTIMISE DEBUG_INFO CPU_ISAS CUDA CUDA_HOME MPI SANITIZE \
    BUILD ARCH
export UCX=0 # where a case says nothing of it
compiler=$(command -v gcc || command -v clang)

# value NAME ARGUMENTS...: what make makes of a variable, between dots; what it says goes to the file said.
value()
{
    local name=$1
    shift
    make -s -C "$sources" --no-print-directory --eval "show-value: ; @printf '%s\n' '.\$($name).' > $work/value" \
        show-value "$@" > said 2> err
    code=$?
    cat value 2> /dev/null
    rm -f value
}
# is EXPECTED NAME ARGUMENTS...
is()
{
    local expected=$1 got
    shift
    got=$(value "$@")
    ok "$*: '$expected'" [ "$got" = ".$expected." ]
}

# A compiler that knows the macros and the target that are written in files.
cat > cc << END_CC
#!/bin/bash
case "\$*" in
*-dumpmachine*) cat $work/target ;;
*-march=native*) [ -s $work/macros ] && sed 's/^/#define /; s/\$/ 1/' $work/macros ;;
*) exec $compiler "\$@" ;;
esac
END_CC
chmod +x cc
v3='__AVX2__ __FMA__ __BMI__ __BMI2__ __F16C__ __LZCNT__ __MOVBE__'
v4="$v3 __AVX512F__ __AVX512BW__ __AVX512CD__ __AVX512DQ__ __AVX512VL__"
# The machine, as the script sees it.
mkdir bin
printf '#!/bin/sh\necho x86_64\n' > bin/uname
chmod +x bin/uname
here=$PATH
PATH=$work/bin:$here
echo x86_64-linux-gnu > target
printf '%s\n' $v4 > macros
is v4 ISAS CC="$work/cc"
is 'base v3 v4' INSTALLED_ISAS CC="$work/cc"
is 'base v3 v4' ISAS CC="$work/cc" CPU_ISAS=all
is 'base v3' ISAS CC="$work/cc" CPU_ISAS='v3 base'
is 'base v3' INSTALLED_ISAS CC="$work/cc" CPU_ISAS='v3 base'
is base ISAS CC="$work/cc" SANITIZE=thread
value ISAS CC="$work/cc" CPU_ISAS=avx2 > /dev/null
ok "a set that is none is an error" [ $code = 2 ]
says err "CPU_ISAS=avx2 base v3 v4"
printf '%s\n' ${v4/__AVX512DQ__/} > macros
is v3 ISAS CC="$work/cc"
printf '%s\n' ${v3/__MOVBE__/} > macros
is base ISAS CC="$work/cc"
: > macros
is 'base v3 v4' ISAS CC="$work/cc"
printf '%s\n' $v4 > macros
printf '#!/bin/sh\necho aarch64\n' > bin/uname
is 'base v3 v4' ISAS CC="$work/cc"
echo aarch64-linux-gnu > target
is base ISAS CC="$work/cc" CPU_ISAS=all
PATH=$here

# ---- backends
is '' BACKENDS MPI=0 CUDA=0
is '' EMULATOR MPI=0 CUDA=0
is '' EMULATOR_FAULTS MPI=0 CUDA=0
is '' BACKENDS MPI=0 CUDA=0 UCX= CC="$compiler -nostdinc"
ok "nothing is said of what was not asked for" [ ! -s said ]
value BACKENDS MPI=0 CUDA=0 UCX=1 CC="$compiler -nostdinc" > /dev/null
ok "UCX without its headers, asked for: an error" [ $code = 2 ]
says err "UCX=1 ucx backend cannot be built not there"
printf '#!/bin/sh\necho -nostdinc\n' > bin/mpicc
chmod +x bin/mpicc
PATH=$work/bin:$here
is '' BACKENDS CUDA=0
ok "Open MPI without its headers: one line" [ "$(cat said err | wc -l)" = 1 ]
says said "mpi backend left out headers libopenmpi-dev"
value BACKENDS CUDA=0 MPI=1 > /dev/null
ok "Open MPI without its headers, asked for: an error" [ $code = 2 ]
says err "MPI=1 headers libopenmpi-dev"
printf '#!/bin/sh\nexit 1\n' > bin/mpicc
is '' BACKENDS CUDA=0
says said "mpi backend left out Open MPI"
PATH=$here
is '' BACKENDS MPI=0 CUDA_HOME="$work/none"
ok "CUDA_HOME without a toolkit: one line" [ "$(cat said err | wc -l)" = 1 ]
says said "cuda backend left out $work/none"
value BACKENDS CUDA=1 CUDA_HOME="$work/none" > /dev/null
ok "CUDA=1 without a toolkit: an error" [ $code = 2 ]
says err "CUDA=1 $work/none"
mkdir -p toolkit/include
echo '#define CUDART_VERSION  13000' > toolkit/include/cuda_runtime_api.h
is '' BACKENDS MPI=0 CUDA_HOME="$work/toolkit"
says said "cuda backend left out $work/toolkit bin/nvcc"
ok "headers without nvcc: the emulator" eval '[[ $(value EMULATOR MPI=0 CUDA_HOME="$work/toolkit" CXX=echo) == .*emulator/yoke-cuda.so* ]]'
is '' EMULATOR MPI=0 CUDA_HOME="$work/toolkit" CXX="$work/no-compiler"
says said "emulator left out C++ no-compiler"
# A toolkit on the path is not taken for the plug-ins before somebody asks for it.
mkdir -p toolkit/bin
printf '#!/bin/sh\necho "release 13.0, V13.0.1"\n' > toolkit/bin/nvcc
chmod +x toolkit/bin/nvcc
PATH=$work/toolkit/bin:$here
is '' BACKENDS MPI=0
PATH=$here

# ---- what is built anew
built=$work/built
mkdir -p "$built"
touch "$built/have-build"
# builds TARGET ARGUMENTS...: what is compiled for it.
builds()
{
    make -s -C "$sources" --no-print-directory BUILD="$built" CUDA=0 MPI=0 OPTIMISE=-O0 "${@:2}" "$built/$1" > said 2> err
    code=$?
    grep -c '^  CC ' said
}
ok "an object" [ "$(builds src/base/isa.o CPU_ISAS=base)" = 1 ]
ok "once" [ "$(builds src/base/isa.o CPU_ISAS=base)" = 0 ]
if [ "$(uname -m)" = x86_64 ]; then
    ok "another set" [ "$(builds src/base/isa.o CPU_ISAS='base v3')" = 1 ]
else
    skip "another set" "there is one alone on this machine"
fi
ok "another flag" [ "$(builds src/base/isa.o CPU_ISAS=base CPPFLAGS=-DANY)" = 1 ]
ok "the same flag" [ "$(builds src/base/isa.o CPU_ISAS=base CPPFLAGS=-DANY)" = 0 ]
ok "the same flags, and warnings that are errors: objects are the same" [ "$(builds src/base/isa.o CPU_ISAS=base CPPFLAGS=-DANY WERROR=1)" = 0 ]
ok "an option with a space in it" [ "$(builds src/base/isa.o CPU_ISAS=base CPPFLAGS='-DANY -DOTHER')" = 1 ]
ok "the options of the folder" grep -qF 'CPPFLAGS=-DANY\ -DOTHER OPTIMISE=-O0 CPU_ISAS=base' "$built/made-of/options"
MAKEFLAGS="-- $(cat "$built/made-of/options")" make -s -C "$sources" BUILD="$built" "$built/src/base/isa.o" > said 2> err
ok "with them nothing is built anew" eval '! grep -q "^  CC" said'
# ---- what may not be skipped ----
# runs WHAT-IT-PRINTS: scripts/run-test with a script that prints it, and whose name is in the list of those that must run.
echo whole.sh > must-run
runs()
{
    printf 'echo "%s"\n' "$1" > whole.sh
    YOKE_MUST_RUN=$work/must-run "$sources/scripts/run-test" whole.sh > out 2> err
}
runs "ok 1 - a part # SKIP it takes root"
ok "a part that is skipped has failed" grep -q '^not ok 1 - a part - must not be skipped here: it takes root' out
runs "1..0 # SKIP there is no mpirun"
ok "and so has a whole test" grep -q '^not ok 1 - must not be skipped here: there is no mpirun' out
finish
