# What lock-tracing.sh and crosscall-tracing.sh share; sourced by them with their arguments, ROUNDS and SECONDS.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10} seconds=${2:-2}
ncpu=${NCPU:-target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# UNIT untraced CASE...: runs the cases interleaved, in another order each round, and tells what of the throughput
# untraced each keeps. `run CASE` prints one number; bpftrace and perf are left out where they are not installed.
compare() {
  local unit=$1 cases=() round c
  shift
  mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing
  for c; do
    case $c in
    bpftrace) command -v bpftrace > /dev/null || { echo "no bpftrace (apt-get install bpftrace)"; continue; } ;;
    perf-*) command -v perf > /dev/null || { echo "no perf (apt-get install linux-perf)"; continue; } ;;
    esac
    cases+=("$c")
  done
  for round in $(seq "$rounds"); do
    for c in $(shuf -e "${cases[@]}"); do
      echo "$round $c $(run "$c" || echo failed)"
    done
  done > "$dir/results"
  awk -v rounds="$rounds" -v unit="$unit" -v cases="$*" '
    $3 == "failed" || $3 == "" { failed[$2]++; next }
    { v[$1, $2] = $3; seen[$2] = 1 }
    function median(a, n,   i, j, t) {
      for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
      return n % 2 ? a[(n+1)/2] : (a[n/2] + a[n/2+1]) / 2
    }
    END {
      n = split(cases, order, " ")
      for (o = 1; o <= n; o++) if (length(order[o]) > width) width = length(order[o])
      name = "%-" width "s"
      printf name " %9s %14s %20s\n", "", "rounds", unit " median", "kept: median (range)"
      for (o = 1; o <= n; o++) {
        c = order[o]; if (!(c in seen)) { if (c in failed) print c, "failed", failed[c], "times"; continue }
        k = 0
        for (r = 1; r <= rounds; r++) if (((r, c) in v) && ((r, "untraced") in v)) { k++; abs[k] = v[r, c]; rel[k] = v[r, c] / v[r, "untraced"] }
        m = median(rel, k); kept[c] = m
        printf name " %9d %14.0f      %.3f (%.3f-%.3f)\n", c, k, median(abs, k), m, rel[1], rel[k]
      }
      if (kept["bpftrace"] > 0) {
        for (o = 1; o <= n; o++) if (sub(/^ncpu-/, "", order[o])) {
          told = told (told ? ", " : "") sprintf("ncpu %s keeps %.2f times", order[o], kept["ncpu-" order[o]] / kept["bpftrace"])
        }
        print told " the throughput bpftrace keeps"
      }
    }' "$dir/results"
}
