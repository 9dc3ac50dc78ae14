#!/usr/bin/env bash
# Runs in a virtual machine of `cargo xtask vm`, as root: prepares the machine, runs the tests, ends the machine.
#
# /run/shared comes from the host. The file `machine` there contains assignments: driver, offline (numbers of CPUs) and
# command (the tests); and it exports the variables that the tests read. The output of the tests goes to `out` and `err`,
# the kernel's log to `log`; `status` is written last. `alive` is written again and again, as long as the machine runs
# programs; `symbols` has the addresses of the kernel's functions.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
shared=/run/shared
driver='' offline=() command=()
# shellcheck source=/dev/null
source "$shared/machine"

mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tracefs trace /sys/kernel/tracing 2>/dev/null
modprobe "$driver" || echo "the driver $driver cannot be loaded"
modprobe tun || echo "the machine has no tun"
ip link set lo up
for cpu in "${offline[@]}"; do echo 0 >"/sys/devices/system/cpu/cpu$cpu/online"; done
uname -r >"$shared/kernel"
grep -i ' t ' /proc/kallsyms >"$shared/symbols"
echo "running the tests"
cd / || exit 1
while uptime >"$shared/alive"; do sleep 5; done &
"${command[@]}" >"$shared/out" 2>"$shared/err" </dev/null
status=$?
dmesg >"$shared/log"
echo "$status" >"$shared/status"
sync
echo b >/proc/sysrq-trigger
sleep 60
