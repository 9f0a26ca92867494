# A database that began on two CPUs of the first node: `ncpu place balance` levels its processes, a node for each, and
# gives them their CPUs back.
nodes=$(grep -c . /vm/told/nodes)
before=$(grep Cpus_allowed_list /proc/self/status)
cyclops 2 1 200 "$nodes" >ready &
database=$!
echo $database >>/vm/started
await "the database" whole ready
ncpu place balance --no-memory -p $database --for 15 >moves 2>notes || fail "$(cat notes)"
cat notes moves
imbalance=$(sed -nE 's/^ncpu: at last .*imbalance ([0-9.]+) between nodes.*/\1/p' notes)
awk -v i="$imbalance" 'BEGIN { exit !(i != "" && i <= 1) }' || fail "imbalance of $imbalance threads between nodes: $(cat notes)"
workers=$(sed -n 's/^ready//p' ready)
worker=${workers##* }
same "CPUs given back" "$before" "$(grep Cpus_allowed_list "/proc/$worker/status")"
kill $workers
wait $database || true

# The policies, by what the kernel says of the command's CPUs and memory.
last=$((nodes - 1))
cpus=$(awk -v n=$last '$1 == n { print $2 }' /vm/told/nodes)
same "CPUs of a node" "$cpus" "$(ncpu place local:$last -- awk '/Cpus_allowed_list/ { print $2 }' /proc/self/status)"
same "CPUs bound" "0" "$(ncpu place bind:0@$last -- awk '/Cpus_allowed_list/ { print $2 }' /proc/self/status)"
ncpu place "interleave:0,$last" -- cat /proc/self/numa_maps >maps
has maps "interleave:0,$last"
# As many as there are nodes, spread: one on each.
spread=$(ncpu place "spread:$nodes" -- awk '/Cpus_allowed_list/ { print $2 }' /proc/self/status)
same "CPUs spread" "$nodes" "$(echo "$spread" | tr , '\n' | wc -l)"

# Fewer processes than nodes, with memory: the kernel is free to move one to an idle node, so each is held where its
# memory goes, which then moves once.
cyclops 1 2 200 4 >few &
database=$!
echo $database >>/vm/started
await "the small database" whole few
ncpu place balance -p $database --for 30 -o csv >moves 2>notes || fail "$(cat notes)"
cat notes moves
has moves "stays with its memory"
twice=$(awk -F, '/stays with its memory/ { held[$2]++ } END { for (p in held) if (held[p] > 1) print p }' moves)
same "processes held twice" "" "$twice"
workers=$(sed -n 's/^ready//p' few)
kill $workers
wait $database || true
