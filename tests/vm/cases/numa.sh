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
# row PATTERN FILE: its head and the rows that match.
row() {
	head -n 1 "$2"
	grep -E "$1" "$2" || fail "no $1 in $2"
}
# segment PATTERN FILE VERDICT EFFECT: what the table says of a segment.
segment() {
	row "$1" "$2" >segment.csv
	same "verdict on $1" "$3" "$(column verdict segment.csv)"
	same "what came of the request for $1" "$4" "$(column effect segment.csv)"
}
# One after the other: emulated CPUs are slow.
while read -r name how mib verdict effect; do
	start placed "$how" "$mib" 900 even/file >"$name.ready"
	pid=$started
	await "$name" grep -q ready "$name.ready"
	ncpu numa -p "$pid" 0.5 1 -o csv >"$name.csv"
	remote=$(column remote "$name.csv")
	case $name in
	local) [ "${remote%.*}" -lt 35 ] || fail "local: $remote % remote" ;;
	cyclops) [ "${remote%.*}" -gt 70 ] || fail "cyclops: $remote % remote" ;;
	late) COLUMNS=80 ncpu numa -p "$pid" 0.5 1 ;;
	sysv)
		ncpu numa -p "$pid" --table segments -o csv 0.5 1 >segments.csv
		segment "^shmid " segments.csv "Cyclops($last)" no
		;;
	even)
		ncpu numa --table segments -o csv 0.5 1 >segments.csv
		segment /even/file, segments.csv interleaved yes
		# Nobody maps it, and all of it is where dd ran.
		segment /late/unmapped, segments.csv idle no
		;;
	esac
	kill -9 "$pid"
	same "$name" "$verdict" "$(column verdict "$name.csv")"
	same "what came of the request of $name" "${effect#-}" "$(column effect "$name.csv")"
done <placements
umount even late

# Huge pages of a pool.
echo 16 >/proc/sys/vm/nr_hugepages
if [ "$(cat /proc/sys/vm/nr_hugepages)" = 16 ]; then
	start placed huge 16 900 >huge.ready
	await "huge pages" grep -q ready huge.ready
	ncpu numa -p "$started" 0.2 1 -o csv >huge.csv
	same "bytes in huge pages" $((16 << 20)) "$(column hugetlb huge.csv)"
	kill -9 "$started"
fi
echo 0 >/proc/sys/vm/nr_hugepages
[ ! -e $balancing ] || echo "$was" >$balancing
