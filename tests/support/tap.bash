# tap.bash - what the scripts in tests/cli share: TAP output, and runs of the program that keep what it printed.
# $YOKE is the program. Each script works in a folder of its own, $work, removed at the end.
set -u
if ! YOKE=$(realpath -e "${YOKE:-build/yoke}"); then
    echo "Bail out! there is no program to test"
    exit 1
fi
tests=0
work=$(mktemp -d)
# A child in the background that is ended before it has become its program has the trap, too.
trap '[ $BASHPID != $$ ] || rm -rf "$work"' EXIT
cd "$work" || exit 1
mkfifo .nap
mkdir .tmp
export TMPDIR=$work/.tmp # for what yoke run leaves of jobs that failed

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

# says FILE FACTS: one line of the file has these names, numbers and terms, in their order, whatever sentence is around
# them. A number is not found in a longer one.
says()
{
    ok "$1 says '$2'" said "$1" "$2" 1
}

# said FILE FACTS COUNT: so many lines at least have them.
said()
{
    FACTS=$2 awk -v count="$3" '
        BEGIN { facts = split(ENVIRON["FACTS"], fact, " ") }
        function is_digit(text, at) { return at > 0 && index("0123456789", substr(text, at, 1)) && at <= length(text) }
        # Where the fact ends in the line, from a place on; 0: nowhere.
        function find(text, from,    rest, at, size) {
            size = length(text)
            for (rest = substr($0, from); (at = index(rest, text)) > 0; rest = substr(rest, at + 1)) {
                from += at
                if (!(is_digit(text, 1) && is_digit($0, from - 2)) && !(is_digit(text, size) && is_digit($0, from - 1 + size)))
                    return from - 1 + size
            }
            return 0
        }
        { for (i = at = 1; i <= facts && (at = find(fact[i], at)) > 0; i++); seen += i > facts }
        END { exit seen < count }' "$1"
}

# needs_proc WHY: skips the script where there is no /proc, as in a chroot that debootstrap made.
needs_proc()
{
    [ ! -e /proc/self/stat ] || return 0
    echo "1..0 # SKIP there is no /proc: $1"
    exit 0
}

# needs_built FILE: sets $built to a program of the tests that the script runs as well, "tests/elastic/survive_test". The Makefile
# reads these lines and makes what they name; without it nothing is tested here, which is a failure and no skip.
needs_built()
{
    built=${YOKE%/*}/$1
    [ ! -x "$built" ] || return 0
    echo "Bail out! $built is not there (make $built)"
    exit 1
}

# find_python MODULES: sets $python to a Python that has them, "a b"; Debian's own may not be the first on the path. They
# are looked up, not loaded, which takes PyTorch seconds.
find_python()
{
    for python in ${YOKE_PEER_PYTHON:-python3 /usr/bin/python3}; do
        # shellcheck disable=SC2086
        "$python" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' $1 \
            2> /dev/null && return 0
    done
    return 1
}

# patience SECONDS: so many more on a machine that is busy, or for a sanitized build: the time-outs of a test, and the
# delays that are to stand out. scripts/run-test measures the machine.
patience()
{
    awk -v quiet="$1" -v times="${YOKE_TEST_SLOWNESS:-1}" 'BEGIN { print quiet * (times > 1 ? times : 1) }'
}

# in_time MICROSECONDS SECONDS: whether what took so long took at most so long, with patience.
in_time()
{
    [ "$1" -le $(($2 * 1000000 * ${YOKE_TEST_SLOWNESS:-1})) ]
}

# pause SECONDS: without a process, which would cost a machine with few cores more than the wait is worth.
pause()
{
    ! read -rt "$1" <> "$work/.nap"
}

# wait_until SECONDS COMMAND...: until the command succeeds, at most so long, with patience.
wait_until()
{
    local began=${EPOCHREALTIME/./} seconds=$1
    shift
    until "$@"; do
        in_time $((${EPOCHREALTIME/./} - began)) "$seconds" || return 1
        pause 0.01
    done
}

# holds FILE TEXT: whether the file is there and has it.
holds()
{
    local all
    { read -rd '' all < "$1"; } 2> /dev/null
    [[ ${all-} == *"$2"* ]]
}

# wait_for FILE TEXT
wait_for()
{
    wait_until 120 holds "$1" "$2"
}

# taken PID SIGNAL: until the process has seen the signal that it was sent; a second one before that would be lost.
taken()
{
    wait_until 20 has_seen "$1" $(($(kill -l "$2") - 1))
}
has_seen()
{
    local pending
    pending=$(sed -n 's/^ShdPnd:[[:space:]]*//p' "/proc/$1/status" 2> /dev/null)
    [ -z "$pending" ] || ! ((16#$pending >> $2 & 1))
}

# newest: sets $newest to the step of the last checkpoint in the folder ck; 0: there is none.
newest()
{
    local all=(ck/step-[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9])
    newest=${all[-1]##*step-}
    [[ $newest == [0-9]* ]] || newest=0
    newest=$((10#$newest))
}

# reached STEP: waits until ck has a checkpoint of STEP or a later one, or the process $pid has ended; whether it has one.
reached()
{
    wait_until 60 has_come "$1"
    newest
    [ $newest -ge "$1" ]
}
has_come()
{
    newest
    [ $newest -ge "$1" ] || ! kill -0 "$pid" 2> /dev/null
}

# free_ports FIRST COUNT: sets $port to the first of COUNT ports that nobody has now, between FIRST and FIRST + 50 COUNT.
# Scripts that run at the same time begin at different places.
free_ports()
{
    local i address other used
    for ((i = 0; i < 50; i++)); do
        port=$(($1 + ($$ + 17 * i) % 50 * $2)) used=no # not where a script that began next to this one begins
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
