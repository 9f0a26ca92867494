#!/bin/bash
# How quickly the page of `ncpu serve` comes and scrolls for a machine that one does not have: an invented one of so many CPUs
# and threads, in Debian's Chromium (packages chromium, chromium-driver), and what a table over so many seconds takes.
# usage: benches/serve-page.sh [CPUS [THREADS [PICTURES]]]
# BIN is where ncpu-serve and examples/made-up are (target/release), PICTURES a directory for screenshots.
set -euo pipefail
cd "$(dirname "$0")/.."
cpus=${1:-2048} threads=${2:-10000} pictures=${3:-}
bin=${BIN:-target/release}
[ -x "$bin/ncpu-serve" ] && [ -x "$bin/examples/made-up" ] ||
  { echo "build first: make web && cargo build --release -p ncpu-serve --bins --example made-up" >&2; exit 1; }
command -v chromedriver > /dev/null || { echo "no chromedriver: apt-get install chromium-driver" >&2; exit 1; }
exec python3 benches/serve-page.py "$bin" "$cpus" "$threads" "$pictures"
