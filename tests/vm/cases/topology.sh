# ncpu reads the machine that QEMU was told to be.
ncpu topology
ncpu topology --table distances -o csv | sed 1d >distances.csv
same distances "$(cat /vm/told/distances)" "$(cat distances.csv)"

ncpu topology --table cpus -o csv >cpus.csv
count() { sort -u | grep -c .; }
read -r cpus packages cores threads </vm/told/smp
same CPUs "$cpus" "$(column cpu cpus.csv | count)"
same packages "$packages" "$(column package cpus.csv | count)"
same cores $((packages * cores)) "$(column core cpus.csv | count)"
same "threads of a core" "$threads" "$(column thread cpus.csv | count)"

ncpu topology --table nodes -o csv >nodes.csv
column node nodes.csv >node
column cpus nodes.csv >cpus
same "CPUs of the nodes" "$(cut -d' ' -f1,2 /vm/told/nodes)" "$(paste -d' ' node cpus)"
# What the kernel keeps for itself (its image, a page's description, the initrd) is not told as a node's memory.
column total nodes.csv | paste -d' ' /vm/told/nodes - | while read -r node _ mib total; do
	[ "$total" -le $((mib << 20)) ] || fail "node $node: $total bytes, and QEMU gave it $mib MiB"
	[ "$total" -ge $((mib << 19)) ] || fail "node $node: only $total bytes of $mib MiB"
done
