# shellcheck shell=bash disable=SC2031
# Runs and counts checks. ./test and .ci/run source this file after prepare.sh.
#
# Each part prints one line. A part that fails prints its whole output first. A part that this machine can't run, and each
# test that skips itself, prints a line "SKIPPED name: reason".

: "${logs:?source prepare.sh before this}"

passed=0 failed=0 skipped=0

# A program inherits ignored signals from its caller (nohup, a background job of a script). Tests send these signals, so this
# resets them.
heard=()
! env --default-signal=INT true 2>/dev/null || heard=(env "--default-signal=HUP,INT,QUIT")

# check NAME COMMAND...: one check; it passes if the command succeeds.
check() {
  local name=$1 began=$SECONDS
  shift
  if quietly "$name" "$@"; then
    passed=$((passed + 1))
    printf 'ok      %s (%d s)\n' "$name" $((SECONDS - began))
  else
    failed=$((failed + 1))
    printf 'FAILED  %s\n' "$name"
  fi
}

# tests NAME COMMAND...: a command that runs tests and prints "test result:" lines as cargo does, or ends with counts as
# close_report does. A command that prints neither counts as one test.
tests() {
  local name=$1 began=$SECONDS status=0 ok bad left by_themselves nothing=
  shift
  declare -F "$1" >/dev/null || set -- "${heard[@]}" "$@"
  quietly "$name" "$@" || status=$?
  if ! read -r ok bad left < <(closing_counts "$log"); then
    ok=$(sum_of passed)
    bad=$(sum_of failed)
    by_themselves=$(skip_lines | wc -l)
    left=$(($(sum_of ignored) + $(reported_skip_lines | wc -l)))
    if grep -aq '^test result:' "$log"; then
      # A test that skips itself returns, so cargo counts it as passed.
      ok=$((ok > by_themselves ? ok - by_themselves : 0))
    elif ((status == 0 && by_themselves == 0)); then
      ok=1
    fi
  fi
  # If a filter no longer matches a test, that is a failure.
  ((status != 0 || ok + bad + left > 0)) || status=1 nothing=": no test ran"
  ((status == 0 || bad > 0)) || bad=1
  passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))

  short_skip_lines
  ignored_lines
  if ((status != 0)); then
    printf 'FAILED  %s%s\n' "$name" "$nothing"
  elif ((ok > 0)); then
    printf 'ok      %s (%d passed, %d s)\n' "$name" "$ok" $((SECONDS - began))
  fi
}

# The counts in the last line of a report: passed, failed, skipped. Fails if there are none.
closing_counts() {
  tail -n 1 "$1" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' | grep .
}

# tests_beside NAME COMMAND...: runs `tests` in the background, at the same time as the following parts. `report_beside` waits
# for it and prints its report.
# shellcheck disable=SC2030,SC2031  # it reports its own counts
tests_beside() {
  # In a separate process group, which `finish` kills.
  set -m
  (
    log=$logs/beside passed=0 failed=0 skipped=0
    tests "$@"
    close_report
  ) >"$logs/beside.report" 2>"$logs/beside.shown" </dev/null &
  set +m
  beside=$!
}

report_beside() {
  local ok bad left
  [[ -n $beside ]] || return 0
  wait "$beside" || true
  beside=
  cat "$logs/beside.shown" >&2
  sed '$d' "$logs/beside.report"
  if read -r ok bad left < <(closing_counts "$logs/beside.report"); then
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
  else
    failed=$((failed + 1))
    printf 'FAILED  the tests in the background ended early\n'
  fi
}

# The sum of a column of cargo's "test result: ok. 3 passed; 0 failed; 1 ignored; ..." lines.
sum_of() {
  sed -n "s/^test result:.* \([0-9][0-9]*\) $1;.*/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'
}

# The lines of tests that skip themselves.
skip_lines() {
  grep -aoE 'SKIPPED [^ ]+: .*' "$log" || true
}

# The same, without the tests that another part of the report contains.
reported_skip_lines() {
  skip_lines | grep -av ': run beside other tests$' || true
}

# The same, with one line for a reason that many tests give.
short_skip_lines() {
  reported_skip_lines | awk '{
    reason = $0
    sub(/^SKIPPED [^ ]+: /, "", reason)
    if (!(reason in tests)) order[++reasons] = reason
    tests[reason]++
    lines[reason] = lines[reason] $0 "\n"
    first[reason] = tests[reason] == 1 ? $2 : first[reason]
  } END {
    for (n = 1; n <= reasons; n++) {
      reason = order[n]
      if (tests[reason] <= 5) printf "%s", lines[reason]
      else printf "SKIPPED %s and %d others: %s\n", substr(first[reason], 1, length(first[reason]) - 1), tests[reason] - 1, reason
    }
  }'
}

# The tests marked #[ignore], in the same format.
ignored_lines() {
  sed -n -e 's/^test \(.*\) \.\.\. ignored, \(.*\)/SKIPPED \1: \2/p' \
    -e 's/^test \(.*\) \.\.\. ignored$/SKIPPED \1: it is marked to be left out/p' "$log"
}

# skip NAME REASON: a part that this machine can't run.
skip() {
  skipped=$((skipped + 1))
  printf 'SKIPPED %s: %s\n' "$1" "$2"
}

# Prints the last line with all counts; its exit status is that of the whole report.
close_report() {
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  ((failed == 0))
}
