# Each command gives what this kernel has, and says each loss in a line of its own: never in the words of a library. The answers
# are the rows of docs/kernels.md (tests/vm/kernels makes it).
: >gives
gives() { printf '%s\t%s\n' "$1" "$2" >>gives; }

# try NAME CMD...: its output, with what it says beside it, is the file NAME.
try() {
	local name=$1
	shift
	timeout -s KILL 150 "$@" >"$name" 2>&1 || fail "$name ($*): exit status $?: $(tail -n 3 "$name")"
}
try run ncpu run --record r.ncpu -- fdtorture 2 2
try watch ncpu watch 1
try locks ncpu locks --kernel -- fdtorture 2 2
try threads ncpu threads 1 1
try cpus ncpu cpus 1 1
try crosscalls ncpu crosscalls -- munmap --madvise 2 1
try memory ncpu memory
try numa ncpu numa 1 1
try topology ncpu topology
try limits ncpu limits
# What cannot be had at all is one line that says why.
for who in "timers --who 1" "timers --cpus 0.5"; do
	# shellcheck disable=SC2086
	timeout -s KILL 60 ncpu $who >timers 2>&1 || {
		[ "$(grep -c . timers)" = 1 ] || fail "ncpu $who: $(cat timers)"
	}
done

# The text of libbpf and error numbers say nothing to a reader.
for file in run watch locks threads cpus crosscalls memory numa topology limits timers; do
	! grep -nE 'libbpf|-E[A-Z]{3,}|failed to (create|load|attach|open)|Invalid argument|os error|BPF program is too large' "$file" /dev/null ||
		fail "the line above is the text of a library or an error number ($file)"
done

# has_line FILE PATTERN: whether it says so; lines may be broken.
has_line() { tr '\n' ' ' <"$1" | tr -s ' ' | grep -qE -- "$2"; }

old='which came with Linux'
if has_line run "$old"; then
	gives "\`run\`, \`watch\`: layers" "by samples"
	for command in run watch locks; do has_line $command 'as without root' || fail "$command does not say how it observes"; done
	has_line threads 'from /proc' || fail "threads does not say where its figures come from"
else
	gives "\`run\`, \`watch\`: layers" "exact"
fi
ncpu report r.ncpu --table layers -o csv >layers.csv
ncpu report r.ncpu --table summary -o csv >summary.csv
capacity=$(awk -v n="$(column cpus summary.csv)" -v s="$(column elapsed summary.csv)" 'BEGIN { print n * s }')
within "sum of the layers and capacity" "$(column seconds layers.csv | awk '{ s += $1 } END { print s }')" "$capacity" 3

if has_line locks "$old|no lock:contention_begin"; then
	gives "\`locks\`: kernel locks" "by samples"
else
	gives "\`locks\`: kernel locks" "exact"
	grep -qE '^ *(files_struct|[a-z_]+)\.[a-z_]+ +spinlock' locks && name="by object" || name="by caller"
fi
gives "names of locks in kernel objects" "${name:-none}"
has_line threads "$old" && micro="from /proc" || micro=exact
! has_line threads 'no TRP, TFL and DFL' || micro="exact, faults in USR"
gives "\`threads\`: microstates" "$micro"
if has_line crosscalls "$old"; then
	calls="received"
elif has_line crosscalls 'Linux 6\.4 and 6\.5'; then
	calls="shootdowns sent, all received"
elif has_line crosscalls 'came with Linux 6\.5'; then
	calls="senders, targets"
else
	calls="senders, targets, functions, waits"
fi
gives "\`crosscalls\`" "$calls"
has_line memory 'by /proc/kpageflags' && pages="/proc/kpageflags" || pages="BPF"
! has_line memory 'an estimate' || pages="an estimate"
gives "\`memory\`: pages" "$pages"
has_line numa 'sampled from /proc' && nodes="sampled" || nodes="exact"
gives "\`numa\`: CPU time by node" "$nodes"
missing=$(tr '\n' ' ' <cpus | tr -s ' ' | grep -oE '(smtx|srw|syscl|csw|icsw|migr|minf|mjf)(, (smtx|srw|syscl|csw|icsw|migr|minf|mjf))*: ' | tr -d ':\n' | sed 's/ *$//')
gives "\`cpus\`: columns missing" "${missing:-none}"
cat gives
