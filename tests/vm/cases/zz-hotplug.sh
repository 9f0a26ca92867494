# CPUs go offline and come back during a recording: both commands live on and say so, the time is missing from the
# CPUs' rows and not made up, and afterwards the CPUs are sampled again.
set_online() { for cpu in 5 9; do echo "$1" >/sys/devices/system/cpu/cpu$cpu/online; done; }
now() { cut -d' ' -f1 /proc/uptime; }
start ncpu watch --record w.ncpu >watch.out 2>watch.err
watch=$started
start ncpu cpus 1 -o csv >cpus.csv 2>cpus.err
cpus=$started
await "a recording" test -s w.ncpu/cpu_time.arrows
await "a report" test -s cpus.csv

before=$(now)
set_online 0
offline=$(now)
await "a word about CPUs that went" grep -q "9 went offline" cpus.err
sleep 3
coming=$(now)
set_online 1
back=$(now)
await "a word about CPUs that came" grep -q "9 came online" cpus.err
start taskset 20 spin 1 1000 # on CPU 5
sleep 4
finish $cpus || fail "ncpu cpus: exit status $?"
finish $watch || fail "ncpu watch: exit status $?"
has watch.out 'note: CPUs 5,9 were offline'

ncpu report w.ncpu --table layers -o csv >layers.csv
missing=$(awk -F, '$1 == "not accounted for" { print $3 }' layers.csv)
# Both were offline at least between the two outer times, and at most between the inner ones.
awk -v m="$missing" -v least="$offline $coming" -v most="$before $back" 'BEGIN {
	split(least, l); split(most, u)
	exit !(m >= 2 * (l[2] - l[1]) * 0.95 && m <= 2 * (u[2] - u[1]) * 1.05) }' ||
	fail "not accounted for: $missing s of two CPUs; they went at $before to $offline, and came at $coming to $back"
within "sum of the layers and capacity" "$(column seconds layers.csv | awk '{ s += $1 } END { print s }')" \
	"$(ncpu report w.ncpu --table summary -o csv | awk -F, 'NR == 2 { print $1 * $4 }')" 1
ncpu report w.ncpu --table samples -o csv >samples.csv
has samples.csv '(^|,)spin(,|$)'
