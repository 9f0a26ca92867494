#!/usr/bin/env bash
# What `ncpu run` adds to a build, counted in instructions: in a guest of one CPU whose clock is the number of instructions
# it has run (QEMU, -icount), so that no neighbour of the host and no turbo changes the answer. What it cannot show is what
# an instruction costs: caches, predictions and the waiting of CPUs for each other.
# usage: benches/counted.sh [ROUNDS]     after make static-guest and one guest case (tests/vm/run start), which has the kernel
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-4}
ncpu=${NCPU:-target/static/ncpu}
kernel=${KERNEL:-target/vm/kernel-bookworm/vmlinuz}
for file in "$ncpu" "$kernel"; do
  [ -e "$file" ] || { echo "no $file: make static-guest and tests/vm/run start" >&2; exit 1; }
done
qemu=(qemu-system-x86_64)
[ ! -x target/vm/qemu/usr/bin/qemu-system-x86_64 ] ||
  qemu=(target/vm/qemu/usr/bin/qemu-system-x86_64 -L target/vm/qemu/usr/share/qemu -L target/vm/qemu/usr/share/seabios)
sources=$(workloads/build.sh -l)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$dir/root
mkdir -p "$root"/{proc,sys,tmp,dev}

# A program, with the libraries it asks for, at the place it has here.
bring() {
  local file
  for file; do
    file=$(command -v "$file" || echo "$file")
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
    ! ldd "$file" > "$dir/ldd" 2>&1 || grep -oE '/[^ ]+' "$dir/ldd" | while read -r lib; do
      [ -e "$root$lib" ] || { mkdir -p "$root$(dirname "$lib")"; cp -L "$lib" "$root$lib"; }
    done
  done
}
tool() { gcc -print-prog-name="$1"; }
bring bash make gcc "$(tool cc1)" "$(tool collect2)" "$(command -v as)" "$(command -v ld)"
bring mktemp seq basename find wc rm cat date nproc mount poweroff stty env chmod grep sed awk
mkdir -p "$root/usr/lib/gcc" "$root/bin" "$root/w"
gcclib=$(dirname "$(gcc -print-libgcc-file-name)")
mkdir -p "$root$gcclib"
cp -r "$gcclib"/{include,*.o,*.a,*.so,liblto_plugin.so} "$root$gcclib" 2> /dev/null || true
cp -L "$gcclib/liblto_plugin.so" "$root$gcclib" 2> /dev/null || true
rm -f "$root$gcclib"/lib{asan,tsan,ubsan,lsan,gomp,itm,quadmath}*
mkdir -p "$root/usr/include" "$root/usr/lib/x86_64-linux-gnu"
cp -r /usr/include/. "$root/usr/include"
cp -L /usr/lib/x86_64-linux-gnu/{crt1.o,crti.o,crtn.o,libc.so,libc_nonshared.a,libelf.so} "$root/usr/lib/x86_64-linux-gnu"
[ -e "$root/bin/bash" ] || ln -s "$(command -v bash)" "$root/bin/bash"
ln -sf bash "$root/bin/sh"
mkdir -p "$root/w/zlib"
cp "$sources"/zlib/*.[ch] "$root/w/zlib"
# A compiler is emulated at a fiftieth of its speed: zlib alone, which takes it a minute.
printf 'all: $(patsubst /w/zlib/%%.c,%%.o,$(wildcard /w/zlib/*.c))\n%%.o: /w/zlib/%%.c\n\tgcc -O2 -w -D_GNU_SOURCE -c $< -o $@\n' > "$root/w/Makefile"
strip -o "$root/bin/ncpu" "$ncpu"
cat > "$root/init" << SH
#!/bin/bash
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/ TMPDIR=/tmp
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tracefs tracefs /sys/kernel/tracing
mount -t tmpfs -o size=400m tmp /tmp
exec > /dev/ttyS1 2>&1
cat > /w/inside <<'IN'
#!/bin/bash
b=\$EPOCHREALTIME
make -s -B -j 2 -C /tmp -f /w/Makefile > /tmp/built 2>&1 || { cat /tmp/built; exit 1; }
e=\$EPOCHREALTIME
echo "\$((\${e/./} - \${b/./}))" > /tmp/inside
IN
chmod +x /w/inside
for r in \$(seq 0 $rounds); do
  for c in plain ncpu; do
    b=\$EPOCHREALTIME
    case \$c in plain) /w/inside ;; ncpu) ncpu run -- /w/inside > /tmp/report 2>&1 ;; esac
    e=\$EPOCHREALTIME
    # The first round fills the caches of files.
    [ \$r = 0 ] || echo "\$c \$(cat /tmp/inside) \$((\${e/./} - \${b/./}))"
  done
done
grep -E 'ncpu itself|dropped|not seen' /tmp/report | while read -r l; do echo "# \$l"; done
echo done
poweroff -f
SH
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) > "$dir/initrd"
"${qemu[@]}" -machine q35 -accel tcg -icount shift=0,sleep=off -cpu max,vendor=GenuineIntel,-hypervisor -smp 1 -m 2G \
  -nodefaults -no-user-config -no-reboot -display none -serial "file:$dir/console" -serial "file:$dir/results" \
  -kernel "$kernel" -initrd "$dir/initrd" \
  -append "console=ttyS0 quiet panic=-1 rdinit=/init norandmaps mitigations=off nowatchdog audit=0" < /dev/null
tr -d '\r' < "$dir/results" > "$dir/clean"
grep -qx done "$dir/clean" || { cat "$dir/console" "$dir/results" >&2; exit 1; }
grep -E '^(plain|ncpu|#)' "$dir/clean"
awk '$1 == "plain" { p[++n] = $2 } $1 == "ncpu" { i[++m] = $2; w[m] = $3 }
  END { for (k = 1; k <= n; k++) { a = 100 * (i[k] / p[k] - 1); s += a; q += a * a; t += (w[k] - i[k]) / 1000; P += p[k] }
    printf "build: %.0f M instructions; inside of ncpu run +%.2f %% (standard error %.2f, %d rounds); start and report %.0f M instructions\n",
      P / n / 1e3, s / n, (n > 1 ? sqrt((q - s * s / n) / (n - 1) / n) : 0), n, t / n }' "$dir/clean"
