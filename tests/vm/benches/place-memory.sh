# With its memory: what processes have for themselves follows them, what all share is dealt out, both as the kernel tells it.
# Emulated CPUs take minutes to move it, so this is no case for every day.
nodes=$(grep -c . /vm/told/nodes)
cyclops 16 2 230 "$nodes" >ready &
database=$!
echo $database >>/vm/started
await "the database with memory" whole ready
workers=$(sed -n 's/^ready//p' ready)
ncpu place balance -p $database -o csv >moves 2>notes &
balancer=$!
echo $balancer >>/vm/started
home() {
	# shellcheck disable=SC2086 # a list
	local own most
	own=$(local_pages $workers) most=$(most_on_a_node "${workers##* }")
	echo "$own % local, $most % of the shared on one node"
	awk -v own="$own" -v most="$most" -v fair="$((100 / nodes))" 'BEGIN { exit !(own >= 95 && most <= fair + 5) }'
}
await "its memory" home
finish $balancer || true
cat moves
kill $workers
wait $database || true
