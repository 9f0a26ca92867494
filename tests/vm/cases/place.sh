# A database that began on two CPUs of the first node, all of its memory there: `ncpu place balance` spreads its processes,
# deals out what they share, and brings home what is each one's own.
nodes=$(grep -c . /vm/told/nodes)
balancing=/proc/sys/kernel/numa_balancing
[ ! -e $balancing ] || { was=$(cat $balancing); echo 0 >$balancing; }
before=$(cat /proc/self/status | grep Cpus_allowed_list)

cyclops 24 4 40 "$nodes" >ready &
database=$!
echo $database >>/vm/started
await "the database" grep -q ready ready
ncpu place balance -p $database --for 20 >moves 2>notes || fail "$(cat notes)"
cat notes moves
imbalance=$(sed -nE 's/^ncpu: at last .*imbalance ([0-9.]+) between nodes.*/\1/p' notes)
local=$(sed -nE 's/^ncpu: at last .* ([0-9]+) % of memory local.*/\1/p' notes)
awk -v i="$imbalance" 'BEGIN { exit !(i != "" && i <= 1) }' || fail "imbalance of $imbalance threads between nodes: $(cat notes)"
[ "${local:-0}" -ge 95 ] || fail "only $local % of the memory is local: $(cat notes)"
# By the kernel's own account: no node holds much more of the shared memory than its part.
worker=$(pgrep -P $database | head -n 1)
grep -E "^[0-9a-f]+ .*file=/dev/zero.* dirty=[0-9]{4}" /proc/"$worker"/numa_maps >shared || cp /proc/"$worker"/numa_maps shared
awk -v nodes="$nodes" '{ most = 0; sum = 0
	for (i = 1; i <= NF; i++) if ($i ~ /^N[0-9]+=/) { split($i, p, "="); sum += p[2]; if (p[2] > most) most = p[2] }
	if (sum >= 4096) { print "shared pages", sum, "of which", most, "on one node"; exit !(most <= 1.2 * sum / nodes) } }' shared ||
	fail "the shared memory lies on one node: $(cat shared)"
# Threads have the CPUs back that they had before.
same "CPUs given back" "$before" "$(grep Cpus_allowed_list /proc/"$worker"/status)"
kill $database
wait $database || true

# The policies, by what the kernel says of the command's CPUs and memory.
last=$((nodes - 1))
cpus=$(awk -v n=$last '$1 == n { print $2 }' /vm/told/nodes)
same "CPUs of a node" "$cpus" "$(ncpu place local:$last -- awk '/Cpus_allowed_list/ { print $2 }' /proc/self/status)"
same "CPUs bound" "0" "$(ncpu place bind:0@$last -- awk '/Cpus_allowed_list/ { print $2 }' /proc/self/status)"
ncpu place "interleave:0,$last" -- sh -c 'dd if=/dev/zero of=/dev/null bs=4M count=1 2>/dev/null; cat /proc/self/numa_maps' >maps
has maps "interleave:0,$last"
# As many as there are nodes, spread: one on each.
spread=$(ncpu place "spread:$nodes" -- awk '/Cpus_allowed_list/ { print $2 }' /proc/self/status)
same "CPUs spread" "$nodes" "$(echo "$spread" | tr , '\n' | wc -l)"
[ ! -e $balancing ] || echo "$was" >$balancing
