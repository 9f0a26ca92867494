# numad, told which processes.
command -v numad >/dev/null || skip "numad is missing"
mkdir -p /var/log /var/run
how=numad
attend() {
	shift
	numad -i 1:2 -S 0 -p "$1"
	for process; do numad -p "$process"; done
	spent=$(pidof numad)
}
leave() {
	# In hundredths of a second.
	spent=$(sed 's/.*) //' "/proc/$spent/stat" 2>/dev/null | awk '{ printf "%.2f", ($12 + $13) / 100 }')
	numad -i 0
	cat /var/log/numad.log >&2
}
. /vm/cases/place.inc
