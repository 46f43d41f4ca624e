"""Table I: how the rounds to an epsilon-stationary point grow with m / S and 1 / epsilon, on quadratics.

64 clients with curvatures from 0.1 to 1 and minimisers far apart; local problems are solved exactly. The bounds
of the table are for any smooth function: on strongly convex ones rounds grow like log(1 / epsilon) instead.
"""

from typing import Any

import torch

from fedadmm.algorithms import FedADMM, FedDyn, FedProx, Scaffold
from fedadmm.core.algorithm import Algorithm, Message
from fedadmm.core.participation import Devices, Uniform
from fedadmm.core.round import Assignment, Progress, run_round, visit_client
from fedadmm.core.seeds import stream
from fedadmm.experiments.paper.preset import Preset, WorkedOut
from fedadmm.learning.quadratics import NO_BUFFERS, Quadratics, heterogeneous

NUM_CLIENTS, DIMENSION, MOST_ROUNDS = 64, 10, 1000
EPSILONS = (1e-2, 1e-4, 1e-6)
PUBLISHED = {
    "fedadmm": "1/eps (m/S)",
    "feddyn": "-",
    "scaffold": "1/eps^2 + 1/eps (m/S)^(2/3)",
    "fedprox": "B^2/eps, needs S > B^2",
}


def rounds_to(
    algorithm: Algorithm[Any, Any, Any], task: Quadratics, *, participation: float, seed: int
) -> dict[float, int]:
    """Return the first round in which |grad f(theta)|^2 is below each epsilon; those never reached are left out."""
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    states: dict[int, Message] = {}
    progress = Progress(0, algorithm.init_server(theta), NO_BUFFERS, 0.0)
    rule, devices = Uniform(participation), Devices(NUM_CLIENTS)
    reached: dict[float, int] = {}
    while len(reached) < len(EPSILONS) and progress.round < MOST_ROUNDS:
        number = progress.round + 1
        ids = rule.select(number, devices=devices, generator=stream(seed, "participation", number))
        answers = [
            visit_client(
                algorithm,
                algorithm.download(progress.server),
                client=client,
                state=states.get(client),
                initial=theta,
                problem=task.problem(Assignment(client, number, 1), buffers=NO_BUFFERS),
            )
            for client in map(int, ids)
        ]
        states |= {visit.client: state for visit, state in answers}
        progress, _ = run_round(
            algorithm,
            progress,
            [visit for visit, _ in answers],
            weight=lambda client: 1.0,
            registered=float(NUM_CLIENTS),
        )
        gap = float(task.gradient(progress.server.theta).square().sum())
        reached |= {eps: number for eps in EPSILONS if gap <= eps and eps not in reached}
    return reached


def table() -> WorkedOut:
    """Measure the rounds for each method, participation and epsilon."""
    exact = heterogeneous(NUM_CLIENTS, DIMENSION, seed=0)
    steps = heterogeneous(NUM_CLIENTS, DIMENSION, seed=0, num_steps=10, learning_rate=0.1)
    rho = 3.3 * exact.smoothness  # the theorem asks for more than (1 + sqrt 5) L
    methods: dict[str, tuple[Algorithm[Any, Any, Any], Quadratics]] = {
        "fedadmm": (FedADMM(rho=rho, eta="participation", newcomer="initial"), exact),
        "feddyn": (FedDyn(rho=rho), exact),
        "scaffold": (Scaffold(), steps),
        "fedprox": (FedProx(rho=rho), exact),
    }
    rows = []
    for label, (algorithm, task) in methods.items():
        for active in (64, 32, 16, 8, 4):
            reached = rounds_to(algorithm, task, participation=active / NUM_CLIENTS, seed=0)
            rounds = [str(reached.get(eps, f"{MOST_ROUNDS}+")) for eps in EPSILONS]
            last = reached.get(EPSILONS[-1])
            per_share = "-" if last is None else f"{last * active / NUM_CLIENTS:.1f}"
            rows.append((label, str(NUM_CLIENTS // active), *rounds, per_share, PUBLISHED[label]))
    columns = ("method", "m / S", *(f"eps {eps:g}" for eps in EPSILONS), "rounds S / m", "the paper's bound")
    return WorkedOut(columns, tuple(rows))


TABLE_1 = Preset("table1", "Table I: rounds against m / S and epsilon, on quadratics", table=table)
