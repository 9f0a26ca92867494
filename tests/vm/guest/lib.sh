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
