#!/bin/bash
# Does `ncpu diff` name first what was changed, and nothing where nothing was? A program is run plainly and with one
# regression planted; `perf diff` gets the same two programs, and so do the differential flame graphs of FlameGraph where
# FLAMEGRAPH is its directory (speedscope draws one profile, and compares none). Then pairs of sides without a change.
# usage: benches/diff.sh [-n RECORDINGS_A_SIDE] [-p PAIRS]      needs root; gcc, perf
set -euo pipefail
cd "$(dirname "$0")/.."
side=3 pairs=20
while getopts n:p: o; do
  case $o in n) side=$OPTARG ;; p) pairs=$OPTARG ;; *) exit 1 ;; esac
done
ncpu=$(realpath "${NCPU:-target/release/ncpu}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gcc -O2 -g -fno-omit-frame-pointer -pthread -o "$dir/workers" benches/diff.c
cd "$dir"
awk -F': ' '/model name/ { print "processor: " $2; exit }' /proc/cpuinfo
threads=$(nproc)
record() { "$ncpu" run --metric '([0-9]+) ops/s' --record "$1" -- ./workers "$2" "$threads" "${3:-1}" > /dev/null 2>&1; }
sides() { # name how how: recordings of both, in turns
  local i
  for i in $(seq "$side"); do record "$1.a$i.ncpu" "$2"; record "$1.b$i.ncpu" "$3"; done
}
# The rows with a verdict, largest first, of one section or of all.
changed() { "$ncpu" diff -o csv "$1".a*.ncpu -- "$1".b*.ncpu | awk -F, -v s="$2" 'NR > 1 && (s == "" || $1 == s) && ($NF == "grew" || $NF == "shrank") { print $2 " " $NF " " $7 " (" $8 " to " $9 ") " $3 }'; }
while IFS='|' read -r how section name; do
  name=${name//\//|} # a short call is mostly its entry
  sides "$how" plain "$how"
  first=$(changed "$how" "$section" | head -n 1)
  [[ $first =~ ^($name)" grew" ]] && verdict="named first" || verdict="NOT first"
  echo "$how: $section: $verdict: ${first:-nothing}"
  if command -v perf > /dev/null && [ "$how" != fewer ]; then
    for one in plain "$how"; do perf record -q -g -F 499 -o "$dir/$one.perf" -- ./workers "$one" "$threads" 2 > /dev/null 2>&1; done
    echo "  perf diff, largest first: $(perf diff -q "$dir/plain.perf" "$dir/$how.perf" 2> /dev/null | awk '$2 ~ /^[+-]/ { d = $2 + 0; print (d < 0 ? -d : d), $2, $NF }' | sort -rn | head -n 3 | awk '{ printf "%s %s; ", $3, $2 }')"
    if [ -n "${FLAMEGRAPH:-}" ]; then
      for one in plain "$how"; do perf script -i "$dir/$one.perf" 2> /dev/null | "$FLAMEGRAPH/stackcollapse-perf.pl" > "$dir/$one.folded"; done
      # What is red or blue there: by innermost frame, of all samples of its side.
      echo "  difffolded.pl, largest first: $("$FLAMEGRAPH/difffolded.pl" "$dir/plain.folded" "$dir/$how.folded" | awk '
        { n = split($0, w, " "); s = substr($0, 1, length($0) - length(w[n]) - length(w[n-1]) - 2); k = split(s, f, ";"); a[f[k]] += w[n-1]; b[f[k]] += w[n]; A += w[n-1]; B += w[n] }
        END { for (l in a) { d = 100 * (b[l] / B - a[l] / A); printf "%f %+.2f%% %s\n", (d < 0 ? -d : d), d, l } }' | sort -rn | head -n 3 | awk '{ printf "%s %s; ", $3, $2 }')"
    fi
  fi
done << 'END'
slower|user functions|parse
call|system calls|getppid/entry
hotter|kernel lock spin|files_struct.file_lock
fewer|layers|serial phases
END
alarms=0
for pair in $(seq "$pairs"); do
  sides same plain plain
  found=$(changed same "")
  [ -z "$found" ] || { alarms=$((alarms + 1)); echo "alarm in pair $pair: $found"; }
  rm -rf same.*
done
echo "pairs without a change: $pairs, with an alarm: $alarms"
