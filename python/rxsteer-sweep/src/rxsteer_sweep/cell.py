"""Runs one cell: a process of rxsteer with a time limit. Every failure is a result too."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rxsteer_sweep.dataset import encode
from rxsteer_sweep.grid import Cell

FINE, FINDINGS = 0, 1
"""Exit statuses of rxsteer with which it prints a report."""

LONGEST_ERROR = 2000
"""Characters of an error that are kept: its end, which matters most."""


@dataclass(frozen=True)
class Result:
    """The result of a cell."""

    identity: str
    data: bytes
    """Its Parquet file."""
    error: str | None


def run(cell: Cell, rxsteer: str, version: str, timeout_s: float) -> Result:
    """Runs a cell with the program `rxsteer`."""
    try:
        report, error = simulate(cell, rxsteer, timeout_s)
        data = encode(cell, version, report, error)
    except (AttributeError, KeyError, TypeError, ValueError) as wrong:
        error = f"the output of {rxsteer} is no report of rxsteer sim: {wrong!r}"
        data = encode(cell, version, None, error)
    return Result(cell.identity(version), data, error)


def simulate(cell: Cell, rxsteer: str, timeout_s: float) -> tuple[dict[str, Any] | None, str | None]:
    """Returns the report, and the error if there was one."""
    with tempfile.TemporaryDirectory(prefix="rxsteer-sweep-") as folder:
        scenario = cell.scenario
        if cell.text is not None:
            file = Path(folder) / f"{cell.scenario}.toml"
            file.write_text(cell.text, encoding="utf-8")
            scenario = str(file)
        command = [rxsteer, *cell.arguments(scenario)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return None, f"it took more than {timeout_s:g} s and was ended; raise timeout in the grid file"
        except OSError as error:
            return None, f"can't start {rxsteer}: {error.strerror}; name the program with --rxsteer"
    said = done.stderr.decode(errors="replace").strip()[-LONGEST_ERROR:]
    if done.returncode not in (FINE, FINDINGS):
        return None, f"rxsteer sim ended with exit status {done.returncode}: {said}"
    report: dict[str, Any] = json.loads(done.stdout)
    if done.returncode == FINDINGS:
        return report, f"rxsteer sim found something wrong: {said}"
    return report, None
