"""Cells as tasks on a Ray cluster: a new one on this machine, or an existing one.

The number of tasks under way is limited to a few for each CPU of the cluster, so a grid of any size takes
little memory here. Every wait ends: a cell has a timeout on its machine, and if no result arrives for much
longer than that, all tasks under way count as failed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rxsteer_sweep import cell as cells
from rxsteer_sweep.dataset import encode
from rxsteer_sweep.grid import Cell

# Ray reads this when it is imported.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

OBJECT_STORE_BYTES = 100 * 1024 * 1024
"""Memory for results in a new cluster: a cell's result takes some hundred kilobytes."""

AHEAD = 2
"""Tasks under way for each CPU of the cluster, so that no CPU waits for its next task."""

GRACE_S = 60.0
"""Extra time of a task beyond its cell's timeout, to start a worker on a busy machine."""


CONNECT_S = 5.0
"""How long the port of a cluster may take to answer. Ray itself retries a wrong address for minutes."""


TOKENS = (
    "; if the cluster requires tokens (the default of Ray 2.60), set RAY_AUTH_MODE=token and "
    "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH; otherwise compare the versions of Ray and Python"
)
"""Advice for a refused connection, for which Ray reports no cause."""


class ClusterError(Exception):
    """No cluster is available. The text is the reason and what to do."""


class Cluster:
    """A Ray cluster, connected until the block ends."""

    def __init__(self, address: str | None, cpus: int | None) -> None:
        """Connects to the cluster at `address`, or starts one here with `cpus` CPUs."""
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        connects = False
        try:
            if address is None:
                # Without an address Ray joins a cluster on this machine, or the one that RAY_ADDRESS names.
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    **common,
                )
            else:
                answers(address)
                connects = True
                # Its machines have rxsteer, but not this package.
                package = str(Path(__file__).parent)
                ray.init(address=address, runtime_env={"py_modules": [package]}, **common)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            where = f"at {address}" if address else "on this machine"
            raise ClusterError(f"no Ray cluster {where}: {error}{TOKENS if connects else ''}") from error

    def __enter__(self) -> Cluster:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnects, and ends a cluster that was started here."""
        ray.shutdown()

    def run(
        self, todo: Sequence[Cell], rxsteer: str, version: str, timeout_s: float
    ) -> Iterator[tuple[Cell, cells.Result]]:
        """Runs cells and yields each result when it arrives."""
        # Cancelled tasks must not run a second time.
        task = ray.remote(num_cpus=1, max_retries=0)(cells.run)
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        most = max(1, int(resources.get("CPU", 1))) * AHEAD
        waiting = iter(todo)
        under_way: dict[Any, Cell] = {}
        heard = time.monotonic()
        while True:
            while len(under_way) < most and (cell := next(waiting, None)) is not None:
                under_way[task.remote(cell, rxsteer, version, timeout_s)] = cell
            if not under_way:
                return
            done, _ = ray.wait(list(under_way), timeout=1.0)
            for reference in done:
                heard = time.monotonic()
                cell = under_way.pop(reference)
                yield cell, result_of(reference, cell, version)
            if time.monotonic() - heard > AHEAD * (timeout_s + GRACE_S):
                for reference, cell in under_way.items():
                    ray.cancel(reference, force=True)
                    yield cell, failed(cell, version, "no result arrived; does the cluster still run?")
                under_way.clear()
                heard = time.monotonic()


def answers(address: str) -> None:
    """Checks that something listens at `address`; OSError or ValueError if not."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ValueError("the address is not HOST:PORT, e.g. 10.0.0.5:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"nothing answers there ({error}); see `ray status` on its head") from error


def result_of(reference: Any, cell: Cell, version: str) -> cells.Result:  # noqa: ANN401
    """A task's result, or its failure as a result."""
    try:
        result: cells.Result = ray.get(reference)
    except ray.exceptions.RayError as error:
        return failed(cell, version, f"the task failed on the cluster: {error}"[: cells.LONGEST_ERROR])
    return result


def failed(cell: Cell, version: str, error: str) -> cells.Result:
    """The result of a cell that did not complete."""
    return cells.Result(cell.identity(version), encode(cell, version, None, error), error)
