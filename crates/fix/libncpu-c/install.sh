#!/bin/sh
# Usage: install.sh BUILT DESTDIR PREFIX
# Installs libncpu.a and libncpu.so from the directory BUILT, the header and the pkg-config file.
set -eu
[ $# = 3 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
built=$1 prefix=$3 to=$2$3
here=$(dirname "$0")
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../../Cargo.toml")
[ -n "$version" ] || { echo "install.sh: no version in Cargo.toml" >&2; exit 1; }

install -d "$to/lib/pkgconfig" "$to/include"
install -m 644 "$here/include/ncpu.h" "$here/include/ncpu_tsan.h" "$to/include"
install -m 644 "$built/libncpu.a" "$to/lib/libncpu.a"
install -m 755 "$built/libncpu.so" "$to/lib/libncpu.so.$version"
ln -sf "libncpu.so.$version" "$to/lib/libncpu.so.0"
ln -sf libncpu.so.0 "$to/lib/libncpu.so"
# What sed would take for its own.
prefix=$(printf '%s\n' "$prefix" | sed 's/[\\&|]/\\&/g')
sed "s|@prefix@|$prefix|; s|@version@|$version|" "$here/ncpu.pc.in" >"$to/lib/pkgconfig/ncpu.pc"
