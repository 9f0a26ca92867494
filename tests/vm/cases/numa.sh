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

# name, HOW of placed, MiB, verdict, what came of the request
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
# Huge pages of a pool, which is dealt out to the nodes.
echo 16 >/proc/sys/vm/nr_hugepages
[ "$(cat /proc/sys/vm/nr_hugepages)" != 16 ] || echo "huge huge 16" >>placements

# All at once, so that each is told apart from its neighbours.
pids=
while read -r name how mib _; do
	# Whether memory is local shows by as much CPU time on each node: more turns.
	period=250
	[ "$how" != local ] || period=50
	start placed "$how" "$mib" 900 $period even/file >"$name.ready"
	pids="$pids $started"
	echo "$started" >"$name.pid"
done <placements
while read -r name _; do await "$name" grep -q ready "$name.ready"; done <placements

ncpu numa --table processes -o csv 3 1 >processes.csv
ncpu numa --table segments -o csv 1 1 >segments.csv
late=$(cat late.pid)
ncpu numa -p "$late" --table processes -o csv 1 1 >late.csv
COLUMNS=100 ncpu numa 2 1

# row PATTERN FILE: its head and the rows that match.
row() {
	head -n 1 "$2"
	grep -E "$1" "$2" || fail "no $1 in $2: $(cat "$2")"
}
while read -r name _ _ verdict effect; do
	row "^$(cat "$name.pid")," processes.csv >"$name.csv"
	remote=$(column remote "$name.csv")
	case $name in
	local) [ "${remote%.*}" -lt 35 ] || fail "local: $remote % remote" ;;
	# Each node uses it as much: all but the node that has the memory are remote. Two nodes have two threads, which the few
	# milliseconds do not make even.
	cyclops) [ "${remote%.*}" -gt $((80 * last / nodes - (nodes == 2 ? 20 : 0))) ] || fail "cyclops: $remote % remote" ;;
	huge)
		same "bytes in huge pages" $((16 << 20)) "$(column hugetlb huge.csv)"
		continue
		;;
	esac
	same "$name" "$verdict" "$(column verdict "$name.csv")"
	same "what came of the request of $name" "${effect#-}" "$(column effect "$name.csv")"
done <placements
same "the process asked for" "$late" "$(column pid late.csv)"

# segment PATTERN VERDICT EFFECT: what the table says of a segment.
segment() {
	row "$1" segments.csv >segment.csv
	same "verdict on $1" "$2" "$(column verdict segment.csv)"
	same "what came of the request for $1" "$3" "$(column effect segment.csv)"
}
segment "^shmid " "Cyclops($last)" no
segment /even/file, interleaved yes
# Nobody maps it, and all of it is where dd ran.
segment /late/unmapped, idle no

# shellcheck disable=SC2086 # a list
kill -9 $pids
wait
umount even late
echo 0 >/proc/sys/vm/nr_hugepages
[ ! -e $balancing ] || echo "$was" >$balancing
