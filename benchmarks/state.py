"""What client state on disk costs: time against memory, memory as it grows, and a million registered clients.

python benchmarks/state.py disk --epochs 20 --active 2      time per round, on disk over in memory
python benchmarks/state.py memory --folder /tmp             anonymous memory of 1,000 clients of CNN 1 (13.3 GB on disk)
python benchmarks/state.py scale                            a million registered clients against ten thousand
"""

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from recording import Record, show

from fedadmm.algorithms import FedADMM
from fedadmm.core.participation import Devices
from fedadmm.core.seeds import stream
from fedadmm.data.generated import GeneratedData, synthetic
from fedadmm.runs.simulation import OpenStore, Simulation
from fedadmm.state.disk import DiskStore
from fedadmm.training.local import LocalTraining

app = typer.Typer(help=__doc__)

TEMPORARY = Path(tempfile.gettempdir())

Folder = Annotated[Path, typer.Option(help="Where the state is written.")]
Engine = Annotated[str, typer.Option(help="serial or workers.")]


def mnist_like(*, num_clients: int, num_examples: int) -> GeneratedData:
    """Return clients with images of MNIST's shape: noise, as only the time matters."""

    def client(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = stream(0, "benchmark", index)
        images = generator.standard_normal((num_examples, 1, 28, 28), dtype=np.float32)
        return torch.from_numpy(images), torch.from_numpy(generator.integers(0, 10, num_examples))

    return GeneratedData(client, num_clients=num_clients, num_classes=10)


def in_folder(folder: Path) -> OpenStore:
    """Return what opens a store on disk."""
    return lambda types, initial: TimedStore(folder, types=types, identity={"experiment": "benchmark"}, initial=initial)


class TimedStore(DiskStore):
    """A store on disk that adds up the time spent in it."""

    spent = 0.0

    def get(self, client: int) -> Any:
        """Read a state, on the clock."""
        return self._timed(lambda: super(TimedStore, self).get(client))

    def stage(self, round: int, client: int, state: Any) -> None:
        """Write a state ahead, on the clock."""
        self._timed(lambda: super(TimedStore, self).stage(round, client, state))

    def commit(self, *arguments: Any, **options: Any) -> None:
        """Commit a round, on the clock."""
        self._timed(lambda: super(TimedStore, self).commit(*arguments, **options))

    def _timed(self, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.spent += time.perf_counter() - began


def seconds(work: Callable[[], Any]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def memory_of_this_process() -> dict[str, float]:
    """Return anonymous and all resident memory in GB, and the highest that was resident."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    found = {line[0].rstrip(":"): int(line[1]) / 1e6 for line in lines if line[0] in ("RssAnon:", "VmRSS:", "VmHWM:")}
    return {"anonymous": found["RssAnon"], "resident": found["VmRSS"], "highest": found["VmHWM"]}


@app.command()
def disk(
    epochs: int = 1,
    batch_size: int = 10,
    active: Annotated[int, typer.Option(help="Clients in a round; all of them take part in every round.")] = 100,
    num_examples: int = 600,
    rounds: Annotated[int, typer.Option(help="Measured rounds, after a first one that reads no state.")] = 3,
    engine: Engine = "serial",
    folder: Folder = TEMPORARY,
    record: Record = None,
) -> None:
    """Compare the time of a round with state on disk and in memory, in turns."""
    place = Path(tempfile.mkdtemp(dir=folder))
    data = mnist_like(num_clients=active, num_examples=num_examples)
    stores: dict[str, OpenStore | None] = {"memory": None, "disk": in_folder(place / "state")}
    simulations = {
        name: Simulation(
            FedADMM(),
            model="cnn1",
            data=data,
            local=LocalTraining(epochs=epochs, batch_size=batch_size, learning_rate=0.01),
            participation=1.0,
            seed=0,
            open_store=store,
            engine=engine,  # type: ignore[arg-type]
        )
        for name, store in stores.items()
    }
    try:
        print(f"CNN 1, {active} active clients, E={epochs}, B={batch_size}, engine {engine}")
        print("round    memory [s]    disk [s]    disk / memory    of it in the store [s]    its share")
        ratios, shares, spent = [], [], 0.0
        for round in range(rounds + 1):
            order = list(simulations) if round % 2 else list(simulations)[::-1]  # who goes first changes
            taken = {name: seconds(simulations[name].advance) for name in order}
            ratio, total = taken["disk"] / taken["memory"], simulations["disk"]._store.spent  # type: ignore[attr-defined]
            share, own, spent = (total - spent) / taken["disk"], total - spent, total
            times = f"{taken['memory']:10.2f}    {taken['disk']:8.2f}    {ratio:13.3f}"
            print(f"{round + 1:5}    {times}    {own:22.2f}    {share:9.2%}", flush=True)
            if round:
                ratios.append(ratio)
                shares.append(share)
        row = {"active clients": str(active), "E": str(epochs), "B": str(batch_size), "engine": engine}
        row |= {"rounds": str(rounds), "disk / memory": f"{statistics.median(ratios):.3f}"}
        row |= {
            "from to": f"{min(ratios):.3f} to {max(ratios):.3f}",
            "share in the store": f"{statistics.median(shares):.2%}",
        }
        show([row], title="A round of CNN 1 with state on disk over one in memory", record=record)
        assert torch.equal(simulations["memory"].theta, simulations["disk"].theta)
    finally:
        for simulation in simulations.values():
            simulation.close()
        shutil.rmtree(place)


@app.command()
def memory(
    num_clients: int = 1000, active: int = 100, rounds: int = 30, folder: Folder = TEMPORARY, record: Record = None
) -> None:
    """Show that memory stays as it is while the state of 1,000 clients of CNN 1 grows to 13.3 GB."""
    free = shutil.disk_usage(folder).free / 1e9
    needed = 1.3 * num_clients * 2 * 1_663_370 * 4 / 1e9
    if free < needed:
        raise SystemExit(f"{folder} has {free:.0f} GB free and {needed:.0f} GB are needed; give another --folder")
    place = Path(tempfile.mkdtemp(dir=folder))

    def in_turn(round: int, generator: np.random.Generator, devices: Devices) -> list[int]:
        return sorted((active * (round - 1) + place) % num_clients for place in range(active))

    simulation = Simulation(
        FedADMM(),
        model="cnn1",
        data=mnist_like(num_clients=num_clients, num_examples=10),
        local=LocalTraining(batch_size=10, learning_rate=0.01),  # one step a visit: the state is what is measured
        participation=in_turn,
        seed=0,
        open_store=in_folder(place / "state"),
        engine="serial",
    )
    try:
        rows = []
        for round in range(1, rounds + 1):
            before = simulation._store.spent  # type: ignore[attr-defined]
            taken = seconds(simulation.advance)
            own = simulation._store.spent - before  # type: ignore[attr-defined]
            used, size = memory_of_this_process(), (place / "state" / "data.mdb").stat().st_size / 1e9
            if round == 1 or round % 5 == 0:
                row = {"round": str(round), "seconds": f"{taken:.1f}", "in the store": f"{own:.1f}"}
                row |= {"on disk [GB]": f"{size:.2f}", "anonymous [GB]": f"{used['anonymous']:.2f}"}
                rows.append(row | {"resident with the file [GB]": f"{used['resident']:.2f}"})
                print(*rows[-1].values(), file=sys.stderr, flush=True)
        show(rows, title=f"Memory while the state of {num_clients:,} clients of CNN 1 grows", record=record)
    finally:
        simulation.close()
        shutil.rmtree(place)


@app.command()
def scale(
    rounds: int = 20, active: int = 100, engine: Engine = "serial", folder: Folder = TEMPORARY, record: Record = None
) -> None:
    """Compare a round among a million registered clients with one among ten thousand, in turns."""
    place = Path(tempfile.mkdtemp(dir=folder))
    simulations = {
        number: Simulation(
            FedADMM(rho=0.1),
            model="softmax_regression",
            data=synthetic(num_clients=number, seed=0),
            local=LocalTraining(epochs=5),
            participation=active / number,
            seed=0,
            open_store=in_folder(place / str(number)),
            engine=engine,  # type: ignore[arg-type]
        )
        for number in (10_000, 1_000_000)
    }
    try:
        taken: dict[int, list[float]] = {number: [] for number in simulations}
        for round in range(rounds + 1):
            for number in list(simulations)[:: 1 if round % 2 else -1]:
                taken[number] += [seconds(simulations[number].advance)]
        rows = []
        for number, times in taken.items():
            low, middle, high = statistics.quantiles(times[1:], n=4)
            seen = len({client for record in simulations[number].history for client in record.clients})
            row = {
                "registered": f"{number:,}",
                "seconds a round": f"{middle:.3f}",
                "quartiles": f"{low:.3f} to {high:.3f}",
            }
            row |= {"clients with state": f"{seen:,}"}
            rows.append(row | {"resident, both in one process [GB]": f"{memory_of_this_process()['highest']:.2f}"})
        title = f"A round of softmax regression, {active} active clients, {rounds} rounds, engine {engine}"
        show(rows, title=title, record=record)
    finally:
        for simulation in simulations.values():
            simulation.close()
        shutil.rmtree(place)


if __name__ == "__main__":
    app()
