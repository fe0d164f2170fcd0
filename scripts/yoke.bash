# Completion of yoke's command line in bash: verbs, options, what options may be, and files. The program itself says what
# there is (--help-verbs, --help-options), so this file knows no option by name.
_yoke() {
    local IFS=$' \t\n' program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local i first=1 verbs word table line kind
    local -a path=()
    COMPREPLY=()
    # In `yoke run -n 2 -- yoke train --lr` the last command counts.
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in yoke | */yoke) first=$((i + 1)) ;; esac
    done
    for ((i = first; i < COMP_CWORD; i++)); do
        verbs=$("$program" "${path[@]}" --help-verbs 2> /dev/null) || break
        [[ $'\n'$verbs$'\n' == *$'\n'"${COMP_WORDS[i]}"$'\n'* ]] || break
        path+=("${COMP_WORDS[i]}")
    done
    # --name=value is three words where = is among $COMP_WORDBREAKS.
    if [ "$current" = = ]; then
        current=
    elif [ "$previous" = = ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    table=
    [ ${#path[@]} = 0 ] || table=$("$program" "${path[@]}" --help-options 2> /dev/null)
    # Of a program that yoke run starts the rest is not yoke's.
    for ((i = first; i < COMP_CWORD; i++)); do
        if [ "${COMP_WORDS[i]}" = -- ]; then
            [ $((i + 1)) != "$COMP_CWORD" ] || COMPREPLY+=($(compgen -c -- "$current"))
            _yoke_files
            return
        fi
    done
    while read -r word kind line; do
        [ "$word" = "$previous" ] && [ "$kind" != flag ] || continue
        COMPREPLY=($(compgen -W "$line" -- "$current"))
        [ "$kind" != file ] || _yoke_files
        return
    done <<< "$table"
    if [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$(cut -d' ' -f1 <<< "$table")" -- "$current"))
        [ ${#path[@]} != 0 ] || COMPREPLY=($(compgen -W "--help --version" -- "$current"))
        return
    fi
    if [ $((first + ${#path[@]})) = "$COMP_CWORD" ] && verbs=$("$program" "${path[@]}" --help-verbs 2> /dev/null); then
        COMPREPLY=($(compgen -W "$verbs" -- "$current"))
    fi
    [ ${#path[@]} = 0 ] || _yoke_files
}
# Files of which $current is the beginning, each with blanks or not.
_yoke_files() {
    local file
    while IFS= read -r file; do
        [ -z "$file" ] || COMPREPLY+=("$file")
    done <<< "$(compgen -f -- "$current")"
    compopt -o filenames 2> /dev/null
}
complete -F _yoke yoke
