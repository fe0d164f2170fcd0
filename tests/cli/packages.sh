#!/bin/bash
# packages.sh - scripts/install-deps where there is no apt: what is missing is named as the system's own package manager
# knows it, and nothing is installed.
install=$PWD/scripts/install-deps
. tests/support/tap.bash

# with MANAGER OPTIONS...: on a system that has this package manager, and no compiler and no library. A manager that is
# called notes it.
with()
{
    local manager=$1
    shift
    rm -rf bin
    mkdir bin
    printf '#!/bin/bash\necho "$0 $*" >> "%s/called"\n' "$work" > "bin/$manager"
    chmod +x "bin/$manager"
    PATH=$work/bin CC= /bin/bash "$install" "$@" > out 2> err < /dev/null
    code=$?
}

# asks MANAGER COMMAND PACKAGES...: the last line is the command with exactly these packages.
asks()
{
    local manager=$1 command=$2
    shift 2
    with "$manager"
    ok "$manager: fails" [ $code = 1 ]
    ok "$manager: the command" [ "$(tail -n 1 err)" = "scripts/install-deps installs by apt alone. Please install them and run make again: $command $*" ]
    with "$manager" --check
    ok "$manager, --check: the same packages" [ "$(sed -n 's/^    \([^ ]*\) .*/\1/p' err | sort)" = "$(printf '%s\n' "${listed[@]}" | sort)" ]
    ok "$manager, --check: by whose names" grep -qF "names of $manager packages" err
}
listed=(make gcc glibc-devel jansson-devel libjpeg-turbo-devel libpng-devel zlib-devel xxhash-devel libsodium-devel)
asks dnf "dnf install" "${listed[@]}"
listed=(make gcc glibc jansson libjpeg-turbo libpng zlib xxhash libsodium)
asks pacman "pacman -S" "${listed[@]}"
listed=(make gcc musl-dev jansson-dev libjpeg-turbo-dev libpng-dev zlib-dev xxhash-dev libsodium-dev)
asks apk "apk add" make gcc musl-dev linux-headers "${listed[@]:3}"
listed=(make gcc "(no" jansson jpeg-turbo libpng zlib xxhash libsodium)
asks brew "brew install" make gcc "${listed[@]:3}"

with nothing-known
ok "any other: fails" [ $code = 1 ]
ok "any other: Debian's names" grep -qF "by the names that Debian has for them: make gcc libc6-dev libjansson-dev" err
with dnf --tests --dev
ok "dnf: of the tests" grep -qE "dnf install .* libcmocka-devel .*openmpi-devel openmpi ucx-devel .*clang-tools-extra" err
ok "nothing was installed" [ ! -e called ]
finish
