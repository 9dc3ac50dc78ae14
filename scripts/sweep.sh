# shellcheck shell=bash
# Makes what the tests of python/rxsteer-sweep require: a virtual environment in target/ with Ray. ./test sources this file
# after prepare.sh.

: "${root:?source prepare.sh before this}" "${logs:?}"

# For ./test: the environment, and the reason if there is none.
# shellcheck disable=SC2034
sweep=${CARGO_TARGET_DIR:-$root/target}/sweep no_sweep=

# Makes the environment, unless there is one from the same Python and requirements.
prepare_sweep() {
  local lists=("$root"/python/rxsteer-sweep/requirements*.txt) made_of
  no_sweep="there is no Python 3.10 or newer; install python3 to run these tests"
  command -v python3 >/dev/null || return 1
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || return 1
  made_of=$(python3 --version && cat "${lists[@]}")
  [[ ! -f $sweep/made-of || $(<"$sweep/made-of") != "$made_of" ]] || return 0

  no_sweep="Python can't make a virtual environment; install its module venv (python3-venv)"
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

# Small grids on a Ray cluster of 2 CPUs, with the rxsteer of the earlier tests.
test_sweep() {
  RXSTEER=${CARGO_TARGET_DIR:-$root/target}/debug/rxsteer PYTHONPATH=$root/python/rxsteer-sweep/src PYTHONDONTWRITEBYTECODE=1 \
    RAY_USAGE_STATS_ENABLED=0 timeout 900 "$sweep/bin/python" -m pytest -q "$root/python/rxsteer-sweep"
}
