"""Seconds per round of each engine, as ratios to the bare PyTorch loop of the same minute: `make bench`.

python benchmarks/engines.py --workloads silo,crowd,tiny --pairs 5
"""

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from bare import BareLoop
from rich.console import Console
from rich.table import Table

from fedadmm import FedADMM, FedAvg, Local, Simulation, federate, make_dataset
from fedadmm.state.disk import DiskStore

NUM_EXAMPLES = 60_000  # of MNIST's form; their values do not matter to the time


class Workload(NamedTuple):
    """6,000 examples a round."""

    model: str
    num_clients: int
    clients_per_round: int
    batch_size: int
    engines: tuple[str, ...]


WORKLOADS = {
    "silo": Workload("cnn1", 100, 10, 50, ("workers",)),
    "crowd": Workload("cnn1", 1000, 100, 10, ("workers",)),
    "tiny": Workload("softmax_regression", 1000, 100, 10, ("workers", "stacked")),
}


def simulation(
    workload: Workload, algorithm: Any, engine: str, epochs: int, folder: Path | None
) -> Simulation:
    """Return a run of a workload, with client state in a folder or in memory."""
    torch.manual_seed(0)
    examples = (torch.randn(NUM_EXAMPLES, 1, 28, 28), torch.randint(0, 10, (NUM_EXAMPLES,)))
    data = federate(make_dataset(examples), num_clients=workload.num_clients, partition="iid", seed=0)
    store: Callable[..., Any] | None = None
    if folder is not None:

        def store(kinds: Any, initial: torch.Tensor) -> DiskStore:
            return DiskStore(folder / "state", kinds=kinds, identity={}, initial=initial)

    return Simulation(
        algorithm,
        model=workload.model,
        data=data,
        local=Local(epochs=epochs, batch_size=workload.batch_size, learning_rate=0.01),
        participation=workload.clients_per_round / workload.num_clients,
        seed=0,
        engine=engine,
        open_store=store,
    )


def seconds(run: Simulation) -> float:
    """Return the seconds of one round, evaluation left out: there are no test examples."""
    began = time.perf_counter()
    run.advance()
    return time.perf_counter() - began


def main(
    workloads: Annotated[str, typer.Option(help="Comma-separated.")] = "silo,crowd,tiny",
    epochs: Annotated[str, typer.Option(help="Comma-separated numbers of local epochs.")] = "1,5",
    pairs: Annotated[int, typer.Option(help="Rounds of each, interleaved with the bare loop.")] = 5,
) -> None:
    """Print the median ratio to the bare loop, and its spread."""
    table = Table(title=f"Round / bare loop, {platform.machine()}, {torch.__version__}", title_justify="left")
    for column in ("workload", "E", "method", "state", "engine", "bare s", "ratio", "min", "max"):
        table.add_column(column)
    for name in workloads.split(","):
        workload = WORKLOADS[name]
        per_client = NUM_EXAMPLES // workload.num_clients
        bare = BareLoop(
            workload.model,
            clients_per_round=workload.clients_per_round,
            examples_per_client=per_client,
            batch_size=workload.batch_size,
        )
        for count in map(int, epochs.split(",")):
            for engine in workload.engines:
                for algorithm, on_disk in (
                    (FedAvg(), False),
                    (FedADMM(eta="seen"), False),
                    (FedADMM(eta="seen"), True),
                ):
                    with ExitStack() as held:
                        folder = (
                            Path(held.enter_context(tempfile.TemporaryDirectory(dir=".")))
                            if on_disk
                            else None
                        )
                        run = simulation(workload, algorithm, engine, count, folder)
                        held.callback(run.close)
                        seconds(run)
                        bares, ours = zip(
                            *((bare.seconds(epochs=count), seconds(run)) for _ in range(pairs)), strict=True
                        )
                    ratios = [b / a for a, b in zip(bares, ours, strict=True)]
                    table.add_row(
                        name, str(count), type(algorithm).__name__, "disk" if on_disk else "memory", engine,
                        f"{statistics.median(bares):.2f}", f"{statistics.median(ratios):.2f}",
                        f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                    )  # fmt: skip
                    Console(stderr=True).print(
                        table.columns[6]._cells[-1], name, count, algorithm, on_disk, engine
                    )
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
