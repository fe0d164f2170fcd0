#!/bin/bash
# few_files.sh - few descriptors (ulimit -n) are one clear line at once: for yoke run, for a rank, for one that joins.
. tests/support/tap.bash

# one_line NAME: the command failed within 5 s (patience), and the first line of err says that descriptors are the cause.
one_line()
{
    ok "$1: it fails" [ $code = 1 ]
    ok "$1: at once" in_time $(((end - begin) * 1000000)) 5
    ok "$1: one clear line" bash -c 'head -n 1 err | grep -qE "open files.*[0-9]+ \(ulimit -n\)"'
}

for limit in 6 7 8 10 13 16 20 28 36 44 52 56; do
    begin=$SECONDS
    (ulimit -n $limit && exec "$YOKE" run -n 2 --no-prefix true) > out 2> err < /dev/null
    code=$? end=$SECONDS
    one_line "yoke run with $limit"
    ok "yoke run with $limit: nothing else" [ "$(wc -l < err)" = 1 ]
done
# Before any of many processes is started.
(ulimit -n 64 && exec "$YOKE" run -n 30 --no-prefix bash -c ': > started.$RANK') > out 2> err < /dev/null
code=$? begin=$SECONDS end=$SECONDS
one_line "30 processes with 64"
ok "30 processes with 64: nothing else" [ "$(wc -l < err)" = 1 ]
ok "30 processes with 64: none was started" [ "$(find . -name 'started.*' | wc -l)" = 0 ]
(ulimit -n 100 && exec "$YOKE" run -n 30 --no-prefix true) > out 2> err < /dev/null
ok "30 processes with 100 have enough" [ $? = 0 ]
(ulimit -n 100 && exec "$YOKE" run -n 30 --no-prefix --log-dir logs true) > out 2> err < /dev/null
code=$? begin=$SECONDS end=$SECONDS
one_line "30 processes and their logs with 100"
for limit in 6 8 10 16 24 28 30 32 34 44 56; do
    begin=$SECONDS
    "$YOKE" run -n 2 --no-prefix bash -c "ulimit -n $limit && exec $YOKE bench allreduce --bytes 4 --seconds 0.01" > out 2> err < /dev/null
    code=$? end=$SECONDS
    if [ $code = 0 ]; then
        ok "ranks with $limit have enough" [ $limit -gt 24 ] # the launcher serves their store
    else
        one_line "ranks with $limit"
    fi
    # rank 1 joins a store that is there
    begin=$SECONDS
    "$YOKE" run -n 2 --no-prefix bash -c "[ \$RANK = 0 ] || ulimit -n $limit && exec $YOKE bench allreduce --bytes 4 --seconds 0.01" > out 2> err < /dev/null
    code=$? end=$SECONDS
    if [ $code = 0 ]; then
        ok "a rank that joins with $limit has enough" [ $limit -gt 24 ]
    else
        one_line "a rank that joins with $limit"
    fi
done
finish
