#!/bin/bash
# own_data.sh - data of one's own: folders of pictures and CSV files are checked, trained on, and predicted; the commands
# of docs/own-data.md do what they say; wrong inputs are told.
root=$PWD
. tests/support/tap.bash
unset YOKE_DATA
flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -I$root"
[ -z "${SANITIZE:-}" ] || flags+=" -fsanitize=$SANITIZE"
# shellcheck disable=SC2086
ok "pictures are made" ${CC:-gcc} $flags -o pictures "$root/tests/cli/pictures.c" -ljpeg -lpng

# pictures_of FOLDER NAME FIRST LAST RED GREEN BLUE: pictures of a colour, of sizes that differ, half of them PNG.
pictures_of()
{
    local i list=()
    mkdir -p "$1"
    for ((i = $3; i <= $4; i++)); do
        list+=("$1/$i.$([ $((i % 2)) = 0 ] && echo png || echo jpg)" $((20 + i % 5)) $((20 + i % 3)) "$5" "$6" "$7" "$i")
    done
    ./pictures "${list[@]}"
}
# photos FOLDER FIRST LAST: two classes that differ in colour.
photos()
{
    pictures_of "$1/cat" cat "$2" "$3" 200 80 60 && pictures_of "$1/dog" dog "$2" "$3" 60 80 200
}
ok "photos/" photos photos 1 30

# ---- the page ----
awk 'BEGIN { print "width,height,species,note" } END {
    srand(4)
    for (i = 0; i < 60; i++) printf "%.3f,%.3f,%s,%d\n", i % 2 + rand() / 2, 3 - i % 2 + rand() / 2, i % 2 ? "rose" : "iris", i }' \
    /dev/null > table.csv
printf 'height,colour,note,width\n2.9,red,7,0.2\n1.9,blue,8,1.3\n' > new.csv
commands=0
while IFS= read -r line; do
    commands=$((commands + 1))
    read -r -a words <<< "${line#yoke }"
    exits 0 "$line" "${words[@]}"
done <<< "$(awk '/^```/ { open = !open; next } open && /^yoke /' "$root/docs/own-data.md")"
ok "the page has commands" [ $commands -ge 9 ]

# ---- pictures ----
exits 0 "check" data check photos
says out "photos: 60 images 2 classes"
says out "sizes: 20 22 high 20 24 wide"
says out "0 broken, 0 left out"
train=(train --data photos --epochs 12 --batch-size 8 --lr 0.01)
exits 0 "train on class folders" "${train[@]}" --save-best best.safetensors --save last.pt --log a.log
says out "image size: 21x21 first 21x21 --image-size"
says out "held out for the test: 6 of 60 0.1 --val-split"
says out "lenet photos 54 images, 2 classes"
ok "and learn the colours" [ "$(tail -n 1 out)" = "test accuracy 1.0000" ]
for file in best.safetensors last.pt; do
    exits 0 "predict by $file" predict $file photos/cat/1.jpg photos/dog/2.png
    ok "$file: the first is a cat" grep -Eq '^photos/cat/1.jpg  cat 0\.[5-9]' out
    ok "$file: the second is a dog" grep -Eq '^photos/dog/2.png  dog (0\.[5-9]|1\.0)' out
    ok "$file: a line for each" [ "$(wc -l < out)" = 2 ]
done
exits 0 "JSON" predict --json --top 1 best.safetensors photos/dog/2.png
ok "is one object" grep -Eq '^\{"input":"photos/dog/2.png","top":\[\{"class":"dog","index":1,"probability":[0-9.]+\}\]\}$' out
exits 0 "a whole folder" predict best.safetensors --data photos --confusion
says out "confusion rows true columns answers"
ok "both classes are right" [ "$(grep -cE '^(cat|dog) .* 1\.000$' out)" = 2 ]
says out "accuracy 1.0000 of 60 samples"
exits 0 "as JSON" predict best.safetensors --data photos --confusion --json
says out '"accuracy":1, "confusion":{"classes":["cat","dog"],"counts":[[30,0],[0,30]]}'

exits 0 "the same seed holds out the same" "${train[@]}" --log b.log
ok "and trains alike" [ "$(sed -E 's/,"(samples_per_)?seconds?":[^}]*//' a.log)" = "$(sed -E 's/,"(samples_per_)?seconds?":[^}]*//' b.log)" ]
exits 0 "another holds out others" "${train[@]}" --epochs 1 --seed 1 --val-split 0.5
says out "held out for the test: 30 of 60 0.5"

ok "train/ and valid/" photos parted/train 1 10
ok "valid/" photos parted/valid 11 14
exits 0 "parts are recognised" train --data parted --epochs 6 --batch-size 4 --lr 0.01 --image-size 16x24 --model mlp --save wide.pt
ok "no size is chosen, and nothing held out" [ "$(grep -c 'image size\|held out' out)" = 0 ]
says out "mlp parted 20 images, 2 classes"
exits 0 "a network of 16x24" predict wide.pt parted/valid/cat/11.jpg --top 1
says out "parted/valid/cat/11.jpg cat"
exits 0 "its parts" data check parted
says out "parted/train: 20 images"
says out "parted/valid: 8 images"
exits 0 "--num-classes" train --data parted --epochs 1 --num-classes 4 --save four.pt --lr 0.01
exits 0 "more outputs than names" predict --top 4 four.pt parted/valid/cat/11.jpg
says out "11.jpg  "
exits 0 "glyphs' size" train --data glyphs --epochs 1 --image-size 20 --save glyphs.safetensors
exits 0 "a network for grey pictures takes coloured ones" predict glyphs.safetensors photos/cat/1.jpg

# ---- what is wrong with pictures ----
cp -r photos bad
head -c 200 photos/cat/1.jpg > bad/cat/cut.jpg
head -c 60 photos/cat/2.png > bad/cat/cut.png
: > bad/dog/empty.png
echo text > bad/dog/text.jpg
echo notes > bad/notes.txt
echo GIF89a > bad/dog/x.gif
mkdir bad/fox
exits 1 "check finds what is broken" data check bad
says out "broken: bad/fox: no .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm"
for file in cat/cut.jpg cat/cut.png dog/empty.png dog/text.jpg; do
    says out "broken: bad/$file:"
done
says out "left out: bad/notes.txt: no class's folder"
says out "left out: bad/dog/x.gif: .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm"
says out "5 broken, 2 left out"
exits 1 "as JSON" data check --json bad
says out '"valid":false,"samples":64,"classes":3,"broken":[{"path":"bad/fox","why":"no .jpg'
says out '"left_out":[{"path":'
rm -r parted/valid/dog
exits 1 "classes that differ" data check parted
says out "broken: parted/valid: class 'dog' train"
exits 1 "which training refuses" train --data parted
says err "2 classes to train 1 to test"
exits 1 "a broken file ends a training" train --data bad --no-eval
says err "bad/fox"
exits 1 "one input of three is broken" predict best.safetensors photos/cat/1.jpg bad/dog/text.jpg photos/dog/2.png
ok "the others are answered" [ "$(wc -l < out)" = 2 ]
says err "yoke: bad/dog/text.jpg:"
ok "in one line" [ "$(wc -l < err)" = 1 ]
exits 1 "as JSON" predict --json best.safetensors gone.png
says out '"input":"gone.png","error":"cannot be opened'

# ---- wrong usage ----
# wrong CODE FACTS ARGUMENTS...
wrong()
{
    local expected=$1 facts=$2
    shift 2
    exits "$expected" "yoke $*" "$@"
    says err "$facts"
}
mkdir -p hollow/a empty
wrong 2 "there is no such folder" train --data ./nowhere
wrong 2 "unknown photoss" train --data photoss
wrong 1 "no class folders expected empty/CLASS" train --data empty
wrong 1 "hollow/a: no .jpg" train --data hollow
wrong 2 "--val-split glyphs" train --data glyphs --val-split 0.2
wrong 2 "--val-split 0.95: expected 0.001 to 0.9" train --data photos --val-split 0.95
wrong 2 "--image-size 0" train --image-size 0
wrong 2 "--image-size 12by12: number 48x64" train --image-size 12by12
wrong 2 "--image-size 3x: number" train --image-size 3x
wrong 1 "lenet square 20x30" train --data photos --image-size 20x30
wrong 2 "--target column CSV photos" train --data photos --target a
wrong 2 "--model lenet rows mlp" train --data table.csv --model lenet
wrong 2 "--image-size images rows" train --data table.csv --image-size 20
wrong 2 "--save-best --no-eval" train --save-best x.pt --no-eval
wrong 2 "--early-stop --no-eval" train --early-stop 2 --no-eval
wrong 2 "--confusion --no-eval" train --confusion --no-eval
wrong 2 "--momentum sgd adam" train --optimizer adam --momentum 0.9
wrong 1 "--save-best empty folder" train --save-best empty
wrong 2 "expected FILE" predict
wrong 2 "expected INPUT best.safetensors" predict best.safetensors
wrong 2 "--data photos inputs 'x.jpg'" predict best.safetensors x.jpg --data photos
wrong 2 "--confusion needs --data" predict --confusion best.safetensors photos/cat/1.jpg
wrong 2 "--frob" predict best.safetensors --frob photos/cat/1.jpg
wrong 1 "photos: folder --data photos" predict best.safetensors photos
wrong 1 "best.safetensors CSV" predict best.safetensors table.csv
wrong 1 "nowhere.pt" predict nowhere.pt photos/cat/1.jpg
wrong 1 "there is no such folder" predict best.safetensors --data nowhere
mkdir -p other/cat other/fox
cp photos/cat/1.jpg other/cat
cp photos/cat/1.jpg other/fox
wrong 1 "class 'fox' none best.safetensors" predict best.safetensors --data other
wrong 2 "expected folder or CSV 0" data check
wrong 1 "there is no such folder" data check nowhere
wrong 1 "there is no such folder .csv" data check pictures
exits 0 "a checkpoint" train --data photos --epochs 1 --checkpoint run --lr 0.01
wrong 1 "run: folder --save" predict run photos/cat/1.jpg
"$YOKE" ckpt strip best.safetensors bare.safetensors > out
wrong 1 "bare.safetensors weights model classes" predict bare.safetensors photos/cat/1.jpg

# ---- a file that was made to mislead ----
# misled KEY FROM TO: the metadata's text FROM replaced by TO of the same length.
misled()
{
    ok "$1: the text is there" grep -aqF "$2" best.safetensors
    sed "s/$2/$3/" best.safetensors > misled.safetensors
    wrong 1 "misled.safetensors: metadata $1" predict misled.safetensors photos/cat/1.jpg
}
misled image_size '"image_size":"21x21"' '"image_size":"21x-9"'
misled fit '"fit":"middle"' '"fit":"muddle"'
misled channels '"channels":"3"' '"channels":"9"'
misled outputs '"outputs":"2"' '"outputs":"1"'
sed 's/"model":"lenet"/"model":"lunet"/' best.safetensors > misled.safetensors
wrong 1 'unknown model "lunet" "lenet"' predict misled.safetensors photos/cat/1.jpg

# ---- other weights ----
wrong 1 "--init best.safetensors: lenet mlp --model lenet" train --data photos --model mlp --init best.safetensors
ok "in one sentence" [ "$(wc -l < err)" = 1 ]
wrong 1 "--init best.safetensors: 2 outputs 10" train --image-size 21 --init best.safetensors
wrong 1 "--init best.safetensors: 3x21x21 3x24x24 --image-size" train --data photos --image-size 24 --init best.safetensors
exits 0 "weights of that network" train --data photos --init best.safetensors --epochs 0
ok "begin where they ended" [ "$(tail -n 1 out)" = "test accuracy 1.0000" ]

# ---- rows ----
exits 0 "check rows" data check table.csv --target species
says out "table.csv: 60 rows of 3 numbers, 2 classes 'species'"
exits 0 "train on rows" train --data csv:table.csv --target species --epochs 40 --batch-size 8 --save t.safetensors --confusion
says out "class: column 'species'"
says out "mlp csv:table.csv 54 rows, 2 classes"
ok "and learn them" [ "$(tail -n 1 out)" = "test accuracy 1.0000" ]
says out "confusion rows true columns"
exits 0 "rows are answered" predict t.safetensors new.csv
ok "by file and line" [ "$(cut -d' ' -f1,3 out)" = "$(printf 'new.csv:2 iris\nnew.csv:3 rose')" ]
exits 0 "with the class known" predict t.safetensors --data table.csv
says out "accuracy 1.0000 of 60 samples"
printf 'a,b\n1,x\n2,\nz,y\n3,x\n' > holes.csv
exits 1 "holes are found" data check holes.csv
says out "broken: holes.csv:3: column 'b' empty class"
says out "broken: holes.csv:4: column 'a' 'z' number"
says out "holes.csv: 'b' 'x' all rows"
says out "3 broken"
wrong 1 "holes.csv:3: column 'b' empty" train --data holes.csv
wrong 1 "no column 'specie' 'species'" train --data table.csv --target specie
wrong 1 "table.csv:2: column 'species' 'iris' number 'width' class" train --data table.csv --target width
wrong 1 "gone.csv" train --data gone.csv
printf 'width,species\n1,iris\n' > narrow.csv
wrong 1 "narrow.csv:1: no column 'height' trained" predict t.safetensors narrow.csv
wrong 1 "t.safetensors rows CSV picture" predict t.safetensors photos/cat/1.jpg
printf 'width,height,species,note\n1,1,lily,2\n' > lily.csv
wrong 1 "lily.csv:2: 'lily' 2 classes" predict t.safetensors --data lily.csv
finish
