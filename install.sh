#!/bin/sh
# Usage: install.sh [--prefix DIR] [--key FILE] ARCHIVE
#        install.sh [--prefix DIR] --uninstall
#
# Installs ncpu from ARCHIVE, ncpu-VERSION-ARCH-linux.tar.gz, a file or a URL.
#
# --prefix DIR   where to install [default: /usr/local]
# --key FILE     public key of gpg: the signature SHA256SUMS.asc beside ARCHIVE must be of this key
# --uninstall    remove what an earlier call installed below DIR
#
# SHA256SUMS beside ARCHIVE must have its checksum; a local archive without SHA256SUMS is installed with a warning.
set -eu

fail() { echo "install.sh: $1" >&2; exit 1; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; }

prefix=/usr/local key='' archive='' uninstall=''
while [ $# != 0 ]; do
	case $1 in
	--prefix) [ $# -gt 1 ] || fail "--prefix needs a directory"; prefix=$2; shift ;;
	--key) [ $# -gt 1 ] || fail "--key needs a file"; key=$2; shift ;;
	--uninstall) uninstall=1 ;;
	-h | --help) usage; exit 0 ;;
	-*) echo "install.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
	*) [ -z "$archive" ] || fail "more than one archive: $archive, $1"; archive=$1 ;;
	esac
	shift
done
case $prefix in /*) ;; *) prefix=$(pwd)/$prefix ;; esac
list=$prefix/lib/ncpu/installed

# Removes the files of the list, and the directories of ncpu alone.
remove() {
	[ -e "$list" ] || return 0
	while IFS= read -r file; do
		# Relative paths without `..` only: the list is read as root.
		case $file in /* | *..*) fail "$list: unexpected path $file" ;; esac
		rm -f "$prefix/$file"
	done <"$list"
	rm -f "$list"
	find "$prefix/lib/ncpu" "$prefix/share/doc/ncpu" -depth -type d -exec rmdir {} + 2>/dev/null || true
}
if [ -n "$uninstall" ]; then
	[ -e "$list" ] || fail "no $list: nothing was installed below $prefix"
	remove
	echo "install.sh: ncpu was removed from $prefix"
	exit 0
fi
[ -n "$archive" ] || { usage >&2; exit 2; }
mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || fail "cannot write $prefix: use sudo, or --prefix ~/.local"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=${archive##*/}
# Fetches $1, a name beside the archive, into $work.
get() {
	case $archive in
	*://*)
		if command -v curl >/dev/null; then curl -fsSL --proto '=https,file' -o "$work/$1" "${archive%/*}/$1"
		elif command -v wget >/dev/null; then wget -q -O "$work/$1" "${archive%/*}/$1"
		else fail "curl or wget is needed for $archive"; fi ;;
	*/*) cp "${archive%/*}/$1" "$work/$1" ;;
	*) cp "./$1" "$work/$1" ;;
	esac
}
get "$name" || fail "cannot read $archive"
if get SHA256SUMS 2>/dev/null; then
	(cd "$work" && grep -F "  $name" SHA256SUMS | sha256sum -c --quiet -) || fail "$name has another checksum than SHA256SUMS, or none"
else
	case $archive in *://*) fail "no SHA256SUMS beside $archive" ;; esac
	[ -z "$key" ] || fail "no SHA256SUMS beside $archive"
	echo "install.sh: no SHA256SUMS beside $archive: its checksum was not compared" >&2
fi
if [ -n "$key" ]; then
	command -v gpg >/dev/null || fail "gpg is needed for --key"
	get SHA256SUMS.asc 2>/dev/null || fail "no SHA256SUMS.asc beside $archive"
	mkdir -m 700 "$work/gpg"
	gpg --homedir "$work/gpg" --batch --quiet --import "$key" || fail "cannot read the key $key"
	gpg --homedir "$work/gpg" --batch --quiet --trust-model always --verify "$work/SHA256SUMS.asc" "$work/SHA256SUMS" 2>/dev/null ||
		fail "SHA256SUMS.asc is not a signature of $key"
fi

case $name in
*-"$(uname -m)"-linux.tar.gz) ;;
*) fail "$name is not an archive for $(uname -m): expected ncpu-VERSION-$(uname -m)-linux.tar.gz" ;;
esac
tar -xzf "$work/$name" -C "$work"
from=$work/${name%.tar.gz}
[ -x "$from/bin/ncpu" ] || fail "$name does not hold ${name%.tar.gz}/bin/ncpu"
"$from/bin/ncpu" --version >"$work/version" || fail "ncpu of $name does not run on this machine"

remove
put() { # MODE FROM TO
	mkdir -p "$prefix/$(dirname "$3")"
	# A program that runs is replaced and not written to.
	cp "$2" "$prefix/$3.new" && chmod "$1" "$prefix/$3.new" && mv "$prefix/$3.new" "$prefix/$3"
	echo "$3" >>"$work/list"
}
for file in "$from"/bin/*; do put 755 "$file" "bin/${file##*/}"; done
for file in "$from"/lib/ncpu/*; do put 644 "$file" "lib/ncpu/${file##*/}"; done
for file in "$from"/share/man/man1/*; do put 644 "$file" "share/man/man1/${file##*/}"; done
put 644 "$from/share/completions/ncpu.bash" share/bash-completion/completions/ncpu
put 644 "$from/share/completions/ncpu.zsh" share/zsh/site-functions/_ncpu
put 644 "$from/share/completions/ncpu.fish" share/fish/vendor_completions.d/ncpu.fish
(cd "$from" && find README.md LICENSE* docs workloads -type f) >"$work/documents"
while IFS= read -r file; do put 644 "$from/$file" "share/doc/ncpu/$file"; done <"$work/documents"
mkdir -p "${list%/*}"
cp "$work/list" "$list"

echo "install.sh: $(head -n 1 "$work/version") is in $prefix/bin"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "install.sh: add it to PATH: export PATH=$prefix/bin:\$PATH" ;; esac
echo "install.sh: try: ${prefix}/bin/ncpu doctor"
