# Every collector begins and ends, and what it takes follows the CPUs that are online: of the first kernel this case
# runs in a guest of 16 CPUs that could have 2048. Times are shown, not judged: they are an emulator's.
took() {
	local name=$1 before after
	shift
	before=$(cut -d' ' -f1 /proc/uptime)
	"$@" >out.$name 2>err.$name || fail "$name: exit status $?: $(tail -n 1 err.$name)"
	after=$(cut -d' ' -f1 /proc/uptime)
	echo "$name $(awk "BEGIN { print $after - $before }") s"
}
echo "possible CPUs: $(cat /sys/devices/system/cpu/possible)"
took run ncpu run -- true
took locks ncpu locks -- true
took threads ncpu threads 0.1 1
took cpus ncpu cpus 0.1 1
took crosscalls ncpu crosscalls -- true
took timers ncpu timers --cpus 0.1
took numa ncpu numa 0.1 1
took memory ncpu memory

# The kernel's own account of the memory of BPF maps, which per-CPU maps and rings take for every CPU.
start ncpu watch --record w.ncpu >watch.out 2>watch.err
watch=$started
await "a recording" test -s w.ncpu/cpu_time.arrows
maps=$(cat /proc/$watch/fdinfo/* 2>/dev/null | awk '$1 == "map_type:" { map = 1 } $1 == "memlock:" && map { n += $2; map = 0 } END { print n + 0 }')
resident=$(awk '/^VmRSS/ { print $2 * 1024 }' /proc/$watch/status)
sleep 3
finish $watch || fail "ncpu watch: exit status $?"
echo "watch -a: BPF maps $((maps >> 20)) MiB, resident $((resident >> 20)) MiB"
ncpu report w.ncpu --table layers -o csv | grep '^ncpu itself'
[ "$maps" -gt 0 ] || fail "the kernel tells of no BPF map"
[ "$maps" -le $((192 << 20)) ] || fail "BPF maps of $maps bytes for 16 CPUs"
[ "$resident" -le $((200 << 20)) ] || fail "$resident bytes resident for 16 CPUs"
