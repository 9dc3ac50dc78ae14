"""Fixtures of the tests, and their counts in the format that `./test` adds up."""

import os
import stat
import sys
from pathlib import Path

import pytest

SIMULATOR = """\
#!{python}
'''Replaces rxsteer in tests of how its output and failures are processed.'''
import json, sys, time
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("rxsteer 0.0.1-test")
    sys.exit(0)
settings = dict(word.split("=", 1) for word in arguments if "=" in word)
option = lambda name: int(arguments[arguments.index(name) + 1])
what = settings.get("do", "run")
if what == "hang":
    time.sleep(600)
if what == "refuse":
    print("rxsteer: there is no such scenario", file=sys.stderr)
    sys.exit(2)
if what == "babble":
    print("[1, 2")
    sys.exit(0)
runs = [
    {{
        "seed": seed,
        "run": {{"moves": 3, "busy": 0.5}},
        "traffic": [{{"traffic": "in", "bits_per_second": 1e6 * seed}}],
        "cpus": [{{"cpu": 0, "busy": 0.25}}, {{"cpu": 1, "busy": 0.25}}],
        "rules": [{{"rule": "udp → 1", "packets": 5}}],
    }}
    for seed in range(option("--seed"), option("--seed") + option("--seeds"))
]
cells = [{{"policy": settings.get("steering.policy", "rps"), "runs": runs}}]
print(json.dumps({{"cells": cells, "unfinished": what == "reorder-and-stop"}}))
if what.startswith("reorder"):
    print("rxsteer: 2 packets were processed out of order", file=sys.stderr)
    sys.exit(1)
"""


@pytest.fixture
def simulator(tmp_path: Path) -> str:
    """A program that prints output as rxsteer does."""
    file = tmp_path / "rxsteer"
    file.write_text(SIMULATOR.format(python=sys.executable))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@pytest.fixture
def rxsteer() -> str:
    """The real program, which ./test names."""
    program = os.environ.get("RXSTEER")
    if not program or not Path(program).exists():
        pytest.skip("there is no rxsteer; name the program in RXSTEER")
    return program


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints counts as cargo does: a test that skips itself has a line, and counts as passed."""
    counts = {
        name: len(terminalreporter.getreports(name)) for name in ("passed", "failed", "error", "skipped")
    }
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        name = report.nodeid.rsplit("/", 1)[-1].replace(" ", "_")
        terminalreporter.write_line(f"SKIPPED {name}: {reason.removeprefix('Skipped: ')}")
    bad = counts["failed"] + counts["error"]
    word = "FAILED" if bad else "ok"
    terminalreporter.write_line(
        f"test result: {word}. {counts['passed'] + counts['skipped']} passed; {bad} failed; 0 ignored;"
    )
