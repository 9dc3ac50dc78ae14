"""Grid files: their cells, and what is refused."""

from pathlib import Path

import pytest

from rxsteer_sweep.grid import MAX_CELLS, Cell, GridError, parse, read

HERE = Path(__file__).parent


def cell(**changes: object) -> Cell:
    values = {
        "scenario": "rpc-8",
        "text": None,
        "settings": (),
        "first_seed": 1,
        "seeds": 10,
        "seconds": None,
        "faults": 0,
    }
    return Cell(**{**values, **changes})  # type: ignore[arg-type]


def test_a_grid_is_every_combination_and_seeds_are_divided() -> None:
    settings = {"steering.policy": ["rps", "sparse:loops=2"], "traffic.0.flows": [8, 64], "machine.cpus": 4}
    grid = parse(
        {
            "seeds": {"first": 5, "count": 7},
            "seeds_per_cell": 4,
            "grid": [{"scenario": "x", "settings": settings}],
        },
        HERE,
    )
    assert len(grid.cells) == 2 * 2 * 2
    assert {(it.first_seed, it.seeds) for it in grid.cells} == {(5, 4), (9, 3)}
    assert grid.cells[0].settings == (
        ("steering.policy", "rps"),
        ("traffic.0.flows", "8"),
        ("machine.cpus", "4"),
    )
    assert grid.timeout_s == 600


def test_a_combination_that_is_there_twice_is_one() -> None:
    assert len(parse({"seeds": 3, "grid": [{"scenario": "x"}, {"scenario": "x"}]}, HERE).cells) == 1


def test_a_cell_is_a_command_of_rxsteer() -> None:
    some = cell(settings=(("steering.policy", "bound:0=1"),), seconds=0.5, faults=3)
    settings = "--set steering.policy=bound:0=1 --seed 1 --seeds 10 --seconds 0.5 --faults 3"
    assert some.arguments("S") == ["sim", "S", "--json", "--threads", "1", *settings.split()]


def test_whatever_changes_the_result_changes_the_identity() -> None:
    ways = [
        cell(),
        cell(scenario="x"),
        cell(text="title = 'x'"),
        cell(settings=(("a", "1"),)),
        cell(first_seed=2),
        cell(seeds=9),
        cell(seconds=1.0),
        cell(faults=1),
    ]
    identities = {it.identity("rxsteer 1") for it in ways}
    assert len(identities) == len(ways)
    assert cell().identity("rxsteer 2") not in identities
    # Existing data sets contain this value, so it must never change.
    assert cell().identity("rxsteer 1") == "b1d4bd52ad9ce64a"


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ({}, "nothing is to be run"),
        ({"grid": []}, "nothing is to be run"),
        ({"grids": []}, "no key 'grids'"),
        ({"grid": [{}]}, "takes scenario"),
        ({"grid": [{"scenario": "x", "seeds": 1}]}, "no key 'seeds'"),
        ({"grid": [{"scenario": "missing.toml"}]}, "can't read the scenario missing.toml"),
        ({"grid": [{"scenario": "x", "settings": {"a": []}}]}, "no value"),
        ({"grid": [{"scenario": "x", "settings": {"a": {"b": 1}}}]}, "quote keys"),
        ({"grid": [{"scenario": "x", "settings": 1}]}, "table"),
        ({"seeds": 0, "grid": [{"scenario": "x"}]}, "from 1"),
        ({"seeds": True, "grid": [{"scenario": "x"}]}, "whole number"),
        ({"seeds": {"last": 1}, "grid": [{"scenario": "x"}]}, "no key 'last'"),
        ({"seconds": 0, "grid": [{"scenario": "x"}]}, "above 0"),
        ({"timeout": -1, "grid": [{"scenario": "x"}]}, "above 0"),
        ({"faults": 1.5, "grid": [{"scenario": "x"}]}, "whole number"),
        ({"seeds": MAX_CELLS + 1, "seeds_per_cell": 1, "grid": [{"scenario": "x"}]}, "more than"),
    ],
)
def test_what_is_no_grid_is_refused_with_the_reason(grid: dict[str, object], reason: str) -> None:
    with pytest.raises(GridError, match=reason):
        parse(grid, HERE)


def test_files_are_read_relative_to_the_grid(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("title = 'mine'")
    grid = tmp_path / "grid.toml"
    grid.write_text("seeds = 1\n[[grid]]\nscenario = 'mine.toml'\n")
    assert read(grid).cells == (cell(scenario="mine", text="title = 'mine'", seeds=1),)
    grid.write_text("seeds = = 1")
    with pytest.raises(GridError, match=r"grid\.toml is no TOML"):
        read(grid)
    with pytest.raises(GridError, match="No such file"):
        read(tmp_path / "none.toml")
