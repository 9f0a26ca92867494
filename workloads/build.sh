#!/bin/sh
# build: a parallel C build of real code: libbpf and zlib, whose sources cargo has fetched with the
# crate libbpf-sys. built from nothing in a temporary directory.
set -eu

usage="usage: build.sh [-j JOBS] [-n REPEAT] [-s DIR] [-c CC]
Compiles libbpf and zlib with make, REPEAT times over, in a temporary directory.
  -j JOBS    compilers at once (default: one a CPU)
  -n REPEAT  copies of the code to build (default: 1)
  -s DIR     sources of the crate libbpf-sys (default: where cargo keeps them)
  -l         print that directory and build nothing
  -c CC      compiler (default: gcc)"

fail() {
	echo "build.sh: $1" >&2
	exit 2
}
positive() {
	case $2 in
	'' | *[!0-9]* | 0*) fail "$1 \`$2\`: give a whole number from 1" ;;
	esac
}

jobs=$(nproc) repeat=1 dir= cc=gcc locate=
while getopts j:n:s:lc:h option; do
	case $option in
	j) positive JOBS "$OPTARG" && jobs=$OPTARG ;;
	n) positive REPEAT "$OPTARG" && repeat=$OPTARG ;;
	s) dir=$OPTARG ;;
	l) locate=1 ;;
	c) cc=$OPTARG ;;
	h) echo "$usage" && exit ;;
	*) echo "$usage" >&2 && exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 0 ] || fail "\`$1\`: no arguments are taken; try -h"

for tool in make "$cc"; do
	command -v "$tool" >/dev/null || fail "$tool: not found; Debian: apt-get install gcc make"
done
if [ -z "$dir" ]; then
	cd "$(dirname "$0")/.."
	command -v cargo >/dev/null || fail "cargo is not in PATH: give the sources with -s"
	dir=$(cargo metadata --quiet --format-version 1 --locked --filter-platform "$(uname -m)-unknown-linux-gnu" |
		sed -n 's/.*"manifest_path":"\([^"]*\/libbpf-sys-[^"]*\)\/Cargo.toml".*/\1/p')
fi
[ -f "$dir/libbpf/src/libbpf.c" ] && [ -f "$dir/zlib/zlib.h" ] || fail "${dir:-?}: holds no libbpf and zlib"
[ -z "$locate" ] || { echo "$dir" && exit; }

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM

flags="-O2 -g -w -fPIC -D_GNU_SOURCE -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64
-I$dir/libbpf/include -I$dir/libbpf/include/uapi -I$dir/zlib"
{
	echo "all:" $(seq -f %g-libbpf.so "$repeat")
	for n in $(seq "$repeat"); do
		objects=
		for source in "$dir"/libbpf/src/*.c "$dir"/zlib/*.c; do
			object=$n-$(basename "$source" .c).o
			objects="$objects $object"
			printf '%s: %s\n\t%s -c $< -o $@\n' "$object" "$source" "$cc $(echo $flags)"
		done
		printf '%s-libbpf.so:%s\n\t%s -shared $^ -lelf -o $@\n' "$n" "$objects" "$cc"
	done
} >"$out/Makefile"
make -s -C "$out" -j"$jobs"
echo "built libbpf and zlib $repeat time(s): $(find "$out" -name '*.o' | wc -l) files with $jobs jobs"
