# 16 busy threads (a thread a CPU): the layers sum to the capacity, and the program's time is what the kernel says.
read -r cpus _ </vm/told/smp
ncpu run --record r.ncpu -- spin "$cpus" 2
ncpu report r.ncpu --table layers -o csv >layers.csv
ncpu report r.ncpu --table summary -o csv >summary.csv
ncpu report r.ncpu --table cpu_time -o csv >cpu_time.csv
same CPUs "$cpus" "$(column cpus summary.csv)"
capacity=$(awk -v n="$cpus" -v s="$(column elapsed summary.csv)" 'BEGIN { print n * s }')
within "sum of the layers and capacity" "$(column seconds layers.csv | awk '{ s += $1 } END { print s }')" "$capacity" 1
within "sum of the CPUs' states and capacity" \
	"$(sed 1d cpu_time.csv | awk -F, '{ for (i = 3; i <= NF; i++) s += $i } END { print s }')" "$capacity" 1
same "CPUs with a row" "$cpus" "$(column CPU cpu_time.csv | sort -u | wc -l)"

# The kernel's own count of the program's time, which includes the interrupts it was interrupted by, and so what ncpu's
# timers did in them.
column user summary.csv >user
column system summary.csv >system
sum() { column "$1" cpu_time.csv | awk '{ s += $1 } END { print s }'; }
awk -v k="$(paste -d+ user system)" -v own="$(sum target) $(sum spin)" \
	-v interrupts="$(sum hardirq) $(sum softirq) $(sum tlb) $(sum ncpu)" 'BEGIN {
	split(k, a, "+"); split(own, b); split(interrupts, c)
	kernel = a[1] + a[2]; own = b[1] + b[2]; most = own + c[1] + c[2] + c[3] + c[4]
	printf "the program: %.2f to %.2f s; the kernel says %.2f s\n", own, most, kernel
	exit !(own > 0 && own <= kernel * 1.03 + 0.1 && kernel <= most * 1.03 + 0.1)
}' || fail "the program's time is not what the kernel says"
grep '^user code,' layers.csv | grep -q 'in spin' || fail "user code is not in spin: $(grep '^user code,' layers.csv)"
