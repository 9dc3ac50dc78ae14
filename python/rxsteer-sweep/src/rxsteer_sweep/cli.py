"""The command `rxsteer-sweep`.

Exit status: 0 all cells are complete, 1 a cell failed, 2 the sweep could not run, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rxsteer_sweep import grid as grids
from rxsteer_sweep.dataset import Folder
from rxsteer_sweep.progress import Progress

FINE, SOME_FAILED, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 130

MOST_CPUS = 1024
"""The most CPUs of a cluster on this machine."""

MOST_SHOWN = 20
"""Failures that are shown; all of them are in the data set."""

EPILOG = """\
example grid:
  seeds = 20
  [[grid]]
  scenario = "router-one-queue"
  [grid.settings]
  "steering.policy" = ["none", "rps", "sparse"]
  "traffic.0.flows" = [8, 64]

examples:
  rxsteer-sweep grid.toml --out results
  rxsteer-sweep grid.toml --out results --rxsteer target/release/rxsteer --cpus 2
  rxsteer-sweep grid.toml --out results --address 10.0.0.5:6379

A sweep does not repeat cells that are in the folder, except those that failed. Exit status: 0 all cells
are complete; 1 a cell failed; 2 could not run; 130 interrupted, with the results so far.
"""


class CannotRunError(Exception):
    """The sweep can't run. The text is the reason and what to do."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="rxsteer-sweep",
        description="Run a grid of rxsteer simulations on Ray, into one Parquet data set.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("grid", type=Path, metavar="GRID", help="what to run (TOML), e.g. grid.toml")
    options.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of the data set, e.g. results"
    )
    options.add_argument(
        "--rxsteer",
        default="rxsteer",
        metavar="PROGRAM",
        help="the program, a name or path that is the same on every machine, e.g. /opt/rxsteer "
        "(default: rxsteer)",
    )
    options.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="an existing Ray cluster, e.g. 10.0.0.5:6379; one with tokens requires "
        "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH (default: a new one on this machine)",
    )
    options.add_argument(
        "--cpus", type=positive, metavar="COUNT", help="CPUs of a new cluster, e.g. 2 (default: all)"
    )
    options.add_argument("--dry-run", action="store_true", help="list the cells that would run, and run none")
    options.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return options


def positive(text: str) -> int:
    """A number of CPUs."""
    if not text.isdigit() or not 1 <= int(text) <= MOST_CPUS:
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1 to {MOST_CPUS}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    options = parser().parse_args(arguments)
    if options.address and options.cpus:
        parser().error("--cpus is for a new cluster on this machine; the one at --address has its own")
    try:
        return sweep(options)
    except (CannotRunError, grids.GridError) as error:
        print(f"rxsteer-sweep: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except OSError as error:
        print(f"rxsteer-sweep: can't write to {options.out}: {error}", file=sys.stderr)
        return COULD_NOT_RUN


def sweep(options: argparse.Namespace) -> int:
    """Runs the cells that have no result yet."""
    grid = grids.read(options.grid)
    version = version_of(options.rxsteer)
    folder = Folder(options.out, make=not options.dry_run)
    todo = [cell for cell in grid.cells if not folder.has(cell.identity(version))]
    there = len(grid.cells) - len(todo)
    if options.dry_run and not options.json:
        for cell in todo:
            print(f"to run: {cell}")
    failures: list[tuple[grids.Cell, str]] = []
    done, interrupted = 0, False
    if todo and not options.dry_run:
        # Late: Ray takes seconds to import.
        from rxsteer_sweep.on_ray import Cluster, ClusterError  # noqa: PLC0415

        progress = Progress(len(todo))
        try:
            with Cluster(options.address, options.cpus) as cluster:
                for cell, result in cluster.run(todo, options.rxsteer, version, grid.timeout_s):
                    folder.write(result.identity, result.data, failed=result.error is not None)
                    done += 1
                    if result.error is not None:
                        failures.append((cell, result.error))
                    progress.show(done, len(failures))
        except ClusterError as error:
            raise CannotRunError(str(error)) from error
        except KeyboardInterrupt:
            interrupted = True
        finally:
            progress.close()
    show(options, len(grid.cells), there, done, failures)
    if interrupted:
        return INTERRUPTED
    return SOME_FAILED if failures else FINE


def show(
    options: argparse.Namespace, cells: int, there: int, done: int, failures: list[tuple[grids.Cell, str]]
) -> None:
    """Prints what was done, as text or JSON."""
    if options.json:
        failed = [{"cell": str(cell), "error": error} for cell, error in failures]
        printed = {
            "cells": cells,
            "there_before": there,
            "run": done,
            "failed": failed,
            "folder": str(options.out),
        }
        print(json.dumps(printed, indent=2))
        return
    for cell, error in failures[:MOST_SHOWN]:
        print(f"rxsteer-sweep: {cell}: {error}", file=sys.stderr)
    if len(failures) > MOST_SHOWN:
        print(
            f"rxsteer-sweep: and {len(failures) - MOST_SHOWN} more failures, which are in {options.out}",
            file=sys.stderr,
        )
    left = cells - there - done
    print(
        f"{cells} cells: {there} existed, {done} ran, {len(failures)} of these failed, {left} remain; "
        f"the results are in {options.out}"
    )


def version_of(rxsteer: str) -> str:
    """The program's version, which is part of a cell's identity."""
    try:
        command = [rxsteer, "--version"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotRunError(
            f"{rxsteer} can't be run: {error}; build it (cargo build --release) and name it with --rxsteer"
        ) from error
    return done.stdout.decode(errors="replace").strip()
