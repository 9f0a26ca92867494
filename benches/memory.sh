#!/bin/bash
# How long a look at every page takes: a bare read of /proc/kpageflags, the kernel's own page-types
# (built here from Debian's linux-source), and ncpu memory by kpageflags and by BPF, on one thread and
# two; and what a machine of 1 TB would take, by a line through three sizes. Interleaved, medians.
# usage: benches/memory.sh [ROUNDS]      needs root; FILL=GiB of small anonymous pages (default: half of
# what is available, at most 8), so that it is not free memory that is walked; apt, to fetch page-types
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-11}
ncpu=${NCPU:-$PWD/target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
[ -r /proc/kpageflags ] || { echo "skipped: needs root and /proc/kpageflags" >&2; exit 0; }
dir=$(mktemp -d)
filler=
trap '[ -z "$filler" ] || kill "$filler"; rm -rf "$dir"' EXIT

# page-types, of whichever version of the kernel's source Debian has here.
page_types() (
  cd "$dir"
  package=$(apt-cache pkgnames linux-source-6 | sort -V | tail -1)
  [ -n "$package" ] && chmod 755 . && apt-get -qq download "$package" >/dev/null 2>&1 || return 1
  dpkg-deb --fsys-tarfile "$package"_*.deb | tar -xO --wildcards './usr/src/*.tar.xz' > source.tar.xz
  tar -xJf source.tar.xz --strip-components=1 --wildcards '*/tools/vm/*' '*/tools/mm/*' '*/tools/lib/*' '*/include/uapi/linux/*' 2>/dev/null || :
  rm -f source.tar.xz "$package"_*.deb
  at=$(dirname "$(ls tools/{vm,mm}/page-types.c 2>/dev/null | head -1)")
  cd "$at" && cc -O2 -w -D_GNU_SOURCE -I../lib -I../lib/api -o "$dir/page-types" page-types.c ../lib/api/fs/fs.c ../lib/api/debug.c
)
page_types || echo "no page-types: linux-source cannot be fetched or built"

avail=$(awk '/MemAvailable/ { print int($2 / 2097152) }' /proc/meminfo)
fill=${FILL:-$((avail < 8 ? avail : 8))}
cat > "$dir/fill.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
  size_t n = strtoull(argv[1], 0, 10) << 30, i;
  char *p = mmap(0, n + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 1;
  madvise(p, n, MADV_NOHUGEPAGE);
  for (i = 0; i < n; i += 4096) p[i] = 1;
  puts("ready"), fflush(stdout);
  pause();
}
C
cc -O2 -o "$dir/fill" "$dir/fill.c"
"$dir/fill" "$fill" > "$dir/ready" & filler=$!
until [ -s "$dir/ready" ]; do sleep 0.2; kill -0 "$filler"; done

ms() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b - a) * 1000 }'; }
# Milliseconds of a whole command, from start to end.
whole() { local a=$EPOCHREALTIME; "$@" > /dev/null 2>&1; ms "$a" "$EPOCHREALTIME"; }
# Milliseconds of the walk alone, as ncpu tells: "by X in A s, of which B s for finding executables".
walk() { "$ncpu" memory "$@" 2>&1 >/dev/null | awk '/^ncpu: by .* in / { for (i = 1; i < NF; i++) { if ($i == "in") a = $(i + 1); if ($i == "which") b = $(i + 1) } printf "%.2f", (a - b) * 1000 }'; }

# The largest piece of memory, in quarters.
read -r first pages < <(awk -F'[- ]' '/^[0-9a-f].*System RAM/ { print $1, $2 }' /proc/iomem | while read -r a b; do
  echo $((0x$a / 4096)) $(((0x$b + 1 - 0x$a) / 4096)); done | sort -k2 -n | tail -1)
part() { echo "$first-$((first + pages * $1 / 4))"; }

run() {
  case $1 in
  read) whole dd if=/proc/kpageflags of=/dev/null bs=1M ;;
  cat) whole cat /proc/kpageflags ;;
  page-types) whole "$dir/page-types" ;;
  kpageflags) whole "$ncpu" memory --source kpageflags --threads 1 ;;
  kpageflags-walk) walk --source kpageflags --threads 1 ;;
  kpageflags-walk-2) walk --source kpageflags --threads 2 ;;
  bpf) whole "$ncpu" memory --source bpf --threads 1 ;;
  bpf-2) whole "$ncpu" memory --source bpf --threads 2 ;;
  bpf-walk) walk --source bpf --threads 1 ;;
  bpf-walk-2) walk --source bpf --threads 2 ;;
  bpf-quarter-*) walk --source bpf --threads 1 --pfns "$(part "${1##*-}")" ;;
  kpageflags-quarter-*) walk --source kpageflags --threads 1 --pfns "$(part "${1##*-}")" ;;
  esac
}
cases=(read cat kpageflags kpageflags-walk kpageflags-walk-2 bpf bpf-2 bpf-walk bpf-walk-2
  {bpf,kpageflags}-quarter-{1,2,4})
[ ! -x "$dir/page-types" ] || cases+=(page-types)
for c in "${cases[@]}"; do run "$c" > /dev/null; done
for _ in $(seq "$rounds"); do
  for c in $(shuf -e "${cases[@]}"); do echo "$c $(run "$c")"; done
done > "$dir/results"

echo "$(uname -r), $(nproc) CPUs, $(awk '/MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo), $fill GiB of it filled with small pages, $rounds rounds"
awk -v pages="$pages" '
  { v[$1, ++n[$1]] = $2 }
  function median(c,   k, i, j, t, a) {
    k = n[c]; for (i = 1; i <= k; i++) a[i] = v[c, i]
    for (i = 2; i <= k; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
    low = a[1]; high = a[k]
    return k % 2 ? a[(k+1)/2] : (a[k/2] + a[k/2+1]) / 2
  }
  function line(c, what) { if (!(c in n)) return; m[c] = median(c); printf "%-44s %9.1f  (%.1f-%.1f)\n", what, m[c], low, high }
  function model(c, what,   x, y, b, a, guess) {
    y[1] = median(c "-quarter-1"); y[2] = median(c "-quarter-2"); y[4] = median(c "-quarter-4")
    b = (y[4] - y[1]) / 3; a = y[1] - b; guess = a + 2 * b
    printf "%-11s 1/4, 1/2, all of %.1f GiB: %.1f, %.1f, %.1f ms; the line through the ends is %+.0f %% off in the middle; %.2f ns a page, %.2f s per TB\n",
      what, pages / 262144, y[1], y[2], y[4], 100 * (guess / y[2] - 1), b * 4e6 / pages, b * 4 / pages * 268435456 / 1000
  }
  END {
    printf "%-44s %9s  (range)\n", "milliseconds", "median"
    line("read", "dd if=/proc/kpageflags bs=1M"); line("cat", "cat /proc/kpageflags"); line("page-types", "page-types")
    line("kpageflags", "ncpu memory --source kpageflags --threads 1"); line("kpageflags-walk", "  of which walk"); line("kpageflags-walk-2", "  of which walk, --threads 2")
    line("bpf", "ncpu memory --source bpf --threads 1"); line("bpf-walk", "  of which walk")
    line("bpf-2", "ncpu memory --source bpf --threads 2"); line("bpf-walk-2", "  of which walk")
    printf "kpageflags walk / bare read     %.2f   (to be <= 1.2)\n", m["kpageflags-walk"] / m["read"]
    printf "bare read / BPF walk            %.1f   (to be >= 10)\n", m["read"] / m["bpf-walk"]
    printf "bare read / whole BPF command   %.1f\n", m["read"] / m["bpf"]
    printf "1 thread / 2, BPF walk          %.2f   (to be >= 1.8)\n", m["bpf-walk"] / m["bpf-walk-2"]
    printf "1 thread / 2, kpageflags walk   %.2f\n", m["kpageflags-walk"] / m["kpageflags-walk-2"]
    model("bpf", "BPF"); model("kpageflags", "kpageflags")
  }' "$dir/results"
