# A server in DIR (its data are DIR/data), and 8 clients of it for 2 s: all change one row, or each its own.
# usage: postgres.sh BIN DIR hot|own
# DIR/truth has then what pg_stat_activity said the while: sessions that wait for a lock, a look a line, by name.
set -eu
bin=$1 dir=$2
"$bin/pg_ctl" -w -D "$dir/data" -l "$dir/log" -o "-k $dir -c listen_addresses= -c max_connections=20" start >/dev/null
trap '"$bin/pg_ctl" -D "$dir/data" -m fast stop >/dev/null' EXIT
sql() { PGOPTIONS='-c client_min_messages=error'  "$bin/psql" -X -q -A -t -h "$dir" -U postgres postgres "$@"; }
sql -c 'drop table if exists rows; create table rows (id int primary key, n int); insert into rows select g, 0 from generate_series(1, 8) g'
case $3 in
hot) id=1 ;;
own) id=':client_id + 1' ;;
esac
echo "update rows set n = n + 1 where id = $id;" >"$dir/update.sql"
"$bin/pgbench" -n -c 8 -j 1 -T 2 -f "$dir/update.sql" -h "$dir" -U postgres postgres >"$dir/pgbench" 2>&1 &
sleep 0.3
for look in 1 2 3 4 5 6 7 8 9 10; do
	echo "select $look, wait_event from pg_stat_activity where wait_event_type in ('Lock', 'LWLock') and pid <> pg_backend_pid();"
	echo "select pg_sleep(0.1) where false; \\! sleep 0.1"
done | sql >"$dir/truth"
wait
