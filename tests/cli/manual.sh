#!/bin/bash
# manual.sh - the pages of the manual: one for each verb, from the tables of --help, without a complaint of mandoc and man.
sources=$PWD
. tests/support/tap.bash

ok "the pages are made" env SOURCE_DATE_EPOCH=1700000000 "$sources/scripts/make-manual" "$YOKE" man
verbs_of()
{
    "$YOKE" "$@" --help-verbs 2> /dev/null
}
verbs_of > verbs
ok "verbs are those of --help" eval '[ "$(cat verbs)" = "$("$YOKE" --help | sed -n "s/^  \([a-z]*\) .*/\1/p")" ]'
missing=0
for verb in $(cat verbs); do
    [ -s "man/yoke-$verb.1" ] || missing=1
    for part in $(verbs_of "$verb"); do
        [ -s "man/yoke-$verb-$part.1" ] || missing=1
    done
done
ok "each verb has a page" [ $missing = 0 ]
ok "and parts of verbs" [ -s man/yoke-bench-step.1 -a -s man/yoke-ckpt-convert.1 -a -s man/yoke-trace-report.1 ]
listed()
{
    local verb
    while read -r verb; do
        grep -q "^.BR yoke.-$verb (1)$" man/yoke.1 || return 1
    done < verbs
}
ok "yoke.1 has all of them" listed
ok "no page is empty, and none has a NAME alone" eval '[ "$(grep -Lx ".SH DESCRIPTION" man/*.1)" = "" ]'

# Every option of --help is in the page, and no other.
options_differ()
{
    "$YOKE" "$1" --help | sed -n '/^options/,/^examples/s/^  \(-[a-zA-Z], \)\{0,1\}--\([a-z0-9-]*\).*/\2/p' | sort > of_help
    sed -n 's/\\-/-/g; s/^\(\\fB-.\\fR, \)\{0,1\}\\fB--\([a-z0-9-]*\)\\fR.*/\2/p' "man/yoke-$1.1" | sort > of_page
    [ -s of_help ] && ! cmp of_help of_page
}
for verb in train run monitor plot new; do
    ok "$verb: the options of --help" eval '! options_differ $verb'
done
ok "a default, and choices" grep -q 'sgd, adam, adamw, rmsprop' man/yoke-train.1
ok "the date is SOURCE_DATE_EPOCH's" grep -q '^.TH YOKE 1 2023-11-14 "yoke 0.3.0"' man/yoke.1
exits 2 "--help-man is no option beside others" train --help-man --lr 1
exits 0 "an option of --help-options" train --help-options
ok "with its choices" grep -qx -e '--optimizer value sgd adam adamw rmsprop adagrad adadelta adamax nadam radam' out
ok "files are known" grep -qx -e '--data file' out
ok "what --help hides is hidden" eval '[ "$("$YOKE" run --help-options | grep -c start-method)" = 0 ]'

if command -v mandoc > /dev/null; then
    mandoc -Tlint man/*.1 > out 2>&1
    ok "mandoc has nothing to say" [ $? = 0 -a ! -s out ]
else
    skip "mandoc" "it is not there"
fi
if command -v man > /dev/null && command -v groff > /dev/null; then
    for page in man/yoke.1 man/yoke-train.1 man/yoke-run.1 man/yoke-ckpt.1; do
        LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings=w -l "$page" > shown 2> err
        ok "man $page" [ $? = 0 -a -s shown -a ! -s err ]
    done
    LC_ALL=C.UTF-8 MANWIDTH=300 man -l man/yoke-train.1 > shown 2> err
    ok "the text is that of --help" grep -q 'Ctrl-C ends the run after the step' shown
else
    skip "man" "it is not there"
fi
finish
