#!/bin/bash
# transcripts.sh - the whole programs in README.md and docs/ are built without a warning, and
# every command that a page shows at a prompt prints what the page says. Two machines are two network namespaces.
root=$PWD
build=$(realpath "$(dirname "${YOKE:-build/yoke}")")
. tests/support/tap.bash
. "$root/tests/support/transcript.bash"
needs_proc "yoke run looks for what became of its processes there"

# A newcomer's machine: yoke is installed (install.sh has `make install` itself), and the compiler stops at warnings.
version=$(sed -n 's/^#define YK_VERSION "\(.*\)"/\1/p' "$root/include/yoke/base.h")
linking="-lyoke -ljansson -lsodium -ljpeg -lpng -lz -lm -pthread -ldl"
mkdir bin lib
ln -s "$YOKE" bin/yoke
ln -s "$build/libyoke.a" lib/
sanitize=
[ -z "${SANITIZE:-}" ] || sanitize="-fsanitize=$SANITIZE -fno-sanitize-recover=all"
compiler=${CC:-gcc}
[ "$compiler" != cc ] || compiler=$(command -v cc) # not this one
printf '#!/bin/sh\nexec %s -Wall -Wextra -Werror %s "$@"\n' "$compiler" "$sanitize" > bin/cc
if command -v pkg-config > /dev/null; then
    printf '%s\n' 'Name: yoke' 'Description: yoke' "Version: $version" "Cflags: -I$root/include" \
        "Libs: -L$work/lib $linking" > lib/yoke.pc
else
    printf '#!/bin/sh\ncase $1 in --modversion) echo %s ;; *) echo %s ;; esac\n' "$version" \
        "'-I$root/include -L$work/lib $linking'" > bin/pkg-config
fi
no_torch="there is no Python with torch"
if find_python torch; then
    no_torch=
    printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v "$python")" > bin/python3
fi
chmod +x bin/*
export PATH=$work/bin:$PATH PKG_CONFIG_PATH=$work/lib TMPDIR=$work
unset YOKE_DATA
export YOKE_DEBUG=0 # sanitized programs have it on by themselves

# Two machines, node0 and node1, with a cable between them; their names are in an /etc/hosts that they alone see.
no_machines=
a=yk$$m b=yk$$n
[ "$(id -u)" = 0 ] || no_machines="two machines take root"
command -v ip > /dev/null || no_machines="two machines take ip (iproute2)"
if [ -z "$no_machines" ]; then
    cleanup()
    {
        local pid
        for pid in $(ip netns pids $a 2> /dev/null) $(ip netns pids $b 2> /dev/null); do
            kill -9 "$pid" 2> /dev/null
        done
        ip netns del $a 2> /dev/null
        ip netns del $b 2> /dev/null
        rm -rf "$work"
    }
    trap cleanup EXIT
    trap 'exit 1' INT TERM HUP
    ip netns add $a 2> err && ip netns add $b 2>> err && ip link add yk$$0 netns $a type veth peer name yk$$1 netns $b 2>> err ||
        no_machines="two machines cannot be made here: $(head -n 1 err)"
fi
if [ -z "$no_machines" ]; then
    ip -n $a addr add 10.213.78.1/24 dev yk$$0
    ip -n $b addr add 10.213.78.2/24 dev yk$$1
    ip -n $a link set lo up
    ip -n $b link set lo up
    ip -n $a link set yk$$0 up
    ip -n $b link set yk$$1 up
    printf '127.0.0.1 localhost\n10.213.78.1 node0\n10.213.78.2 node1\n' > "$work/hosts"
    ip netns exec $a unshare --uts sh -c "hostname node0 && mount --bind '$work/hosts' /etc/hosts" 2> err ||
        no_machines="two machines cannot have names here: $(head -n 1 err)"
fi

# on_machine NAME SCRIPT: each machine has this page's files in a folder of its own.
on_machine()
{
    local space=$a
    [ "$1" = node0 ] || space=$b
    mkdir -p ".$1"
    cp -rn -- * ".$1"
    (cd ".$1" && YOKE_HOST_ID=$1 ip netns exec $space unshare --uts \
        sh -c "hostname $1 && mount --bind '$work/hosts' /etc/hosts && exec bash '$2'" < /dev/null) &
}

# checked PAGE N: each command of block N printed what it should.
checked()
{
    local line host commands kind k command
    read -r line host commands kind < "$2.block"
    for ((k = 1; k <= commands; k++)); do
        command=$(tr '\n' ' ' < "$2.$k.command")
        sed -i "s/\[$(uname -n | cut -d. -f1):/[laptop:/" "$2.$k.out" 2> /dev/null
        cp "$2.$k.out" out 2> /dev/null
        cp "$2.$k.expected" err
        ok "$1, line $line: ${command% }" same_text "$2.$k.expected" "$2.$k.out" "$kind"
    done
}

# A page's blocks in turn, in one shell; those of machines beside it, at the same time.
page()
{
    local name n line host commands kind
    name=${1#"$root/"}
    folder=$work/pages/${name%.md}
    mkdir -p "$folder"
    cd "$folder" || exit 1
    unfold_page "$1"
    local all_built=yes file
    for file in *.c; do
        [ ! -e "$file" ] || grep -qsE "^cc .*\b$file( |\$)" ./*.command || all_built="$file is built by no command"
    done
    [ "$all_built" = yes ] || ok "$name: $all_built" false
    [ -e 1.block ] || return
    ln -s "$root/include" include
    ln -s "$build" build
    mkfifo .commands .done
    bash < .commands 2> shell.err &
    exec 7> .commands 8<> .done
    for ((n = 1; ; n++)); do
        host=-
        [ ! -e "$n.block" ] || read -r line host commands kind < "$n.block"
        if [ "$host" != - ] && [ -n "$no_machines" ]; then
            skip "$name, line $line" "$no_machines"
            continue
        elif [ -n "$no_torch" ] && grep -qs '^python3 ' "$n.1.command"; then
            skip "$name, line $line" "$no_torch"
            continue
        elif [ "$host" != - ]; then
            page_script "$n" > "$n.script"
            on_machine "$host" "$PWD/$n.script"
            machines+=" $!"
            at_once+=" $n"
            continue
        fi
        [ -z "$machines" ] || wait $machines
        for k in $at_once; do checked "$name" "$k"; done
        machines='' at_once=''
        [ -e "$n.block" ] || break
        { page_script "$n" && echo "echo > '$PWD/.done'"; } >&7
        read -r -t $(patience 300) <&8 || echo "# $name, line $line: not done in time"
        checked "$name" "$n"
    done
    exec 7>&- 8>&-
    cd "$work" || exit 1
}
machines='' at_once='' pages=0
for file in "$root"/README.md "$root"/docs/*.md; do
    [ "${file##*/}" != howto-slurm.md ] || continue # slurm.sh, where there is one
    page "$file"
    [ ! -e "$folder/1.block" ] || pages=$((pages + 1))
done
ok "pages with transcripts were found" [ $pages -ge 2 ]
finish
