"""Tables that need no run: they are worked out on the spot, most of them on quadratics.

These have curvatures from 0.1 to 1, and minimisers far apart. Table I has 64 clients that solve exactly. The table of
all algorithms has 10 clients in 6 dimensions; a visit is 5 gradient steps of 0.2, rho is 0.3 for all methods that have
one, and everything else as it comes.
"""

import inspect
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedadmm.algorithms import ALGORITHMS, FedADMM, FedDyn, FedPD, FedProx, Scaffold
from fedadmm.config.algorithm_table import algorithm_to_table
from fedadmm.config.compatibility import check_everyone
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.errors import InputError
from fedadmm.core.optional import NeedsEveryClient, SkipsCommunication, trait
from fedadmm.core.participation import Uniform
from fedadmm.core.round import Assignment
from fedadmm.data.partition import imbalanced
from fedadmm.studies.paper import PAPER, Rows
from fedadmm.studies.paper.study import published
from fedadmm.studies.theory.quadratics import NO_BUFFERS, Quadratics, heterogeneous
from fedadmm.studies.theory.walk import models

EPSILONS = (1e-2, 1e-4, 1e-6)
TABLE_1_CLIENTS, TABLE_1_ROUNDS = 64, 700
NUM_CLIENTS, DIMENSION, NUM_ROUNDS, RHO = 10, 6, 300, 0.3
# Forms that end elsewhere than the algorithm as it comes.
FORMS: dict[str, dict[str, AnyAlgorithm]] = {
    "fedadmm": {"fedadmm, eta participation": FedADMM(rho=RHO, eta="participation", newcomer="initial")},
    "fedpd": {"fedpd, skip probability 0.5": FedPD(rho=RHO, skip_probability=0.5)},
}


def table_1(ratios: Sequence[int] = (1, 2, 4, 8, 16)) -> Rows:
    """Measure how the rounds to an epsilon-stationary point grow with m / S, which are the ratios, and 1 / epsilon.

    The bounds of the table are for any smooth function: on strongly convex ones rounds grow like log(1 / epsilon).
    """
    exact = heterogeneous(TABLE_1_CLIENTS, 10, seed=0)
    steps = heterogeneous(TABLE_1_CLIENTS, 10, seed=0, num_steps=10, learning_rate=0.1)
    rho = 3.3 * exact.smoothness  # the theorem asks for more than (1 + sqrt 5) L
    compared: dict[str, tuple[AnyAlgorithm, Quadratics]] = {
        "fedadmm": (FedADMM(rho=rho, eta="participation", newcomer="initial"), exact),
        "feddyn": (FedDyn(rho=rho), exact),
        "scaffold": (Scaffold(), steps),
        "fedprox": (FedProx(rho=rho), exact),
    }
    rows = []
    for label, (algorithm, task) in compared.items():
        for ratio in ratios:
            reached = _first_rounds(algorithm, task, participation=1 / ratio)
            last = reached.get(EPSILONS[-1])
            rows.append(
                {"method": label, "m / S": str(ratio)}
                | {f"eps {eps:g}": str(reached.get(eps, f"{TABLE_1_ROUNDS}+")) for eps in EPSILONS}
                | {"rounds S / m": "-" if last is None else f"{last / ratio:.1f}"}
                | {"the paper's bound": published("table1")[label]}
            )
    return rows


def _first_rounds(algorithm: AnyAlgorithm, task: Quadratics, *, participation: float) -> dict[float, int]:
    """Return the first round in which |grad f(theta)|^2 is below each epsilon; those never reached are left out."""
    reached: dict[float, int] = {}
    thetas = models(algorithm, task, participation=participation, num_rounds=TABLE_1_ROUNDS)
    for round, theta in enumerate(thetas, start=1):
        gap = float(task.gradient(theta).square().sum())
        reached |= {eps: round for eps in EPSILONS if gap <= eps and eps not in reached}
        if len(reached) == len(EPSILONS):
            break
    return reached


def methods() -> dict[str, AnyAlgorithm]:
    """Return every algorithm of ours, and the forms of two that end elsewhere than they do."""
    found: dict[str, AnyAlgorithm] = {}
    for name, kind in ALGORITHMS.items():
        has_rho = any(field.name == "rho" for field in fields(kind))
        found[name] = kind(**({"rho": RHO} if has_rho else {}))
        found |= FORMS.get(name, {})
    return found


def distance(algorithm: AnyAlgorithm, task: Quadratics, *, participation: float) -> str:
    """Return how far theta is from the minimiser after the rounds; "refused" where the method needs everyone."""
    try:
        check_everyone(algorithm, Uniform(participation))
    except InputError:
        return "refused"
    *_, theta = models(algorithm, task, participation=participation, num_rounds=NUM_ROUNDS)
    gap = float((theta - task.minimiser()).norm())
    if gap >= 1:
        return "above 1"  # FedExP does not settle: where it is then depends on the last bit, and so on the machine
    return "under 1e-8" if gap < 1e-8 else f"{gap:.0e}" if gap < 0.01 else f"{gap:.2f}"


def sizes(algorithm: AnyAlgorithm, task: Quadratics, *, scalars: bool = True) -> list[str]:
    """Return what a client keeps, what it sends, and what the server keeps, counted from a visit.

    Each is a number of vectors of the model's size d, and a number of scalars beside them.
    """
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    server = algorithm.init_server(theta)
    problem = task.problem(Assignment(0, 1, 1), buffers=NO_BUFFERS)
    upload, kept = algorithm.client_update(algorithm.download(server), algorithm.init_client(theta), problem)
    found = []
    for message in (kept, upload, server):
        vectors = sum(torch.as_tensor(field).numel() == DIMENSION for field in message)
        others = len(message) - vectors
        parts = ["d" if vectors == 1 else f"{vectors}d"] if vectors else []
        if others and scalars:
            parts.append(str(others))
        found.append(" + ".join(parts) or "0")
    return found


def facts(algorithm: AnyAlgorithm, task: Quadratics) -> dict[str, str]:
    """Return what an algorithm's file and its messages tell."""
    file = Path(inspect.getfile(type(algorithm)))
    kept, sent, server = sizes(algorithm, task)
    who = "all compute, any communicate" if trait(algorithm, SkipsCommunication) else "any"
    return (
        {"file": file.name, "lines": str(len(file.read_text(encoding="utf-8").splitlines()))}
        | {"a client keeps": kept, "a client sends": sent, "the server keeps": server}
        | {"participation": "all" if trait(algorithm, NeedsEveryClient) else who}
    )


def keys(algorithm: AnyAlgorithm) -> str:
    """Return what one may write beside the name in [algorithm], each key with its default, where TOML can say it."""
    table = algorithm_to_table(type(algorithm)())
    written = {key: value for key, value in table.items() if key != "name" and value is not None}
    return ", ".join(f"{key} = {_toml(value)}" for key, value in written.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def quadratics() -> Quadratics:
    """Return the clients on which the methods are played."""
    return heterogeneous(NUM_CLIENTS, DIMENSION, seed=1, num_steps=5, learning_rate=0.2)


def algorithms() -> Rows:
    """Look at each algorithm, and play it."""
    task = quadratics()
    return [
        {"method": name, **facts(algorithm, task)}
        | {"distance with everyone": distance(algorithm, task, participation=1.0)}
        | {"distance with a fifth": distance(algorithm, task, participation=0.2)}
        | {"keys and their defaults": keys(algorithm)}
        for name, algorithm in methods().items()
    ]


def messages() -> Rows:
    """Return the floats in a message and in storage, counted from the types."""
    rows = []
    compared = {str(run.experiment.label): run.experiment.algorithm for run in PAPER["table3"].runs("paper")}
    for label, algorithm in compared.items():
        kept, sent, server = sizes(algorithm, quadratics(), scalars=False)
        message, storage = published("messages").get(label, ("-", "-"))
        rows.append(
            {"method": label, "message": sent, "storage (server, client)": f"({server}, {kept})"}
            | {"the paper's message": message, "the paper's storage": storage}
        )
    return rows


def unequal_volumes() -> Rows:
    """Deal balanced labels out as Figure 10 does, and describe the clients' volumes."""
    rows = []
    for dataset, samples, printed in (("FMNIST", 60_000, "171.03"), ("CIFAR-10", 50_000, "142.52")):
        dealt = imbalanced(np.arange(samples) % 10, num_clients=200, generator=np.random.default_rng(0))
        volumes = np.array([len(own) for own in dealt])
        rows.append(
            {"dataset": dataset, "clients": "200", "samples": f"{volumes.sum():,}", "mean": f"{volumes.mean():g}"}
            | {"standard deviation": f"{volumes.std(ddof=1):.4f}", "the paper's": printed}
        )
    return rows


def related_work() -> Rows:
    """Return what the paper says of each method, beside what we found."""
    return [
        {"method": name, "the paper": claim["sentence"], "what we found": claim["finding"]}
        for name, claim in published("related_work").items()
    ]
