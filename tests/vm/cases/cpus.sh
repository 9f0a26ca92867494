# A busy CPU is seen busy, an idle one idle, and each has its row.
read -r cpus _ </vm/told/smp
busy=$((cpus > 5 ? 5 : cpus - 1))
start taskset "$(printf %x $((1 << busy)))" spin 1 1000
ncpu cpus 2 1 -k usr -o csv >sorted.csv
same "the busiest CPU" "$busy" "$(column CPU sorted.csv | head -n 1)"
sed 1d sorted.csv | sort -t, -k2n >rows
{ sed -n 1p sorted.csv; cat rows; } >cpus.csv
same "CPUs with a row" "$(seq 0 $((cpus - 1)))" "$(column CPU cpus.csv)"
column usr cpus.csv >usr
column sys cpus.csv >sys
column idl cpus.csv >idl
column wt cpus.csv >wt
column st cpus.csv >st
paste usr sys wt st idl | awk '{ s = $1 + $2 + $3 + $4 + $5; if (s < 99.9 || s > 100.1) bad = 1 } END { exit bad }' ||
	fail "times of a CPU do not sum to 100 %: $(cat cpus.csv)"
row=$((busy + 1))
awk "NR == $row { exit !(\$1 > 50) }" usr || fail "CPU $busy is busy, and ncpu says $(sed -n ${row}p usr) % usr"
awk -v busy=$row 'NR != busy && $1 > 50 { n++ } END { exit !(n > NR / 2) }' idl || fail "most other CPUs are not idle: $(cat idl)"

# Barriers on all CPUs of a process are interrupts from one CPU to others, by a number that the program gives.
start membarrier $((cpus - 1)) 100000
ncpu cpus 2 1 -o csv >calls.csv 2>calls.err
if ! grep -q 'xcal:' calls.err; then
	xcal=$(column xcal calls.csv | awk '{ n += $1 } END { print int(n) }')
	[ "$xcal" -gt 20 ] || fail "$xcal cross-calls a second of a program that makes hundreds: $(cat calls.csv)"
fi
