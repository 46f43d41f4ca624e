"""Seconds per round of each engine, as ratios to the bare PyTorch loop of the same minute: `make bench`.

python benchmarks/engines.py --workloads silo,crowd,tiny --pairs 5
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from bare import BareLoop
from recording import Record, against, show
from rich.console import Console
from rich.progress import track
from torch import nn
from workloads import NUM_EXAMPLES, WORKLOADS, Workload

from fedadmm import FastFedADMM, FedADMM, FedAvg, LocalTraining, Simulation, federate, make_dataset
from fedadmm.state.disk import DiskStore

NUM_TEST_EXAMPLES = 10_000
ENGINES = {"silo": ("workers",), "crowd": ("workers",), "tiny": ("workers", "stacked")}


class Case(NamedTuple):
    """What is timed: a method, where its client state is, and its local epochs."""

    algorithm: Any
    state: str
    epochs: int
    same_clients: bool = False  # in every round: none is new
    active: int | None = None  # clients of a round, where they are fewer than the workload's, to take less time

    def __str__(self) -> str:
        method = type(self.algorithm).__name__
        named = method if method == "FedAvg" else f"{method}, state {self.state}"
        return f"{named}, the same clients again" if self.same_clients else named


AVERAGING, ADMM, FAST = FedAvg(), FedADMM(eta="seen"), FastFedADMM()
CASES = {
    "silo": (Case(AVERAGING, "in memory", 1), Case(ADMM, "on disk", 1), Case(ADMM, "on disk", 5, active=2)),
    "crowd": (
        Case(AVERAGING, "in memory", 1),
        Case(ADMM, "on disk", 1),
        Case(FAST, "on disk", 1),  # what `fedadmm run` takes by default
        Case(ADMM, "on disk", 5, active=20),
        Case(FAST, "on disk", 5, active=20),
        Case(ADMM, "in memory", 1, active=20),
        Case(ADMM, "on disk", 1, active=20, same_clients=True),
        Case(ADMM, "on disk in bfloat16", 1, active=20),
    ),
    "tiny": (
        Case(AVERAGING, "in memory", 1),
        Case(ADMM, "in memory", 1),
        Case(ADMM, "on disk", 1),
        Case(ADMM, "on disk", 5),
    ),
}

# Of workload, engine, what and E.
TARGETS = {
    ("crowd", "workers", "FedAvg", 1): 0.85,
    ("crowd", "workers", "FedADMM, state on disk", 1): 1.05,
    ("crowd", "workers", "FedADMM, state on disk", 5): 0.95,
    ("crowd", "workers", "FastFedADMM, state on disk", 1): 1.05,
    ("crowd", "workers", "FastFedADMM, state on disk", 5): 0.95,
    ("tiny", "stacked", "FedAvg", 1): 0.07,
    ("tiny", "stacked", "FedADMM, state in memory", 1): 0.10,
    ("tiny", "stacked", "FedADMM, state on disk", 1): 0.15,
}


def lenet() -> nn.Module:
    """Return LeNet-5 as a user writes it for a stack: a sequence, the pool before the activation."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def make_data(workload: Workload, *, num_test_examples: int = 0) -> Any:
    """Return random images of MNIST's form, dealt to the clients."""
    torch.manual_seed(0)
    train, test = ((torch.randn(n, 1, 28, 28), torch.randint(0, 10, (n,))) for n in (NUM_EXAMPLES, num_test_examples))
    dataset = make_dataset(train, test=test if num_test_examples else None)
    return federate(dataset, num_clients=workload.num_clients, partition="iid", seed=0)


@contextmanager
def simulation(workload: Workload, case: Case, engine: str, data: Any) -> Iterator[Simulation]:
    """Start a run of a workload, with client state in a folder or in memory."""
    with tempfile.TemporaryDirectory(dir=".") as folder:

        def first(*_: object) -> list[int]:
            return list(range(workload.clients_per_round))

        def on_disk(types: Any, initial: torch.Tensor) -> DiskStore:
            narrow = torch.bfloat16 if "bfloat16" in case.state else None
            return DiskStore(Path(folder) / "state", types=types, identity={}, initial=initial, float_type=narrow)

        run = Simulation(
            case.algorithm,
            model={"lenet": lenet}.get(workload.model, workload.model),
            data=data,
            local=LocalTraining(epochs=case.epochs, batch_size=workload.batch_size, learning_rate=0.01),
            participation=first if case.same_clients else workload.clients_per_round / workload.num_clients,
            seed=0,
            engine=engine,
            open_store=None if case.state == "in memory" else on_disk,
        )
        try:
            yield run
        finally:
            run.close()


def seconds(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def rows(name: str, *, pairs: int, console: Console) -> Iterator[dict[str, str]]:
    """Time a workload: each case and engine beside the bare loop, and one evaluation alone."""
    data = make_data(WORKLOADS[name])
    for engine in ENGINES[name]:
        for case in CASES[name]:
            workload = WORKLOADS[name]
            workload = workload._replace(clients_per_round=case.active or workload.clients_per_round)
            with closing(BareLoop.of(workload)) as bare, simulation(workload, case, engine, data) as run:
                for _ in range(3 if case.same_clients else 1):  # in the first two of three the file still grows
                    run.advance()
                title = f"{name}, {case}, E={case.epochs}, {engine}"
                times = [
                    (bare.seconds(epochs=case.epochs), seconds(run.advance))
                    for _ in track(range(pairs), description=title, console=console, transient=True)
                ]
            about = {"workload": name, "E": str(case.epochs), "clients": str(workload.clients_per_round)}
            target = TARGETS.get((name, engine, str(case), case.epochs))
            yield about | {"what": str(case), "engine": engine, **_ratio(times, target)}
        tested = make_data(WORKLOADS[name], num_test_examples=NUM_TEST_EXAMPLES)
        workload = WORKLOADS[name]
        with closing(BareLoop.of(workload)) as bare, simulation(workload, CASES[name][0], engine, tested) as run:
            run.evaluate()
            times = [(bare.seconds(epochs=1), seconds(run.evaluate)) for _ in range(pairs)]
        what = f"evaluation of {NUM_TEST_EXAMPLES:,} examples"
        yield {"workload": name, "E": "-", "clients": "-", "what": what, "engine": engine, **_ratio(times, None)}


def _ratio(times: list[tuple[float, float]], target: float | None) -> dict[str, str]:
    ratios = [ours / theirs for theirs, ours in times]
    middle = statistics.median(ratios)
    found = {"bare loop [s]": f"{statistics.median(theirs for theirs, _ in times):.2f}", "ratio": f"{middle:.3f}"}
    return found | {"from to": f"{min(ratios):.3f} to {max(ratios):.3f}", **against(middle, target)}


def main(
    workloads: Annotated[str, typer.Option(help="Comma-separated.")] = "silo,crowd,tiny",
    pairs: Annotated[int, typer.Option(help="Rounds of each, interleaved with the bare loop.")] = 5,
    record: Record = None,
) -> None:
    """Print the median ratio to the bare loop, and its spread."""
    console, found = Console(stderr=True), []
    for name in workloads.split(","):
        for row in rows(name, pairs=pairs, console=console):
            console.print(*row.values(), highlight=False, soft_wrap=True)
            found.append(row)
    show(found, title="Round / bare loop", record=record)


if __name__ == "__main__":
    typer.run(main)
