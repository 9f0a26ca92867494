# Every page of every node is told, the same by BPF and by /proc/kpageflags.
ncpu memory --source bpf -o csv >bpf.csv
ncpu memory --source kpageflags -o csv >kpageflags.csv

by_node() { awk -F, 'NR > 1 { n[$2] += $4 } END { for (i in n) print i, n[i] }' "$1" | sort -n; }
awk '/^Node/ { sub(",", "", $2); node = $2; device = $4 == "Device" }
	$1 == "present" && !device { n[node] += $2 }
	END { for (i in n) print i, n[i] }' /proc/zoneinfo | sort -n >present
same "pages of the nodes, by BPF" "$(cat present)" "$(by_node bpf.csv)"
same "pages of the nodes, by kpageflags" "$(cat present)" "$(by_node kpageflags.csv)"
paste -d' ' /vm/told/nodes present | while read -r node _ mib _ pages; do
	within "MiB of node $node" "$mib" $((pages / 256)) 2
done

# An idle machine differs from one look to the next by what the looks themselves take, and by what the kernel frees
# late: some 10 MB.
awk -F, 'FNR > 1 { if (NR == FNR) a[$2 "," $3] = $4; else if ((d = a[$2 "," $3] - $4) > 4000 || d < -4000) print $2, $3, a[$2 "," $3], $4 }' \
	bpf.csv kpageflags.csv >differ
same "node, class, pages by BPF and by kpageflags" "" "$(cat differ)"

# Page by page, on up to three of the nodes. Pages that the kernel frees between the two looks differ: three tries.
nodes=$(grep -c . present)
for node in $(printf '%s\n' 0 $((nodes / 2)) $((nodes - 1)) | sort -nu); do
	first=$(awk -v node=$node '/^Node/ { sub(",", "", $2); on = $2 == node } on && $1 == "start_pfn:" { print $2 }' /proc/zoneinfo | tail -1)
	for try in 1 2 3; do
		for source in bpf kpageflags; do
			ncpu memory --source $source --walk --pfns "$first-$((first + 4096))" -o csv >$source-$node.csv
		done
		same "rows of node $node" 4097 "$(grep -c . bpf-$node.csv)"
		# A page that was given out or freed between the looks is no difference.
		cut -d, -f1-3 bpf-$node.csv >bpf
		cut -d, -f1-3 kpageflags-$node.csv | paste -d, bpf - |
			awk -F, '$3 != $6 && $3 != "Free" && $6 != "Free"' >differ
		[ "$(grep -c . differ || :)" -gt 200 ] || continue 2
	done
	fail "node $node: of 4096 pages $(grep -c . differ) differ, $try times: $(head -20 differ)"
done

# Owners: the program that ran last is in the page cache, its cgroup and its process are there.
ncpu memory --by file -o csv >files.csv
has files.csv '/ncpu"?,'
ncpu memory --by process -o csv >processes.csv
has processes.csv '^1,'
