"""One cell: its rows, and its failures, which are rows too."""

import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rxsteer_sweep.cell import Result, run
from rxsteer_sweep.dataset import SCHEMA, Folder
from rxsteer_sweep.grid import Cell


def cell(*settings: tuple[str, str]) -> Cell:
    return Cell("rpc-8", None, settings, 7, 2, None, 0)


def table(result: Result) -> pa.Table:
    read = pq.read_table(io.BytesIO(result.data))
    assert read.schema.equals(SCHEMA)
    assert set(read["cell"].to_pylist()) == {result.identity}
    return read


def test_every_figure_is_a_row(simulator: str) -> None:
    result = run(cell(("steering.policy", "sparse")), simulator, "rxsteer 0.0.1-test", 30)
    assert result.error is None
    rows = table(result).to_pylist()
    assert len(rows) == 2 * (2 + 1 + 2 + 1)
    assert rows[2] == {
        "cell": result.identity,
        "rxsteer": "rxsteer 0.0.1-test",
        "scenario": "rpc-8",
        "settings": [("steering.policy", "sparse")],
        "seconds": None,
        "faults": 0,
        "policy": "sparse",
        "seed": 7,
        "subject": "traffic",
        "name": "in",
        "metric": "bits_per_second",
        "value": 7e6,
        "error": None,
    }


@pytest.mark.parametrize(
    ("what", "reason", "figures"),
    [
        ("hang", "more than 0.5 s", 0),
        ("refuse", "exit status 2: rxsteer: there is no such scenario", 0),
        ("babble", "no report of rxsteer sim", 0),
        ("reorder", "found something wrong: rxsteer: 2 packets", 12),
        # Abandoned runs have no figures.
        ("reorder-and-stop", "found something wrong: rxsteer: 2 packets", 0),
    ],
)
def test_a_failure_is_a_row_with_its_reason(simulator: str, what: str, reason: str, figures: int) -> None:
    timeout_s = 0.5 if what == "hang" else 30
    result = run(cell(("do", what)), simulator, "rxsteer 0.0.1-test", timeout_s)
    assert reason in (result.error or "")
    rows = table(result).to_pylist()
    assert len(rows) == figures + 1
    assert (rows[-1]["subject"], rows[-1]["error"], rows[-1]["value"]) == ("cell", result.error, None)
    assert all(row["error"] is None for row in rows[:-1])


def test_a_program_that_is_not_there_is_named() -> None:
    assert "/nowhere/rxsteer" in (run(cell(), "/nowhere/rxsteer", "v", 5).error or "")


def test_a_file_is_whole_or_not_there_and_failures_go_when_it_works(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "b")
    folder.write("1f", b"x", failed=True)
    assert not folder.has("1f")
    folder.write("1f", b"y", failed=False)
    assert folder.has("1f")
    assert os.listdir(folder.path) == ["cell-1f.parquet"]
