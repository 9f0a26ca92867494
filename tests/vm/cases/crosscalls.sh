# A process on many CPUs interrupts all of them to unmap a page. Linux 6.1 tells senders of shootdowns and what each CPU
# answers; since 6.5 kernels tell the targets of each call.
received() { awk '$1 == "TLB:" { for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i; print n }' /proc/interrupts; }
before=$(received)
ncpu crosscalls --by process --record x.ncpu --output text -- munmap --madvise 8 2
after=$(received)
cat text
table() { ncpu report x.ncpu --table "$1" -o csv; }
sum() { awk '{ n += $1 } END { print n + 0 }'; }

has text 'TLB shootdown +munmap'
table crosscalls | grep '^TLB shootdown,' >sent
table crosscalls | sed -n 1p | cat - sent >sent.csv
calls=$(column calls sent.csv | sum)
[ "$calls" -gt 0 ] || fail "no shootdown was sent"
table crosscalls_received >received.csv
sed -n 1p received.csv >shootdowns.csv
grep '^TLB shootdown,' received.csv >>shootdowns.csv
answered=$(column received shootdowns.csv | sum)
[ "$answered" -le $((after - before)) ] ||
	fail "$answered shootdowns answered, $((after - before)) in /proc/interrupts"
[ "$answered" -gt "$calls" ] || fail "$calls calls had $answered targets: eight CPUs run the program"

if ! grep -q 'are not told' text; then
	targets=$(column targets sent.csv | sum)
	packages=$(column packages sent.csv | sum)
	ipis=$(column IPIs sent.csv | sum)
	[ "$targets" -gt "$calls" ] || fail "$calls calls of $targets targets"
	[ "$ipis" -le "$targets" ] || fail "$ipis interrupts for $targets targets"
	# Two CPUs a package: at least half as many messages, at most as many.
	[ $((2 * packages)) -ge "$targets" ] && [ "$packages" -le "$targets" ] ||
		fail "$packages packages among $targets targets"
	[ "$packages" -lt "$targets" ] || fail "never two targets in a package"
	table crosscall_fanout >fanout.csv
	[ "$(column from fanout.csv | sort -n | tail -n 1)" -ge 2 ] || fail "no call had more than a target"
	has text 'one message a package \(8\)'
	ncpu crosscalls --packages 16 --by cause -o csv -- munmap --madvise 8 1 >spread.csv
	grep -q '^TLB shootdown,.*,1,\|^TLB shootdown,.*,1\.0*,' spread.csv || fail "a package a CPU saves nothing: $(cat spread.csv)"
else
	has text 'targets of a TLB shootdown: ([2-9]|1\.[0-9]*[1-9])'
	has text 'Linux 6.4 and 6.5'
fi
