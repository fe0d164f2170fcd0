#!/bin/bash
# etcd_access.sh - jobs that meet through an etcd that is not open to all, by https, with users, with certificates of
# clients; and through one that is full. What does not fit is an error that names it.
. tests/support/etcd.bash
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD
etcd_needs "https, users and a full disk of etcd"
command -v openssl > /dev/null || { skip "https, users and a full disk of etcd" "there is no openssl"; finish; exit; }
trap '[ $BASHPID != $$ ] || { etcd_end; rm -rf "$work"; }' EXIT
trap 'exit 1' INT TERM HUP
free_ports 19000 4

# ---- https, and users
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=etcd -keyout key.pem \
    -out cert.pem -addext subjectAltName=IP:127.0.0.1 2> err
etcd_options=(--cert-file cert.pem --key-file key.pem) etcd_scheme=https etcd_curl="--cacert cert.pem"
ok "etcd begins, by https" etcd_begin 1 "$port"
rdzv=(--nnodes 2 --rdzv "etcd://$etcd_members" --join-timeout 3)
# both CONF: two nodes, each with this --rdzv-conf.
both()
{
    "$YOKE" run "${rdzv[@]}" --rdzv-conf "$1" true > out.1 2> err.1 < /dev/null &
    pid=$!
    exits 0 "one node with $1" run "${rdzv[@]}" --rdzv-conf "$1" true
    ok "and the other" wait $pid
}
both cacert=cert.pem
exits 1 "no authority" run "${rdzv[@]}" --rdzv-conf protocol=https true
says err "etcd at https://127.0.0.1:$port: certificate --rdzv-conf cacert=FILE"
exits 1 "http to https" run "${rdzv[@]}" --rdzv-conf protocol=http --join-timeout 0.3 true
says err "http://127.0.0.1:$port tried for"
ok "users are made" eval 'etcd_ask /v3/auth/user/add "{\"name\":\"root\",\"password\":\"right horse\"}" > out &&
    etcd_ask /v3/auth/role/add "{\"name\":\"root\"}" >> out &&
    etcd_ask /v3/auth/user/grant "{\"user\":\"root\",\"role\":\"root\"}" >> out &&
    etcd_ask /v3/auth/user/add "{\"name\":\"nobody\",\"password\":\"right horse\"}" >> out &&
    etcd_ask /v3/auth/enable "{}" >> out'
(umask 077 && echo "right horse" > right && echo "wrong horse" > wrong)
both cacert=cert.pem,user=root,password_file=right
exits 1 "a wrong password" run "${rdzv[@]}" --rdzv-conf cacert=cert.pem,user=root,password_file=wrong true
says err "etcd at https://127.0.0.1:$port: authentication failed, invalid user ID or password"
exits 1 "no user" run "${rdzv[@]}" --rdzv-conf cacert=cert.pem true
says err "etcd at https://127.0.0.1:$port: user"
exits 1 "a user without rights" run "${rdzv[@]}" --rdzv-conf cacert=cert.pem,user=nobody,password_file=right true
says err "etcd at https://127.0.0.1:$port: permission denied"
etcd_end

# ---- certificates of clients: one authority has signed those that are let in, another one has not
issue() # NAME AUTHORITY
{
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" \
        2>> err &&
        printf 'subjectAltName=IP:127.0.0.1\n' > ext &&
        openssl x509 -req -days 2 -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -set_serial 7 -extfile ext -out "$1.pem" 2>> err
}
for name in ca stranger; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$name" -keyout $name.key \
        -out $name.pem 2> err
done
ok "certificates are made" eval 'issue server ca && issue node ca && issue other stranger'
etcd_options=(--cert-file server.pem --key-file server.key --client-cert-auth --trusted-ca-file ca.pem)
etcd_curl="--cacert ca.pem --cert node.pem --key node.key"
ok "etcd begins, for clients with a certificate" etcd_begin 1 "$port"
both cacert=ca.pem,cert=node.pem,key=node.key
exits 1 "no certificate" run "${rdzv[@]}" --rdzv-conf cacert=ca.pem --join-timeout "$(patience 20)" true
says err "etcd at https://127.0.0.1:$port: certificate it lets in who has a certificate: --rdzv-conf cert=FILE,key=FILE"
exits 1 "one of another authority" run "${rdzv[@]}" --rdzv-conf cacert=ca.pem,cert=other.pem,key=other.key \
    --join-timeout "$(patience 20)" true
says err "etcd at https://127.0.0.1:$port: it does not let in who has this certificate, --rdzv-conf cert=FILE"
exits 1 "another's key" run "${rdzv[@]}" --rdzv-conf cacert=ca.pem,cert=node.pem,key=other.key true
says err "etcd at https://127.0.0.1:$port: key file: 'other.key'"
exits 2 "no such file" run "${rdzv[@]}" --rdzv-conf cacert=ca.pem,cert=nowhere.pem,key=node.key true
says err "etcd: cert=nowhere.pem: No such file or directory"
exits 2 "a key without its certificate" run "${rdzv[@]}" --rdzv-conf cacert=ca.pem,key=node.key true
says err "--rdzv-conf key=node.key: it goes with cert=FILE"
etcd_end

# ---- etcd is full
etcd_options=(--quota-backend-bytes 65536) etcd_scheme=http etcd_curl=
ok "etcd begins, with room for little" etcd_begin 1 $((port + 2))
head -c 20000 /dev/zero > much
for ((i = 0; i < 8; i++)); do
    etcd_set "full/$i" much 2> /dev/null || break
done
exits 1 "a full etcd" run --nnodes 2 --rdzv "etcd://$etcd_members" --join-timeout 0.5 true
says err "etcd at http://127.0.0.1:$etcd_port: database space exceeded tried for"
finish
