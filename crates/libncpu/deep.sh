#!/bin/bash
# libncpu under many more schedules, as much load again and under sanitizers; at most 20 minutes on two CPUs.
# LIBNCPU_MODELS and LIBNCPU_STRESS set how much.
set -euo pipefail
cd "$(dirname "$0")/../.."
export LIBNCPU_MODELS=${LIBNCPU_MODELS:-50000} LIBNCPU_STRESS=${LIBNCPU_STRESS:-20}
cargo=${CARGO:-cargo}
host=$(rustc -vV | sed -n 's/^host: //p')

echo "== models: $LIBNCPU_MODELS random schedules and as many with few preemptions each"
$cargo test --release --locked -p libncpu --test models

echo "== stress: $LIBNCPU_STRESS times as much, optimised"
$cargo test --release --locked -p libncpu --test stress --test counters --test vmem

echo "== the same without restartable sequences"
LIBNCPU_STRESS=2 GLIBC_TUNABLES=glibc.pthread.rseq=0 $cargo test --release --locked -p libncpu --test stress --test counters --test vmem

echo "== the C programs with address and undefined-behaviour sanitizers"
LIBNCPU_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all" \
	$cargo test --locked -p libncpu --test c

# Sanitizers and Miri of Rust need a nightly compiler and some of its components.
nightly() {
	rustup component list --toolchain nightly 2>/dev/null | grep -q "^$1.*(installed)"
}
if nightly rust-src; then
	echo "== stress under the thread sanitizer"
	LIBNCPU_STRESS=1 RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/deep \
		cargo +nightly test -Zbuild-std --target "$host" -p libncpu --test stress --test counters --test vmem
else
	echo "skipped: thread sanitizer: needs rustup component add rust-src --toolchain nightly"
fi
if nightly miri; then
	echo "== unit tests and small stress under Miri"
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..8" CARGO_TARGET_DIR=target/deep \
		cargo +nightly miri test -p libncpu --test small
else
	echo "skipped: Miri: needs rustup component add miri --toolchain nightly"
fi
