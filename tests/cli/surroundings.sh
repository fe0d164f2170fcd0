#!/bin/bash
# surroundings.sh - what is wrong around the program is said in a sentence, or is no matter: files of secrets that hold
# nothing, or whose lines end as elsewhere; a small stack; a system without /dev/null.
. tests/support/tap.bash

# ---- secrets
umask 077
printf '\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n' > newlines
printf ' \t\r\n \t\r\n \t\r\n \t\r\n \t\r\n \t\r\n' > blanks
for file in newlines blanks; do
    exits 1 "a secret of $file" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --secret-file $file true
    says err "$file secret nothing openssl rand -hex 32"
    YOKE_JOB_SECRET_FILE=$file RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=28990 \
        exits 1 "a rank with a secret of $file" bench allreduce
    says err "YOKE_JOB_SECRET_FILE=$file secret nothing"
done
echo 0123456789abcdef0123456789abcdef > unix
printf '0123456789abcdef0123456789abcdef\r\n' > dos
printf '0123456789abcdef0123456789abcdef' > bare
port=$((28000 + $$ % 900))
launch=("$YOKE" run --nnodes 3 --master-addr 127.0.0.1 --master-port $port --join-timeout $(patience 20) --no-prefix)
bench=(-- "$YOKE" bench allreduce --seconds 0.02 --bytes 4)
"${launch[@]}" --node-rank 1 --secret-file dos "${bench[@]}" > out.1 2>&1 < /dev/null &
"${launch[@]}" --node-rank 2 --secret-file bare "${bench[@]}" > out.2 2>&1 < /dev/null &
"${launch[@]}" --node-rank 0 --secret-file unix "${bench[@]}" > out 2> err < /dev/null
ok "one secret, with the line ends of three systems" [ $? = 0 ]
says out "all_reduce 3 ranks"
wait
ok "the others joined too" [ ! -s out.1 -a ! -s out.2 ]

# ---- the stack
bash -c 'ulimit -s 64 && exec "$@"' sh "$YOKE" train --steps 1 > out 2> err
ok "a stack of 64 KiB: exit code 1" [ $? = 1 ]
says err "stack 64 KiB ulimit -s 256"
bash -c 'ulimit -Ss 64 && exec "$@"' sh "$YOKE" run -n 2 -- "$YOKE" bench allreduce --seconds 0.02 --bytes 4,1M > out 2> err
ok "a stack of 64 KiB that may be larger" [ $? = 0 ]
bash -c 'ulimit -s 256 && exec "$@"' sh "$YOKE" run -n 2 -- "$YOKE" train --data glyphs --model lenet --steps 2 --no-eval > out 2> err
ok "a stack of 256 KiB is enough" [ $? = 0 ]

# ---- /dev/null
if ! unshare -rm true 2> err; then
    skip "no /dev/null" "no folder can be hidden here: $(head -n 1 err)"
else
    unshare -rm sh -c 'mount -t tmpfs none /dev && exec "$@"' sh "$YOKE" run -n 2 -- true > out 2> err
    ok "no /dev/null: exit code 1" [ $? = 1 ]
    says err "yoke run: /dev/null cannot be opened"
    unshare -rm sh -c 'mount -t tmpfs none /dev && exec "$@"' sh \
        "$YOKE" train --data glyphs --model mlp --steps 2 --no-eval > out 2> err
    ok "no /dev/null is no matter to a program" [ $? = 0 ]
fi
finish
