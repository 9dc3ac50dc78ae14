#!/bin/sh
# Installs librxsteer as built by `cargo build --release -p rxsteer-c --features xdp`: libraries, header, pkg-config file.
set -eu

if [ $# -ne 2 ]; then
  cat >&2 <<'TEXT'
Usage: install.sh BUILT PREFIX

BUILT is the folder with librxsteer_c.so and librxsteer_c.a, such as target/release. Everything goes below
$DESTDIR/PREFIX; a library that was not built is not installed.

Example: install.sh target/release /usr/local
TEXT
  exit 2
fi

built=$1 prefix=$2
here=$(dirname "$0")
root=${DESTDIR:-}$prefix
version=$(sed -n 's/^#define RXSTEER_VERSION "\(.*\)"$/\1/p' "$here/include/rxsteer.h")

install -d "$root/lib/pkgconfig" "$root/include"
installed=
if [ -f "$built/librxsteer_c.so" ]; then
  install -m 755 "$built/librxsteer_c.so" "$root/lib/librxsteer.so.$version"
  ln -sf "librxsteer.so.$version" "$root/lib/librxsteer.so.0"
  ln -sf librxsteer.so.0 "$root/lib/librxsteer.so"
  installed=1
fi
if [ -f "$built/librxsteer_c.a" ]; then
  install -m 644 "$built/librxsteer_c.a" "$root/lib/librxsteer.a"
  installed=1
fi
if [ -z "$installed" ]; then
  echo "install.sh: there is no library in $built; build it first: cargo build --release -p rxsteer-c --features xdp" >&2
  exit 1
fi
install -m 644 "$here/include/rxsteer.h" "$root/include/rxsteer.h"
# A build together with crates that use AF_XDP has libbpf in it.
libbpf=
if [ -f "$root/lib/librxsteer.a" ] && grep -q elf_begin "$root/lib/librxsteer.a"; then
  libbpf=" -lelf -lz"
fi
sed -e "s|@LIBBPF@|$libbpf|" -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/rxsteer.pc.in" >"$root/lib/pkgconfig/rxsteer.pc"
