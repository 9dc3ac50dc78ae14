#!/usr/bin/env bash
# Makes an initramfs that mounts a folder of the host read-only over 9p with an overlay on it, and the kernel's modules.
# Its init then becomes a command.
#
# usage: initramfs.sh KERNEL_DIR OUT COMMAND      KERNEL_DIR is what kernel.sh makes; e.g. 'chroot /new /bin/bash guest.sh'
set -euo pipefail
kernel=$1 out=$2 command=$3
version=$(ls "$kernel/lib/modules")
root=$(mktemp -d "${out%/*}/initramfs.XXXXXX")
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,lib,proc,sys,dev}
cp "$(command -v busybox)" "$root/bin/busybox"
# Drivers that are built into a kernel have no module.
number=10
for module in $(for name in virtio_pci 9pnet_virtio 9p overlay; do
  modprobe -d "$kernel" -S "$version" --show-depends "$name" 2>/dev/null || true
done | awk '/^insmod/ && !seen[$2]++ { print $2 }'); do
  cp "$module" "$root/lib/$number-$(basename "$module")"
  number=$((number + 1))
done
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
for module in /lib/[0-9]*; do
  case $module in
    *.xz) $b xz -dc "$module" >/module.ko && $b insmod /module.ko ;;
    *) $b insmod "$module" ;;
  esac
done
$b mkdir -p /lower /writable /new
$b mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,ro,msize=262144 host /lower
$b mount -t tmpfs w /writable; $b mkdir /writable/upper /writable/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/writable/upper,workdir=/writable/work o /new
for d in proc sys dev run; do $b mkdir -p /new/$d; done
$b mount -t proc p /new/proc; $b mount -t sysfs s /new/sys; $b mount -t devtmpfs d /new/dev
$b mkdir -p /new/dev/pts /new/dev/shm; $b mount -t devpts p /new/dev/pts
$b mount -t tmpfs r /new/run; $b mkdir /new/run/shared
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 shared /new/run/shared
$b mkdir -p /new/lib/modules
$b mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,ro,msize=262144 modules /new/lib/modules
exec $b COMMAND </dev/console >/dev/console 2>&1
INIT
sed -i "s|COMMAND|$command|" "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$out.new"
mv "$out.new" "$out"
