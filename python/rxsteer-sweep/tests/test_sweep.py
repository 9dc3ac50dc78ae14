"""Whole sweeps, on a local Ray cluster."""

import json
import socket
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rxsteer_sweep import on_ray
from rxsteer_sweep.cli import main

GRID = """
seeds = 4
seeds_per_cell = 2
timeout = {timeout}
seconds = 0.001

[[grid]]
scenario = "{scenario}"
[grid.settings]
"steering.policy" = ["rps", "sparse"]
"""


def write(folder: Path, timeout: int, scenario: str, more: str = "") -> str:
    grid = folder / "grid.toml"
    grid.write_text(GRID.format(timeout=timeout, scenario=scenario) + more)
    return str(grid)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_a_small_grid_of_the_simulator(
    rxsteer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    words = [write(tmp_path, 300, "rpc-8"), "--out", str(out), "--rxsteer", rxsteer, "--cpus", "2", "--json"]
    assert main([*words, "--dry-run"]) == 0
    assert printed(capsys)["run"] == 0
    assert not out.exists()

    assert main(words) == 0
    answer = printed(capsys)
    assert (answer["cells"], answer["run"], answer["failed"]) == (4, 4, [])
    table = ds.dataset(out).to_table()
    assert set(table["seed"].to_pylist()) == {1, 2, 3, 4}
    assert set(table["policy"].to_pylist()) == {"rps", "sparse"}
    # Order holds in each run, and each run is there.
    rows = table.filter(ds.field("metric") == "reordered").to_pylist()
    assert [row["value"] for row in rows] == [0.0] * 8

    assert main(words) == 0
    answer = printed(capsys)
    assert (answer["there_before"], answer["run"]) == (4, 0), "what is there is not run again"


def test_failures_are_rows_and_only_they_are_tried_again(
    simulator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    more = '"do" = ["run", "hang", "refuse"]\n'
    words = [
        write(tmp_path, 5, "x", more),
        "--out",
        str(out),
        "--rxsteer",
        simulator,
        "--cpus",
        "2",
        "--json",
    ]
    begun = time.monotonic()
    assert main(words) == 1
    assert time.monotonic() - begun < 120
    answer = printed(capsys)
    assert (answer["cells"], answer["run"]) == (12, 12)
    failed = answer["failed"]
    assert isinstance(failed, list)
    assert len(failed) == 8
    table = ds.dataset(out).to_table()
    errors = [error for error in table["error"].to_pylist() if error is not None]
    assert len([error for error in errors if "more than 5 s" in error]) == 4
    assert len([error for error in errors if "no such scenario" in error]) == 4

    # After rxsteer is repaired, a sweep repeats the failed cells, and their errors disappear.
    program = Path(simulator)
    program.write_text(program.read_text().replace('settings.get("do", "run")', '"run"'))
    assert main(words) == 0
    answer = printed(capsys)
    assert (answer["there_before"], answer["run"]) == (4, 8)
    assert ds.dataset(out).to_table()["error"].null_count == 24 * 6


def test_a_cluster_that_is_there_is_used(
    simulator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 * 1024 * 1024}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        words = ["--rxsteer", simulator, "--address", cluster.address, "--json"]
        assert main([write(tmp_path, 60, "x"), "--out", str(tmp_path / "results"), *words]) == 0
    finally:
        cluster.shutdown()
    assert printed(capsys)["run"] == 4


def test_a_cluster_that_refuses_is_asked_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect to Ray cluster")

    monkeypatch.setattr(on_ray.ray, "init", refuse)
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        with pytest.raises(on_ray.ClusterError, match="RAY_AUTH_MODE=token"):
            on_ray.Cluster(f"127.0.0.1:{port}", None)
    with pytest.raises(on_ray.ClusterError) as nothing_answers:
        on_ray.Cluster("127.0.0.1:9", None)
    assert "RAY_AUTH_MODE" not in str(nothing_answers.value)


def test_without_an_address_the_cluster_is_its_own(
    simulator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ray would join this cluster, which does not answer.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    words = ["--rxsteer", simulator, "--cpus", "1", "--json"]
    assert main([write(tmp_path, 60, "x"), "--out", str(tmp_path / "results"), *words]) == 0
    assert printed(capsys)["run"] == 4


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["none.toml", "--out", "x"], "can't read the grid none.toml"),
        (["GRID", "--out", "x", "--rxsteer", "/nowhere/rxsteer"], "name it with --rxsteer"),
        (["GRID", "--out", "/proc/x", "--rxsteer", "SIMULATOR"], "can't write to /proc/x"),
        (["GRID", "--out", "OUT", "--rxsteer", "SIMULATOR", "--address", "127.0.0.1:9"], "nothing answers"),
        (["GRID", "--out", "OUT", "--rxsteer", "SIMULATOR", "--address", "head"], "not HOST:PORT"),
        (["GRID", "--out", "OUT", "--rxsteer", "SIMULATOR", "--address", "head:99999"], "nothing answers"),
    ],
)
def test_what_can_not_be_run_is_said(
    words: list[str], reason: str, simulator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = write(tmp_path, 5, "x")
    named = {"GRID": grid, "SIMULATOR": simulator, "OUT": str(tmp_path / "out")}
    assert main([named.get(word, word) for word in words]) == 2
    assert reason in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "rxsteer-sweep grid.toml --out results" in capsys.readouterr().out
