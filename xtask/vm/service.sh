#!/usr/bin/env bash
# Runs in a virtual machine of `cargo xtask dist --check-only service`, started by systemd: installs the package, and uses its
# units as an administrator would, with real udev.
#
# /run/shared comes from the host; package.deb is there. `out` gets a log of the steps, `err` the errors, and `status` the
# result, which is written last.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive
shared=/run/shared
exec >"$shared/out" 2>"$shared/err" </dev/null
while uptime >"$shared/alive"; do sleep 5; done &

finish() {
  local status=$?
  if ((status != 0)); then
    {
      echo "step: $step"
      systemctl --no-pager --lines=0 status 'rxsteer*' || true
      journalctl --no-pager --boot --lines=60 || true
    } >&2
  fi
  dmesg >"$shared/log"
  uname -r >"$shared/kernel"
  echo "$status" >"$shared/status"
  sync
  echo b >/proc/sysrq-trigger
}
trap finish EXIT
set -eEuo pipefail

step() {
  step=$*
  printf '%4s s  %s\n' "$SECONDS" "$*"
}

# within SECONDS COMMAND...: waits until it succeeds.
within() {
  local left=$1
  shift
  until "$@" >/dev/null 2>&1; do
    ((left-- > 0)) || { echo "not in time: $*" >&2; return 1; }
    sleep 1
  done
}

is() { [[ $(systemctl is-active "$1") == "$2" ]]; }
has_program() { ip -d link show "$1" | grep -q 'prog/xdp'; }
has_no_program() { ! has_program "$1"; }
# A veth to another network namespace, whose end there completes checksums.
appear() {
  ip link add veth0 numrxqueues 2 numtxqueues 2 type veth peer name far0
  ip link set far0 netns far
  ip netns exec far ethtool -K far0 tx off >/dev/null
  ip addr add 10.9.0.1/24 dev veth0
  ip link set veth0 up
  ip -n far addr add 10.9.0.2/24 dev far0
  ip -n far link set far0 up
}
# An error here (no listener) does not matter: the frames are received nevertheless.
# shellcheck disable=SC2016
send() { ip netns exec far bash -c 'for i in {1..300}; do echo "$i" >/dev/udp/10.9.0.1/9; done' 2>/dev/null || true; }
status() { rxsteer status veth0 --json | tr -d ' \n'; }
steers() { send; status | grep -qE '"redirected":[1-9][0-9]{2}'; }
mask() { cat /sys/class/net/veth0/queues/rx-0/rps_cpus; }
mask_is() { [[ $(mask) == "$1" ]]; }

step "the machine is up: $(systemctl is-system-running --wait || true)"
modprobe veth
ip netns add far
sysctl -qw net.ipv6.conf.default.disable_ipv6=1

step "the package is installed"
dpkg --install "$shared/package.deb"
[[ $(systemctl is-enabled rxsteer.service) == disabled ]]
sed -i -e '$a policy = "rps"\ncpus = "0-1"\nflows = "/var/lib/rxsteer/flows/"' /etc/rxsteer/rxsteer.toml
rxsteer config check /etc/rxsteer/rxsteer.toml

step "rxsteer@veth0 is enabled before its interface is there, and starts when it appears"
systemctl enable rxsteer@veth0
is rxsteer@veth0 inactive
appear
within 60 is rxsteer@veth0 active
has_program veth0
within 20 steers
status | grep -q '"policy":"rps"'
systemd-analyze --no-pager security rxsteer@veth0 | tail -n 1

step "what it may do is what the unit says"
pid=$(systemctl show --property=MainPID --value rxsteer@veth0)
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$pid/status"
# CAP_SYS_NICE is bit 23.
grep -q '^CapEff:.*0000000000800000$' "/proc/$pid/status"

step "SIGHUP reloads the file: all of it, or nothing"
sed -i 's/^policy = .*/policy = "sparse"/' /etc/rxsteer/rxsteer.toml
systemctl reload rxsteer@veth0
reloaded() { status | grep -q '"policy":"sparse"'; }
within 20 reloaded
sed -i 's/^policy = .*/policy = "nonsense"/' /etc/rxsteer/rxsteer.toml
systemctl reload rxsteer@veth0
refused() { journalctl --no-pager -u rxsteer@veth0 | grep -q 'is not reloaded, and all settings stay'; }
within 20 refused
reloaded
is rxsteer@veth0 active
[[ $(systemctl show --property=MainPID --value rxsteer@veth0) == "$pid" ]]
sed -i 's/^policy = .*/policy = "rps"/' /etc/rxsteer/rxsteer.toml

step "events are in the journal: JSON lines with a priority"
journal() { journalctl --no-pager -u rxsteer@veth0 --output=json | grep -F "\\\"kind\\\":\\\"$1\\\""; }
journal interface_steered | grep -q '"PRIORITY":"6"'
journal reload_refused | grep -q '"PRIORITY":"4"'
journalctl --no-pager -u rxsteer@veth0 --output=cat | grep '^{"number":' | tail -n 2

step "it is stopped, and nothing is left but flow records"
systemctl stop rxsteer@veth0
[[ -n $(find /var/lib/rxsteer/flows -name '*.parquet') ]]
[[ $(stat -c '%a %U' /var/lib/rxsteer) == '750 root' ]]
has_no_program veth0
[[ -z $(ls /run/rxsteer) && ! -e /proc/$pid ]]
systemctl start rxsteer@veth0
has_program veth0

step "the interface goes, and comes back"
ip link del veth0
within 30 is rxsteer@veth0 inactive
[[ $(systemctl show --property=Result --value rxsteer@veth0) == success ]] || systemctl --no-pager status rxsteer@veth0 || true
appear
within 60 is rxsteer@veth0 active
within 20 steers

step "it is killed, and starts again"
systemctl kill --signal=KILL rxsteer@veth0
within 60 is rxsteer@veth0 active
systemctl disable --now rxsteer@veth0
has_no_program veth0

step "rxsteer.service steers by pattern"
systemctl start rxsteer
is rxsteer active
within 20 steers
systemctl stop rxsteer
has_no_program veth0

step "the kernel's own steering persists"
mask
rxsteer host apply veth0 --cpus 0-1 --yes --persist
mask_is 3
find /etc/systemd /etc/udev -newer "$shared/package.deb" -type f -name '*rxsteer*' -exec tail -n +1 {} +
ip link del veth0
appear
within 30 mask_is 3
echo 0 >/sys/class/net/veth0/queues/rx-0/rps_cpus
systemctl restart systemd-udevd
udevadm trigger --action=add /sys/class/net/veth0
udevadm settle
within 30 mask_is 3
rxsteer host restore --yes
[[ -z $(find /etc/systemd /etc/udev -name '*rxsteer*' ! -path '*dist-check*') ]]
ip link del veth0
appear
udevadm settle
sleep 3
mask_is 0

step "the package is purged"
dpkg --purge rxsteer
[[ ! -e /etc/rxsteer && ! -e /usr/bin/rxsteer ]]
[[ -z $(systemctl list-unit-files --no-legend 'rxsteer*') ]]
step "done"
