#!/usr/bin/env bash
# Installs wheel and sdist as users do: by pip, pipx and uv, with every Python of 3.10 to 3.14 that is here.
# Usage: tests/smoke_installers.sh dist (pipx and uv come from the package index, into a venv of their own)
set -euo pipefail

dist=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME=$folder PIPX_HOME=$folder/pipx PIPX_BIN_DIR=$folder/pipx-bin UV_TOOL_DIR=$folder/uv UV_TOOL_BIN_DIR=$folder/uv-bin
unset PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 UV_PYTHON_DOWNLOADS=never

pythons=()
for minor in 10 11 12 13 14; do
    for found in $(type -ap "python3.$minor") "${PYENV_ROOT:-/root/.pyenv}"/versions/3.$minor.*/bin/python3; do
        if "$found" -c "import sys, venv; sys.exit(sys.version_info[:2] != (3, $minor))" 2>/dev/null; then
            pythons+=("$found")
            break
        fi
    done
done
((${#pythons[@]})) || { echo "no Python of 3.10 to 3.14 is here" >&2; exit 1; }
"${pythons[0]}" -m venv tools
tools/bin/python -m pip install --quiet pipx uv

works() {  # command, how it was installed
    [[ $("$1" --version) =~ ^gpumon\ [0-9]+\.[0-9]+\.[0-9]+ ]] && "$1" snapshot --demo --json >/dev/null ||
        { echo "gpumon installed by $2 does not work" >&2; exit 1; }
    echo "$2: works"
}
lies() {  # manual page, what installed it: as README.md says
    [[ -s $1 ]] || { echo "$2 put no manual page into $1" >&2; exit 1; }
}
for python in "${pythons[@]}"; do
    version=$("$python" -c 'import platform; print(platform.python_version())')
    for file in "$dist"/gpumon_llm-*.whl "$dist"/gpumon_llm-*.tar.gz; do
        kind=${file##*.}
        rm -rf venv pipx pipx-bin uv uv-bin
        "$python" -m venv venv
        venv/bin/python -m pip install --quiet "$file"
        works venv/bin/gpumon "pip, Python $version, $kind"
        tools/bin/pipx install --quiet --python "$python" "$file" >/dev/null 2>&1
        works pipx-bin/gpumon "pipx, Python $version, $kind"
        lies .local/share/man/man1/gpumon.1 pipx
        tools/bin/uv tool install --quiet --python "$python" "$file"
        works uv-bin/gpumon "uv, Python $version, $kind"
        lies uv/gpumon-llm/share/man/man1/gpumon.1 uv
    done
done
