"""How many rounds every method takes to near the optimum of quadratics, at what rate, and what theory promises."""

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedadmm.algorithms import FedADMM, FedDyn, FedHybrid, FedPD, FedSGD
from fedadmm.config.algorithm_table import algorithm_from_table
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.files import write_whole
from fedadmm.data.generated import quadratic
from fedadmm.studies.theory.quadratics import Quadratics
from fedadmm.studies.theory.walk import models

NUM_CLIENTS, DIMENSION, CONDITION, SEED = 100, 5, 10.0, 0
Found = dict[str, dict[str, Any]]  # results by the key of their cell
DATA = {"IID": 0.1, "non-IID": 1.0}  # heterogeneity of the quadratics
LIMITS = {1.0: 200, 0.1: 1500, 0.01: 8000}  # participation: rounds at most
TARGETS = (1e-3, 1e-6)
ARRIVED, LOST = 1e-7, 1e3  # distances at which a run ends
PATIENCE = 5  # it also ends if a fifth of its rounds has not brought it nearer by a tenth
RHO = 1.0  # of all methods in convex.toml


@dataclass(frozen=True)
class Method:
    """A method as the table has it: its local work is this many gradient steps, or an exact solve where it is None."""

    algorithm: AnyAlgorithm
    num_steps: int | None = None
    learning_rate: float = 0.1
    theory: Sequence[str] = field(repr=False, kw_only=True)  # what is promised, with all clients and with some


METHODS = {
    name: Method(**table | {"algorithm": algorithm_from_table(table["algorithm"])})
    for name, table in tomllib.loads(
        (resources.files("fedadmm.studies") / "convex.toml").read_text(encoding="utf-8")
    ).items()
}
WITH_ALL = FedPD | FedHybrid  # stated for all clients in every round
CONSENSUS_ADMM = FedADMM | FedDyn | FedPD  # what they are with all clients and exact solves


class Cell(NamedTuple):
    """One run of the table."""

    method: str
    data: str
    participation: float

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.method} / {self.data} / {self.participation:g}"

    @property
    def setting(self) -> str:
        """All that its result depends on."""
        problem = (NUM_CLIENTS, DIMENSION, CONDITION, SEED, DATA[self.data], LIMITS[self.participation])
        return f"{METHODS[self.method]} {problem}"


def cells() -> list[Cell]:
    """Return the runs of the table; a method that needs everyone has no others."""
    return [
        Cell(name, data, participation)
        for name, method in METHODS.items()
        for data in DATA
        for participation in LIMITS
        if participation == 1 or not isinstance(method.algorithm, WITH_ALL)
    ]


@cache
def clients(data: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the Hessians and the minimisers of all clients."""
    made = quadratic(
        num_clients=NUM_CLIENTS, seed=SEED, dimension=DIMENSION, condition=CONDITION, heterogeneity=DATA[data]
    )
    rows = made.inputs.view(NUM_CLIENTS, -1, DIMENSION)
    return rows.mT @ rows / rows.shape[1], torch.linalg.solve(rows, made.targets.view(NUM_CLIENTS, -1))


def distances(cell: Cell) -> Iterator[float]:
    """Yield |theta - optimum| / |theta^0 - optimum| after each round, until it arrived, is lost, or stands still."""
    method, limit = METHODS[cell.method], LIMITS[cell.participation]
    task = Quadratics(*clients(cell.data), num_steps=method.num_steps, learning_rate=method.learning_rate)
    optimum, nearest, since = task.minimiser(), 1.0, 0
    thetas = models(method.algorithm, task, participation=cell.participation, num_rounds=limit)
    for round, theta in enumerate(thetas, start=1):
        distance = float((theta - optimum).norm() / optimum.norm())
        if distance < 0.9 * nearest:
            nearest, since = distance, round
        yield distance
        if not ARRIVED < distance < LOST or round - since >= limit / PATIENCE:
            return


def outcome(cell: Cell) -> dict[str, Any]:
    """Return a cell's result: rounds to each target, the measured slope, and where it ended."""
    found = np.array(list(distances(cell)))
    arrivals = [int(np.argmax(found <= target)) + 1 if (found <= target).any() else None for target in TARGETS]
    return {
        "setting": cell.setting,
        "rounds": len(found),
        "arrivals": arrivals,
        "slope": slope(found) if arrivals[0] is not None else None,
        "last": float(f"{np.median(found[-max(1, len(found) // 10) :]):.2e}"),
    }


def slope(found: np.ndarray) -> float:
    """Return by how many powers of ten the distance changes in a round, fitted from the first one below 0.1 on."""
    start = int(np.argmax(found < 0.1))
    numbers = np.arange(start, len(found))
    steps = np.polyfit(numbers, np.log10(found[start:]), 1)[0] if len(numbers) > 1 else math.log10(found[-1])
    return float(f"{steps:.3g}")


def promised(cell: Cell) -> float | None:
    """Return the slope that theory promises at least, None where it gives no number.

    FedSGD with everyone is gradient descent: max |1 - lr lambda| over the eigenvalues of the mean Hessian. FedADMM with
    everyone, eta 1 and exact solves is the consensus ADMM, as are FedDyn and FedPD: a Douglas-Rachford splitting, whose
    factor is at most (1 + delta) / 2 with delta = max((L - rho) / (L + rho), (rho - mu) / (rho + mu)) (Giselsson and
    Boyd, IEEE TAC 2017).
    """
    if cell.participation != 1:
        return None
    method = METHODS[cell.method]
    if isinstance(method.algorithm, FedSGD):
        curvatures = torch.linalg.eigvalsh(clients(cell.data)[0].mean(dim=0))
        return math.log10(float((1 - method.learning_rate * curvatures).abs().max()))
    if isinstance(method.algorithm, CONSENSUS_ADMM):
        mu, largest = 1 / CONDITION, 1.0
        delta = max((largest - RHO) / (largest + RHO), (RHO - mu) / (RHO + mu))
        return math.log10((1 + delta) / 2)
    return None


def read(path: Path) -> Found:
    """Return the results that are there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def fill(path: Path, *, on_cell: Callable[[Cell, int, int], None]) -> Found:
    """Run what is missing in a file of results; it may be stopped, and goes on where it was.

    on_cell: is told of each run before it, with its number and that of all.
    """
    found = read(path)
    wanted = cells()
    made_with = {"fedadmm": version("fedadmm"), "torch": torch.__version__}
    for number, cell in enumerate(wanted):
        if found.get(cell.key, {}).get("setting") != cell.setting:
            on_cell(cell, number, len(wanted))
            found[cell.key] = outcome(cell) | {"made_with": made_with}
            path.parent.mkdir(parents=True, exist_ok=True)
            known = {c.key: found[c.key] for c in wanted if c.key in found}
            write_whole(path, json.dumps(known, indent=1) + "\n")
    return found


def rows(found: Found, *, data: str) -> list[dict[str, str]]:
    """Return a row per method: for each participation the rounds to each target, and where it ended."""
    return [
        {"method": name}
        | {
            f"{_share(share)}: {title}": text
            for share in LIMITS
            for title, text in _arrivals(found.get(Cell(name, data, share).key)).items()
        }
        for name in METHODS
    ]


def theory_rows(found: Found, *, data: str) -> list[dict[str, str]]:
    """Return a row per method: the slope that theory promises with all clients, the measured one, and with some."""
    table = []
    for name, method in METHODS.items():
        with_all, with_some = method.theory
        if with_all == "number":
            with_all = f"{promised(Cell(name, data, 1.0)):.3f} or steeper"
        everyone, *some = [(f"{_share(p)}: measured", _slope(found.get(Cell(name, data, p).key))) for p in LIMITS]
        table.append(dict([("method", name), ("all: theory", with_all), everyone, ("some: theory", with_some), *some]))
    return table


def broken_promises(found: Found) -> list[str]:
    """Return the cells whose measured slope is flatter than theory promises, to 5 %."""
    broken = []
    for cell in cells():
        number, entry = promised(cell), found.get(cell.key)
        if number is not None and entry is not None and (entry["slope"] is None or entry["slope"] > 0.95 * number):
            broken.append(cell.key)
    return broken


def _arrivals(entry: dict[str, Any] | None) -> dict[str, str]:
    """Return the rounds to each target, and where a run ended that did not arrive."""
    titles = [f"{target:.0e}".replace("e-0", "e-") for target in TARGETS]
    if entry is None:
        return dict.fromkeys([*titles, "ends at"], "")
    reached = [f"{entry['rounds']}+" if arrival is None else str(arrival) for arrival in entry["arrivals"]]
    end = f"over {LOST / 10:g}" if not entry["last"] < LOST / 10 else f"{entry['last']:.1g}"
    return dict(zip(titles, reached, strict=True)) | {"ends at": end if entry["arrivals"][-1] is None else "-"}


def _slope(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    return "-" if entry["slope"] is None or entry["arrivals"][-1] is None else f"{entry['slope']:.3g}"


def _share(participation: float) -> str:
    return "all" if participation == 1 else f"{participation:.0%}"
