#!/usr/bin/env bash
# Installs the Debian packages that a goal of the Makefile needs, if any are missing.
#
# usage: tools/install_deps.sh demo|test|lint
#
# demo is the smallest set: it decides how long a new user waits. On a system without apt nothing is installed; the
# script then only checks for the programs, because package names differ and a build may well succeed.
set -euo pipefail

demo_packages=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev python3 python3-pip ca-certificates)
test_packages=("${demo_packages[@]}" libtomlplusplus-dev libgtest-dev libbenchmark-dev libopenblas-dev
    python3-dev python3-venv binutils)
lint_packages=("${test_packages[@]}" clang-format clang-tidy)

# Prints the packages of "$@" that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        if ! dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
            echo "$package"
        fi
    done
}

# Without apt: the programs no build can do without.
check_programs() {
    local program absent=()
    for program in c++ cmake ninja python3; do
        command -v "$program" >/dev/null || absent+=("$program")
    done
    if ((${#absent[@]})); then
        echo "This system has no apt, and these programs are missing: ${absent[*]}." >&2
        echo "Install them, and what the Debian packages below hold, then run this again:" >&2
        echo "    $*" >&2
        exit 1
    fi
}

as_root() {
    if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

main() {
    local packages missing
    case "${1-}" in
        demo) packages=("${demo_packages[@]}") ;;
        test) packages=("${test_packages[@]}") ;;
        lint) packages=("${lint_packages[@]}") ;;
        *) echo "usage: tools/install_deps.sh demo|test|lint" >&2; exit 2 ;;
    esac
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        check_programs "${packages[@]}"
        return
    fi
    mapfile -t missing < <(missing_packages "${packages[@]}")
    if ((${#missing[@]} == 0)); then return; fi

    if ((EUID != 0)) && ! command -v sudo >/dev/null; then
        echo "Some packages are missing, and installing them needs root, but there is no sudo. As root, run:" >&2
        echo "    apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    echo "installing ${#missing[@]} packages: ${missing[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0)
    if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
        as_root "${apt[@]}" update
    fi
    # Old lists name package versions that the mirror has since replaced, so one failure is answered with fresh lists.
    if ! as_root "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
        echo "the installation failed; trying once more with fresh package lists"
        as_root "${apt[@]}" update
        as_root "${apt[@]}" install --no-install-recommends "${missing[@]}"
    fi
}

main "$@"
