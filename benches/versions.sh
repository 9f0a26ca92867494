#!/bin/bash
# What two versions of ncpu cost, side by side: a build, a ping-pong on one CPU and on two, and pgbench whose server is
# watched. In each round the cases run in random order: plain, the old version and the new one.
# usage: OLD=ncpu-before benches/versions.sh [-r ROUNDS] [build] [pingpong] [pgbench]
# needs root and release builds of both; PostgreSQL for pgbench. NCPU is the new version (target/release/ncpu), SECONDS_EACH
# how long a ping-pong or pgbench runs (3).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=10
if [ "${1:-}" = -r ]; then rounds=$2; shift 2; fi
asked=" $* "
[ "$asked" != "  " ] || asked=" build pingpong pgbench "
new=$(realpath "${NCPU:-target/release/ncpu}")
old=$(realpath "${OLD:?the old version of ncpu}")
for program in "$old" "$new"; do
  [ -x "$program" ] || { echo "no $program" >&2; exit 1; }
done
each=${SECONDS_EACH:-3}
dir=$(mktemp -d)
trap '[ -z "${server:-}" ] || su postgres -c "$pg/pg_ctl -D $dir/db -m immediate stop" > /dev/null; rm -rf "$dir"' EXIT
of() { if [ "$1" = old ]; then echo "$old"; else echo "$new"; fi; }

# Elapsed milliseconds of the command, written to a file: measured inside of what observes it.
cat > "$dir/inside" << 'SH'
#!/bin/bash
out=$1; shift
TIMEFORMAT='%R %U %S'
{ time "$@" > /dev/null 2>&1; } 2> "$out"
SH
chmod 755 "$dir" "$dir/inside"
observed() { # plain|old|new COMMAND...
  local version=$1 && shift
  case $version in
  plain) "$@" ;;
  *) "$(of "$version")" run -- "$@" 2> "$dir/onion" ;;
  esac
}

# Each prints one figure of which less is better.
build() {
  observed "$1" "$dir/inside" "$dir/times" "${sources[@]}" && awk '{ print 1000 * $1, 1000 * ($2 + $3) }' "$dir/times"
}
pingpong() { # ns a round trip
  observed "$1" "$dir/pingpong" "$each" "${@:2}" | grep -oE '[0-9]+ round trips/s' | awk '{ print 1e9 / $1 }'
}
pgbench() { # us a transaction
  local watch=
  if [ "$1" != plain ]; then
    "$(of "$1")" watch $((each + 2)) -p "$server" > "$dir/onion" 2>&1 & watch=$!
    sleep 1
  fi
  su postgres -c "$pg/pgbench -S -c 4 -T $each -h $dir/socket -p 5497 postgres" 2> /dev/null |
    awk '/^tps/ { print 1e6 / $3 }'
  [ -z "$watch" ] || wait "$watch"
}

# NAME COLUMN: how the new version compares with the old, and both with none, round by round.
compare() {
  for pair in new/old old/plain new/plain; do
    paste <(cut -d' ' -f"$2" "$dir/$1-${pair%/*}") <(cut -d' ' -f"$2" "$dir/$1-${pair#*/}") |
      awk '{ print 100 * ($1 / $2 - 1) }' | sort -n | awk -v pair="$pair" '
        { a[NR] = $1; s += $1; q += $1 * $1 }
        END {
          m = s / NR; e = NR > 1 ? sqrt((q / NR - m * m) / (NR - 1)) : 0
          e = e > 0 ? e : 0
          median = NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2
          printf "  %-10s %+6.2f %% mean (standard error %.2f), %+6.2f %% median (%.1f to %.1f)\n", pair, m, e, median, a[1], a[NR]
        }'
  done
}
measure() { # NAME COMMAND...
  local name=$1 && shift
  for version in plain old new; do : > "$dir/$name-$version"; done
  for ((round = 0; round < rounds; round++)); do
    for version in $(shuf -e plain old new); do
      "$1" "$version" "${@:2}" >> "$dir/$name-$version"
    done
  done
}

echo "old: $($old --version | head -1); new: $($new --version | head -1); $rounds rounds"
if [[ $asked == *" build "* ]]; then
  sources=(workloads/build.sh -s "$(workloads/build.sh -l)")
  measure build build
  echo "parallel build, elapsed:" && compare build 1
  echo "parallel build, CPU time:" && compare build 2
fi
if [[ $asked == *" pingpong "* ]]; then
  cc -O2 -o "$dir/pingpong" workloads/pingpong.c
  last=$(($(nproc) - 1))
  measure one pingpong "$last" "$last"
  echo "ping-pong on one CPU, time of a round trip:" && compare one 1
  if [ "$last" -gt 0 ]; then
    measure two pingpong $((last - 1)) "$last"
    echo "ping-pong on two CPUs, time of a round trip:" && compare two 1
  fi
fi
if [[ $asked == *" pgbench "* ]]; then
  pg=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | tail -1)
  if [ -z "$pg" ] || ! id postgres > /dev/null 2>&1; then
    echo "pgbench: no PostgreSQL here"
  else
    install -d -o postgres "$dir/db" "$dir/socket"
    su postgres -c "$pg/initdb -D $dir/db -A trust" > /dev/null 2>&1
    su postgres -c "$pg/pg_ctl -w -D $dir/db -o '-k $dir/socket -p 5497 -c listen_addresses=' -l $dir/db/log start" > /dev/null
    server=$(head -1 "$dir/db/postmaster.pid")
    su postgres -c "$pg/pgbench -q -i -s 5 -h $dir/socket -p 5497 postgres" > /dev/null 2>&1
    measure pgbench pgbench
    echo "pgbench -S, time of a transaction:" && compare pgbench 1
  fi
fi
