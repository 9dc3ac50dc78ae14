# shellcheck shell=bash disable=SC2031
# Counting what passed: sourced by ./test and .ci/run, after prepare.sh.
#
# Each part is one line. A part that failed shows its whole output first; one that this machine can't do, and each test
# that skips itself, is a line "SKIPPED name: reason".

: "${logs:?source prepare.sh before this}"

passed=0 failed=0 skipped=0

# A program inherits the signals that its caller ignores (nohup, a background job of a script). Tests send such signals.
heard=()
! env --default-signal=INT true 2>/dev/null || heard=(env "--default-signal=HUP,INT,QUIT")

# check NAME COMMAND...: one check, passed when the command is.
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

# tests NAME COMMAND...: a command that runs tests and says so as cargo does, in "test result:" lines, or closes with counts as we
# do. One that says neither is one test itself.
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
      # Such a test says so and returns: cargo takes it for passed.
      ok=$((ok > by_themselves ? ok - by_themselves : 0))
    elif ((status == 0 && by_themselves == 0)); then
      ok=1
    fi
  fi
  # A filter that names no test any more must not pass for success.
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

# The counts with which a report closes: passed, failed, skipped; fails where it has none.
closing_counts() {
  tail -n 1 "$1" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' | grep .
}

# tests_beside NAME COMMAND...: as tests, while the parts that follow run. `report_beside` waits for it and reports it.
# shellcheck disable=SC2030,SC2031  # it reports its own counts
tests_beside() {
  # A process group of its own, which ends with us.
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
    printf 'FAILED  what ran beside other tests ended early\n'
  fi
}

# The sum of a column of cargo's "test result: ok. 3 passed; 0 failed; 1 ignored; ..." lines.
sum_of() {
  sed -n "s/^test result:.* \([0-9][0-9]*\) $1;.*/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'
}

# What tests say that find that they can't be done here.
skip_lines() {
  grep -aoE 'SKIPPED [^ ]+: .*' "$log" || true
}

# The same without those that another part of the report has.
reported_skip_lines() {
  skip_lines | grep -av ': run beside other tests$' || true
}

# The same, a line for each reason that many have.
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

# The tests marked #[ignore], as lines of the same form.
ignored_lines() {
  sed -n -e 's/^test \(.*\) \.\.\. ignored, \(.*\)/SKIPPED \1: \2/p' \
    -e 's/^test \(.*\) \.\.\. ignored$/SKIPPED \1: it is marked to be left out/p' "$log"
}

# skip NAME REASON: a part that this machine can't do.
skip() {
  skipped=$((skipped + 1))
  printf 'SKIPPED %s: %s\n' "$1" "$2"
}

# The closing line; the exit status of the whole.
close_report() {
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  ((failed == 0))
}
