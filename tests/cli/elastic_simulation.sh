#!/bin/bash
# elastic_simulation.sh - bench/elastic_simulation.c: its cases agree with their closed forms, one seed gives one output,
# and survivors with spares are ahead of restarts.
. tests/support/tap.bash
program=${YOKE%/*}/bench/elastic_simulation
run_it()
{
    "$program" "$@" > out 2> err
}
ok "it runs, and agrees with what can be computed" run_it --days 20
ok "the cases with a closed form" [ "$(grep -c 'by the formula' out)" = 4 ]
ok "none differs" eval '! grep -q WRONG out'
mv out first
run_it --days 20
ok "one seed, one output" cmp -s first out
run_it --days 20 --seed 2
ok "another seed, another one" eval '! cmp -s first out'
# The rows of 10,000 members: restart, spares.
ahead()
{
    awk '$1 == 10000 { rows++; good += $(NF - 1) + 0 > $(NF - 2) + 0 } END { exit !(rows == 3 && good == 3) }' first
}
ok "with spares more of the time is useful than with restarts" ahead
ok "a wrong argument" eval '! run_it --days none && grep -q usage: err'
finish
