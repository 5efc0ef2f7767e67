#!/usr/bin/env bash
# Fetches Debian's prometheus and promtool into the folder $1 without installing anything. Needs apt-get and dpkg-deb.
set -euo pipefail
into=$(mkdir -p "${1:?folder}" && cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download prometheus
dpkg-deb -x prometheus_*.deb "$into"
"$into/usr/bin/promtool" --version | head -n 1
