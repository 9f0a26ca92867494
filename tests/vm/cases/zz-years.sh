# A watch that is always on, while the clock is set years ahead and back, CPUs go and come, namespaces of processes begin and end,
# and it is killed: its recordings follow one another without a gap, none is deleted for a clock that was wrong, and what a
# program used between them is what the kernel says it used.
put_back() {
	for cpu in 5 9; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online || :; done
	date -s "@$((was + $(cut -d. -f1 /proc/uptime) - begun))" >/dev/null || :
} 2>/dev/null
was=$(date +%s) begun=$(cut -d. -f1 /proc/uptime)
trap put_back EXIT

now() { cut -d' ' -f1 /proc/uptime; }
watch() {
	start ncpu watch --record series --rotate 2s --interval 0.5 --keep 1h >>watch.out 2>>watch.err
	watch=$started
}
recordings() { ls -d series/*.ncpu 2>/dev/null | wc -l; }
more_than() { [ "$(recordings)" -gt "$1" ]; }
# CPU time of the spinning program so far, in seconds.
used() { awk '{ print ($14 + $15) / 100 }' /proc/$spin/stat; }
churn() {
	echo 0 >/sys/devices/system/cpu/cpu5/online
	echo 0 >/sys/devices/system/cpu/cpu9/online
	unshare -p -f sh -c 'sleep 0.2; true'
	echo 1 >/sys/devices/system/cpu/cpu5/online
	unshare -p -f sh -c 'true'
	echo 1 >/sys/devices/system/cpu/cpu9/online
}

start taskset 2 spin 1 1000 # on CPU 1
spin=$started
watch
await "a recording" more_than 0
used_before=$(used) before=$(now)
for year in 2031 2019 2044 2026; do
	date -s "$year-03-29 01:59:58" >/dev/null
	churn
	more=$(recordings)
	await "a recording after it was $year" more_than "$((more + 1))"
done
killed=$(now)
kill -9 $watch
wait $watch || :
more=$(recordings)
watch
await "a recording after the kill" more_than "$more"
churn
await "two more" more_than "$((more + 2))"
used_after=$(used) after=$(now)
finish $watch || fail "ncpu watch: exit status $?"

# number booted elapsed CPU-seconds of spin, a line each
for recording in series/*.ncpu; do
	name=${recording##*/}
	booted=$(awk -F'[:, ]+' '/"booted_s"/ { print $3 }' "$recording/manifest.json")
	ncpu report "$recording" --table cpu_time -o csv >time.csv 2>report.err || {
		# It was killed before the first interval of this one had ended.
		has report.err "has no interval|no table .cpu_time|holds 0.0 s"
		echo "${name%%-*} $booted 0 0"
		continue
	}
	# That which was killed may not have told of threads yet.
	ncpu report "$recording" --table threads -o csv >threads.csv 2>report.err || has report.err 'no table .threads'
	echo "${name%%-*} $booted $(column t time.csv | tail -n 1) $(awk -F, -v p="$spin" '
		NR == 1 { for (i = 1; i <= NF; i++) if ($i == "CPU") c = i; next }
		$1 == p { s += $c } END { print s + 0 }' threads.csv)"
done >all
cat all
echo "killed at $killed; spin used $used_before before, $used_after after"
# Numbers count up from 1: none was deleted. The one that was killed ends less than three of its intervals before that: two
# that had ended are written by then, and this machine is emulated.
awk -v killed="$killed" '
	{ sub(/^0+/, "", $1) }
	$1 != NR { print "recording " NR " is missing"; bad = 1 }
	NR > 1 {
		gap = $2 - end
		if (begun < killed && $2 > killed) { if (killed - end > 1.5) { print "lost " killed - end " s at the kill"; bad = 1 } }
		else if (gap > 0.1 || gap < -0.1) { print "a gap of " gap " s before recording " NR; bad = 1 }
	}
	{ begun = $2; end = $2 + $3 }
	END { exit bad }' all >bad || fail "$(cat bad)"
# The kernel was asked a little after the first recording began, and a little before the last ended; between the kill and the
# next beginning nobody watched. In such times the program used at most all of its CPU.
awk -v killed="$killed" -v spent="$(awk "BEGIN { print $used_after - $used_before }")" -v before="$before" -v after="$after" '
	{ seen += $4 }
	NR == 1 { more = before - $2 }
	NR > 1 && begun < killed && $2 > killed { unseen = $2 - end }
	{ begun = $2; end = $2 + $3 }
	END {
		if (end > after) more += end - after
		else unseen += after - end
		print "spin: the kernel says " spent " s, recordings " seen " s, of which " more " s at most were not asked for; unseen at most " unseen " s"
		exit !(seen >= spent * 0.97 - unseen && seen <= spent * 1.03 + more)
	}' all || fail "CPU time of spin"
