#!/bin/sh
# Four sessions of MariaDB change one row, and each keeps it for 20 ms; writes how many milliseconds InnoDB says that they
# waited for it. Its files are in the first argument, made by mariadb-install-db; the last one is where to write.
set -e
dir=$1 out=$2
mariadbd --no-defaults --user=root --datadir="$dir/db" --socket="$dir/s" --skip-networking --pid-file="$dir/pid" \
	--innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0 >"$dir/log" 2>&1 &
server=$!
ask() { mariadb --no-defaults --socket="$dir/s" --user=root --batch --skip-column-names -e "$1"; }
tries=0
until ask 'select 1' >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || exit 1
	sleep 0.1
done
ask 'drop database if exists x; create database x; use x; create table hot (id int primary key, n bigint) engine=innodb;
	insert into hot values (1, 0)'
mariadb-slap --no-defaults --socket="$dir/s" --user=root --create-schema=x --concurrency=4 --number-of-queries=400 --delimiter=';' \
	--query='begin; update x.hot set n = n + 1 where id = 1; do sleep(0.02); commit' >/dev/null
ask "show global status like 'Innodb_row_lock_time'" | cut -f 2 >"$out"
kill $server
wait $server || true
