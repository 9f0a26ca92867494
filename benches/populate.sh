#!/bin/bash
# The figures of docs/populate.md: segments by plain calls and by libncpu, the preload on a program of plain calls, and
# zeroing and scanning. Usage: benches/populate.sh [NCPU [SIZE [ROUNDS]]]
set -eu
cd "$(dirname "$0")/.."
ncpu=${1:-target/release/ncpu}
size=${2:-1g}
rounds=${3:-11}
case $size in
*g) mib=$((${size%g} * 1024)) ;;
*m) mib=${size%m} ;;
*) echo "populate.sh: SIZE as in 512m or 4g" >&2; exit 2 ;;
esac

run() {
    echo "\$ ncpu populate $*"
    # What this machine lacks is told, and the next is run.
    "$ncpu" populate "$@" --rounds "$rounds" 2>&1 || :
    echo
}

for kind in private memfd sysv posix; do run "$size" --kind "$kind" --page 4k; done
run "$size" --page thp
for page in 2m 1g; do run "$size" --page "$page"; done

# Without and with the library in turn, each a process.
library=$(dirname "$ncpu")/libncpu_populate.so
[ -e "$library" ] || ${CARGO:-cargo} build --release --locked -p ncpu-preload-populate
make -s target/workloads/segment
for kind in private shared sysv; do
    for round in 1 2 3; do
        echo "plain   $(target/workloads/segment "$mib" "$rounds" "$kind")"
        echo "preload $(LD_PRELOAD="$library" target/workloads/segment "$mib" "$rounds" "$kind")"
    done
done
echo

${CARGO:-cargo} bench --locked -q -p libncpu --bench blocks -- "$mib" "$rounds"
