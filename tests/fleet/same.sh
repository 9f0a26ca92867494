#!/usr/bin/env bash
# same.sh NCPU-FLEET ROOT ENGINE [ENGINE-ROOT]: asks DuckDB and another engine everything; the answers must be the same to
# the digit. Prints rows and seconds of each; exits 1 where one differs.
set -uo pipefail
fleet=$1 root=$2 engine=$3 at=${4:+--engine-root $4}
dir=$(mktemp -d) status=0
trap 'rm -rf "$dir"' EXIT
same() {
	local began ended
	"$fleet" "$@" -o csv >"$dir/duckdb" 2>"$dir/said" || { cat "$dir/said"; status=1; return; }
	began=$(date +%s.%N)
	# shellcheck disable=SC2086 # two words
	"$fleet" "$@" -o csv --engine "$engine" $at >"$dir/other" 2>"$dir/said" || { cat "$dir/said"; status=1; return; }
	ended=$(date +%s.%N)
	if cmp -s "$dir/duckdb" "$dir/other"; then
		awk -v a="$began" -v b="$ended" -v n="$(wc -l <"$dir/other")" -v q="$*" \
			'BEGIN { printf "same, %4d rows, %6.2f s  %s\n", n - 1, b - a, q }'
	else
		echo "DIFFERS: $*"
		diff "$dir/duckdb" "$dir/other" | head -4
		status=1
	fi
}
first=$("$fleet" sql "$root" "SELECT min(at_us) AS us FROM recordings" -o csv | tail -n 1)
last=$("$fleet" sql "$root" "SELECT max(at_us) AS us FROM recordings" -o csv | tail -n 1)
day() { date -u -d "@$(($1 / 1000000))" +%Y-%m-%dT%H; }
half=$(((first + last) / 2))
same onion "$root" --by kernel,label:type
same locks "$root" --by kernel,cpu_model,label:type
same user-locks "$root" --by kernel
same calls "$root" --by label:type,day
same machines "$root"
same regress "$root" --before "..$(day $((half - 3600000000)))" --after "$(day $half).." --by label:type
same regress "$root" --before "..$(day $((half - 3600000000)))" --after "$(day $half).." --machines
same outliers "$root" --until "$(day $half)"
same locks "$root" --where "label:type = 'web' AND kernel LIKE '6.1%'" --by cpus
same sql "$root" "SELECT kernel, count(*) AS n FROM recordings GROUP BY kernel ORDER BY kernel"
exit $status
