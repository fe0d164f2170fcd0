# etcd.bash - clusters of the real etcd for the scripts in tests/cli, on ports of the test's own, in $work. The script's own
# trap calls etcd_end.
etcd_pid=() etcd_options=()

# etcd_needs WHAT: skips the script where there is no etcd.
etcd_needs()
{
    local missing=
    command -v etcd > /dev/null || missing="there is no etcd (Debian's package is etcd-server)"
    command -v curl > /dev/null || missing="there is no curl"
    [ -z "$missing" ] || { skip "$1" "$missing"; finish; exit 0; }
}

# etcd_member I: begins the member with this number, from 0, of etcd_count. It listens for clients at etcd_port + 2 I.
etcd_member()
{
    local client=$((etcd_port + 2 * $1)) i all=
    for ((i = 0; i < etcd_count; i++)); do
        all+=${all:+,}m$i=http://127.0.0.1:$((etcd_port + 2 * i + 1))
    done
    etcd --name m"$1" --data-dir etcd."$1" --log-level error --unsafe-no-fsync --heartbeat-interval 50 \
        --election-timeout 500 --initial-cluster "$all" --initial-cluster-state new \
        --listen-peer-urls http://127.0.0.1:$((client + 1)) --initial-advertise-peer-urls http://127.0.0.1:$((client + 1)) \
        --listen-client-urls "${etcd_scheme:-http}://127.0.0.1:$client" \
        --advertise-client-urls "${etcd_scheme:-http}://127.0.0.1:$client" "${etcd_options[@]}" \
        >> etcd.log."$1" 2>&1 < /dev/null &
    etcd_pid[$1]=$!
}

# etcd_begin COUNT PORT: a new cluster of so many; $etcd_members is its list. etcd_options has further arguments.
etcd_begin()
{
    local i
    etcd_count=$1 etcd_port=$2 etcd_members=
    rm -rf etcd.[0-9]
    for ((i = 0; i < etcd_count; i++)); do
        etcd_member $i
        etcd_members+=${etcd_members:+,}127.0.0.1:$((etcd_port + 2 * i))
    done
    wait_until 30 etcd_is_there
}
etcd_is_there()
{
    local i
    for ((i = 0; i < etcd_count; i++)); do
        etcd_ask /v3/kv/range "{\"key\":\"$(printf x | base64)\"}" $i > /dev/null || return 1
    done
}

# etcd_ask PATH BODY [MEMBER]: what a member answers.
etcd_ask()
{
    curl -sf -m 5 ${etcd_curl:-} "${etcd_scheme:-http}://127.0.0.1:$((etcd_port + 2 * ${3:-0}))$1" -d "$2"
}

# etcd_value KEY [MEMBER]: the value, as it is.
etcd_value()
{
    etcd_ask /v3/kv/range "{\"key\":\"$(printf %s "$1" | base64 -w 0)\"}" "${2:-0}" |
        sed -n 's/.*"value":"\([^"]*\)".*/\1/p' | base64 -d
}

# etcd_set KEY FILE: puts what is in the file there.
etcd_set()
{
    etcd_ask /v3/kv/put "{\"key\":\"$(printf %s "$1" | base64 -w 0)\",\"value\":\"$(base64 -w 0 < "$2")\"}" > /dev/null
}

etcd_end()
{
    local one
    for one in "${etcd_pid[@]}"; do
        kill -CONT "$one" 2> /dev/null
        kill -KILL "$one" 2> /dev/null
        wait "$one" 2> /dev/null
    done
    etcd_pid=()
}
