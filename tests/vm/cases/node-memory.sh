# Each node's memory is what the kernel tells, and what a program takes is taken from its node.
tell() { ncpu topology --table nodes -o csv >nodes.csv && column "$1" nodes.csv; }
for node in $(cut -d' ' -f1 /vm/told/nodes); do
	awk '/MemTotal/ { print $4 * 1024 }' /sys/devices/system/node/node$node/meminfo
done >kernel
same "memory of the nodes" "$(cat kernel)" "$(tell total)"

# Not the first, and not the last where there are others.
nodes=$(grep -c . /vm/told/nodes)
on=$((nodes > 3 ? 3 : nodes - 1))
tell free >before
start hold $on 128 >hold
await "128 MiB on node $on" grep -q holding hold
tell free >after
paste before after | awk -v on=$on '{ d = int(($1 - $2) / 1048576); print NR - 1, d; if (NR - 1 == on ? d < 100 : d > 60) bad = 1 }
	END { exit bad }' >taken || fail "node and MiB less free, with 128 MiB taken on node $on: $(cat taken)"
