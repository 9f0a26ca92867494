# taskset gives each process a node's CPUs, by somebody who knows the processes. Memory stays.
how=taskset
attend() {
	shift
	for process; do
		node=$((${node:--1} + 1))
		taskset -pc "$(awk -v n=$node '$1 == n { print $2 }' /vm/told/nodes)" "$process" >/dev/null
	done
}
. /vm/cases/place.inc
