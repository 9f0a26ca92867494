# A process on many CPUs interrupts all of them for a memory barrier: by a known number of calls.
joined() { tr '\n' ' ' <"$1" | tr -s ' '; }
counted() { awk -v what="$1" 'index($0, what) { for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i } END { print n + 0 }' /proc/interrupts; }
table() { ncpu report "$recording" --table "$1" -o csv; }
sum() { awk '{ n += $1 } END { print n + 0 }'; }
recording=b.ncpu
before=$(counted "Function call interrupts")
ncpu crosscalls --by syscall --record b.ncpu --output barriers -- membarrier 3 200
after=$(counted "Function call interrupts")
cat barriers
if ! joined barriers | grep -q 'targets of each call, and senders .* are not known'; then
	table crosscalls >all.csv
	{ sed -n 1p all.csv; grep '^function call,[^,]*,membarrier,[0-9]*,membarrier,' all.csv; } >barriers.csv
	calls=$(column calls barriers.csv | sum)
	targets=$(column targets barriers.csv | sum)
	# Registering is a barrier, too. A call has no target while all threads wait for other CPUs.
	[ "$calls" -ge 100 ] && [ "$calls" -le 201 ] || fail "$calls calls of membarrier, which made 200: $(cat all.csv)"
	[ "$targets" -ge "$calls" ] && [ "$targets" -le $((3 * calls)) ] || fail "$targets targets of $calls calls, and 3 threads run"
	[ "$targets" -le $((after - before)) ] || fail "$targets targets, $((after - before)) in /proc/interrupts"
fi

# And to unmap a page, on x86. Linux 6.1 tells senders of shootdowns and what each CPU
# answers; since 6.5 kernels tell the targets of each call.
recording=x.ncpu
before=$(counted "TLB shootdowns")
ncpu crosscalls --by process --record x.ncpu --output text -- munmap --madvise 8 2
after=$(counted "TLB shootdowns")
cat text

# AArch64 has no such interrupts.
if [ "$(uname -m)" = aarch64 ]; then
	joined text >line
	has line 'TLB shootdowns interrupt no CPU here: AArch64 broadcasts them'
	! grep -q 'TLB shootdown  *munmap' text || fail "a shootdown was sent"
	exit 0
fi

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

if ! joined text | grep -q 'targets of each call, and senders .* are not known'; then
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
