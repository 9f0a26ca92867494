# A segment lies where its policy says, whichever CPUs help to make it; what a node has not is told before it is touched.
nodes=$(grep -c . /vm/told/nodes)
last=$((nodes - 1))
# Per cent of pages that are dealt out one by one to 8 nodes, or to 2.
part='1[0-9]'
[ "$nodes" -gt 2 ] || part='[45][0-9]'

# says REGEX ARGUMENTS...: a segment of a few MiB, made by four threads, and where its pages are.
says() {
	local regex=$1
	shift
	ncpu populate 8m --threads 4 --rounds 1 "$@" -o csv >table.csv 2>notes || fail "$*: $(cat notes)"
	same "rows of $*" 3 "$(grep -c . table.csv)"
	has notes "$regex"
}
for kind in private memfd sysv posix; do
	says "^ncpu: pages: 100 % on node $last\$" --kind $kind --mem node:$last
	says "^ncpu: pages: $part % on node 0, .*$part % on node $last\$" --kind $kind --mem interleave --page 4k
done
# Helpers stay on the node of the caller, where its memory is to be.
for cpu in 0 $(($(grep -c ^processor /proc/cpuinfo) - 1)); do
	node=$(basename /sys/devices/system/cpu/cpu$cpu/node*)
	set -- $(sed 's/,.*//; s/-/ /' /sys/devices/system/node/$node/cpulist)
	taskset $(printf %x $(((1 << ${2:-$1}) | (1 << $1)))) ncpu populate 8m --threads 4 --rounds 1 --page 4k -o csv >table.csv 2>notes
	has notes "^ncpu: pages: 100 % on node ${node#node}\$"
done
kb=$(awk '$3 == "MemTotal:" { print $4 }' /sys/devices/system/node/node0/meminfo)
! ncpu populate ${kb}k --mem node:0 2>large || fail "all of node 0"
has large "are wanted, and .* available on (node 0|this machine)"
! ncpu populate 4m --mem node:$nodes 2>none || fail "memory of a node that is not there"
has none "node $nodes has no memory"
