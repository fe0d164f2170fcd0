# transcript.bash - what a page shows as done at a terminal is done again, and what it shows as printed is compared. For
# the scripts in tests/cli, behind tap.bash.
#
# A block whose first or second line names a file, `/* train.c - what it is for */` or `# job.sh - ...`, is that file. In a
# block of `console` a line with the prompt `$ ` is a command, which goes on in the next line where it ends in a
# backslash; the lines below it are what it prints, on both streams. There `...` stands for any text of a line, and alone
# in a line for any number of lines. In a block of `console approximately` numbers with a decimal point may differ by a
# tenth and 0.02, for what thousands of roundings made. `node0$ ` and `node1$ ` are prompts of two machines: their blocks
# run at the same time. All commands of a page run in one shell, so one finds what another has set.

# unfold_page PAGE: the page's files are written to this folder, and of command K of its block N N.K.command and
# N.K.expected; N.block has the line of the block, the machine (or -), the number of commands, and what `console` is
# followed by.
unfold_page()
{
    awk '
        function end_of_file() { if (file != "") close(file); file = "" }
        /^```/ && open {
            end_of_file()
            if (console) {
                print began, host, commands, kind > (n ".block")
                close(n ".block")
            }
            open = 0
            next
        }
        /^```/ {
            open = 1
            lines = commands = continues = 0
            began = NR
            host = "-"
            kind = $2
            console = $1 == "```console"
            n += console
            next
        }
        !open { next }
        console && (continues || /^(node[01])?\$ /) {
            line = $0
            if (!continues) {
                end_of_file()
                commands++
                if ($1 != "$")
                    host = substr($1, 1, length($1) - 1)
                sub(/^(node[01])?\$ /, "", line)
                printf "" > (n "." commands ".expected")
                close(n "." commands ".expected")
            }
            file = n "." commands ".command"
            print line > file
            continues = line ~ /\\$/
            if (!continues) {
                close(file)
                file = n "." commands ".expected"
            }
            next
        }
        !console {
            held[++lines] = $0
            if (lines <= 2 && file == "" && $0 ~ /^(\/\*|#) [A-Za-z0-9_]+\.[a-z]+ - /) {
                file = $2
                for (i = 1; i < lines; i++)
                    print held[i] > file
            }
        }
        file != "" { print > file }' "$1"
}

# page_script N: the commands of block N as a program of bash that writes what each prints to N.K.out.
page_script()
{
    local line host commands kind k
    read -r line host commands kind < "$1.block"
    for ((k = 1; k <= commands; k++)); do
        printf '{\n%s\n} > %q 2>&1 < /dev/null\n' "$(< "$1.$k.command")" "$PWD/$1.$k.out"
    done
}

# same_text EXPECTED OUT KIND
same_text()
{
    awk -v kind="$3" '
        function same_line(expected, line,    rest, left, at, e, l, parts, piece, i) {
            if (kind == "approximately") {
                rest = expected
                left = line
                expected = ""
                while (match(rest, /[0-9]+\.[0-9]+/)) {
                    e = substr(rest, RSTART, RLENGTH)
                    expected = expected substr(rest, 1, RSTART - 1)
                    rest = substr(rest, RSTART + RLENGTH)
                    if (!match(left, /[0-9]+\.[0-9]+/))
                        return 0
                    l = substr(left, RSTART, RLENGTH)
                    left = substr(left, RSTART + RLENGTH)
                    if (l - e > 0.02 + e / 10 || e - l > 0.02 + e / 10)
                        return 0
                    expected = expected l
                }
                expected = expected rest
            }
            if (!index(expected, "..."))
                return expected "" == line ""
            parts = split(expected, piece, /\.\.\./)
            if (substr(line, 1, length(piece[1])) != piece[1])
                return 0
            line = substr(line, length(piece[1]) + 1)
            for (i = 2; i < parts; i++) {
                at = index(line, piece[i])
                if (!at)
                    return 0
                line = substr(line, at + length(piece[i]))
            }
            return length(line) >= length(piece[parts]) && substr(line, length(line) - length(piece[parts]) + 1) == piece[parts]
        }
        function same_from(i, j) {
            for (; i <= expected_lines && expected[i] != "..."; i++ && j++)
                if (j > lines || !same_line(expected[i], line[j]))
                    return 0
            if (i > expected_lines)
                return j > lines
            for (; j <= lines + 1; j++)
                if (same_from(i + 1, j))
                    return 1
            return 0
        }
        { sub(/[ \t]+$/, "") }
        FILENAME == ARGV[1] { expected[++expected_lines] = $0; next }
        { line[++lines] = $0 }
        END { exit !same_from(1, 1) }' "$1" "$2"
}
