# CPUs go offline and come back during a recording, and then a node loses its CPUs and as much of its memory as the
# kernel can free: the commands live on and say so, the time is missing from the CPUs' rows and not made up, the
# topology is what is left, and afterwards the CPUs are sampled again.
node=$(($(grep -c . /vm/told/nodes) - 1))
cpus=$(echo /sys/devices/system/node/node$node/cpu[0-9]* | sed 's|[^ ]*/cpu||g')
blocks=$(echo /sys/devices/system/node/node$node/memory[0-9]* | sed 's|[^ ]*/memory||g')
# online 0|1 CPU...
online() {
	local to=$1
	shift
	for cpu; do echo "$to" >/sys/devices/system/cpu/cpu$cpu/online; done
}
put_back() {
	# What is online already refuses.
	for block in $blocks; do echo online >/sys/devices/system/memory/memory$block/state || :; done
	for cpu in 5 9 $cpus; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online || :; done
} 2>/dev/null
trap put_back EXIT
now() { cut -d' ' -f1 /proc/uptime; }
total() { awk '/MemTotal/ { print $4 * 1024 }' /sys/devices/system/node/node$node/meminfo; }

start ncpu watch --record w.ncpu >watch.out 2>watch.err
watch=$started
start ncpu cpus 1 -o csv >cpus.csv 2>cpus.err
reports=$started
await "a recording" test -s w.ncpu/cpu_time.arrows
await "a report" test -s cpus.csv

# How many CPU-seconds are missing at least and at most.
least=0 most=0
# away N GOING GONE COMING BACK: N CPUs were away from between the first two times to between the last two.
away() {
	least=$(awk "BEGIN { print $least + $1 * ($4 - $3) }")
	most=$(awk "BEGIN { print $most + $1 * ($5 - $2) }")
}
going=$(now)
online 0 5 9
gone=$(now)
await "a word about CPUs that went" grep -q "9 went offline" cpus.err
sleep 2
coming=$(now)
online 1 5 9
away 2 "$going" "$gone" "$coming" "$(now)"
await "a word about CPUs that came" grep -q "9 came online" cpus.err
start taskset 20 spin 1 1000 # on CPU 5

# shellcheck disable=SC2086 # lists
set -- $cpus
eval "last=\$$#"
before=$(total)
going=$(now)
online 0 "$@"
gone=$(now)
for block in $blocks; do
	echo offline >/sys/devices/system/memory/memory$block/state || echo "block $block stays"
done 2>/dev/null
after=$(total)
[ "$after" -lt "$before" ] || fail "the kernel gave up no memory of node $node"
ncpu topology
ncpu topology --table nodes -o csv >nodes.csv
same "nodes" "$(cut -d' ' -f1 /vm/told/nodes)" "$(column node nodes.csv)"
same "memory of node $node" "$after" "$(awk -F, -v n=$node '$1 == n { print $4 }' nodes.csv)"
same "CPUs of node $node" "" "$(column cpus nodes.csv | tail -n 1)"
await "a word about the node's CPUs" grep -q "$last went offline" cpus.err
coming=$(now)
put_back
away $# "$going" "$gone" "$coming" "$(now)"
same "memory of node $node" "$before" "$(total)"
await "a word about the node's CPUs" grep -q "$last came online" cpus.err

finish $reports || fail "ncpu cpus: exit status $?"
finish $watch || fail "ncpu watch: exit status $?"
has watch.out "note: CPUs 5,9,$1.*$last were offline"

ncpu report w.ncpu --table layers -o csv >layers.csv
missing=$(awk -F, '$1 == "not accounted for" { print $3 }' layers.csv)
awk -v m="$missing" -v l="$least" -v u="$most" 'BEGIN { exit !(m >= l * 0.95 && m <= u * 1.05) }' ||
	fail "not accounted for: $missing CPU-seconds; at least $least and at most $most were offline"
within "sum of the layers and capacity" "$(column seconds layers.csv | awk '{ s += $1 } END { print s }')" \
	"$(ncpu report w.ncpu --table summary -o csv | awk -F, 'NR == 2 { print $1 * $4 }')" 1
ncpu report w.ncpu --table samples -o csv >samples.csv
has samples.csv '(^|,)spin(,|$)'
