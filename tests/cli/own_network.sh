#!/bin/bash
# own_network.sh - `yoke train --model ./libnet.so`: a network of one's own trains, is saved, goes on, runs in two processes
# and predicts, whether its object was linked with the library or not; there is one library in the process; what does not
# fit is said; the page's own source works.
root=$PWD
. tests/support/tap.bash
build=${YOKE%/*}
MAKEFLAGS="-s -- $(cat "$build/made-of/options")" make -C "$root" --no-print-directory BUILD="$build" "$build/libyoke.so" \
    > out 2> err
ok "the library" [ -e "$build/libyoke.so" ]
sanitize=
[ -z "${SANITIZE:-}" ] || sanitize=-fsanitize=$SANITIZE
shared()
{
    # shellcheck disable=SC2086
    ${CC:-gcc} -std=c11 -O1 -Wall -Wextra -Wpedantic -Wredundant-decls -Werror $sanitize -shared -fPIC -I"$root/include" "$@" > out 2> err
}

# ---- the page's source ----
awk '/^```c$/ { open = 1; text = ""; next } /^```$/ { if (open && text ~ /YK_NETWORK/) printf "%s", text > "net.c"; open = 0 }
    open { text = text $0 "\n" }' "$root/docs/own-program.md"
ok "libnet.so" shared -o libnet.so net.c
ok "linked with -lyoke" shared -o liblinked.so net.c -L"$build" -lyoke -Wl,-rpath,"$build"
exits 0 "train" train --model libnet.so --batch-size 200 --steps 60 --save net.safetensors --log plain.log
says out "libnet.so parameters glyphs"
ok "it learns" awk '/^test accuracy/ { found = $3 > 0.5 } END { exit !found }' out
exits 0 "the linked one" train --model ./liblinked.so --batch-size 200 --steps 60 --no-eval --log linked.log
losses()
{
    sed -n '/"event":"step"/s/,"samples_per_second.*//p' "$1"
}
losses plain.log > plain
losses linked.log > linked
ok "the same losses" cmp plain linked
ok "of all steps" [ "$(wc -l < plain)" = 60 ]
exits 0 "its weights, again" train --model ./libnet.so --epochs 0 --init net.safetensors
exits 1 "not for another network" train --model lenet --epochs 0 --init net.safetensors
says err "--init net.safetensors weights libnet.so lenet"

# ---- goes on, in another number of processes, from another folder ----
exits 0 "with checkpoints" train --model ./libnet.so --batch-size 200 --steps 3 --no-eval --checkpoint ck
mkdir moved
cp libnet.so moved/
exits 0 "goes on in two processes" run --no-prefix -n 2 -- "$YOKE" train --model moved/libnet.so --batch-size 100 --steps 5 \
    --no-eval --checkpoint ck --resume
says out "going on step-00000003"
ok "to its end" [ -d ck/step-00000005 ]
exits 1 "not with another network" train --model ./liblinked.so --batch-size 200 --steps 9 --no-eval --checkpoint ck --resume
says err "model libnet.so liblinked.so"

# ---- rows, and predict ----
awk 'BEGIN { print "a,b,kind"; for (i = 0; i < 60; i++) print i % 2 ? (i % 7) ",9,odd" : (i % 5) ",-9,even" }' > table.csv
exits 0 "rows of a CSV file" train --model ./libnet.so --data table.csv --epochs 20 --batch-size 6 --save rows.safetensors
exits 1 "predict runs no code that a file names" predict rows.safetensors table.csv
says err "rows.safetensors libnet.so --model PATH"
exits 0 "predict --model" predict --model ./libnet.so rows.safetensors --data table.csv
says out "accuracy 1.0000 of 60"
exits 0 "a network of yoke's" train --model mlp --data table.csv --epochs 1 --save mlp.safetensors
exits 1 "takes no --model" predict --model ./libnet.so mlp.safetensors --data table.csv
says err "mlp.safetensors mlp option out"

# ---- one library ----
cat > count.c << 'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yoke/yoke.h>
static yk_module *net(const yk_network_input *in)
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps)) {
        if (strstr(line, "libyoke"))
            printf("a second library: %s", line);
    }
    if (maps)
        fclose(maps);
    yk_module *layers[] = {yk_flatten_create(), yk_linear_create(in->channels * in->height * in->width, in->num_classes, NULL)};
    return yk_sequential_list(layers, 2);
}
YK_NETWORK(net);
END
ok "an object that looks" shared -o libcount.so count.c -L"$build" -lyoke -Wl,-rpath,"$build"
exits 0 "trains" train --model ./libcount.so --steps 1 --no-eval
ok "and sees no second library" [ "$(grep -c 'second library' out)" = 0 ]

# ---- what does not fit (yk_network_load's errors are those of network_object_test.c) ----
exits 1 "no such file" train --model ./libnone.so --steps 1
says err "./libnone.so: there is no such file"
ok "before it trains" [ ! -s out ]
exits 1 "a source" train --model ./net.c --steps 1
says err "net.c no shared object cc -shared"
exits 2 "a name that is neither" train --model libnet --steps 1
says err "libnet lenet"
sed 's/yk_relu_create/yk_rellu_create/; s/#include <yoke.yoke.h>/&\nyk_module *yk_rellu_create(void);/' net.c > wrong.c
ok "a name that there is not" shared -o libwrong.so wrong.c
exits 1 "is said" train --model ./libwrong.so --steps 1
says err "libwrong.so yk_rellu_create did you mean yk_relu_create"
echo 'int x;' > nothing.c
ok "an object of another kind" shared -o libnothing.so nothing.c
exits 1 "is said" train --model ./libnothing.so --steps 1
says err "libnothing.so yk_network YK_NETWORK(FUNCTION);"
{
    sed '/YK_NETWORK/d' net.c
    printf '#undef YK_NETWORK_ABI\n#define YK_NETWORK_ABI 1\n'
    grep YK_NETWORK net.c
} > old.c
ok "an object of another version" shared -o libold.so old.c
exits 1 "is said" train --model ./libold.so --steps 1
says err "libold.so version 1 yoke version 2 build it anew"

# ---- C++: what it throws is an error ----
if command -v "${CXX:-g++}" > /dev/null && { [ -z "$sanitize" ] || [ "${CXX:-g++}" = g++ ]; }; then
    printf '%s\n' '#include <stdexcept>' '#include <yoke/yoke.h>' \
        'static yk_module *net(const yk_network_input *in)' \
        '{ if (in->num_classes == 10) throw std::runtime_error("ten is too many"); return yk_identity_create(); }' \
        'YK_NETWORK(net);' > net.cpp
    # shellcheck disable=SC2086
    ok "C++" ${CXX:-g++} -std=c++20 -Wall -Wextra -Wpedantic -Werror $sanitize -shared -fPIC -I"$root/include" -o libcxx.so net.cpp
    exits 1 "throws" train --model ./libcxx.so --steps 1
    says err "libcxx.so: a callback threw: ten is too many"
else
    skip "C++" "there is no ${CXX:-g++} of the library's kind"
fi

# ---- programs of one's own ----
cat > program.c << 'END'
#include <yoke/yoke.h>
int main(int argc, char **argv)
{
    yk_scope scope = yk_scope_begin();
    yk_module *net = argc > 1 ? yk_network_load(argv[1], &(yk_network_input){1, 28, 28, 10}) : NULL;
    if (net)
        printf("%d parameters\n", (int)yk_module_parameter_count(net));
    yk_scope_end(scope);
    return yk_report_error(stderr);
}
END
# shellcheck disable=SC2086
ok "a program that shares the library" ${CC:-gcc} $sanitize -I"$root/include" -o shares program.c -L"$build" -lyoke -Wl,-rpath,"$build"
for object in libnet.so liblinked.so; do
    ./shares $object > out 2> err
    ok "takes $object" [ $? = 0 ]
    says out "parameters"
done
if [ -n "$sanitize" ]; then
    skip "a program with a copy inside" "the sanitizer refuses two copies by itself"
else
    ok "a program with a copy inside" ${CC:-gcc} -I"$root/include" -o inside program.c "$build/libyoke.a" -ljansson -lsodium -ljpeg \
        -lpng -lz -lm -pthread
    ./inside ./liblinked.so > out 2> err
    ok "and an object that brings the shared one" [ $? = 1 ]
    says err "liblinked.so another libyoke libyoke.so"
    ./inside ./libnet.so > out 2> err
    ok "or none, of which nothing is exported" [ $? = 1 ]
    says err "libnet.so cannot be loaded yk_"
fi
finish
