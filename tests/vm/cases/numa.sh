# Each way of placing memory gets its verdict, and each request is told with what came of it.
nodes=$(grep -c . /vm/told/nodes)
last=$((nodes - 1))
balancing=/proc/sys/kernel/numa_balancing
# It would move the memory away while it is looked at.
[ ! -e $balancing ] || { was=$(cat $balancing); echo 0 >$balancing; }

# A tmpfs that deals its pages out, and one that is told to when the file is there already.
mkdir even late
mount -t tmpfs -o "mpol=interleave:0-$last" even even
mount -t tmpfs late late
dd if=/dev/zero of=late/unmapped bs=1M count=16 2>/dev/null
mount -o "remount,mpol=interleave:0-$last" late

# name, HOW of placed, verdict, what came of the request
cat >placements <<END
local local 64 local -
interleaved interleaved 32 interleaved yes
cyclops cyclops 32 Cyclops($last) -
misplaced misplaced 32 misplaced -
bound bound 32 Cyclops(1) yes
late late 32 Cyclops($last) no
sysv sysv-late 32 Cyclops($last) no
even file 32 interleaved yes
END
while read -r name how mib rest; do
	start placed "$how" "$mib" 900 even/file >"$name.ready"
	echo $started >"$name.pid"
done <placements
for ready in $(cut -d' ' -f1 placements); do
	for _ in $(seq 60); do
		grep -q ready "$ready.ready" && continue 2
		sleep 1
	done
	fail "$ready is not ready"
done
ncpu numa -o csv >processes.csv
ncpu numa --table segments -o csv >segments.csv
COLUMNS=80 ncpu numa -p "$(cat late.pid)"
for name in $(cut -d' ' -f1 placements); do kill -9 "$(cat "$name.pid")"; done

# of NAME COLUMN: what the table says of a placement.
of() {
	awk -F, -v pid="$(cat "$1.pid")" 'NR == 1 { print; next } $1 == pid { print }' processes.csv >"$1.csv"
	column "$2" "$1.csv"
}
while read -r name how mib verdict effect; do
	same "$name" "$verdict" "$(of "$name" verdict)"
	same "what came of the request of $name" "${effect#-}" "$(of "$name" effect)"
done <placements
of local remote | { read -r remote; [ "${remote%.*}" -lt 35 ] || fail "local: $remote % remote"; }
of cyclops remote | { read -r remote; [ "${remote%.*}" -gt 70 ] || fail "cyclops: $remote % remote"; }

# segment PATTERN VERDICT EFFECT: what the table says of a segment.
segment() {
	{ head -n 1 segments.csv; grep -E "$1" segments.csv; } >segment.csv || fail "no segment $1"
	same "verdict on $1" "$2" "$(column verdict segment.csv)"
	same "what came of the request for $1" "$3" "$(column effect segment.csv)"
}
segment "^shmid " "Cyclops($last)" no
segment /even/file, interleaved yes
# Nobody maps it, and all of it is where dd ran.
segment /late/unmapped, idle no
umount even late

# Huge pages of a pool.
echo 16 >/proc/sys/vm/nr_hugepages
if [ "$(cat /proc/sys/vm/nr_hugepages)" = 16 ]; then
	start placed huge 16 900 >huge.ready
	for _ in $(seq 60); do
		grep -q ready huge.ready && break
		sleep 1
	done
	ncpu numa -p "$started" 0.2 1 -o csv >huge.csv
	same "bytes in huge pages" $((16 << 20)) "$(column hugetlb huge.csv)"
	kill -9 "$started"
fi
echo 0 >/proc/sys/vm/nr_hugepages
[ ! -e $balancing ] || echo "$was" >$balancing
