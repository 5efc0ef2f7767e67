#!/usr/bin/env bash
# Fetches nvtop and btop, with the libraries that they need, from Debian's own packages into the folder $1, without
# installing anything, and the monitors of vLLM from the package index into venvs of their own; those of $1/bin then
# run. nvtop and btop need a Debian host (apt-get, dpkg-deb).
set -euo pipefail
into=$(mkdir -p "${1:?folder}" && cd "$1" && pwd)
mkdir -p "$into/bin"
for package in vllmstat==0.9.1 vllmpytop==0.3.0 vllm-mon==0.1.0; do
    venv=$into/${package%%=*}
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$package"
done
ln -sf ../vllmstat/bin/vllmstat ../vllmpytop/bin/vllmpytop ../vllm-mon/bin/vllm-dash "$into/bin/"

suite=trixie
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m1 '/debian/\?$')
root=$into/apt
mkdir -p "$root"/{lists/partial,cache/archives/partial} "$into"/{files,bin}
echo "deb $mirror $suite main" >"$root/sources.list"
apt=(apt-get -qq -o Dir::Etc::sourcelist="$root/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$root/lists"
    -o Dir::Cache="$root/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
"${apt[@]}" update
cd "$root/cache"
"${apt[@]}" download btop nvtop libc6 libgcc-s1 libstdc++6 libncursesw6 libtinfo6 libsystemd0 libcap2 >/dev/null
for package in ./*.deb; do dpkg-deb -x "$package" "$into/files"; done
lib=$into/files/usr/lib/x86_64-linux-gnu
for tool in btop nvtop; do
    # Their C library is newer than many hosts': they run on their own loader.
    printf '#!/bin/sh\nexec "%s/ld-linux-x86-64.so.2" --library-path "$LD_LIBRARY_PATH:%s" "%s/usr/bin/%s" "$@"\n' \
        "$lib" "$lib" "$into/files" "$tool" >"$into/bin/$tool"
    chmod +x "$into/bin/$tool"
done
rm -rf "$root"
