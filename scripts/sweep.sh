# shellcheck shell=bash
# What the tests of python/rxsteer-sweep need: an environment of their own below target/, with Ray in it. Sourced by ./test,
# after prepare.sh.

: "${root:?source prepare.sh before this}" "${logs:?}"

# Whoever sources this uses these: the environment, and why there is none.
# shellcheck disable=SC2034
sweep=${CARGO_TARGET_DIR:-$root/target}/sweep no_sweep=

# Makes the environment, unless it is there, made of what is asked for now.
prepare_sweep() {
  local lists=("$root"/python/rxsteer-sweep/requirements*.txt) made_of
  no_sweep="there is no Python 3.10 or newer; install python3 to have it tested"
  command -v python3 >/dev/null || return 1
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || return 1
  made_of=$(python3 --version && cat "${lists[@]}")
  [[ ! -f $sweep/made-of || $(<"$sweep/made-of") != "$made_of" ]] || return 0

  no_sweep="Python can make no virtual environment; install its module venv (python3-venv)"
  rm -rf "$sweep"
  timeout 120 python3 -m venv "$sweep" >"$logs/sweep" 2>&1 || return 1
  say "Installing Ray for the tests of rxsteer-sweep"
  if ! timeout 600 "$sweep/bin/pip" install --quiet --disable-pip-version-check "${lists[@]/#/--requirement=}" \
    >"$logs/sweep" 2>&1 </dev/null; then
    # shellcheck disable=SC2034
    no_sweep="pip could not install Ray and pyarrow: $(grep -a . "$logs/sweep" | tail -n 1 || true)"
    return 1
  fi
  printf '%s\n' "$made_of" >"$sweep/made-of"
}

# Small grids on a Ray cluster of 2 CPUs, by the rxsteer that the tests before were run with.
test_sweep() {
  RXSTEER=${CARGO_TARGET_DIR:-$root/target}/debug/rxsteer PYTHONPATH=$root/python/rxsteer-sweep/src PYTHONDONTWRITEBYTECODE=1 \
    RAY_USAGE_STATS_ENABLED=0 timeout 900 "$sweep/bin/python" -m pytest -q "$root/python/rxsteer-sweep"
}
