# What a case may use. A case is run by `sh -eu`, in an empty directory whose files come back to the host.

# fail WORDS: ends the case.
fail() {
	echo "FAIL: $*" >&2
	exit 1
}

# skip WORDS: ends the case; what it tests cannot be had here.
skip() {
	echo "$*" >&2
	exit 77
}

# same WHAT EXPECTED ACTUAL: the two texts are equal.
same() {
	[ "$2" != "$3" ] || return 0
	printf '%s\n' "$2" >expected
	printf '%s\n' "$3" >actual
	echo "FAIL: $1:" >&2
	diff expected actual >&2 || exit 1
}

# within WHAT A B PERCENT: the two numbers differ by at most that part of the larger.
within() {
	awk -v a="$2" -v b="$3" -v p="$4" 'BEGIN {
		if (a == "" || b == "" || a != a + 0 || b != b + 0) exit 1
		d = a > b ? a - b : b - a; m = a > b ? a : b
		exit !(d * 100 <= p * m)
	}' || fail "$1: $2 and $3 differ by more than $4 %"
}

# has FILE PATTERN: the file has a line that matches the extended regular expression.
has() {
	grep -qE -- "$2" "$1" || fail "no /$2/ in $1: $(tail -n 5 "$1")"
}

# start CMD...: runs CMD behind the case, as $started, and ends it with the case.
start() {
	"$@" &
	started=$!
	echo $started >>/vm/started
}

# await WHAT CMD...: waits until CMD succeeds; the case ends if it never does.
await() {
	local what=$1 tries=0
	shift
	until "$@"; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || fail "waited in vain for $what"
		usleep 200000
	done
}

# finish PROCESS: interrupts a program started, as Ctrl-C does, and gives back its exit status.
finish() {
	kill -INT "$1"
	wait "$1"
}

# column NAME FILE: a column of a CSV file without quoted commas.
column() {
	awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i
		if (!c) { print "no column " name > "/dev/stderr"; exit 1 } next } { print $c }' "$2"
}

# whole FILE: it has a line, and that to its end.
whole() {
	[ "$(wc -l <"$1")" -ge 1 ]
}

# node_of PROCESS: the node of the CPU that a process ran on last, as QEMU was told.
node_of() {
	sed 's/.*) //' "/proc/$1/stat" | awk '
		NR == FNR { split($2, r, "-"); first[$1] = r[1]; last[$1] = r[2]; next }
		{ for (n in first) if ($37 >= first[n] && $37 <= last[n]) print n }' /vm/told/nodes -
}

# local_pages PROCESS...: per cent of the pages in these processes' own mappings of 1 MiB and more that lie on the node where
# each runs.
local_pages() {
	local process
	for process; do
		awk -v "node=$(node_of "$process")" '/ anon=/ && !/ (file=|stack|heap)/ {
			pages = 0; near = 0
			for (i = 3; i <= NF; i++) if ($i ~ /^N[0-9]+=/) {
				split(substr($i, 2), at, "="); pages += at[2]
				if (at[1] == node) near += at[2]
			}
			if (pages >= 256) { all += pages; here += near }
		} END { print here + 0, all + 0 }' "/proc/$process/numa_maps"
	done | awk '{ here += $1; all += $2 } END { printf "%.1f\n", all ? 100 * here / all : 0 }'
}

# most_on_a_node PROCESS: of the shared memory that a process has touched, the per cent on the node that has most of it.
most_on_a_node() {
	awk '/ file=\/dev\/zero/ { for (i = 3; i <= NF; i++) if ($i ~ /^N[0-9]+=/) {
			split(substr($i, 2), at, "="); on[at[1]] += at[2]; all += at[2]
		} } END { for (n in on) if (on[n] > most) most = on[n]; printf "%.1f\n", all ? 100 * most / all : 0 }' "/proc/$1/numa_maps"
}

# unevenness PROCESS...: of these busy processes, those on the node with most of them less those on the node with fewest.
unevenness() {
	local process
	for process; do node_of "$process"; done | awk '
		NR == FNR { on[$1] = 0; next } { on[$1]++ }
		END { least = 1e9; for (n in on) { if (on[n] > most) most = on[n]; if (on[n] < least) least = on[n] } print most - least }' \
		/vm/told/nodes -
}
