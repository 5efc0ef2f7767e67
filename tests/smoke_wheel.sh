#!/usr/bin/env bash
# Installs a wheel into a venv of its own, away from the checkout, and tries the installed command.
# Usage: [PYTHON=.venv/bin/python] tests/smoke_wheel.sh dist/gpumon_llm-*.whl
# PYTHON has pip and every package that the wheel requires: they are linked, not fetched again.
set -euo pipefail

wheel=$(realpath "$1")
example=$(realpath "$(dirname "$0")/../config.example.toml")
packages=$(realpath "$(dirname "$0")/linked_packages.py")
python=$(command -v "${PYTHON:-python3}")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset PYTHONPATH
export HOME="$folder"

fail() {
    echo "smoke test: $*" >&2
    exit 1
}

"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-index --no-deps --no-compile "$wheel"
"$python" "$packages" "$wheel" venv
gpumon=$folder/venv/bin/gpumon

[[ $("$gpumon" --version) =~ ^gpumon\ [0-9]+\.[0-9]+\.[0-9]+ ]] || fail "--version printed something else"
"$gpumon" config --example | diff - "$example" || fail "config --example is not the example file"
"$gpumon" config >/dev/null || fail "config failed"

"$gpumon" snapshot --demo --json >snapshot.json || fail "snapshot --demo --json failed"
venv/bin/python - snapshot.json <<'END' || fail "the snapshot is not what the contract says"
import json, sys
shot = json.load(open(sys.argv[1]))
assert shot["schema"] == 1 and shot["simulated"] is True, shot
assert len(shot["gpus"]) == 8 and len(shot["engines"]) == 3, (len(shot["gpus"]), len(shot["engines"]))
END
"$gpumon" watch --demo --plain --count 1 | grep -q SIMULATED || fail "watch --plain does not say SIMULATED"
venv/bin/python -c 'from gpumon.config.themes import known_themes; assert "default" in known_themes(), known_themes()' ||
    fail "the themes are not in the wheel"

for file in man/man1/gpumon.1 bash-completion/completions/gpumon zsh/site-functions/_gpumon fish/vendor_completions.d/gpumon.fish; do
    [[ $(grep -c doctor "venv/share/$file") -gt 0 ]] || fail "share/$file is not in the wheel"
done

code=0
"$gpumon" snapshot --no-nvml 2>errors || code=$?
[[ $code == 3 && $(wc -l <errors) == 1 ]] || fail "nothing to monitor exits with $code: $(cat errors)"
code=0
"$gpumon" demo </dev/null >/dev/null 2>errors || code=$?
[[ $code == 2 && $(cat errors) == *"watch --demo --plain"* ]] || fail "no terminal exits with $code: $(cat errors)"
echo "smoke test: $(basename "$wheel") works"
