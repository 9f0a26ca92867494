# Eight instances, one a node: each on the CPUs and memory of its node, on clones that share cached pages.
nodes=$(grep -c . /vm/told/nodes)
# The guest's top directory cannot hold what a clone changes.
mkdir data
mount -t tmpfs data data
mkdir data/dir
dd if=/dev/urandom of=data/dir/file bs=1M count=8 2>/dev/null

ncpu partition "$nodes" --table instances -o csv cyclops 24 0 12 -1 >instances.csv 2>notes ||
	fail "$(cat notes)"
# The programs' own words came first.
sed -i '/^ready/d; /^did/d' instances.csv
same "instances" "$nodes" "$(grep -c '^[0-9]' instances.csv)"
# As QEMU was told.
i=0
while read -r node cpus _; do
	row=$(sed -n "s/^$i,//p" instances.csv)
	same "CPUs and node of instance $i" "$cpus,$node" "$(echo "$row" | tr -d '"' | cut -d, -f1,2)"
	i=$((i + 1))
done </vm/told/nodes
for share in $(column local instances.csv); do
	[ "${share%.*}" -ge 95 ] || fail "only $share % of an instance's memory is local: $(cat instances.csv)"
done
same "groups left" "" "$(find /sys/fs/cgroup -name 'ncpu-*')"

# Without an overlay file system in this kernel there are no clones to test.
grep -q overlay /proc/filesystems || { umount data; exit 0; }
ncpu partition 4 --clone data/dir --table data -o csv sh -c 'cat data/dir/file >/dev/null; echo {i} >data/dir/own' >data.csv 2>notes ||
	fail "$(cat notes)"
same "files of clones" 4 "$(column files data.csv)"
same "names left" file "$(ls -A data/dir)"
same "clones left" dir "$(ls -A data)"
umount data
