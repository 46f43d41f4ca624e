"""Table I: how the rounds to an epsilon-stationary point grow with m / S and 1 / epsilon, on quadratics.

64 clients with curvatures from 0.1 to 1 and minimisers far apart; local problems are solved exactly. The bounds
of the table are for any smooth function: on strongly convex ones rounds grow like log(1 / epsilon) instead.
"""

import torch

from fedadmm.algorithms import FedADMM, FedDyn, FedProx, Scaffold
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.participation import Uniform
from fedadmm.studies.paper.study import Rows, published
from fedadmm.studies.theory.quadratics import Quadratics, drawn, heterogeneous
from fedadmm.studies.theory.walk import rounds

NUM_CLIENTS, DIMENSION, MOST_ROUNDS = 64, 10, 1000
EPSILONS = (1e-2, 1e-4, 1e-6)


def rounds_to(algorithm: AnyAlgorithm, task: Quadratics, *, participation: float, seed: int) -> dict[float, int]:
    """Return the first round in which |grad f(theta)|^2 is below each epsilon; those never reached are left out."""
    draws = drawn(Uniform(participation), num_clients=NUM_CLIENTS, rounds=MOST_ROUNDS, seed=seed)
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    reached: dict[float, int] = {}
    for checkpoint, _ in rounds(algorithm, task, theta=theta, draws=draws):
        gap = float(task.gradient(algorithm.model(checkpoint.server)).square().sum())
        reached |= {eps: checkpoint.round for eps in EPSILONS if gap <= eps and eps not in reached}
        if len(reached) == len(EPSILONS):
            break
    return reached


def table() -> Rows:
    """Measure the rounds for each method, participation and epsilon."""
    exact = heterogeneous(NUM_CLIENTS, DIMENSION, seed=0)
    steps = heterogeneous(NUM_CLIENTS, DIMENSION, seed=0, num_steps=10, learning_rate=0.1)
    rho = 3.3 * exact.smoothness  # the theorem asks for more than (1 + sqrt 5) L
    methods: dict[str, tuple[AnyAlgorithm, Quadratics]] = {
        "fedadmm": (FedADMM(rho=rho, eta="participation", newcomer="initial"), exact),
        "feddyn": (FedDyn(rho=rho), exact),
        "scaffold": (Scaffold(), steps),
        "fedprox": (FedProx(rho=rho), exact),
    }
    rows = []
    for label, (algorithm, task) in methods.items():
        for active in (64, 32, 16, 8, 4):
            reached = rounds_to(algorithm, task, participation=active / NUM_CLIENTS, seed=0)
            last = reached.get(EPSILONS[-1])
            rows.append(
                {"method": label, "m / S": str(NUM_CLIENTS // active)}
                | {f"eps {eps:g}": str(reached.get(eps, f"{MOST_ROUNDS}+")) for eps in EPSILONS}
                | {"rounds S / m": "-" if last is None else f"{last * active / NUM_CLIENTS:.1f}"}
                | {"the paper's bound": published("table1")[label]}
            )
    return rows
