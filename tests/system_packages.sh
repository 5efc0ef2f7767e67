#!/usr/bin/env bash
# Installs what the tests need of the system, or names the one command that does. Asks nothing; does nothing twice.
set -euo pipefail

# command: the package that has it on Debian and Ubuntu: that on Fedora, which lacks victoria-metrics: one test fails there
needed="
gcc:gcc:gcc
tmux:tmux:tmux
screen:screen:screen
prometheus:prometheus:golang-github-prometheus
victoria-metrics:victoria-metrics:
sshd:openssh-server:openssh-server
ssh:openssh-client:openssh-clients
openssl:openssl:openssl
ip:iproute2:iproute
unshare:util-linux:util-linux
"
PATH=$PATH:/usr/sbin:/sbin
manager=apt-get
command -v apt-get >/dev/null || manager=dnf
missing=()
for row in $needed; do
    IFS=: read -r program debian fedora <<<"$row"
    package=$([[ $manager == apt-get ]] && echo "$debian" || echo "$fedora")
    [[ -z $package ]] || command -v "$program" >/dev/null || missing+=("$package")
done
# Debian and Ubuntu take the standard library's venv apart.
[[ $manager != apt-get ]] || "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
# Headers of the C library come with gcc elsewhere.
[[ $manager != apt-get || -e /usr/include/stdio.h ]] || missing+=(libc6-dev)
((${#missing[@]})) || exit 0

install=("$manager" install -y "${missing[@]}")
[[ $manager != apt-get ]] || install=(apt-get install -y --no-install-recommends "${missing[@]}")
fail() {
    echo "the tests need ${missing[*]}: $1: sudo ${install[*]}" >&2
    exit 1
}
command -v "$manager" >/dev/null || fail "neither apt-get nor dnf is here; install them, as on Debian by"
sudo=()
if [[ $(id -u) != 0 ]]; then
    sudo -n true 2>/dev/null || fail "run"
    sudo=(sudo -n)
fi
echo "installing ${missing[*]}"
if [[ $manager == apt-get ]]; then
    "${sudo[@]}" apt-get update -qq
    sudo+=(env DEBIAN_FRONTEND=noninteractive)
fi
# Neither server is to run on this machine because its package was installed for tests.
policy=/usr/sbin/policy-rc.d
if [[ $manager == apt-get && ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee $policy >/dev/null
    "${sudo[@]}" chmod +x $policy
    trap '"${sudo[@]}" rm -f $policy' EXIT
fi
"${sudo[@]}" "${install[@]}" >/dev/null || fail "installing failed; try"
