#!/bin/bash
# etcd.sh - jobs whose nodes find each other through etcd (--rdzv etcd://...), the real server: they meet, and leave nothing
# behind; what is in the key is sealed; what is wrong is named. etcd_keeper.sh has those whose keeper is lost.
. tests/support/etcd.bash
. tests/support/tap.bash
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT YOKE_JOB_SECRET_FILE YOKE_JOB_SECRET_FD
etcd_options=()
free_ports 18000 8

# ---- what needs no server
exits 2 "http to another host" run --nnodes 2 --rdzv etcd://192.0.2.1,192.0.2.2/p --rdzv-conf protocol=http true
says err "protocol=http: 192.0.2.1 is another host cacert=FILE"
exits 2 "no member" run --nnodes 2 --rdzv etcd:///p true
says err "expected HOST[:PORT]"
exits 2 "another scheme" run --nnodes 2 --rdzv redis://localhost true
says err "--rdzv redis://localhost: expected etcd://"
exits 2 "one node" run --rdzv etcd://localhost true
says err "several nodes --nnodes 1"
exits 2 "a name that etcd has not" run --nnodes 2 --rdzv etcd://localhost --rdzv-conf cacrt=x true
says err "cacrt=x cacert"
exits 2 "a file that is not there" run --nnodes 2 --rdzv etcd://localhost --rdzv-conf cacert=nowhere true
says err "cacert=nowhere: No such file"
exits 2 "--master-addr beside it" run --nnodes 2 --rdzv etcd://localhost --master-addr localhost true
says err "--master-addr localhost --local-addr"
printf 'right horse\n' > password
exits 2 "a password that others can read" run --nnodes 2 --rdzv etcd://localhost --rdzv-conf user=u,password_file=password true
says err "password_file=password chmod 600"
exits 1 "nobody listens" run --nnodes 2 --rdzv etcd://127.0.0.1:$port --join-timeout 0.3 true
says err "etcd at http://127.0.0.1:$port: connect tried for"

etcd_needs "jobs that meet through etcd"
trap '[ $BASHPID != $$ ] || { etcd_end; rm -rf "$work"; }' EXIT
trap 'exit 1' INT TERM HUP
ok "etcd begins" etcd_begin 1 $port
rdzv=(--nnodes 2 --rdzv "etcd://$etcd_members/p" --join-timeout 20)
key=p/j/view
other()
{
    "$YOKE" run --job-id j "${rdzv[@]}" "$@" > out.1 2> err.1 < /dev/null &
    pid=$!
}
there()
{
    etcd_value $key > value && [ -s value ]
}

# ---- two nodes meet
# shellcheck disable=SC2016
program=(sh -c 'echo $RANK of $WORLD_SIZE at $MASTER_ADDR; until [ -e end ]; do sleep 0.02; done')
rm -f end
other -n 2 "${program[@]}"
"$YOKE" run --job-id j "${rdzv[@]}" "${program[@]}" > out.0 2> err.0 < /dev/null &
first=$!
ok "three ranks of two nodes" wait_until 60 eval 'cat out.0 out.1 > out; [ $(wc -l < out) = 3 ]'
says out "0 of 3 at 127.0.0.1"
says out "2 of 3 at 127.0.0.1"
ok "etcd has the view" there
says value "yoke view 1 after 0"
says value "keeper 127.0.0.1"
: > end
ok "both end well" eval 'wait $first && wait $pid'
ok "and nothing is left in etcd" [ "$(etcd_ask /v3/kv/range '{"key":"AA==","range_end":"AA=="}' | grep -c '"kvs"')" = 0 ]

# ---- all of a job are killed, and it begins anew
rm -f end
other --node-timeout 2 "${program[@]}"
ok "one waits" wait_until 60 there
kill -KILL $pid
wait $pid 2> /dev/null
other --node-timeout 2 "${program[@]}"
: > end
exits 0 "the job of launchers that were killed begins anew" run --job-id j "${rdzv[@]}" --node-timeout 2 "${program[@]}"
ok "on both nodes" wait $pid

# ---- what is not to be believed
other true
ok "one waits" wait_until 60 there
cp value true_value
{ printf x; tail -c +2 true_value; } > false_value
etcd_set $key false_value
exits 1 "a value that was changed" run --job-id j "${rdzv[@]}" true
says err "the value of $key in etcd is not to be believed: made without this job's secret"
etcd_set $key true_value
exits 1 "one that was put there again" run --job-id j "${rdzv[@]}" true
says err "the value of $key in etcd is not to be believed: view 1 is there again, as change 3"
printf 'what others keep' > false_value
etcd_set $key false_value
exits 1 "another's" run --job-id j "${rdzv[@]}" true
says err "the value of $key in etcd is not to be believed: yoke has not written it"
kill -TERM $pid
wait $pid
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret
tr 0-9 1-90 < secret > secret2
chmod 600 secret secret2
other --job-id k --secret-file secret true
key=p/k/view
ok "one with a secret waits" wait_until 60 there
exits 1 "another with another secret" run --job-id k "${rdzv[@]}" --secret-file secret2 true
says err "the value of $key in etcd is not to be believed: made without this job's secret"
exits 0 "another with this secret" run --job-id k "${rdzv[@]}" --secret-file secret true
ok "and the first" wait $pid
finish
