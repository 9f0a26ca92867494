#!/bin/bash
# libncpu under many more schedules, a multiple of the load and sanitizers; at most 20 minutes on two CPUs.
# LIBNCPU_MODELS and LIBNCPU_STRESS set how much.
set -euo pipefail
cd "$(dirname "$0")/../../.."
export LIBNCPU_MODELS=${LIBNCPU_MODELS:-50000} LIBNCPU_STRESS=${LIBNCPU_STRESS:-20}
cargo=${CARGO:-cargo}
host=$(rustc -vV | sed -n 's/^host: //p')

echo "== models: $LIBNCPU_MODELS random schedules, and the same number with few preemptions"
$cargo test --release --locked -p libncpu --test models

echo "== stress: $LIBNCPU_STRESS times the load, optimised"
$cargo test --release --locked -p libncpu --test stress --test counters --test timers --test env --test vmem

echo "== the same without restartable sequences"
LIBNCPU_STRESS=2 GLIBC_TUNABLES=glibc.pthread.rseq=0 $cargo test --release --locked -p libncpu --test stress --test counters --test timers --test env --test vmem

echo "== the C programs with address and undefined-behaviour sanitizers"
LIBNCPU_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all" \
	$cargo test --locked -p libncpu-c --test c

echo "== block copy: every routine at every pair of alignments and every length"
LIBNCPU_STRESS=2 $cargo test --release --locked -p libncpu --test copy

# Emulated, so it is slow: AArch64's own code, and the correctness of the rest on AArch64.
arm=aarch64-unknown-linux-gnu
if [ -d "$(rustc --print target-libdir --target $arm)" ] && command -v qemu-aarch64 >/dev/null &&
	command -v aarch64-linux-gnu-gcc >/dev/null; then
	echo "== AArch64 under qemu-aarch64"
	# With the smaller `dc zva` of a real processor, and the largest.
	for cpu in cortex-a57 max; do
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
			CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu $cpu -L /usr/aarch64-linux-gnu" \
			LIBNCPU_STRESS=1 CARGO_TARGET_DIR=target/deep \
			$cargo test --release --locked --target $arm -p libncpu --test small --test counters --test copy
	done
else
	echo "skipped: AArch64: needs rustup target add $arm, Debian's gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
fi

echo "== readers and writers of the environment of whole programs"
NCPU_GETENV_SECONDS=20 $cargo test --release --locked -p ncpu-preload-getenv

# Sanitizers and Miri of Rust need a nightly compiler and some of its components.
nightly() {
	rustup component list --toolchain nightly 2>/dev/null | grep -q "^$1.*(installed)"
}
if nightly rust-src; then
	echo "== stress under the thread sanitizer"
	tsan() {
		LIBNCPU_STRESS=1 RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/deep \
			cargo +nightly test -Zbuild-std --target "$host" -p libncpu "$@"
	}
	tsan --test stress --test counters --test timers --test env
	# The thread sanitizer does not see locks that are restartable sequences.
	GLIBC_TUNABLES=glibc.pthread.rseq=0 tsan --test vmem
else
	echo "skipped: thread sanitizer: needs rustup component add rust-src --toolchain nightly"
fi
if nightly miri; then
	echo "== unit tests and small stress under Miri"
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..8" CARGO_TARGET_DIR=target/deep \
		cargo +nightly miri test -p libncpu --test small
	PROPTEST_CASES=4 MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=target/deep \
		cargo +nightly miri test -p libncpu --lib wheel -- --skip alignment
else
	echo "skipped: Miri: needs rustup component add miri --toolchain nightly"
fi
