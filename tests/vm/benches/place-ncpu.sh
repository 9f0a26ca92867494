# `ncpu place balance`.
how="ncpu place balance"
attend() {
	ncpu place balance -p "$1" --for $((seconds - 6)) -o csv >moves 2>notes &
	balancer=$!
}
leave() {
	wait $balancer || fail "$(cat notes)"
	cat moves notes >&2
}
. /vm/cases/place.inc
