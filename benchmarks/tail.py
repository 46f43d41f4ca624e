"""How long workers wait in a round: what an evaluation that overlaps with the next round could fill at most.

python benchmarks/tail.py
"""

import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Annotated, Any
from unittest import mock

import typer
from engines import Case, make_data, simulation
from recording import Record, show
from workloads import WORKLOADS

from fedadmm import FedAvg
from fedadmm.core.engine import num_cores
from fedadmm.engine.workers import WorkerSetup

CASES: dict[str, tuple[str, Any]] = {
    "silo, E = 1": ("silo", 1),
    "silo, E = 1..5": ("silo", "1..5"),
    "crowd, E = 1": ("crowd", 1),
}
BUSY = get_context("fork").Value("d", 0.0)  # seconds of all workers


def main(rounds: Annotated[int, typer.Option(help="Measured rounds of each.")] = 2, record: Record = None) -> None:
    """Print in which share of their time workers had no job, in rounds with an evaluation of 10,000 examples each."""
    rows = []
    for name, (workload, epochs) in CASES.items():
        data = make_data(WORKLOADS[workload], num_test_examples=10_000)
        with (
            mock.patch.object(WorkerSetup, "__call__", _timed(WorkerSetup.__call__)),
            simulation(WORKLOADS[workload], Case(FedAvg(), "in memory", epochs), "workers", data) as run,
        ):
            run.advance()
            BUSY.value, begin = 0.0, time.perf_counter()
            for _ in range(rounds):
                run.advance()
            wall = time.perf_counter() - begin
        idle = 1 - BUSY.value / (num_cores() * wall)
        rows.append({"workload": name, "seconds a round": f"{wall / rounds:.2f}", "idle": f"{100 * idle:.1f} %"})
    show(rows, title="Workers without a job, of their time in a round and its evaluation", record=record)


def _timed(setup: Callable[[WorkerSetup], Callable[[Any], Any]]) -> Callable[[WorkerSetup], Callable[[Any], Any]]:
    def make(self: WorkerSetup) -> Callable[[Any], Any]:
        handle = setup(self)

        def timed(job: Any) -> Any:
            begin = time.perf_counter()
            try:
                return handle(job)
            finally:
                with BUSY.get_lock():
                    BUSY.value += time.perf_counter() - begin

        return timed

    return make


if __name__ == "__main__":
    typer.run(main)
