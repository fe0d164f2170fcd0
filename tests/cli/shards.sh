#!/bin/bash
# shards.sh - yoke train on tar shards: the losses are those of the same pictures in a folder, also on two ranks, with
# workers, and after a resume; what is wrong with an archive is told.
root=$PWD
. tests/support/tap.bash
unset YOKE_DATA
flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -I$root"
[ -z "${SANITIZE:-}" ] || flags+=" -fsanitize=$SANITIZE"
# shellcheck disable=SC2086
ok "pictures are made" ${CC:-gcc} $flags -o pictures "$root/tests/cli/pictures.c" -ljpeg -lpng

list=()
mkdir -p photos/0 photos/1
for ((i = 10; i < 40; i++)); do
    list+=("photos/0/$i.png" 16 18 200 80 60 "$i" "photos/1/$i.jpg" 16 18 60 80 200 "$i")
done
./pictures "${list[@]}"
# Shards of 7 to 20 samples, in the folder's order; the label is the class's folder.
number=0 shard=0 ends=" 7 27 40 48 60 "
members=()
while IFS= read -r path; do
    label=${path%/*}
    name=${path%.*}
    echo "${label#photos/}" > "$name.cls"
    members+=("$path" "$name.cls")
    number=$((number + 1))
    if [[ $ends == *" $number "* ]]; then
        tar -cf "train-00$shard.tar" "${members[@]}"
        members=()
        shard=$((shard + 1))
    fi
done <<< "$(find photos -type f | LC_ALL=C sort)"
rm photos/*/*.cls
data='shards:train-{000..004}.tar'

# same A B: the logs of two runs, but for their speed and the data's name.
same()
{
    [ "$(sed -E 's/,"(samples_per_)?seconds?":[^}]*//' "$1")" = "$(sed -E 's/,"(samples_per_)?seconds?":[^}]*//' "$2")" ]
}

exits 0 "check" data check "$data"
says out "train-{000..004}.tar: 60 images 2 classes"
says out "sizes: 18 18 high 16 16 wide"
train=(--model mlp --epochs 2 --batch-size 8 --lr 0.01)
exits 0 "a folder, in its order" train --data photos "${train[@]}" --no-shuffle --no-augment --log folder.log
exits 0 "shards, in theirs" train --data "$data" "${train[@]}" --no-shuffle --no-augment --log shards.log
says out "held out for the test: 6 of 60"
says out "54 images, 2 classes"
ok "the losses are equal" same folder.log shards.log
ok "and there are some" [ "$(grep -c '"loss"' shards.log)" -ge 14 ]
mkdir many
cp train-*.tar many
for ranks in 1 2; do
    exits 0 "a folder, $ranks ranks" run -n $ranks -- "$YOKE" train --data photos "${train[@]}" --log folder.log
    exits 0 "shards, $ranks ranks, 3 workers" \
        run -n $ranks -- "$YOKE" train --data shards:many "${train[@]}" --workers 3 --log shards.log
    ok "the losses are equal" same folder.log shards.log
done
exits 0 "half an epoch" train --data "$data" "${train[@]}" --checkpoint saved --save-every 1 --steps 4
exits 0 "and the rest" train --data "$data" "${train[@]}" --checkpoint saved --resume --save rest.pt
exits 0 "all at once" train --data "$data" "${train[@]}" --save whole.pt
ok "the weights are equal" cmp rest.pt whole.pt

# ---- what is wrong ----
# wrong CODE FACTS ARGUMENTS...
wrong()
{
    local expected=$1 facts=$2
    shift 2
    exits "$expected" "yoke $*" "$@"
    says err "$facts"
}
# sample FILE MEMBERS...: an archive of these, in photos/0.
sample()
{
    tar -cf "$1" -C photos/0 "${@:2}"
}
echo 1 > photos/0/11.cls
echo one > photos/0/12.cls
echo -3 > photos/0/13.cls
head -c 60 photos/0/10.png > photos/0/14.png
echo 0 > photos/0/14.cls
wrong 1 "train-005.tar, shard 5 of 6, is not there" train --data 'shards:train-{000..005}.tar'
head -c 600 train-000.tar > cut.tar
wrong 1 "cut.tar: member photos/0/10.png offset 0 past the end of the file cut off" train --data shards:cut.tar
sample bare.tar 11.png 11.cls 10.png
wrong 1 "bare.tar: sample 10 offset has no member 10.cls" train --data shards:bare.tar
sample word.tar 11.png 11.cls 12.png 12.cls
wrong 1 "word.tar: member 12.cls offset one no whole number" train --data shards:word.tar
sample negative.tar 13.png 13.cls
wrong 1 "negative.tar: member 13.cls -3 no class" train --data shards:negative.tar
sample blank.tar 11.cls --transform "s/.*/notes/"
wrong 1 "blank.tar: no sample" train --data shards:blank.tar
wrong 1 "photos: no .tar file" train --data shards:photos
sample broken.tar 14.png 14.cls
wrong 1 "broken.tar: member 14.png" train --data 'shards:{train-000,broken}.tar' --no-eval --no-shuffle
exits 1 "check" data check 'shards:{train-000,broken}.tar'
says out "broken: broken.tar: sample 14 offset 0: broken.tar: member 14.png"
says out "1 broken"
exits 0 "a sample that is broken is left out" train --data 'shards:{broken,train-000,train-003}.tar' "${train[@]}" \
    --no-eval --on-error skip
says err "broken.tar"
finish
