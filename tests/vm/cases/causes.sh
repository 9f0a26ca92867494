# Causes of the time of user code, by decoded instructions of AArch64: programs that have one cause each. Emulated CPUs take interrupts
# between blocks of instructions, which programs/causes.c is laid out for; and they have no caches, so nothing is said of waits for memory.
[ "$(uname -m)" = aarch64 ] || skip "the programs are of AArch64"

known="computing|waiting for memory|shared lines|atomic operations|busy waiting|long operations"

# of PART THREADS: runs the part, until 50 samples have a known cause or code that pauses. On a busy host ncpu's reads of a program's symbols
# time out in the guest, and it knows no cause: such a run is repeated.
of() {
	tries=0
	until
		rm -rf "$1$2.ncpu"
		ncpu run --record "$1$2.ncpu" -- causes "$1" "$2" 3 >"$1$2.txt" 2>"$1$2.err"
		for table in user_causes data samples; do
			ncpu report "$1$2.ncpu" --table $table -o csv >"$1$2.$table.csv"
		done
		awk -F, -v known="$known" '$4 ~ "^(" known ")$" { sum += $5 } $2 == "spin" { sum += $5 } END { exit !(sum >= 50) }' \
			"$1$2.user_causes.csv" "$1$2.samples.csv"
	do
		tries=$((tries + 1))
		[ $tries -lt 5 ] || fail "$1: the causes of fewer than 50 samples are known: $(cat "$1$2.user_causes.csv")"
	done
}

# share NAME TABLE COLUMN WORDS ALL: the part of WORDS in the samples of the program with one of ALL in the column; words have | between.
share() {
	awk -F, -v column="$3" -v words="$4" -v all="$5" '
		NR == 1 { for (i = 1; i <= NF; i++) { if ($i == column) c = i; if ($i == "samples") s = i; if ($i == "process") p = i } next }
		$p != "causes" { next }
		$c ~ "^(" all ")$" { sum += $s; if ($c ~ "^(" words ")$") of += $s }
		END { if (sum < 50) { print "too few: " sum; exit } printf "%.3f\n", of / sum }' "$1.$2.csv"
}

# most NAME CAUSE LEAST ELSE: at least that part has the cause, and nothing has another one than these two.
most() {
	part=$(share "$1" user_causes cause "$2" "$known")
	others=$(share "$1" user_causes cause "$2|$4" "$known")
	echo "$1: $2 $part, with $4 $others"
	awk -v p="$part" -v least="$3" -v o="$others" 'BEGIN { exit !(p ~ /^[01]/ && p >= least && o == 1) }' ||
		fail "$1: $2 has $part of the samples with a cause, at least $3 expected, and with $4 $others: $(cat "$1.user_causes.csv")"
}

# A loop that looks at a word: busy waiting; with `yield`, a spin like any other.
of waits 1
most waits1 "busy waiting" 0.9 computing
of pauses 1
spins=$(share pauses1 samples class spin "spin|user")
echo "pauses1: spin $spins"
awk -v s="$spins" 'BEGIN { exit !(s ~ /^[01]/ && s > 0.9) }' || fail "pauses1: spin $spins of the samples of user code"

# A counter: an atomic operation of one thread, a shared line of two, with one instruction as by an exclusive load and store.
for how in adds excludes; do
	of $how 1
	most ${how}1 "atomic operations" 0.3 computing
	of $how 2
	most ${how}2 "shared lines" 0.3 "computing|atomic operations"
	same "data that $how waits for" counter "$(column object ${how}2.data.csv | sort -u)"
done

of divides 2
most divides2 "long operations" 0.3 computing
of counts 2
most counts2 computing 1 computing
# It waits for memory or it computes, but has no other cause.
of chases 2
most chases2 "computing|waiting for memory" 1 computing

# Results of system calls, by samples right behind them: seven bytes each, from one descriptor to the other.
ncpu run --record dd.ncpu -- dd if=/dev/zero of=/dev/null bs=7 count=300000 2>dd.err
ncpu report dd.ncpu --table call_results -o csv >call_results.csv
for file in /dev/zero /dev/null; do
	awk -F, -v file="$file" '$3 == file { samples += $5; returned += $6; errors += $4 != "" }
		END { print file ": " samples " results of " returned / samples " bytes"; exit !(samples >= 20 && returned == 7 * samples && !errors) }' \
		call_results.csv || fail "results of calls for $file: $(cat call_results.csv)"
done

# Calls of a function, from its entry to each of its returns.
ncpu run --request divides --probes all --record calls.ncpu -- causes divides 2 0 50
ncpu report calls.ncpu --table served -o csv >served.csv
same "calls of divides" 100 "$(column count served.csv | awk '{ s += $1 } END { print s }')"
