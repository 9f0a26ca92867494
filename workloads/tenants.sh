#!/bin/sh
# tenants.sh: three services beside each other, each a control group of its own, while COMMAND runs.
#   tenants.sh CAUSE COMMAND…
# web computes all the time on one CPU. batch takes that CPU from web by CAUSE: weight (eight times the weight on the same CPU),
# disk (16 readers beside web, which reads one file), limit (web's own limit, a fifth of a CPU; batch is elsewhere). mail does
# little, and is the innocent neighbour.
set -eu
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
fail() { echo "tenants.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || usage
cause=$1
shift
case $cause in weight | disk | limit) ;; *) usage ;; esac
groups=
for mount in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
	[ -z "$groups" ] && mkdir "$mount/web.service" 2>/dev/null || continue
	if [ -e "$mount/web.service/cpu.shares" ] || [ -e "$mount/web.service/cpu.weight" ]; then
		groups=$mount
	else
		rmdir "$mount/web.service"
	fi
done
[ -n "$groups" ] || fail "no control group of CPU time can be made"
mkdir "$groups/batch.service" "$groups/mail.service"
file=$(mktemp)
end() {
	for group in web batch mail; do
		until rmdir "$groups/$group.service" 2>/dev/null; do
			# The loops, and the programs that they run.
			while read -r pid; do kill -9 "$pid" 2>/dev/null || :; done <"$groups/$group.service/cgroup.procs"
			sleep 0.05
		done
	done
	wait 2>/dev/null || :
	rm -f "$file"
}
trap end EXIT
trap 'exit 130' INT TERM

# start GROUP CPU COMMAND: runs it in the group, on the CPU.
start() {
	group=$1 cpu=$2
	shift 2
	sh -c 'echo $$ >"$0" && exec taskset -c "$@"' "$groups/$group.service/cgroup.procs" "$cpu" "$@" >/dev/null 2>&1 &
}
busy='while :; do :; done'
little='while :; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; sleep 0.02; done'
start mail 1 sh -c "$little"
case $cause in
weight)
	if [ -e "$groups/batch.service/cpu.shares" ]; then
		echo 8192 >"$groups/batch.service/cpu.shares"
	else
		echo 800 >"$groups/batch.service/cpu.weight"
	fi
	start web 0 sh -c "$busy"
	start batch 0 sh -c "$busy"
	;;
disk)
	dd if=/dev/urandom of="$file" bs=1M count=64 2>/dev/null
	sync "$file"
	read='while :; do dd if="$0" of=/dev/null bs=$1 iflag=direct; done'
	start web 0 sh -c "$read" "$file" 4k
	i=0
	while [ $i -lt 16 ]; do
		start batch 1 sh -c "$read" "$file" 1M
		i=$((i + 1))
	done
	;;
limit)
	if [ -e "$groups/web.service/cpu.cfs_quota_us" ]; then
		echo 20000 >"$groups/web.service/cpu.cfs_quota_us"
	else
		echo "20000 100000" >"$groups/web.service/cpu.max"
	fi
	start web 0 sh -c "$busy"
	start batch 1 sh -c "$busy"
	;;
esac
sleep 1
"$@"
