#!/bin/bash
# plot.sh - `yoke plot`: what it draws is what the logs say; pictures and the terminal; names that would be commands; logs
# that are none, runs that go on, a loss that is no number; gnuplot that is missing.
. tests/support/tap.bash

exits 0 "a run" train --model mlp --epochs 2 --batch-size 300 --log one.log
exits 0 "another" train --model mlp --epochs 2 --batch-size 300 --lr 0.01 --log two.log
exits 2 "no log" plot
says err "log --log"
exits 2 "a picture of another kind" plot -o picture.gif one.log
says err "--output picture.gif .svg .png"
exits 2 "a metric that is none" plot --metric los one.log
says err "--metric 'los' 'loss'"
exits 1 "a log that is not there" plot one.log none.log
says err "none.log No such file"
exits 1 "a folder" plot .
says err ". is a folder"
echo '# a page' > page.md
exits 1 "a file that is no log" plot one.log page.md
says err "page.md:1: yoke train --log # a page"
printf '{"event":"step","epoch":0,"step":1,"loss":2}\n[1]\n' > other.log
exits 1 "a line that is none" plot other.log
says err "other.log:2: [1]"
: > empty.log
exits 1 "an empty log" plot empty.log
says err "empty.log neither step nor test"
head -c 4096 /dev/urandom > noise.log
exits 1 "noise" plot noise.log
says err "noise.log:1:"

# ---- the script: every number of the logs
exits 0 "the script" plot --print-script one.log two.log
# numbers LOG FIELD EVENT: of the log; drawn BLOCK: of the script's block of data.
numbers() { sed -n 's/.*"event":"'"$3"'".*"'"$2"'":\([-0-9.e+]*\).*/\1/p' "$1"; }
drawn() { sed -n "/^\\\$$1 << END/,/^END/p" out | sed '1d;$d' | cut -d' ' -f2; }
same() # BLOCK LOG FIELD EVENT
{
    drawn "$1" > drawn
    numbers "$2" "$3" "$4" > logged
    ok "$2: $3 of each $4" awk 'NR == FNR { a[NR] = $1; n++; next } { d = a[FNR] - $1; m++; if (d * d > 1e-14 * $1 * $1) bad = 1 }
        END { exit bad || n != m || n < 2 }' drawn logged
}
for log in 0:one 1:two; do
    same "d${log%:*}_0" "${log#*:}.log" loss step
    same "d${log%:*}_1" "${log#*:}.log" loss eval
    same "d${log%:*}_2" "${log#*:}.log" accuracy eval
    same "d${log%:*}_3" "${log#*:}.log" samples_per_second step
done
ok "tests stand at the steps before them" [ "$(sed -n '/^\$d0_2/,/^END/p' out | sed '1d;$d' | cut -d' ' -f1 | xargs)" = "40 80" ]
# A run that goes on, a loss that is no number, one that went on after a stop.
{
    head -n 20 one.log
    echo '{"event":"step","epoch":0,"step":21,"loss":null,"samples_per_second":5}'
    sed -n 21,30p one.log | sed 's/"step":\(2[0-9]\|30\)/"step":3\1/'
    printf '{"event":"step","epoch":0,"step":99,"lo'
} > going.log
exits 0 "a run that goes on" plot --print-script going.log
ok "its last line is left out" [ "$(drawn d0_0 | grep -c .)" = 30 ]
ok "a loss that is no number is a gap" [ "$(drawn d0_0 | sed -n 21p)" = "" ]
# Many steps: means of equal numbers of them.
awk 'BEGIN { for (i = 1; i <= 10000; i++) printf "{\"event\":\"step\",\"epoch\":0,\"step\":%d,\"loss\":%d}\n", i, i % 2 }' > long.log
exits 0 "a long run" plot --print-script --metric loss long.log
ok "2000 means" [ "$(drawn d0_0 | wc -l)" = 2000 ]
ok "of five each" [ "$(drawn d0_0 | sort -u | xargs)" = "0.4 0.6" ]
exits 0 "a logarithmic axis" plot --print-script --metric loss --log-scale one.log
says out "set logscale y"
mkdir a b
cp one.log a/run.log
cp two.log b/run.log
exits 0 "two of one name" plot --print-script --metric loss a/run.log b/run.log
says out "'a/run.log' 'b/run.log'"

# ---- gnuplot
mkdir empty
PATH=$PWD/empty exits 1 "without gnuplot" plot one.log
says err "gnuplot Debian gnuplot-nox --print-script"
if ! command -v gnuplot > /dev/null; then
    skip "what is drawn" "there is no gnuplot (Debian's package is gnuplot-nox)"
    finish
    exit
fi
exits 0 "on the terminal" plot one.log two.log
for title in "loss" "accuracy of tests" "samples a second"; do
    ok "it has: $title" grep -q "^ *$title\$" out
done
says out "one.log ****"
says out "two.log ####"
ok "three pictures of 14 rows at least" [ "$(grep -c '|' out)" -ge 36 ]
ok "no blanks behind a line" eval '! grep -q " $" out'
hostile="a'b <c>&\`touch hit\` @x \"q\".log"
cp one.log "$hostile"
exits 0 "a name that would be a command" plot -o names.svg "$hostile" two.log
ok "it is none" [ ! -e hit ]
ok "nothing but the picture" [ "$(ls names.*)" = names.svg ]
exits 0 "a picture of points" plot -o both.png one.log two.log
ok "PNG" [ "$(head -c 8 both.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ]
ok "960 x 960" [ "$(head -c 24 both.png | tail -c 8 | od -An -tx1 | tr -d ' \n')" = 000003c0000003c0 ]
if find_python ""; then
    ok "the picture of lines is XML, and has the names" "$python" - "$hostile" << 'END'
import sys, xml.dom.minidom
page = xml.dom.minidom.parse("names.svg")
texts = ["".join(n.data for n in t.childNodes if n.nodeType == n.TEXT_NODE) + "".join(
    m.data for s in t.getElementsByTagName("tspan") for m in s.childNodes) for t in page.getElementsByTagName("text")]
texts = [" ".join(t.split()) for t in texts]
assert sys.argv[1] in texts and "two.log" in texts and "two.log, test" in texts, texts
assert len(page.getElementsByTagName("path")) > 20
END
else
    skip "the picture of lines" "there is no Python"
fi
exits 1 "a folder that is not there" plot -o none/x.svg one.log
says err "none/x.svg No such file"
exits 0 "what no log has" plot --metric accuracy long.log
says out "nothing in these logs"
mkdir broken
printf '#!/bin/sh\necho "cannot draw today" >&2\nexit 3\n' > broken/gnuplot
chmod +x broken/gnuplot
PATH=$PWD/broken:$PATH exits 1 "gnuplot that fails" plot one.log
says err "gnuplot 3 cannot draw today"
finish
