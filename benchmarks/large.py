"""Memory of a round of FedADMM with a large model, state on disk, in sizes of a client's state.

python benchmarks/large.py --width 125786        100 million parameters: a state is 800 MB
"""

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from recording import Record, show

from fedadmm import FedADMM, LocalTraining, Simulation
from state import in_folder, mnist_like, seconds


def memory(process: int) -> dict[str, int]:
    """Return the bytes of each kind that a process holds; nothing once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(text.split()[0]) * 1024 for name, text in (line.split(":") for line in lines if "Rss" in line)}


class Highest:
    """The most memory that this process and its workers have held, looked at every 10 ms."""

    def __init__(self) -> None:
        self.anonymous: dict[int, int] = {}
        self.shared = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            children = Path("/proc/self/task").glob("*/children")
            processes = [os.getpid(), *(int(pid) for file in children for pid in file.read_text().split())]
            for process in processes:
                held = memory(process)
                self.anonymous[process] = max(self.anonymous.get(process, 0), held.get("RssAnon", 0))
                self.shared = max(self.shared, held.get("RssShmem", 0))
            time.sleep(0.01)


def main(
    width: Annotated[int, typer.Option(help="Of the hidden layer: 795 parameters each.")] = 12579,
    clients: Annotated[int, typer.Option(help="Of whom half take part in a round, with one example each.")] = 8,
    rounds: int = 3,
    engine: str = "workers",
    record: Record = None,
) -> None:
    """Print the highest memory up to each round: of the driver, of a worker, and what they share."""
    module = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    )
    size = sum(parameter.nbytes for parameter in module.parameters())
    found = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run = Simulation(
            FedADMM(rho=0.1),
            model=module,
            data=mnist_like(num_clients=clients, num_examples=1),
            local=LocalTraining(epochs=1, batch_size=1),
            participation=0.5,
            seed=0,
            engine=engine,  # type: ignore[arg-type]
            open_store=in_folder(Path(folder) / "state"),
        )
        before = memory(os.getpid())["RssAnon"]  # which a worker inherits, and does not touch
        highest = Highest()
        try:
            for round in range(1, rounds + 1):
                taken = seconds(run.advance)
                driver, *workers = highest.anonymous.values()
                own = [held - before for held in workers]
                kinds = {"driver": driver, "shared": highest.shared, "a worker": max(own, default=0)}
                held = {f"{kind} (states)": f"{most / 2 / size:.1f}" for kind, most in kinds.items()}
                found.append({"parameters": f"{size // 4:,}", "round": str(round), "seconds": f"{taken:.0f}", **held})
        finally:
            run.close()
    show(found, title=f"Highest memory, in states of {2 * size / 1e6:.0f} MB", record=record)


if __name__ == "__main__":
    typer.run(main)
