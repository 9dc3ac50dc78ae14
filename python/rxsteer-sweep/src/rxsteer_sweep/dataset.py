"""The results: a folder with a Parquet file for each cell. All have one schema, so engines read one table.

A file gets its name when it is complete: `cell-ID.parquet`, or `failed-ID.parquet` if the cell failed. The
next sweep repeats failed cells, and so continues an interrupted sweep.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rxsteer_sweep.grid import Cell

SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("cell", pa.string(), nullable=False),
        pa.field("rxsteer", pa.string(), nullable=False),
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("settings", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("seconds", pa.float64()),
        pa.field("faults", pa.int32(), nullable=False),
        pa.field("policy", pa.string()),
        pa.field("seed", pa.int64()),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("metric", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("error", pa.string()),
    ]
)
"""One row for each figure of each seed (`subject` is run, traffic, cpu or rule, `name` which one), and one
for an error (`subject` is cell), with `error` and no figure."""


def encode(cell: Cell, rxsteer: str, report: dict[str, Any] | None, error: str | None) -> bytes:
    """The Parquet file of a cell: the report of `rxsteer sim --json`, and the error if there was one."""
    rows = list(figures(report)) if report is not None else []
    if error is not None:
        rows.append((None, None, "cell", None, None, None))
    count = len(rows)
    policy, seed, subject, name, metric, value = (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 6
    )
    errors: list[str | None] = [None] * count
    if error is not None:
        errors[-1] = error
    columns = {
        "cell": [cell.identity(rxsteer)] * count,
        "rxsteer": [rxsteer] * count,
        "scenario": [cell.scenario] * count,
        "settings": [list(cell.settings)] * count,
        "seconds": [cell.seconds] * count,
        "faults": [cell.faults] * count,
        "policy": policy,
        "seed": seed,
        "subject": subject,
        "name": name,
        "metric": metric,
        "value": value,
        "error": errors,
    }
    file = io.BytesIO()
    pq.write_table(pa.table(columns, schema=SCHEMA), file, compression="zstd")
    return file.getvalue()


Figure = tuple[str | None, int | None, str, str | None, str | None, float | None]
"""Policy, seed, subject, name, metric, value."""


def figures(report: dict[str, Any]) -> Iterator[Figure]:
    """Every figure of a report (docs/sim.md, "JSON"); none of abandoned runs."""
    if report.get("unfinished"):
        return
    for cell in report["cells"]:
        for run in cell["runs"]:
            parts: list[tuple[str, str | None, dict[str, Any]]] = [("run", None, run["run"])]
            parts += [("traffic", part["traffic"], part) for part in run["traffic"]]
            parts += [("cpu", str(part["cpu"]), part) for part in run["cpus"]]
            parts += [("rule", part["rule"], part) for part in run["rules"]]
            for subject, name, part in parts:
                for metric, value in part.items():
                    if metric not in ("traffic", "cpu", "rule"):
                        yield cell["policy"], run["seed"], subject, name, metric, float(value)


class Folder:
    """The folder with the files."""

    def __init__(self, path: Path, *, make: bool = True) -> None:
        """Makes the folder if it does not exist and `make` is set."""
        self.path = path
        if make:
            path.mkdir(parents=True, exist_ok=True)

    def has(self, identity: str) -> bool:
        """Whether the cell was run without an error."""
        return self._file(identity, failed=False).exists()

    def write(self, identity: str, data: bytes, *, failed: bool) -> None:
        """Writes a cell's file, completely or not at all, and removes its earlier file."""
        # Engines ignore files whose names begin with a dot.
        temporary = self.path / f".{identity}.{os.getpid()}.part"
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._file(identity, failed=failed))
        finally:
            temporary.unlink(missing_ok=True)
        self._file(identity, failed=not failed).unlink(missing_ok=True)

    def _file(self, identity: str, *, failed: bool) -> Path:
        return self.path / f"{'failed' if failed else 'cell'}-{identity}.parquet"
