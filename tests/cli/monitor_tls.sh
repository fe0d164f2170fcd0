#!/bin/bash
# monitor_tls.sh - `yoke monitor --web-config-file`: what it takes to listen beyond loopback; TLS and passwords with curl,
# and with Prometheus; who has none learns nothing; what of a configuration is refused, and where.
root=$PWD
. tests/support/tap.bash
pids=()
trap 'kill "${pids[@]}" 2> /dev/null; wait; rm -rf "$work"' EXIT
export YOKE_RUN_DIR=$work/runs

# ---- configurations
# Of "U*U", which is a vector of bcrypt's authors, and of "right horse".
hash='$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW'
other='$2y$05$abcdefghijklmnopqrstuuB05BVy0V7KomGh8K56xgiHLq3Wkqh46'
# refused LINE FACTS TEXT: as a configuration it is a mistake in that line.
refused()
{
    printf '%b' "$3" > wrong.yml
    exits 2 "a configuration: $2" monitor -a 127.0.0.1:0 --web-config-file wrong.yml
    says err "--web-config-file wrong.yml:$1: $2"
}
users="basic_auth_users:\n  a: $hash\n"
refused 1 "'basic_auth_user' did you mean 'basic_auth_users'" "basic_auth_user:\n  a: b\n"
refused 3 "'cert_fil' cert_file key_file min_version" "---\ntls_server_config:\n  cert_fil: x\n"
refused 2 "'client_ca_file' not served" "tls_server_config:\n  client_ca_file: x\n"
refused 2 "min_version 'TLS10' TLS12 TLS13" "tls_server_config:\n  min_version: TLS10\n"
refused 4 "'a' twice" "# two\n$users  a: $hash\n"
refused 3 "'basic_auth_users' twice" "${users}basic_auth_users:\n"
refused 3 "'cert_file' twice" "tls_server_config:\n  cert_file: a\n  cert_file: b\n"
refused 2 "'a' bcrypt htpasswd" "basic_auth_users:\n  a: password\n"
refused 2 "'a' bcrypt htpasswd" "basic_auth_users:\n  a: ${hash%?}\n"
refused 3 "'headers' http2" "http_server_config:\n  http2: false\n  headers: x\n"
refused 1 "'basic_auth_users' section lines" "basic_auth_users: a\n"
refused 1 "'{' section 'name: value'" "basic_auth_users: {a: b}\n"
refused 2 "'{' YAML" "basic_auth_users:\n  a: {b: c}\n"
refused 3 "'b' 4 spaces 2" "$users    b: $hash\n"
refused 1 "'a' no section" "  a: b\n"
refused 2 "tab" "basic_auth_users:\n\ta: b\n"
refused 2 "no end" "basic_auth_users:\n  \"a: b\n"
refused 2 "behind" "basic_auth_users:\n  'a': 'b' c\n"
refused 1 "expected 'name: value'" "nonsense\n"
printf 'tls_server_config:\n  cert_file: cert.pem\n' > wrong.yml
exits 2 "a certificate alone" monitor -a 127.0.0.1:0 --web.config.file wrong.yml
says err "wrong.yml cert_file no key_file"
printf 'tls_server_config: \n  cert_file: none.pem\n  key_file: none.pem\n' > wrong.yml
exits 1 "a certificate that is not there" monitor -a 127.0.0.1:0 --web-config-file wrong.yml
says err "none.pem No such file"
exits 1 "a configuration that is not there" monitor -a 127.0.0.1:0 --web-config-file none.yml
says err "none.yml No such file"
printf '%b' "$users" > users.yml
exits 2 "passwords without TLS, elsewhere" monitor -a 0.0.0.0:0 --web-config-file users.yml
says err "0.0.0.0:0 no tls_server_config"

if ! command -v openssl > /dev/null || ! command -v curl > /dev/null; then
    skip "TLS" "there is no openssl, or no curl"
    finish
    exit
fi
mkdir conf
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node-7 \
    -addext 'subjectAltName=IP:127.0.0.1,DNS:node-7,DNS:localhost' -keyout conf/key.pem -out conf/cert.pem 2> /dev/null
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out conf/other.pem 2> /dev/null
printf 'tls_server_config: # with paths beside this file\n  cert_file: cert.pem\n  key_file: "key.pem"\n' > conf/tls.yml
{
    cat conf/tls.yml
    printf "\n# who may come\nbasic_auth_users:\n    prometheus: %s\n    'two words': '%s' # quoted\n" "$other" "$hash"
} > conf/web.yml
exits 2 "TLS without passwords, elsewhere" monitor -a :0 --web-config-file conf/tls.yml
says err ":0 no basic_auth_users"
sed 's/"key.pem"/other.pem/' conf/web.yml > conf/mixed.yml
exits 1 "the key of another certificate" monitor -a 127.0.0.1:0 --web-config-file conf/mixed.yml
if grep -q libmicrohttpd12 err; then
    skip "TLS" "libmicrohttpd is not there"
    finish
    exit
fi
says err "conf/cert.pem conf/other.pem PEM belong"
mkdir none
echo 'no library' | tee none/libcrypt.so.1 > none/libcrypt.so.2
LD_LIBRARY_PATH=$PWD/none exits 1 "without libcrypt" monitor -a 127.0.0.1:0 --web-config-file conf/web.yml
says err "libcrypt Debian libcrypt1"

# ---- served, on all addresses
# begin NAME ARGUMENTS...: a monitor, whose port comes to $monitor_port.
begin()
{
    "$YOKE" monitor "${@:2}" > "$1.out" 2> "$1.err" < /dev/null &
    pids+=($!)
    wait_until 20 has_begun "$1.out" $!
    monitor_port=$(sed -n 's,.*https*://.*:\([0-9]*\)/metrics.*,\1,p' "$1.out")
}
has_begun() { holds "$1" /metrics || ! kill -0 "$2" 2> /dev/null; }
begin web -a :0 --web.config.file conf/web.yml --hosts node-7,node-7.example
port=$monitor_port
says web.out "https:// $port/metrics"
# asks CODE NAME PATH CURL-ARGUMENTS...
asks()
{
    local answer
    answer=$(curl -s --cacert conf/cert.pem -m "$(patience 30)" -o out -D head -w '%{http_code}' "${@:4}" \
        "https://127.0.0.1:$port$3" 2> err)
    ok "$2: $1" [ "$answer" = "$1" ]
}
asks 200 "the right password" /metrics -u 'prometheus:right horse'
ok "metrics" grep -q '^yoke_build_info' out
asks 200 "another user" /api/snapshot -u 'two words:U*U'
asks 200 "the page" / -u 'two words:U*U'
asks 401 "no password" /metrics
cp out nothing
ok "it says how to come in" grep -qi '^WWW-Authenticate: Basic realm="monitor"' head
for path in / /metrics /metrics/none /api/snapshot /health '/../etc/passwd'; do
    for user in 'prometheus:wrong' 'nobody:right horse' 'prometheus:U*U' ':' 'prometheus:'; do
        asks 401 "$user at $path" "$path" -u "$user"
        ok "says as much as to anybody" cmp -s out nothing
    done
done
for header in 'Basic' 'Basic !!!' "Basic $(printf 'prometheus' | base64)" 'Bearer x' \
    "Basic $(printf 'prometheus:right horse\0' | base64)" "Basic $(head -c 4000 /dev/zero | tr '\0' 'a' | base64 -w 0)"; do
    asks 401 "${header:0:30}" /metrics -H "Authorization: $header"
done
asks 401 "another method" /metrics -X POST
asks 405 "another method, with the password" /metrics -X POST -u 'prometheus:right horse'
for host in node-7 node-7.example:443 "127.0.0.1:$port" 192.0.2.7 '[2001:db8::1]' "$(uname -n)" localhost; do
    asks 200 "Host: $host" /metrics -u 'prometheus:right horse' -H "Host: $host"
done
asks 403 "a Host of nobody's" /metrics -u 'prometheus:right horse' -H "Host: rebound.example"
asks 401 "and without a password" /metrics -H "Host: rebound.example"
ok "no plain HTTP" eval '! curl -s -m 10 "http://127.0.0.1:$port/metrics" > out 2> err'
ok "no certificate of another's" eval '! curl -s -m 10 "https://127.0.0.1:$port/metrics" > out 2> err'
ok "no TLS 1.1" eval '! curl -s -m 10 --tls-max 1.1 --ciphers DEFAULT@SECLEVEL=0 --cacert conf/cert.pem \
    "https://127.0.0.1:$port/metrics" > out 2> err'
asks 200 "TLS 1.2" /health --tls-max 1.2 -u 'prometheus:right horse'
sed 's/^  cert_file/  min_version: TLS13\n&/' conf/web.yml > conf/web13.yml
(
    port=
    begin new -a 127.0.0.1:0 --web-config-file conf/web13.yml
    port=$monitor_port
    curl -s -m 10 --tls-max 1.2 --cacert conf/cert.pem "https://127.0.0.1:$port/health" > /dev/null && exit 1
    [ "$(curl -s -m 10 --cacert conf/cert.pem -u 'prometheus:right horse' "https://127.0.0.1:$port/health")" = OK ]
    code=$?
    kill "${pids[-1]}"
    exit $code
)
ok "min_version: TLS13" [ $? = 0 ]
begin users -a 127.0.0.1:0 --web-config-file users.yml
says users.err "passwords go over the network"
ok "a password without TLS" [ "$(curl -s -m 10 -u 'a:U*U' "http://127.0.0.1:$monitor_port/health")" = OK ]

if ! command -v prometheus > /dev/null || ! command -v promtool > /dev/null; then
    skip "Prometheus" "it is not there (Debian's package is prometheus)"
    finish
    exit
fi
own=$port
free_ports 33000 1
cat > prometheus.yml << END
global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs:
  - job_name: yoke
    scheme: https
    tls_config: {ca_file: conf/cert.pem, server_name: node-7}
    basic_auth: {username: prometheus, password: right horse}
    static_configs: [{targets: ['127.0.0.1:$own']}]
END
prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:$port \
    > prometheus.out 2>&1 < /dev/null &
pids+=($!)
scraped()
{
    promtool query instant "http://127.0.0.1:$port" 'up{job="yoke"} == 1' > out 2> err && grep -q '=>' out
}
ok "Prometheus comes in" wait_until 60 scraped
finish
