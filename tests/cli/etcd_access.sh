#!/bin/bash
# etcd_access.sh - jobs that meet through an etcd that is not open to all, by https, with users; and through one that is
# full. What does not fit is an error that names it.
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
