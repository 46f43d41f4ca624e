"""The analysis: Lemmas 1 to 3, Theorem 1 and Remark 2, measured on random quadratics (docs/THEORY.md)."""

from collections import Counter, defaultdict
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from fedadmm.algorithms import FedADMM
from fedadmm.core.algorithm import Vector
from fedadmm.core.seeds import stream
from fedadmm.studies.paper.study import Rows
from fedadmm.studies.theory.bounds import Assumptions, theorem_1, theorem_1_from_start
from fedadmm.studies.theory.quadratics import EXACT, Quadratics, Tolerance, coins, heterogeneous, random_quadratics
from fedadmm.studies.theory.walk import Lemmas, Path, lemmas, walk

NUM_PROBLEMS, NUM_DRAWS = 200, 20
# epsilon_i of (client, round): a level for each client that goes up and down, and shrinks.
UNSTEADY: Tolerance = lambda i, t: 10.0 ** -((i + t) % 4) / t  # noqa: E731


def as_analysed(rho: float) -> FedADMM:
    """Return FedADMM with the server's step and the start of Theorem 1."""
    return FedADMM(rho=rho, eta="participation", newcomer="initial")


def solved_to(task: Quadratics, tolerance: Tolerance, *, seed: int) -> Quadratics:
    """Return the same quadratics, solved to a tolerance."""
    return Quadratics(task.hessians, task.targets, tolerance=tolerance, seed=seed)


class Checks(NamedTuple):
    """A path, and the three lemmas along it, as printed and as they hold from the start."""

    path: Path
    printed: Lemmas
    holding: Lemmas


def checked(seed: int, *, tolerance: Tolerance, kind: type[FedADMM] = FedADMM, rounds: int = 30) -> Checks:
    """Walk over a random problem with random participation, and check the lemmas at every round."""
    task, rho = random_quadratics(seed)
    method = kind(rho=rho, eta="participation", newcomer="initial")
    draws = coins(len(task.targets), rounds=rounds, probability=0.2 + 0.2 * (seed % 5), seed=seed)
    path = walk(method, solved_to(task, tolerance, seed=seed), theta=task.random_start(seed), draws=draws)
    return Checks(path, lemmas(path, printed=True), lemmas(path, printed=False))


def lemmas_table() -> Rows:
    """Count where each lemma holds, with and without somebody new."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for seed in range(NUM_PROBLEMS):
        for solves, tolerance in (("exact", EXACT), ("inexact", UNSTEADY)):
            path, printed, holding = checked(seed, tolerance=tolerance)
            first = path.active & ~path.seen[:-1]  # [T, client]
            later = path.active & path.seen[:-1]
            newcomer, everyone = first.any(dim=1), path.seen.all(dim=1)
            where = (
                {"first visits": first, "later visits": later},
                {"rounds with a newcomer": newcomer, "other rounds": ~newcomer},
                {"before everyone was seen": ~everyone, "afterwards": everyone},
            )
            for number, places in enumerate(where):
                for place, mask in places.items():
                    row = counts[solves, f"Lemma {number + 1}, {place}"]
                    row["checked"] += int(mask.sum())
                    row["violated as printed"] += int((mask & ~printed[number].holds).sum())
                    row["violated with the error of the start"] += int((mask & ~holding[number].holds).sum())
    return [
        {"solves": solves, "lemma": lemma} | {column: f"{number:,}" for column, number in row.items()}
        for (solves, lemma), row in sorted(counts.items(), key=lambda item: item[0])
    ]


class Means(NamedTuple):
    """Means over draws of the participation: of V / m over the rounds, and of what bounds it."""

    later: float  # from the t at which everyone has been seen
    bound_later: float
    start: float  # from t = 0
    bound_printed: float
    bound_start: float


def means_over_draws(
    seed: int, *, epsilon: float = 0.0, theta: Vector | None = None, rounds: int = 10, p_min: float = 0.5
) -> Means:
    """Measure Theorem 1 on a random problem; theta^0 is random unless it is given."""
    exact, rho = random_quadratics(seed)
    task, num_clients = solved_to(exact, lambda i, t: epsilon, seed=seed), len(exact.targets)
    theta = task.random_start(seed) if theta is None else theta
    known = Assumptions(rho, task.smoothness, p_min, num_clients, task.lowest_value, epsilon)
    rows = []
    for draw in range(NUM_DRAWS):
        draws = coins(num_clients, rounds=rounds, probability=p_min, seed=seed, draw=draw, after_everyone=True)
        path = walk(as_analysed(rho), task, theta=theta, draws=draws)
        gaps, values = path.certificate.gap / num_clients, path.certificate.lagrangian.tolist()
        begin, gradients = path.everyone, float(path.errors[0].sum())
        later, start = (float(gaps[first : first + rounds].mean()) for first in (begin, 0))
        bound_later, printed = (theorem_1(known, rounds=rounds, lagrangian=values[first]) for first in (begin, 0))
        bound_start = theorem_1_from_start(known, rounds=rounds, lagrangian=values[0], gradients=gradients)
        rows.append((later, bound_later, start, printed, bound_start))
    return Means(*torch.tensor(rows, dtype=torch.float64).mean(dim=0).tolist())


def theorem_table() -> Rows:
    """Compare means with bounds over random problems, from random starts and from the minimiser."""
    rows = []
    for start in ("random", "the minimiser"):
        measured = []
        for seed in range(NUM_PROBLEMS // 2):
            theta = None if start == "random" else random_quadratics(seed)[0].minimiser()
            measured.append(means_over_draws(seed, theta=theta, epsilon=1e-3 if seed % 2 else 0.0))
        claims = {
            "once everyone was seen": [(m.later, m.bound_later) for m in measured],
            "from t = 0, as printed": [(m.start, m.bound_printed) for m in measured],
            "from t = 0, with the error of the start": [(m.start, m.bound_start) for m in measured],
        }
        for claim, pairs in claims.items():
            ratios = np.array([mean / max(bound, 1e-300) for mean, bound in pairs])
            median, largest = (f"{r:.2g}" if r < 1e6 else "unbounded" for r in (np.median(ratios), ratios.max()))
            rows.append(
                {"theta^0": start, "claim": claim, "problems": str(len(pairs)), "violated": str((ratios > 1).sum())}
                | {"median of mean / bound": median, "largest": largest}
            )
    return rows


# Four clients with curvatures from 0.55 to 1 (L), each in a round with probability 1/2.
LIMIT_RHO, LIMIT_CLIENTS = 3.3, 4
FLOORS: dict[str, Tolerance] = {
    "0": EXACT,
    "1e-6": lambda i, t: 1e-6,
    "1e-4": lambda i, t: 1e-4,
    "1e-2": lambda i, t: 1e-2,
    "1/t^2": lambda i, t: 1 / t**2,
}


@cache
def limit_task() -> Quadratics:
    """Return the four clients' quadratics: not on import, as torch would start its threads, which no fork survives."""
    curved = heterogeneous(LIMIT_CLIENTS, 2, seed=0)
    return Quadratics((curved.hessians + torch.eye(2)) / 2, curved.targets)


def gaps_of(tolerance: Tolerance, draws: list[list[int]]) -> torch.Tensor:
    """Return V^t along a path over the four clients."""
    task = solved_to(limit_task(), tolerance, seed=1)
    return walk(as_analysed(LIMIT_RHO), task, theta=torch.zeros(2).double(), draws=draws).certificate.gap


def halves(rounds: int) -> list[list[int]]:
    """Return draws in which each of the four clients takes part with probability 1/2."""
    return coins(LIMIT_CLIENTS, rounds=rounds, probability=0.5, seed=0)


def thinning(rounds: int, *, power: float, turns: bool = False) -> list[list[int]]:
    """Return draws with p_i^t = t^-power; with `turns`, client i only has a chance where t = i modulo m."""
    generator = stream(0, "thinning")
    draws = []
    for t in range(1, rounds + 1):
        fall = generator.random(LIMIT_CLIENTS) < t**-power
        draws.append([int(i) for i in np.flatnonzero(fall) if not turns or t % LIMIT_CLIENTS == i])
    return draws


def floor_table() -> Rows:
    """Follow V^t for tolerances that stay and that shrink."""
    _, _, c_3 = Assumptions(LIMIT_RHO, limit_task().smoothness, p_min=0.5).constants
    rows = []
    for name, tolerance in FLOORS.items():
        gaps = gaps_of(tolerance, halves(400)) / LIMIT_CLIENTS
        bound = f"{c_3 * tolerance(0, 1):.2g}" if name not in ("0", "1/t^2") else "0"
        columns = {"V / m, t = 50": 50, "100": 100, "200": 200, "400": 400}
        means = {column: _small(gaps[t - 10 : t].mean()) for column, t in columns.items()}
        rows.append({"epsilon": name, **means, "the theorem's floor, c_3 epsilon": bound})
    return rows


def _small(gap: torch.Tensor) -> str:
    """Return a gap in digits that do not depend on how a machine rounds."""
    return f"{float(gap):.1e}" if gap > 1e-15 else "under 1e-15"


def remark_table() -> Rows:
    """Follow V^t where clients take part more and more seldom."""
    rules = {
        "1/sqrt t": thinning(8000, power=0.5),
        "1/sqrt t, never two at a time": thinning(8000, power=0.5, turns=True),
        "1/t^2": thinning(8000, power=2.0),
    }
    rows = []
    for name, draws in rules.items():
        gaps = gaps_of(EXACT, draws) / LIMIT_CLIENTS
        visits = sum(map(len, draws)) / LIMIT_CLIENTS
        columns = {"V / m, t = 0": 0, "500": 500, "2,000": 2000, "8,000": 8000}
        at = {column: _small(gaps[t]) for column, t in columns.items()}
        rows.append({"p_i^t": name, "visits a client": f"{visits:.0f}", **at})
    return rows
