#!/bin/bash
# `ncpu counters` beside `perf stat`, the same software events of the same command: whether they count the
# same, what starting costs, what counting costs. The two take turns.
#
#   benches/counters-vs-perf.sh [ROUNDS]     (default 15; takes root for tracepoints)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu).
set -eu
rounds=${1:-15}
ncpu=$(realpath "${NCPU:-$(dirname "$0")/../target/release/ncpu}")
perf=$(command -v perf) || { echo "$0: perf is missing (Debian: apt-get install linux-perf)" >&2; exit 1; }
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
# perf puts its own directory first in PATH, where another python may be, which also reads PATH itself:
# so python is named by its path and has no environment.
python=$(realpath "$(command -v python3)")
true=$(type -P true)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
events=page-faults,minor-faults,context-switches,cpu-migrations,raw_syscalls:sys_enter

# A fixed number of faults, calls and switches: 16 MiB touched page by page, 5000 calls, 200 round trips
# through two pipes.
cat > "$dir/work.py" <<'P'
import mmap, os
m = mmap.mmap(-1, 16 << 20)
m.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, 16 << 20, 4096): m[at] = 1
for _ in range(5000): os.getppid()
a, b, c, d = *os.pipe(), *os.pipe()
if os.fork() == 0:
    for _ in range(200): os.write(d, os.read(a, 1))
    os._exit(0)
for _ in range(200): os.write(b, b"x"); os.read(c, 1)
os.wait()
P

perf_counts() { "$perf" stat -x, -e "$events" -o "$dir/perf" -- "$@" && awk -F, 'NF > 3 { print $3, $1 }' "$dir/perf"; }
ncpu_counts() { "$ncpu" counters -e "$events" -o csv -- "$@" 2>"$dir/words" | awk -F, 'NR > 1 { print $1, $2 + 0 }'; }
median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.4f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
elapsed() { local TIMEFORMAT=%R; { time "$@" >/dev/null 2>&1; } 2>&1; }
cpu() { local TIMEFORMAT='%U %S'; { time "$@" >/dev/null 2>&1; } 2>&1 | awk '{ print $1 + $2 }'; }

for _ in $(seq "$rounds"); do
	perf_counts env -i "$python" "$dir/work.py" >> "$dir/counts.perf"
	ncpu_counts env -i "$python" "$dir/work.py" >> "$dir/counts.ncpu"
	for what in true work; do
		case $what in true) command=("$true") ;; work) command=(env -i "$python" "$dir/work.py") ;; esac
		for way in bare perf ncpu; do
			case $way in
			bare) run=("${command[@]}") ;;
			perf) run=("$perf" stat -e "$events" -o /dev/null -- "${command[@]}") ;;
			ncpu) run=("$ncpu" counters -e "$events" -- "${command[@]}") ;;
			esac
			elapsed "${run[@]}" >> "$dir/elapsed.$what.$way"
			cpu "${run[@]}" >> "$dir/cpu.$what.$way"
		done
	done
done

echo "counts, medians of $rounds runs each:"
for event in ${events//,/ }; do
	printf '  %-24s perf %8.0f  ncpu %8.0f\n' "$event" \
		"$(awk -v e="$event" '$1 == e { print $2 }' "$dir/counts.perf" | median)" \
		"$(awk -v e="$event" '$1 == e { print $2 }' "$dir/counts.ncpu" | median)"
done
for what in true work; do
	echo "$what: seconds elapsed and of CPU, medians of $rounds"
	for way in bare perf ncpu; do
		printf '  %-5s %s %s\n' "$way" "$(median < "$dir/elapsed.$what.$way")" "$(median < "$dir/cpu.$what.$way")"
	done
done
