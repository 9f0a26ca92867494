#!/bin/bash
# `ncpu dose` on programs that have a repaired twin: is the gain that it predicts the gain of the twin?
#
#   benches/dose.sh [CASE...]     (default all; root, gcc, two CPUs)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu); FOR, seconds of an experiment (20); ROUNDS, interleaved
#   runs of program and twin, without ncpu (7). OUT=DIR keeps what each experiment printed;
#   DISK, where the journal is written (/var/tmp).
#
# | case | cause | repair | predicted by |
# | --- | --- | --- | --- |
# | fdtorture | files_struct.file_lock | a descriptor table each | the lock removed |
# | file | inode.i_rwsem of one file | a file each | the lock removed |
# | pipe | the mutex of one pipe | a pipe each | the lock removed |
# | mutex | a pthread mutex | a mutex each | the lock removed |
# | bytes | a write a byte | a write for 16 bytes | the call in 16 parts |
# | calls | getppid | its answer kept | the call removed |
# | faults | madvise and page faults | memory kept | the largest gain |
# | mappings | mmap and munmap under mmap_lock | no mappings | the largest gain |
# | cached | a std::mutex around a map | a map each | no contention |
# | environment | getenv of 2000 variables | its answer kept | the function removed |
# | message | a message formatted for nobody | not formatted | the function removed |
# | reads | the word of one rwlock, by readers alone | a rwlock each | no contention |
# | counts | counters on one line | a line each | no contention |
# | blocks | malloc that maps and unmaps | memory kept | the largest gain |
# | processes | a program started for each piece of work | none | processes started |
# | journal | fdatasync for each record | for sixteen | the call in 16 parts |
# | go | a sync.Mutex around a map | a map each | no contention |
# | java | Collections.synchronizedMap | ConcurrentHashMap | no contention |
# | python | the interpreter's lock | processes | no contention |
# | idle | nothing: all of the above a hundred times more seldom | | no gain above 2 % |
#
# Without go, javac or python3 their cases are left out.
#
# The last columns are the layers' bound for the same place, and how far prediction and bound are from the twin.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
length=${FOR:-20}
rounds=${ROUNDS:-7}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
out=${OUT:-$dir/out}
mkdir -p "$out"
# A directory of a disk: /tmp may be memory.
disk=$(mktemp -d -p "${DISK:-/var/tmp}")
trap 'rm -rf "$dir" "$disk"' EXIT
for name in fdtorture twins; do
	gcc -O2 -g -Wall -Wextra -pthread -o "$dir/$name" "$here/workloads/$name.c"
done
g++ -O2 -g -Wall -Wextra -pthread -o "$dir/more" "$here/workloads/more_twins.cc"

# What the last number before ops/s is.
ops() { "$@" | sed -nE 's/.*[^0-9]([0-9]+) ops\/s.*/\1/p'; }

# twin NAME PLACE FORMULA PROGRAM... -- TWIN...: PLACE is a regular expression of kind and name.
twin() {
	local name=$1 place=$2 formula=$3 program=() repaired=() seconds=0.4
	# A machine of Java begins in the interpreter.
	[ "$name" != java ] || seconds=2
	shift 3
	while [ "$1" != -- ]; do program+=("$1"); shift; done
	shift
	repaired=("$@")
	# Half of the rounds before the experiment and half after it.
	local pairs=$dir/pairs
	: >"$pairs"
	pairs() { for ((i = 0; i < $1; i++)); do echo "$(ops "${program[@]}" "$seconds") $(ops "${repaired[@]}" "$seconds")" >>"$pairs"; done; }
	pairs $((rounds / 2))
	"$ncpu" dose --for "$length" -o json --record "$out/$name.ncpu" --output "$out/$name.json" -- "${program[@]}" 5
	pairs $((rounds - rounds / 2))
	NAME=$name PLACE=$place FORMULA=$formula NCPU=$ncpu RECORD=$out/$name.ncpu python3 - "$pairs" "$out/$name.json" <<-'PY'
		import json, os, re, statistics, subprocess, sys
		pairs = [list(map(float, line.split())) for line in open(sys.argv[1])]
		real = statistics.median(b / a for a, b in pairs)
		rows = [json.loads(line) for line in open(sys.argv[2])]
		found = [r for r in rows if re.search(os.environ["PLACE"], r["kind"] + " " + (r["name"] or ""))]
		known = [r for r in found if r["verdict"] in ("binds", "parallel") and r["removed"]]
		best = max(known, key=lambda r: r["removed"], default=None)
		name, formula = os.environ["NAME"], os.environ["FORMULA"]
		shown = ["report", os.environ["RECORD"], "--table", "dose_program", "-o", "json"]
		program = json.loads(subprocess.run([os.environ["NCPU"], *shown], stdout=subprocess.PIPE, check=True).stdout)
		if formula == "anchor":
		    gain, low, high = program["anchor"], program["anchor_low"], program["anchor_high"]
		    print(f"{name:11} {'no contention':34} twin {real:.2f}  predicted {gain:.2f} ({low:.2f}–{high:.2f}) {100 * (gain / real - 1):+.0f} %")
		elif formula == "idle":
		    worst = max((r["removed"] for r in rows if r["verdict"] in ("binds", "parallel") and r["kind"] != "function" and r["removed"]), default=1.0)
		    print(f"{name:11} {'':34} twin 1.00  most found {worst:.2f}")
		elif best is None:
		    said = "; ".join(f"{r['kind']} {r['name']}: {r['verdict']} {r['why'] or ''}" for r in found) or "not found"
		    print(f"{name:11} {said[:60]:34} twin {real:.2f}")
		else:
		    gain, low, high = best["removed"], best["removed_low"], best["removed_high"]
		    if formula.startswith("split"):
		        part = 1 - 1 / int(formula[5:])
		        gain, low, high = (1 / (1 - part * (1 - 1 / g)) for g in (gain, low, high))
		    bound = best["bound"] or 1
		    print(f"{name:11} {(best['kind'] + ' ' + best['name'])[:34]:34} twin {real:.2f}  predicted {gain:.2f} ({low:.2f}–{high:.2f})"
		          f" {100 * (gain / real - 1):+.0f} %  bound {bound:.2f} {100 * (bound / real - 1):+.0f} %")
	PY
}

lscpu | sed -nE 's/^Model name: *//p'
for name in ${*:-fdtorture file pipe mutex bytes calls faults mappings cached environment message reads counts blocks processes journal go java python idle}; do
	t=$dir/twins m=$dir/more w=$here/workloads
	case $name in
	fdtorture) twin $name 'kernel lock files_struct' removed "$dir/fdtorture" 4 -- "$dir/fdtorture" --unshare 4 ;;
	file) twin $name 'kernel lock' removed "$t" file 4 -- "$t" file --repaired 4 ;;
	pipe) twin $name 'kernel lock' removed "$t" pipe 4 -- "$t" pipe --repaired 4 ;;
	mutex) twin $name 'user lock|kernel lock' removed "$t" mutex 4 -- "$t" mutex --repaired 4 ;;
	bytes) twin $name 'call pwrite64' split16 "$t" bytes 4 -- "$t" bytes --repaired 4 ;;
	calls) twin $name 'call getppid' removed "$t" calls 4 -- "$t" calls --repaired 4 ;;
	faults) twin $name 'faults|madvise' removed "$t" faults 4 -- "$t" faults --repaired 4 ;;
	mappings) twin $name 'mmap|munmap|mm_struct|faults' removed "$t" mappings 4 -- "$t" mappings --repaired 4 ;;
	cached | reads | counts) twin $name . anchor "$m" $name 4 -- "$m" $name --repaired 4 ;;
	environment) twin $name 'function getenv' removed "$m" $name 4 -- "$m" $name --repaired 4 ;;
	message) twin $name 'function .*printf' removed "$m" $name 4 -- "$m" $name --repaired 4 ;;
	blocks) twin $name 'mmap|munmap|faults' removed "$m" $name 4 -- "$m" $name --repaired 4 ;;
	processes) twin $name 'processes started' removed "$t" processes 4 -- "$t" processes --repaired 4 ;;
	journal) (cd "$disk" && twin $name 'call fdatasync' split16 "$t" journal 2 -- "$t" journal --repaired 2) ;;
	go)
		command -v go >/dev/null || { echo "go: left out, it is not installed"; continue; }
		go build -o "$dir/gotwins" "$w/twins.go"
		twin $name . anchor "$dir/gotwins" 4 -- "$dir/gotwins" --repaired 4
		;;
	java)
		command -v javac >/dev/null || { echo "java: left out, javac is not installed"; continue; }
		javac -d "$dir" "$w/Twins.java"
		twin $name . anchor java -cp "$dir" Twins 4 -- java -cp "$dir" Twins --repaired 4
		;;
	python)
		command -v python3 >/dev/null || { echo "python: left out, python3 is not installed"; continue; }
		twin $name . anchor python3 "$w/twins.py" 4 -- python3 "$w/twins.py" --repaired 4
		;;
	idle) twin $name . idle "$t" idle 4 -- "$t" idle --repaired 4 ;;
	*) echo "$0: unknown case $name" >&2; exit 2 ;;
	esac
done
