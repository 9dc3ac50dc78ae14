"""A grid file and its cells.

A cell is one scenario with one combination of settings and a few seeds: one process of `rxsteer sim`. Its
identity covers everything that determines its result, so a cell has the same file name in every sweep.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_CELLS = 100_000
"""The most cells of a sweep: each is a file."""

MAX_SEEDS = 1_000_000
"""The most seeds of a combination."""

LONGEST_TIMEOUT_S = 86_400.0
"""The longest timeout of a cell, in seconds."""

TOP_KEYS = ("seeds", "seeds_per_cell", "seconds", "faults", "timeout", "grid")
GRID_KEYS = ("scenario", "settings")
SEED_KEYS = ("first", "count")


class GridError(Exception):
    """The grid file can't be used. The text is the reason and what to write."""


@dataclass(frozen=True)
class Cell:
    """One process of `rxsteer sim`."""

    scenario: str
    """The name of a built-in scenario, or of a file."""
    text: str | None
    """The scenario file's text; None for a built-in scenario."""
    settings: tuple[tuple[str, str], ...]
    """The arguments of `--set`."""
    first_seed: int
    seeds: int
    seconds: float | None
    """Simulated time that is measured; None for the scenario's."""
    faults: int

    def identity(self, rxsteer: str) -> str:
        """A hash, 16 hex digits, of everything that determines the result, including rxsteer's version."""
        text = json.dumps([rxsteer, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def arguments(self, scenario: str) -> list[str]:
        """The arguments of rxsteer; `scenario` is a name or a file."""
        arguments = ["sim", scenario, "--json", "--threads", "1"]
        for key, value in self.settings:
            arguments += ["--set", f"{key}={value}"]
        arguments += ["--seed", str(self.first_seed), "--seeds", str(self.seeds)]
        if self.seconds is not None:
            arguments += ["--seconds", repr(self.seconds)]
        if self.faults:
            arguments += ["--faults", str(self.faults)]
        return arguments

    def __str__(self) -> str:
        """A readable name."""
        settings = "".join(f" {key}={value}" for key, value in self.settings)
        last = self.first_seed + self.seeds - 1
        return f"{self.scenario}{settings} seeds {self.first_seed}-{last}"


@dataclass(frozen=True)
class Grid:
    """All cells, and the timeout of each."""

    cells: tuple[Cell, ...]
    timeout_s: float


def read(path: Path) -> Grid:
    """Reads a grid file; scenario files are named relative to it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GridError(f"can't read the grid {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GridError(f"{path} is no TOML: {error}") from error
    try:
        return parse(data, path.parent)
    except GridError as error:
        raise GridError(f"{path}: {error}") from error


def parse(data: dict[str, Any], folder: Path) -> Grid:
    """Makes the cells of a grid file."""
    known(data, TOP_KEYS, "the grid file")
    first, count = seeds(data.get("seeds", 10))
    per_cell = whole(data.get("seeds_per_cell", 10), "seeds_per_cell", 1, MAX_SEEDS)
    seconds = data.get("seconds")
    if seconds is not None:
        seconds = number(seconds, "seconds", 1e6)
    faults = whole(data.get("faults", 0), "faults", 0, 1000)
    timeout_s = number(data.get("timeout", 600), "timeout", LONGEST_TIMEOUT_S)
    grids = data.get("grid")
    if not isinstance(grids, list) or not grids or not all(isinstance(grid, dict) for grid in grids):
        raise GridError('nothing is to be run; add [[grid]] with scenario = "router-one-queue"')
    cells: list[Cell] = []
    for grid in grids:
        known(grid, GRID_KEYS, "[[grid]]")
        name, text = scenario(grid.get("scenario"), folder)
        for settings in combinations(grid.get("settings", {})):
            for begin in range(first, first + count, per_cell):
                some = min(per_cell, first + count - begin)
                cells.append(Cell(name, text, settings, begin, some, seconds, faults))
                if len(cells) > MAX_CELLS:
                    raise GridError(f"it has more than {MAX_CELLS} cells; raise seeds_per_cell, or split it")
    return Grid(tuple(dict.fromkeys(cells)), timeout_s)


def known(table: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    """Refuses unknown keys."""
    for key in table:
        if key not in keys:
            raise GridError(f"{where} has no key '{key}'; its keys are {', '.join(keys)}")


def whole(value: object, key: str, least: int, most: int) -> int:
    """A whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise GridError(f"{key} takes a whole number from {least} to {most}, not {value!r}")
    return value


def number(value: object, key: str, most: float) -> float:
    """A number above 0 within limits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise GridError(f"{key} takes a number of seconds above 0 and at most {most:.0f}, not {value!r}")
    return float(value)


def seeds(value: object) -> tuple[int, int]:
    """The first seed, and the number of seeds."""
    if isinstance(value, dict):
        known(value, SEED_KEYS, "seeds")
        first = whole(value.get("first", 1), "seeds.first", 0, 2**62)
        return first, whole(value.get("count", 10), "seeds.count", 1, MAX_SEEDS)
    return 1, whole(value, "seeds", 1, MAX_SEEDS)


def scenario(value: object, folder: Path) -> tuple[str, str | None]:
    """A scenario's name, and its text if it is a file."""
    if not isinstance(value, str) or not value:
        raise GridError('[[grid]] takes scenario = "NAME" of a built-in one, or "FILE.toml"')
    if "/" not in value and not value.endswith(".toml"):
        return value, None
    try:
        return Path(value).stem, (folder / value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GridError(f"can't read the scenario {value}: {error}") from error


def combinations(settings: object) -> Iterator[tuple[tuple[str, str], ...]]:
    """All combinations of one value for each setting."""
    if not isinstance(settings, dict):
        raise GridError('settings is a table, e.g. "steering.policy" = ["rps", "sparse"]')
    axes = []
    for key, values in settings.items():
        several = values if isinstance(values, list) else [values]
        if not several:
            raise GridError(f"settings.'{key}' has no value; add one, or remove the key")
        axes.append([(key, text(key, value)) for value in several])
    yield from itertools.product(*axes)


def text(key: str, value: object) -> str:
    """A setting's value as `--set` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise GridError(f"settings.'{key}' takes strings and numbers, not {value!r}; quote keys with dots")
