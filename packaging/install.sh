#!/bin/sh
# Installs souk: takes the archive of this machine's kind from SOUK_FROM, a URL or a directory that holds what
# packaging/dist made, checks it against SHA256SUMS, and puts the program into SOUK_BIN (default /usr/local/bin).
set -eu
from=${SOUK_FROM:?set SOUK_FROM to the URL or the directory of a release}
bin=${SOUK_BIN:-/usr/local/bin}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

[ "$(uname -s)" = Linux ] || fail "souk runs on Linux, and this is $(uname -s)"
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no souk for $(uname -m); there is one for amd64 and for arm64" ;;
esac

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

get() { # NAME: puts it into $tmp
	case $from in
	http://* | https://*)
		if command -v curl > /dev/null; then
			curl -fsSL -o "$tmp/$1" "$from/$1"
		elif command -v wget > /dev/null; then
			wget -qO "$tmp/$1" "$from/$1"
		else
			fail "neither curl nor wget is here; install one of them"
		fi
		;;
	*) cp "$from/$1" "$tmp/$1" ;;
	esac || fail "$from/$1 cannot be read"
}

get SHA256SUMS
file=
while read -r _ name; do
	case $name in *-linux-$arch.tar.gz) file=$name ;; esac
done < "$tmp/SHA256SUMS"
[ -n "$file" ] || fail "$from has no archive for $arch"
get "$file"
while read -r sum name; do
	[ "$name" != "$file" ] || want=$sum
done < "$tmp/SHA256SUMS"
read -r got _ <<EOF
$(sha256sum "$tmp/$file")
EOF
[ "$got" = "$want" ] || fail "$file is not what SHA256SUMS says: it is damaged, or was changed; nothing is installed"

tar -xzf "$tmp/$file" -C "$tmp"
mkdir -p "$bin"
# A program that runs is replaced by another file, never written over.
cp "$tmp/${file%.tar.gz}/souk" "$bin/.souk.new"
chmod 755 "$bin/.souk.new"
mv "$bin/.souk.new" "$bin/souk"
echo "souk $("$bin/souk" --version | cut -d' ' -f3) is in $bin"
echo "next: souk dev, on this host alone; or souk init && souk agent install, for a cluster"
