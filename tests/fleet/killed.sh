#!/usr/bin/env bash
# killed.sh NCPU-FLEET ROOT WORK [PORT]: asks Sail with two workers (sail.sh) something that takes seconds, and kills a
# worker, both, and the server meanwhile with SIGKILL. What is printed then must be the right answer or an error; exits 1
# where it is anything else.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fleet=$1 root=$2 work=$3 port=${4:-50081} status=0
out=$(mktemp)
STOP=
trap 'kill $STOP 2>/dev/null; rm -f "$out"' EXIT
question="SELECT count(*) AS n, CAST(sum(a.us * b.us % 7) AS BIGINT) AS s FROM layers AS a JOIN layers AS b ON a.cpus = b.cpus
	JOIN (SELECT cpus FROM layers LIMIT ${KILLED_ROWS:-20}) AS c ON c.cpus = a.cpus WHERE a.us * b.us % 3 <> 5"
right=$("$fleet" sql "$root" "$question" -o csv) || exit 1
ask() { # NAME: right, an error, or else
	local begin=$SECONDS answer code
	answer=$("$fleet" sql "$root" "$question" -o csv --engine "$SAIL" 2>"$out")
	code=$?
	if [ $code -eq 0 ] && [ "$answer" = "$right" ]; then
		echo "$1: the right answer after $((SECONDS - begin)) s"
	elif [ $code -ne 0 ] && [ -z "$answer" ] && [ "$(wc -l <"$out")" = 1 ]; then
		echo "$1: an error after $((SECONDS - begin)) s: $(cut -c1-240 "$out")"
	else
		echo "$1: WRONG: status $code, $answer"
		status=1
	fi
}
start() {
	# shellcheck disable=SC2086 # process ids
	[ -z "$STOP" ] || { kill $STOP; sleep 1; } 2>/dev/null
	eval "$("$here/sail.sh" "$work" "$port")"
	read -r server _ pods <<<"$STOP"
}
start
ask "left alone"
for victim in first second both; do
	(
		sleep "${KILLED_AFTER:-3}"
		mapfile -t workers < <(pgrep -P "$pods")
		case $victim in
		first) kill -9 "${workers[0]}" ;;
		second) kill -9 "${workers[1]}" ;;
		both) kill -9 "${workers[@]}" ;;
		esac
	) &
	ask "worker killed ($victim)"
	wait $!
	ask "asked again"
	start
done
(sleep "${KILLED_AFTER:-3}"; kill -9 "$server") &
ask "server killed"
wait $!
ask "asked again"
start
ask "started again"
exit $status
