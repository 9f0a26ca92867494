# A node loses its CPUs and as much of its memory as the kernel can free, during a recording.
node=7
cpus=$(echo /sys/devices/system/node/node$node/cpu[0-9]* | sed 's|[^ ]*/cpu||g')
blocks=$(echo /sys/devices/system/node/node$node/memory[0-9]* | sed 's|[^ ]*/memory||g')
put_back() {
	# What is online already refuses.
	for block in $blocks; do echo online >/sys/devices/system/memory/memory$block/state || :; done
	for cpu in $cpus; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online || :; done
} 2>/dev/null
trap put_back EXIT
total() { awk '/MemTotal/ { print $4 * 1024 }' /sys/devices/system/node/node$node/meminfo; }

start ncpu watch --record w.ncpu >watch.out 2>watch.err
watch=$started
start ncpu cpus 1 -A node -o csv >cpus.csv 2>cpus.err
reports=$started
await "a recording" test -s w.ncpu/cpu_time.arrows
await "a report" test -s cpus.csv
before=$(total)
for cpu in $cpus; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
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
await "a word about CPUs that went" grep -qE 'went offline' cpus.err
sleep 2
finish $reports || fail "ncpu cpus: exit status $?"
finish $watch || fail "ncpu watch: exit status $?"
has watch.out 'offline for a part of the time'
