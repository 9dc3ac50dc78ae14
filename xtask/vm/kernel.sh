#!/usr/bin/env bash
# Fetches a packaged Debian kernel with its modules and unpacks it, without installing it.
#
# usage: kernel.sh SUITE PATTERN DIR
#   kernel.sh bookworm 'linux-image-6\.1\.[0-9-]+-amd64-unsigned' DIR
#
# If the whole names of several packages match PATTERN, the script fetches the newest version, with all packages of that
# version. It uses the mirror of this host's apt. DIR gets vmlinuz and lib/modules/VERSION, or nothing. Exit 3: the kernel
# cannot be fetched here; the last line on standard error has the reason.
set -euo pipefail
suite=$1 pattern=$2 dir=$3

cannot() {
  printf '%s\n' "$*" >&2
  exit 3
}

for program in apt-get apt-cache dpkg-deb depmod; do
  command -v "$program" >/dev/null || cannot "there is no $program here"
done
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } \
  | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ')
[[ -n $mirror ]] || cannot "no Debian mirror is named below /etc/apt"

work=$(mktemp -d "${dir%/*}/fetching.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/tree" "$work/new/lib"
echo "deb $mirror $suite main" >"$work/sources.list"
apt=(-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$work/lists"
  -o APT::Sandbox::User=root -o Acquire::Retries=2)
apt-get "${apt[@]}" update -qq >&2 || cannot "the package lists of $suite cannot be read"
apt-cache "${apt[@]}" pkgnames | { grep -E "^${pattern}\$" || true; } | sort -V >"$work/names"
version=$(tail -n 1 "$work/names" | sed -E 's/^linux-(image|binary|modules)-//')
[[ -n $version ]] || cannot "no package of $suite matches $pattern"
mapfile -t packages < <(grep -F -- "-$version" "$work/names")
(cd "$work" && apt-get "${apt[@]}" download -qq "${packages[@]}") >&2 || cannot "${packages[*]} cannot be downloaded"

for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
modules=$work/tree/usr/lib/modules
[[ -d $modules ]] || modules=$work/tree/lib/modules
# In newer packages the image is in the folder of the modules.
image=$(find "$work/tree" -name 'vmlinuz*' -print -quit)
[[ -n $image ]] || cannot "there is no kernel in ${packages[*]}"
mv "$image" "$work/new/vmlinuz"
mv "$modules" "$work/new/lib/"
depmod -b "$work/new" "$(ls "$work/new/lib/modules")"
mv "$work/new" "$dir"
