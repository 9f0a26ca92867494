#!/bin/bash
# Statements of PostgreSQL, two sessions: statements.sh KIND SECS [twin].
# `triggers`: rows with a foreign key and a trigger are inserted; twin: a table without both.
# `notin`: NOT IN (subquery) that does not fit into work_mem; twin: NOT EXISTS.
# `rests`: VACUUM sleeps for vacuum_cost_delay; twin: 0. One session.
# `numeric`: sums of type numeric; twin: of double precision.
kind=$1 seconds=$2 twin=$3
programs=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
to=$(mktemp -d /var/tmp/statements.XXXXXX)
as() { if [ "$(id -u)" = 0 ]; then su postgres -c "$1"; else sh -c "$1"; fi; }
[ "$(id -u)" = 0 ] && chown postgres "$to"
trap 'as "$programs/pg_ctl -D $to/data -m immediate -w stop" >/dev/null; rm -rf "$to"' EXIT
as "$programs/initdb -D $to/data -A trust -U postgres -N" >/dev/null
settings="-c fsync=off -c jit=off -c max_parallel_workers_per_gather=0 -c listen_addresses= -c unix_socket_directories=$to -c autovacuum=off"
as "$programs/pg_ctl -D $to/data -o '$settings' -l $to/log -w start" >/dev/null
export PGHOST=$to PGUSER=postgres
case $kind in
triggers)
	psql -q <<'Q'
create table account(id int primary key);
insert into account select generate_series(1, 1000);
create table line(id int, account int references account, amount int);
create table plain(id int, account int, amount int);
create function stamp() returns trigger language plpgsql as $$ begin new.amount := new.amount + 1; return new; end $$;
create trigger stamp before insert on line for each row execute function stamp();
Q
	statement="insert into $([ "$twin" ] && echo plain || echo line) select g, 1 + g % 1000, g from generate_series(1, 2000) g;" ;;
notin)
	psql -q -c "create table paid as select g as id from generate_series(1, 2000) g" -c "create table invoice as select g as id from generate_series(1, 2100) g" -c "analyze"
	export PGOPTIONS="-c work_mem=64kB"
	statement="select count(*) from invoice where id not in (select id from paid);"
	[ "$twin" ] && statement="select count(*) from invoice i where not exists (select 1 from paid p where p.id = i.id);" ;;
rests)
	psql -q -c "create table stale as select g as id, repeat('x', 200) as pad from generate_series(1, 100000) g" -c "vacuum analyze"
	export PGOPTIONS="-c vacuum_cost_delay=$([ "$twin" ] && echo 0 || echo 20)"
	clients=1 statement="vacuum (disable_page_skipping) stale;" ;;
numeric)
	psql -q -c "create table price as select (g * 1.0371)::numeric as n, (g * 1.0371)::float8 as d from generate_series(1, 50000) g" -c "analyze"
	of=$([ "$twin" ] && echo d || echo n)
	statement="select sum($of * $of / 3 + $of * 1.19), avg($of) from price;" ;;
esac
echo "$statement" >"$to/statement"
chmod a+rx "$to"
pgbench -n -f "$to/statement" -c "${clients:-2}" -j 1 -T "$seconds" postgres 2>&1 | grep tps
