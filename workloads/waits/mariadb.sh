#!/bin/bash
# Eight sessions of MariaDB that write a line into a journal and count it: all in one row (`hot`), or each in a row of its own
# (`own`). Prints transactions a second, and how long they waited for rows of one another by the server's own count.
#
# usage: mariadb.sh hot|own TRANSACTIONS [FLUSH]
# FLUSH is innodb_flush_log_at_trx_commit: 1 waits for the disk at each commit, 2 does not (default 1)
set -eu
how=$1 count=$2 flush=${3:-1}
dir=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$dir"' EXIT
mariadb-install-db --no-defaults --user=root --datadir="$dir/db" --auth-root-authentication-method=normal --skip-test-db >/dev/null 2>&1
mariadbd --no-defaults --user=root --datadir="$dir/db" --socket="$dir/s" --skip-networking --pid-file="$dir/pid" \
	--innodb-buffer-pool-size=128M --innodb-flush-log-at-trx-commit="$flush" >"$dir/log" 2>&1 &
ask() { mariadb --no-defaults --socket="$dir/s" --user=root --batch --skip-column-names -e "$1"; }
for _ in $(seq 300); do ask 'select 1' >/dev/null 2>&1 && break; sleep 0.1; done
ask 'create database x; use x; create table counts (id int primary key, n bigint) engine=innodb;
	create table journal (id bigint auto_increment primary key, line varchar(100)) engine=innodb;
	insert into counts select seq, 0 from seq_0_to_999'
case $how in hot) row=1 ;; own) row='connection_id() % 1000' ;; esac
line="insert into x.journal (line) values (repeat('x', 80))"
began=$(date +%s.%N)
# Its statements are counted one by one.
mariadb-slap --no-defaults --socket="$dir/s" --user=root --create-schema=x --concurrency=8 --number-of-queries=$((count * 7)) --delimiter=';' \
	--query="begin; update x.counts set n = n + 1 where id = $row; $line; $line; $line; $line; commit" >/dev/null
ended=$(date +%s.%N)
waited=$(ask "show global status like 'Innodb_row_lock_time'" | cut -f 2)
done=$(ask 'select sum(n) from x.counts')
awk -v n="$done" -v from="$began" -v to="$ended" -v w="$waited" 'BEGIN { t = to - from; printf "%d transactions in %.1f s: %.0f a second; sessions waited %.1f s for rows\n", n, t, n / t, w / 1e3 }'
kill "$(cat "$dir/pid")"
wait
