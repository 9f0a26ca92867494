# Threads that take turns with a mutex are seen to wait for a lock, and the one that waits for them to sleep.
start mutex 4 1000
mutex=$started
# A thread that computed already when the observation began is in user mode, alone on its CPU or not.
start spin 2 1000
spin=$started
# Until a futex has been judged to be a lock, waiting for it is sleep, and an emulated machine takes its time to judge: its last
# interval counts.
ncpu threads 2 3 --idle -k TID:asc -o csv >all.csv
of() {
	awk -F, -v pid="$1" 'NR == 1 { print } $1 == pid { if (!($2 in last)) tid[++n] = $2; last[$2] = $0 }
		END { for (i = 1; i <= n; i++) print last[tid[i]] }' all.csv
}
of "$mutex" >mutex.csv
of "$spin" >spin.csv

column TID mutex.csv >tid
ls /proc/$mutex/task | sort -n >task
same threads "$(cat task)" "$(cat tid)"
column LCK mutex.csv >lck
column SLP mutex.csv >slp
# Three of the four wait at any time.
paste lck slp | awk 'NR == 1 { if ($1 > 1 || $2 < 95) bad = 1; next } { lck += $1; slp += $2; if ($1 < 10) bad = 1 }
	END { exit bad || NR != 5 || lck < slp }' || fail "LCK and SLP of main and its workers: $(paste lck slp)"

column USR spin.csv >usr
column SYS spin.csv >sys
paste usr sys | awk '$1 < 20 * $2 { bad = 1 } END { exit bad || NR != 2 }' || fail "USR and SYS of spin: $(paste usr sys)"
