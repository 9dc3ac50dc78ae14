# shellcheck shell=bash
# Shared by ./demo, ./test and .ci/run: installs what a build requires, and shows output only of commands that fail.
#
# Source this file. It sets `root`, the repository. `prepare` sets `features`, the arguments with which cargo builds everything
# that can be built on this machine.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$(mktemp -d "${TMPDIR:-/tmp}/rxsteer.XXXXXX")
# The output of the current command.
log=$logs/last
watcher=
# The process group of the tests in the background.
beside=

finish() {
  stop_watching
  [[ -z $beside ]] || kill -- "-$beside" 2>/dev/null || true
  rm -rf "$logs"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '%s\n' "$*" >&2; }

# Prints why nothing could run, and what to do: a line for each argument. Then exits.
give_up() {
  printf '%s\n' "$@" >&2
  exit 2
}

# ---------------------------------------------------------------------------------------------
# Quiet commands

# quietly LABEL COMMAND...: runs the command, and shows its output only if it fails. On a terminal it shows the last line of
# output after a few seconds. The output stays in "$log".
quietly() {
  local label=$1 status=0
  shift
  watch_progress "$label"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  stop_watching
  if ((status != 0)); then
    # Without the names of crates, which do not explain the failure.
    grep -avE '^ +(Compiling|Checking|Downloaded|Downloading) ' "$log" >&2 || true
    # For a shell function the label is enough.
    declare -F "$1" >/dev/null || label+=" ($*)"
    say "$label failed with exit status $status."
  fi
  return "$status"
}

watch_progress() {
  [[ -t 2 ]] || return 0
  : >"$log"
  (
    sleep 3
    while :; do
      printf '\r\033[K%s: %s' "$1" "$(tail -n 1 "$log" | cut -c 1-60)" >&2
      sleep 1
    done
  ) &
  watcher=$!
}

stop_watching() {
  [[ -n $watcher ]] || return 0
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  watcher=
  printf '\r\033[K' >&2
}

# ---------------------------------------------------------------------------------------------
# What a build requires

# Everything is built only once, so nothing reads the incremental state again. Without it and without debug information,
# `cargo test --workspace --features rxsteer/xdp --no-run` takes 180 s on 2 CPUs instead of 240, and 1.3 GB instead of 4.1.
# Panics still name their file and line.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0} CARGO_PROFILE_TEST_DEBUG=${CARGO_PROFILE_TEST_DEBUG:-0}

# Installs a C compiler with its headers (Rust uses it to link, and the zstd reader is C), Rust and, if available, the
# build dependencies of the in-kernel path.
prepare() {
  local need missing=()
  need=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/Cargo.toml")
  # Uses a cargo in the path if it is new enough. Otherwise rustup may be installed, but not be in this shell's path.
  has_rust "$need" || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH

  can_compile_c || missing+=(compiler)
  command -v cargo >/dev/null || command -v rustup >/dev/null || can_fetch || missing+=(curl)
  ((${#missing[@]} == 0)) || install_packages "${missing[@]}" || give_up "${why_not[@]}"

  can_compile_c || give_up "A C compiler was installed, but 'cc' still cannot build a program that includes stdio.h." \
    "Correct that (what does 'cc --version' say?), then run this again."
  has_rust "$need" || install_rust "$need"
  prepare_bpf
}

can_compile_c() {
  printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$logs/probe.c"
  cc -o "$logs/probe" "$logs/probe.c" >/dev/null 2>&1
}

can_fetch() {
  local store
  command -v curl >/dev/null || return 1
  for store in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
    [[ -e $store ]] && return
  done
  return 1
}

install_rust() {
  local need=$1
  if ! command -v cargo >/dev/null && ! command -v rustup >/dev/null; then
    quietly "Installing rustup" fetch_rustup || give_up "rustup could not be installed (its message is above)." \
      "Install Rust $need or newer by hand, from the distribution or by rustup, then run this again."
    hash -r
  fi
  if command -v rustup >/dev/null; then
    quietly "Installing Rust" rustup toolchain install stable --profile minimal --no-self-update \
      || give_up "rustup could not install Rust $need or newer (its message is above)." \
        "Install it by hand ('rustup toolchain install stable'), then run this again."
    has_rust "$need" && return
  fi
  give_up "rxsteer requires Rust $need or newer; found $(cargo --version 2>/dev/null || echo "no working cargo")." \
    "Install a newer one, from the distribution or by rustup, then run this again."
}

fetch_rustup() {
  curl --proto '=https' --tlsv1.2 -sSf -o "$logs/rustup.sh" https://sh.rustup.rs \
    && sh "$logs/rustup.sh" -y --profile minimal --default-toolchain none
}

# Whether there is a cargo that is new enough.
has_rust() {
  is_new_enough "$1" && return
  # The toolchain file also requires the formatter and the linter, which ./demo and ./test do not use.
  RUSTUP_TOOLCHAIN=stable is_new_enough "$1" && export RUSTUP_TOOLCHAIN=stable
}

is_new_enough() {
  local found
  hash -r
  found=$(cd "$root" && RUSTUP_AUTO_INSTALL=0 cargo --version 2>/dev/null) || return 1
  found=${found#cargo }
  [[ $(printf '%s\n' "$1" "${found%% *}" | sort -V | head -n 1) == "$1" ]]
}

# ---------------------------------------------------------------------------------------------
# What the in-kernel path requires; everything else is built without it

# For the sourcing script: `features`, arguments for cargo build, test and clippy (the whole workspace, or all except the
# in-kernel path); `no_bpf`, why the in-kernel path is omitted, empty if it is built; `xtask`, the program (prepare_xtask).
# shellcheck disable=SC2034
features=(--features rxsteer/xdp) no_bpf="" xtask=""

# xtask tests with the same packages and features, so that nothing is built twice.
choose_features() {
  features=("$@")
  export RXSTEER_WORKSPACE="--workspace $*"
}

prepare_bpf() {
  choose_features "${features[@]}"
  can_compile_bpf && return
  # shellcheck disable=SC2034
  if install_packages bpf; then
    can_compile_bpf && return
    no_bpf="$bpf_lacks, although the required packages were installed"
  else
    no_bpf="$bpf_lacks. ${why_not[*]}"
  fi
  choose_features --no-default-features --features rxsteer-cli/parquet,rxsteer-cli/serve,rxsteer-cli/sim,rxsteer-cli/top
}

# Builds xtask as part of the workspace, and sets `xtask` to the program. `cargo xtask` would build xtask alone, and so clap
# and a few other crates a second time.
prepare_xtask() {
  # shellcheck disable=SC2034
  xtask=$(target_dir)/debug/xtask
  quietly "Building xtask" cargo build --workspace "${features[@]}" --bin xtask \
    || give_up "xtask can't be built (the message is above)." "Correct that, then run this again."
}

# Compiles and links small programs as the build of the BPF programs does. Sets `bpf_lacks` to the reason if that fails.
can_compile_bpf() {
  local tool link=(-lelf -lz)
  for tool in clang make "${PKG_CONFIG:-pkg-config}"; do
    bpf_lacks="there is no $tool"
    command -v "$tool" >/dev/null || return 1
  done
  bpf_lacks="clang finds no Linux headers, or can't compile for BPF"
  printf '#include <linux/bpf.h>\nint x(struct xdp_md *c) { return c->data != 0; }\n' >"$logs/probe.bpf.c"
  clang -target bpf -mcpu=v3 -g -O2 "-I/usr/include/$(uname -m)-linux-gnu" -c -o "$logs/probe.o" "$logs/probe.bpf.c" \
    >/dev/null 2>&1 || return 1
  bpf_lacks="libelf or zlib can't be linked, or their headers are missing"
  # rustup's toolchain for musl links without shared libraries.
  [[ $(rustc -vV 2>/dev/null) != *unknown-linux-musl* ]] || link+=(-lzstd -static)
  printf '#include <libelf.h>\n#include <zlib.h>\nint main(void) { return elf_version(EV_CURRENT) == 0 || !zlibVersion(); }\n' \
    >"$logs/probe.c"
  cc -o "$logs/probe" "$logs/probe.c" "${link[@]}" >/dev/null 2>&1
}

# For .ci/run: installs what the shortest live tests require, if possible; without it these tests are SKIPPED.
prepare_live() {
  ((EUID == 0)) || return 0
  if ! command -v ip >/dev/null || ! command -v ethtool >/dev/null; then
    install_packages live >/dev/null 2>&1 || true
  fi
}

# For .ci/run: installs what boots virtual machines, if possible; without it these tests are SKIPPED.
prepare_vm() {
  local tool
  ((EUID == 0)) && command -v apt-get >/dev/null || return 0
  for tool in qemu-system-x86_64 busybox modprobe cpio xz; do
    command -v "$tool" >/dev/null || {
      install_packages vm >/dev/null 2>&1 || true
      return 0
    }
  done
}

# install_packages THING...: installs with the system's package manager, if that is allowed. `packages_of` lists the things.
# If it fails, it sets `why_not` to the reason and what to do, a line for each element.
install_packages() {
  local manager thing line=() names=() packages=() become=()
  for manager in apt-get dnf pacman apk zypper none; do
    command -v "$manager" >/dev/null && break
  done
  for thing in "$@"; do
    read -ra names <<<"$(packages_of "$manager" "$thing")"
    packages+=("${names[@]}")
  done
  case $manager in
    apt-get) line=(apt-get install -y --no-install-recommends) ;;
    dnf) line=(dnf install -y) ;;
    pacman) line=(pacman -Sy --noconfirm --needed) ;;
    apk) line=(apk add) ;;
    zypper) line=(zypper --non-interactive install) ;;
    none)
      why_not=("Missing: ${packages[*]}. This script supports none of the package managers here."
        "Install these by hand, then run this again.")
      return 1
      ;;
  esac

  if ((EUID != 0)); then
    become=(sudo -n)
    if ! sudo -n true 2>/dev/null; then
      why_not=("Missing: ${packages[*]}. Installing requires root, and sudo is missing or asks for a password."
        "Install by hand, then run this again:" "  sudo ${line[*]} ${packages[*]}")
      return 1
    fi
  fi
  say "Installing: ${packages[*]}"
  if [[ $manager == apt-get ]]; then
    # If the lists can't be updated, the present ones may still contain the packages.
    quietly "Reading the package lists" "${become[@]}" apt-get update || true
  fi
  why_not=("$manager could not install: ${packages[*]} (its message is above)."
    "Install by hand, then run this again.")
  quietly "Installing ${packages[*]}" "${become[@]}" env DEBIAN_FRONTEND=noninteractive "${line[@]}" "${packages[@]}"
}

packages_of() {
  case "$1 $2" in
    "none compiler") echo gcc C-library-headers ;;
    "apt-get compiler") echo gcc libc6-dev ;;
    "apk compiler") echo gcc musl-dev linux-headers ;;
    "pacman compiler") echo gcc ;;
    *" compiler") echo gcc glibc-devel ;;
    "none bpf") echo clang make pkg-config libelf-headers zlib-headers Linux-headers ;;
    "apt-get bpf") echo clang make pkg-config libelf-dev zlib1g-dev linux-libc-dev ;;
    "dnf bpf") echo clang make pkgconf-pkg-config elfutils-libelf-devel zlib-devel kernel-headers ;;
    "pacman bpf") echo clang make pkgconf libelf zlib linux-api-headers ;;
    "apk bpf") echo clang make pkgconf elfutils-dev zlib-dev linux-headers ;;
    "zypper bpf") echo clang make pkgconf-pkg-config libelf-devel zlib-devel linux-glibc-devel ;;
    *" vm") echo qemu-system-x86 busybox-static kmod cpio xz-utils iproute2 ethtool ;;
    "dnf live") echo iproute ethtool ;;
    *" live") echo iproute2 ethtool ;;
    *" curl") echo curl ca-certificates ;;
  esac
}

# The folder that cargo builds to, which the user may have changed from target/.
target_dir() {
  (cd "$root" && cargo metadata --no-deps --format-version 1) | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
