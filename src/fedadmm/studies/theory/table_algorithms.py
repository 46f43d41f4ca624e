"""Every algorithm in a table: its keys, its file, what its clients keep and send, and where it ends on quadratics.

Quadratics of 10 clients in 6 dimensions, with curvatures from 0.1 to 1 and minimisers far apart; a visit is 5 gradient
steps of 0.2. rho is 0.3 for all that have one, and everything else as it comes.
"""

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from fedadmm.algorithms import ALGORITHMS, FedADMM, FedPD
from fedadmm.config.compatibility import check_everyone
from fedadmm.config.experiment import algorithm_to_table
from fedadmm.core.algorithm import AnyAlgorithm, Message
from fedadmm.core.errors import InputError
from fedadmm.core.optional import NeedsEveryClient, SkipsCommunication, trait
from fedadmm.core.participation import Uniform
from fedadmm.core.round import Assignment
from fedadmm.studies.paper.setting import METHODS
from fedadmm.studies.paper.study import Rows, published
from fedadmm.studies.theory.quadratics import NO_BUFFERS, Quadratics, drawn, heterogeneous
from fedadmm.studies.theory.walk import rounds

NUM_CLIENTS, DIMENSION, NUM_ROUNDS, RHO = 10, 6, 300, 0.3
FIFTH = 0.2


# Forms that end elsewhere than the algorithm as it comes.
FORMS: dict[str, dict[str, AnyAlgorithm]] = {
    "fedadmm": {"fedadmm, eta participation": FedADMM(rho=RHO, eta="participation", newcomer="initial")},
    "fedpd": {"fedpd, skip probability 0.5": FedPD(rho=RHO, skip_probability=0.5)},
}


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
    rule = Uniform(participation)
    try:
        check_everyone(algorithm, rule)
    except InputError:
        return "refused"
    draws = drawn(rule, num_clients=NUM_CLIENTS, rounds=NUM_ROUNDS)
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    for checkpoint, _ in rounds(algorithm, task, theta=theta, draws=draws):
        theta = algorithm.model(checkpoint.server)
    gap = float((theta - task.minimiser()).norm())
    return "under 1e-8" if gap < 1e-8 else f"{gap:.0e}" if gap < 0.01 else f"{gap:.2f}"


def sizes(algorithm: AnyAlgorithm, task: Quadratics, *, scalars: bool = True) -> tuple[str, ...]:
    """Return what a client keeps, what it sends, and what the server keeps, counted from a visit, in d."""
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    server, client = algorithm.init_server(theta), algorithm.init_client(theta)
    problem = task.problem(Assignment(0, 1, 1), buffers=NO_BUFFERS)
    upload, kept = algorithm.client_update(algorithm.download(server), client, problem)
    return tuple(_size(message, scalars=scalars) for message in (kept, upload, server))


def _size(message: Message, *, scalars: bool) -> str:
    """Return how many vectors of the model's size d a message holds, and beside them how many scalars."""
    lengths = [torch.as_tensor(field).numel() for field in message]
    vectors = lengths.count(DIMENSION)
    others = len(lengths) - vectors
    parts = ["d" if vectors == 1 else f"{vectors}d"] if vectors else []
    if others and scalars:
        parts.append(str(others))
    return " + ".join(parts) or "0"


def facts(algorithm: AnyAlgorithm, task: Quadratics) -> dict[str, str]:
    """Return what an algorithm's file and its messages tell."""
    file = Path(inspect.getfile(type(algorithm)))
    kept, sent, server = sizes(algorithm, task)
    if trait(algorithm, NeedsEveryClient):
        who = "all"
    else:
        who = "all compute, any communicate" if trait(algorithm, SkipsCommunication) else "any"
    return {
        "file": file.name,
        "lines": str(len(file.read_text().splitlines())),
        "a client keeps": kept,
        "a client sends": sent,
        "the server keeps": server,
        "participation": who,
    }


def keys(algorithm: AnyAlgorithm) -> str:
    """Return what one may write beside the name in [algorithm], each key with its default."""
    table = algorithm_to_table(type(algorithm)())
    values = {key: value for key, value in table.items() if key != "name"}
    return ", ".join(f"{key} = {_toml(value)}" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def quadratics() -> Quadratics:
    """Return the clients on which the methods are played."""
    return heterogeneous(NUM_CLIENTS, DIMENSION, seed=1, num_steps=5, learning_rate=0.2)


def table() -> Rows:
    """Look at each algorithm, and play it."""
    task = quadratics()
    return [
        {"method": name, **facts(algorithm, task)}
        | {"distance with everyone": distance(algorithm, task, participation=1.0)}
        | {"distance with a fifth": distance(algorithm, task, participation=FIFTH)}
        | {"keys and their defaults": keys(algorithm)}
        for name, algorithm in methods().items()
    ]


def messages_table() -> Rows:
    """Return the floats in a message and in storage, counted from the types."""
    rows = []
    for label, method in METHODS.items():
        kept, sent, server = sizes(method.algorithm, quadratics(), scalars=False)
        message, storage = published("messages").get(label, ("-", "-"))
        rows.append(
            {"method": label, "message": sent, "storage (server, client)": f"({server}, {kept})"}
            | {"the paper's message": message, "the paper's storage": storage}
        )
    return rows
