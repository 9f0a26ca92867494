#!/bin/bash
# ncpu's cases beside libMicro itself: each standard invocation with both, in turn, on the same CPUs, with
# the same batch. Prints name, libMicro's median and ours, each the best of some rounds, the ratio, and the
# share of cases within 15 %.
#
#   benches/libmicro.sh [-r ROUNDS] [PATTERN]     (default 3 rounds, all; a PATTERN as in 'mmap*')
#   LIBMICRO=DIR   a checkout of libMicro that is built; fetched from GitHub and built without
#   NCPU=FILE      the ncpu to measure (default target/release/ncpu)
#   CPU=N          the CPU for cases of one worker (default: the last we may use)
#
# The batch: libMicro computes it from the clock's resolution, which it finds to be 1 ns where reading the
# clock of microseconds takes less than one; batches are then too short for that clock and most results 0.
# So where its list of invocations names no batch (-B), both take the batch that ncpu calibrated, rounded to
# tens, since libMicro's loops do ten calls a turn. Three batches differ:
#   mprot_tw4m   2, not 1: batches forbid and allow access in turn, and the median of 1 is that of either
#   malloc*      libMicro's -B counts rounds of ten allocations, ncpu's single ones
#   socketpair   128 pairs, which libMicro calls a batch of 256
set -euo pipefail
rounds=3
while getopts r: o; do case $o in r) rounds=$OPTARG ;; *) exit 2 ;; esac; done
shift $((OPTIND - 1))
pattern=${1:-*}
ncpu=$(realpath "${NCPU:-$(dirname "$0")/../target/release/ncpu}")
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }

work=$(mktemp -d /tmp/libmicro.XXXXXX)
var=/var${work}
mkdir -p "$var"
trap 'rm -rf "$work" "$var"' EXIT
theirs=${LIBMICRO:-}
if [ -z "$theirs" ]; then
	theirs=$work/libMicro
	git clone -q --depth 1 https://github.com/redhat-performance/libMicro "$theirs"
fi
bin=$(echo "$theirs"/bin-*)
if [ ! -x "$bin/getpid" ]; then
	make -C "$theirs" >"$work/make.log" 2>&1 || { tail "$work/make.log" >&2; exit 1; }
	bin=$(echo "$theirs"/bin-*)
fi
bin=$(realpath "$bin")

# What libMicro's own script makes, under the names that its list uses.
export TFILE=$work/data IFILE=$work/ifile VFILE=$var/data
export TDIR1=$work/0/1/2/3/4/5/6/7/8/9 TDIR2=$work/1/2/3/4/5/6/7/8/9/0
export VDIR1=$var/0/1/2/3/4/5/6/7/8/9 VDIR2=$var/1/2/3/4/5/6/7/8/9/0
mkdir -p "$TDIR1" "$TDIR2" "$VDIR1" "$VDIR2"
dd if=/dev/zero of="$TFILE" bs=1024k count=10 status=none
dd if=/dev/zero of="$VFILE" bs=1024k count=10 status=none
touch "$IFILE"

all=$(taskset -pc $$ | sed 's/.*: //')
one=${CPU:-${all##*[,-]}}

ours() { # NAME BATCH CPUS: "median batch"
	taskset -c "$3" "$ncpu" bench --suite libmicro "$1" ${2:+-B "$2"} -C 50 -D 300 -o csv 2>>"$work/errors" |
		awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 && $at["time"] != "" { print $at["time"], $at["cnt/samp"] }'
}

libmicro() { # PROGRAM BATCH CPUS OPTIONS...: median
	local program=$1 batch=$2 cpus=$3
	shift 3
	# It may leave sockets and processes to the next round, but not wait for ever.
	(cd "$work" && timeout 60 taskset -c "$cpus" "$bin/$program" -N x "$@" ${batch:+-B "$batch"} -C 50 -D 300 -H 2>>"$work/errors") |
		awk '$1 == "x" { print $4 }'
}

# Whatever disturbs makes things slower, and where memory comes to lie differs from start to start. A machine
# that others share is slower for seconds or minutes on end: so a round is of all cases, not of one.
best() { sort -g "$1" 2>/dev/null | head -1 | grep . || echo -; }

progress() { [ ! -t 2 ] || printf '\r\033[K%s' "$*" >&2; }

# A line each: name, program, CPUs, batch, ncpu's batch, options. The list is the part of libMicro's script
# between `done <<.` and the full stop.
sed -n '/^done <<\./,/^\.$/p' "$theirs/bench.sh" | grep -E '^[a-z]' | grep -v '^done' | while read -r program line; do
	eval "set -- ${line//\$OPTS/}"
	name= workers=1 batch= options=()
	while [ $# -gt 0 ]; do
		case $1 in
		-N) name=$2; shift 2 ;;
		-I | -C) shift 2 ;;
		-B) batch=$2; shift 2 ;;
		-T | -P) workers=$2; options+=("$1" "$2"); shift 2 ;;
		*) options+=("$1"); shift ;;
		esac
	done
	# shellcheck disable=SC2053
	[[ $name == $pattern ]] || continue
	cpus=$one
	[ "$workers" = 1 ] || cpus=$all
	[ "$batch" != 0 ] || batch=
	[ "$name" != mprot_tw4m ] || batch=
	mine=
	if [ -z "$batch" ]; then
		progress "batches: $name"
		read -r _ mine <<<"$(ours "$name" "" "$cpus" </dev/null)" || true
		[ -n "$mine" ] || mine=none
		[[ $mine == none || $mine -lt 10 ]] || mine=$(((mine + 5) / 10 * 10))
		batch=$mine
		[[ $program != malloc || $batch == none || $batch -lt 10 ]] || batch=$((batch / 10))
	fi
	echo "$name $program $cpus ${batch} ${mine:--} ${options[*]}"
done >"$work/cases"

for round in $(seq "$rounds"); do
	while read -r -u 3 name program cpus batch mine options; do
		[ "$mine" != none ] || continue
		progress "round $round of $rounds: $name"
		[ "$mine" != - ] || mine=
		ours "$name" "$mine" "$cpus" | cut -d' ' -f1 >>"$work/$name.ours"
		# shellcheck disable=SC2086
		libmicro "$program" "$batch" "$cpus" $options >>"$work/$name.theirs"
	done 3<"$work/cases"
done
progress

printf '%-16s %14s %14s %8s\n' "us/call" libMicro ncpu ratio
while read -r name _ _ _ mine _; do
	if [ "$mine" = none ]; then
		printf '%-16s %14s %14s %8s\n' "$name" - - "(ncpu gives none)"
		continue
	fi
	echo "$name $(best "$work/$name.theirs") $(best "$work/$name.ours")" |
		awk '{ r = $2 > 0 ? $3 / $2 : 0; printf "%-16s %14.5f %14.5f %8s %s\n", $1, $2, $3, r ? sprintf("%.3f", r) : "-", (r > 1.15 || (r && r < 1 / 1.15)) ? "*" : "" }'
done <"$work/cases" | tee "$work/table"
awk '$4 != "-" && $4 !~ /\(/ { n++; if ($5 != "*") ok++ } END { printf "%d of %d cases within 15 %% (%.1f %%)\n", ok, n, n ? 100 * ok / n : 0 }' "$work/table"
[ ! -s "$work/errors" ] || { echo "what the programs said:"; sort "$work/errors" | uniq -c | sort -rn | head -20; } >&2
