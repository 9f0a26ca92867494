#!/bin/sh
# pgscale.sh: a PostgreSQL server on a private directory under pgbench, started and stopped for each run, so that what
# binds or observes this script has the whole of it.
#   pgscale.sh init DIR              makes the directory and pgbench's tables
#   pgscale.sh run DIR CLIENTS SECONDS [PGBENCH OPTIONS]
set -eu
usage() { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
fail() { echo "pgscale.sh: $*" >&2; exit 1; }

bin=
for dir in /usr/lib/postgresql/*/bin; do [ -x "$dir/postgres" ] && bin=$dir; done
[ -n "$bin" ] || fail "no PostgreSQL: install Debian's package postgresql"
# The server refuses to run as root.
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=postgres --regid=postgres --clear-groups --"

# A scale of 1 is 16 MB; 128 MB of buffers hold ten.
start() {
	$as "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c shared_buffers=512MB -c max_connections=1000 \
		-c fsync=off -c autovacuum=off -c logging_collector=off >"$dir/log" 2>&1 &
	server=$!
	trap 'kill -INT $server 2>/dev/null; wait $server 2>/dev/null' EXIT
	trap 'exit 130' INT TERM
	for _ in $(seq 300); do
		"$bin/pg_isready" -q -h "$dir" && return
		kill -0 $server 2>/dev/null || fail "the server ended: $(tail -n 1 "$dir/log")"
		sleep 0.02
	done
	fail "the server does not answer: $(tail -n 1 "$dir/log")"
}

[ $# -ge 2 ] || usage
what=$1
# The server's working directory is another.
case $2 in /*) dir=$2 ;; *) dir=$PWD/$2 ;; esac
case $what in
init)
	mkdir -p "$dir"
	[ -z "$as" ] || chown postgres: "$dir"
	$as "$bin/initdb" -D "$dir/data" -A trust -U postgres >"$dir/log" 2>&1 || fail "initdb: $(tail -n 1 "$dir/log")"
	start
	"$bin/pgbench" -q -i -s 10 -h "$dir" -U postgres postgres
	;;
run)
	[ $# -ge 4 ] || usage
	[ -d "$dir/data" ] || fail "$dir: first \`pgscale.sh init $dir\`"
	clients=$3 seconds=$4
	shift 4
	start
	"$bin/pgbench" -n -h "$dir" -U postgres -c "$clients" -j "$clients" -T "$seconds" "$@" postgres
	;;
*) usage ;;
esac
