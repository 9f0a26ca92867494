#!/usr/bin/env bash
# fleet.sh [MACHINES [EACH]]: adds a made-up fleet (1,000 machines × 200 recordings without arguments, of real ones varied;
# 12 GB of disk for a while) and asks it by DuckDB; with FLEET_SAIL=1 by Sail with two workers too, which must say the same
# (FLEET_SAIL=DIR keeps what pip fetches for that). As root it adds with nothing in memory first.
# Needs target/release/ncpu-fleet and an engine (`ncpu fleet engine install`).
set -euo pipefail
cd "$(dirname "$0")/.."
machines=${1:-1000} each=${2:-200}
fleet=target/release/ncpu-fleet
cargo build -q --release --locked -p ncpu-fleet --bins --examples
"$fleet" engine which
dir=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
trap 'rm -rf "$dir"' EXIT
timed() { # NAME COMMAND…: seconds and memory of a command whose output goes away
	local name=$1
	shift
	/usr/bin/env time -f "%e s, %M KiB" -o "$dir/time" "$@" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; exit 1; }
	printf '%-34s %s\n' "$name" "$(tail -n 1 "$dir/time")"
}
begin=$(date -ud 2026-11-10 +%s)
timed "generate" target/release/examples/generate-fleet "$dir/recordings" "$machines" "$each" "$begin"
grep -m 1 "model name" /proc/cpuinfo
if sync && echo 3 2>/dev/null >/proc/sys/vm/drop_caches; then
	timed "add, nothing in memory" "$fleet" add "$dir/cold" "$dir/recordings" --labels "$dir/recordings/hosts.csv"
	tail -n 1 "$dir/err"
	rm -r "$dir/cold"
fi
timed "add" "$fleet" add "$dir/fleet" "$dir/recordings" --labels "$dir/recordings/hosts.csv"
tail -n 1 "$dir/err"
timed "add again" "$fleet" add "$dir/fleet" "$dir/recordings"
du -sh "$dir/recordings" "$dir/fleet"
half=$((begin + each / 2 * 3600))
before=..$(date -ud "@$((half - 3600))" +%Y-%m-%dT%H) after=$(date -ud "@$half" +%Y-%m-%dT%H)..
ask() {
	timed "onion" "$fleet" onion "$dir/fleet" --by kernel,label:type
	timed "top locks" "$fleet" locks "$dir/fleet" --by kernel,cpu_model,label:type --top 10
	timed "regress" "$fleet" regress "$dir/fleet" --before "$before" --after "$after" --by label:type
	timed "outliers" "$fleet" outliers "$dir/fleet" --until "${after%..}"
}
ask
timed "compact" "$fleet" compact "$dir/fleet"
tail -n 1 "$dir/err"
ask
sail=${FLEET_SAIL:-0}
[ "$sail" != 1 ] || sail=$dir/sail
if [ "$sail" != 0 ]; then
	eval "$(tests/fleet/sail.sh "$sail")"
	trap 'kill $STOP; rm -rf "$dir"' EXIT
	tests/fleet/same.sh "$fleet" "$dir/fleet" "$SAIL"
fi
