# tap.bash - what the scripts in tests/cli share: TAP output, and runs of the program that keep what it printed.
# $YOKE is the program. Each script works in a folder of its own, $work, removed at the end.
set -u
if ! YOKE=$(realpath -e "${YOKE:-build/yoke}"); then
    echo "Bail out! there is no program to test"
    exit 1
fi
tests=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# ok NAME COMMAND...: passes when the command succeeds.
ok()
{
    local name=$1
    shift
    tests=$((tests + 1))
    if "$@"; then
        echo "ok $tests - $name"
        return 0
    fi
    echo "not ok $tests - $name"
    echo "# failed: $*"
    sed 's/^/# stdout: /' out 2> /dev/null | tail -n 20
    sed 's/^/# stderr: /' err 2> /dev/null | tail -n 20
    return 1
}

# skip NAME WHY
skip()
{
    tests=$((tests + 1))
    echo "ok $tests - $1 # SKIP $2"
}

# run ARGUMENTS...: the program's output goes to the files out and err, its exit code to $code.
run()
{
    "$YOKE" "$@" > out 2> err < /dev/null
    code=$?
}

# exits CODE NAME ARGUMENTS...: runs the program and expects the exit code.
exits()
{
    local expected=$1 name=$2
    shift 2
    run "$@"
    ok "$name: exit code $expected" [ "$code" = "$expected" ]
}

# says FILE TEXT: the file holds the text.
says()
{
    ok "$1 says '$2'" grep -qF -- "$2" "$1"
}

# needs_proc WHY: skips the script where there is no /proc, as in a chroot that debootstrap made.
needs_proc()
{
    [ ! -e /proc/self/stat ] || return 0
    echo "1..0 # SKIP there is no /proc: $1"
    exit 0
}

# find_python MODULES: sets $python to a Python that has them, "a, b"; Debian's own may not be the first on the path.
find_python()
{
    for python in ${YOKE_PEER_PYTHON:-python3 /usr/bin/python3}; do
        "$python" -c "import $1" 2> /dev/null && return 0
    done
    return 1
}

# patience SECONDS: so many more on a machine that is busy, or for a sanitized build: the time-outs of a test, and the
# delays that are to stand out. scripts/run-test measures the machine.
patience()
{
    awk -v quiet="$1" -v times="${YOKE_TEST_SLOWNESS:-1}" 'BEGIN { print quiet * (times > 1 ? times : 1) }'
}

# wait_for FILE TEXT: up to five minutes, until the file holds the text.
wait_for()
{
    local i
    for ((i = 0; i < 6000; i++)); do
        grep -qs -- "$2" "$1" && return 0
        sleep 0.05
    done
    return 1
}

# taken PID SIGNAL: until the process has seen the signal that it was sent; a second one before that would be lost.
taken()
{
    local i pending bit=$(($(kill -l "$2") - 1))
    for ((i = 0; i < 2400; i++)); do
        pending=$(sed -n 's/^ShdPnd:[[:space:]]*//p' "/proc/$1/status" 2> /dev/null)
        [ -n "$pending" ] && ((16#$pending >> bit & 1)) || return 0
        sleep 0.01
    done
    return 1
}

# free_ports FIRST COUNT: sets $port to the first of COUNT ports that nobody has now, between FIRST and FIRST + 50 COUNT.
# Scripts that run at the same time begin at different places.
free_ports()
{
    local i address other used
    for ((i = 0; i < 50; i++)); do
        port=$(($1 + ($$ + i) % 50 * $2)) used=no
        while read -r _ address _; do
            [ -n "$address" ] || continue # no /proc
            other=$((16#${address##*:}))
            ((other < port || other >= port + $2)) || used=yes
        done <<< "$(tail -q -n +2 /proc/net/tcp /proc/net/tcp6 2> /dev/null)"
        [ $used = no ] && return
    done
}

finish()
{
    echo "1..$tests"
}
