"""Time and memory of a round as a federation grows: active clients, registered clients, parameters; and over Ray, what
passes the driver against the clients of a node.

python benchmarks/growth.py --picture docs/growth.png
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import matplotlib
import torch
import typer
from recording import Record, show
from rich.console import Console
from rich.progress import track

from fedadmm import FedADMM, LocalTraining, Simulation
from fedadmm.data.generated import synthetic
from nodes import METHODS, Traffic, traffic
from state import in_folder, mnist_like, seconds

matplotlib.use("Agg")
from matplotlib import pyplot as plt


class Point(NamedTuple):
    """One federation: its size in the direction of growth, a round's seconds, and memory in GB."""

    size: int
    seconds: float
    memory: float


def memory_of_tree() -> float:
    """Return the anonymous memory of this process and its children, in GB."""
    processes = [Path("/proc/self")]
    children = Path("/proc/self/task").glob("*/children")
    processes += [Path(f"/proc/{pid}") for file in children for pid in file.read_text().split()]
    lines = [line for process in processes for line in (process / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1e6


def measured(size: int, rounds: int, **settings: object) -> Point:
    """Run FedADMM with state on disk and return the median of its rounds but the first."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run = Simulation(FedADMM(rho=0.1), open_store=in_folder(Path(folder) / "state"), seed=0, **settings)  # type: ignore[arg-type]
        try:
            run.advance()
            times = [seconds(run.advance) for _ in range(rounds)]
            return Point(size, statistics.median(times), memory_of_tree())
        finally:
            run.close()


def active(rounds: int) -> Iterator[Point]:
    """Grow the number of active clients, of 10,000 registered."""
    for size in (10, 30, 100, 300, 1000):
        yield measured(
            size,
            rounds,
            model="softmax_regression",
            data=synthetic(num_clients=10_000, seed=0),
            local=LocalTraining(epochs=5),
            participation=size / 10_000,
        )


def registered(rounds: int) -> Iterator[Point]:
    """Grow the number of registered clients, 100 of them active."""
    for size in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):
        yield measured(
            size,
            rounds,
            model="softmax_regression",
            data=synthetic(num_clients=size, seed=0),
            local=LocalTraining(epochs=5),
            participation=100 / size,
        )


def parameters(rounds: int, *, largest: float = 1e7) -> Iterator[Point]:
    """Grow the hidden layer of a network, 10 of 100 clients of 60 images active (2 above 1e7), batches of 10."""
    for width in (12, 40, 126, 400, 1258, 4000, 12579, 39784, 125786):
        if 795 * width > 1.01 * largest:
            return
        module = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(784, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
        )
        yield measured(
            sum(parameter.numel() for parameter in module.parameters()),
            rounds,
            model=module,
            data=mnist_like(num_clients=100, num_examples=60),
            local=LocalTraining(epochs=1),
            participation=0.1 if width < 20_000 else 0.02,
        )


SWEEPS: dict[str, Callable[[int], Iterator[Point]]] = {
    "active clients": active,
    "registered clients": registered,
    "parameters": parameters,
}
COLORS = ("#0072B2", "#D55E00")


def draw_traffic(axes: Any, points: Sequence[Traffic]) -> None:
    """Draw seconds, and what the driver gets of a node, against the clients of the node."""
    for color, method in zip(COLORS, METHODS, strict=True):
        own = [point for point in points if point.method == method]
        sizes = [point.size for point in own]
        axes[0].loglog(sizes, [point.seconds for point in own], "o-", color=color, label=method)
        axes[1].loglog(sizes, [point.received for point in own], "o-", color=color, label=f"{method}, received")
        axes[1].loglog(sizes, [point.sent for point in own], "--", color=color, label=f"{method}, sent")
    axes[0].legend()
    axes[1].legend()
    axes[1].set_ylabel("driver and a node, MB")
    axes[1].set_xlabel("active clients of a Ray node")


def main(
    rounds: Annotated[int, typer.Option(help="Measured rounds of each.")] = 5,
    picture: Annotated[Path | None, typer.Option(help="Where to draw it.")] = None,
    largest: Annotated[
        float, typer.Option(help="Parameters at most; with 1e8 the states of four rounds take 6 GB of disk.")
    ] = 1e7,
    record: Record = None,
) -> None:
    """Print seconds and memory of a round for each size, and draw them."""
    rows = []
    figure, axes = plt.subplots(2, len(SWEEPS) + 1, figsize=(15, 5.5), sharex="col", layout="constrained")
    sweeps = SWEEPS | {"parameters": partial(parameters, largest=largest)}
    for number, (name, sweep) in enumerate(sweeps.items()):
        points = list(track(sweep(rounds), description=name, console=Console(stderr=True)))
        for point in points:
            taken = {"seconds": f"{point.seconds:.3f}", "anonymous memory [GB]": f"{point.memory:.2f}"}
            rows.append({"growing": name, "size": f"{point.size:,}", **taken})
        sizes = [point.size for point in points]
        axes[0, number].loglog(sizes, [point.seconds for point in points], "o-", color=COLORS[0])
        axes[1, number].semilogx(sizes, [point.memory for point in points], "o-", color=COLORS[1])
        axes[1, number].set_xlabel(name)
    for row in axes:
        for other in row[1 : len(SWEEPS)]:
            other.sharey(row[0])
    points = list(track(traffic(rounds), description="Ray", console=Console(stderr=True)))
    draw_traffic(axes[:, -1], points)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("seconds a round")
    axes[1, 0].set_ylabel("anonymous memory, GB")
    axes[1, 0].set_ylim(bottom=0)  # last, for a limit ends the fitting to what is drawn
    rows += [
        {
            "growing": f"clients of a Ray node, {each.method}",
            "size": f"{each.size:,}",
            "seconds": f"{each.seconds:.3f}",
            "driver sends a node [MB]": f"{each.sent:.2f}",
            "gets of it [MB]": f"{each.received:.2f}",
        }
        for each in points
    ]
    columns = dict.fromkeys(key for row in rows for key in row)
    whole = [{key: row.get(key, "") for key in columns} for row in rows]
    show(whole, title="A round of FedADMM, state on disk, engine workers; and over Ray", record=record)
    if picture is not None:
        figure.savefig(picture, dpi=130)


if __name__ == "__main__":
    typer.run(main)
