"""Every algorithm in a table: its keys, its file, what its clients keep and send, and where it ends on quadratics.

Quadratics of 10 clients in 6 dimensions, with curvatures from 0.1 to 1 and minimisers far apart; a visit is 5 gradient
steps of 0.2. rho is 0.3 for all that have one, and everything else as it comes.
"""

import inspect
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

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
from fedadmm.studies.paper.study import WorkedOut
from fedadmm.studies.theory.instances import drawn
from fedadmm.studies.theory.quadratics import NO_BUFFERS, Quadratics, heterogeneous
from fedadmm.studies.theory.walk import rounds

NUM_CLIENTS, DIMENSION, NUM_ROUNDS, RHO = 10, 6, 300, 0.3
FIFTH = 0.2


def methods() -> dict[str, AnyAlgorithm]:
    """Return every algorithm of ours, and the forms of two that end elsewhere than they do."""
    found = {name: _with_rho(kind()) for name, kind in ALGORITHMS.items()}
    others: dict[str, AnyAlgorithm] = {
        "fedadmm, eta participation": FedADMM(rho=RHO, eta="participation", newcomer="initial"),
        "fedpd, skip probability 0.5": FedPD(rho=RHO, skip_probability=0.5),
    }
    return dict(sorted((found | others).items(), key=lambda item: list(found).index(item[0].split(",")[0])))


def _with_rho(algorithm: Any) -> AnyAlgorithm:
    has_rho = any(field.name == "rho" for field in fields(algorithm))
    return replace(algorithm, rho=RHO) if has_rho else algorithm


class Sizes(NamedTuple):
    """What a message holds."""

    vectors: int  # of the model's size d
    scalars: int

    @classmethod
    def of(cls, message: Message) -> "Sizes":
        """Count the fields of a message."""
        kinds = [torch.as_tensor(field).numel() == DIMENSION for field in message]
        return cls(sum(kinds), len(kinds) - sum(kinds))

    def __str__(self) -> str:
        scalars = [str(self.scalars)] if self.scalars else []
        return " + ".join([self.in_vectors, *scalars] if self.vectors else scalars) or "0"

    @property
    def in_vectors(self) -> str:
        """The size in d; a scalar beside the vectors does not count."""
        return {0: "0", 1: "d"}.get(self.vectors, f"{self.vectors}d")


def distance(algorithm: AnyAlgorithm, task: Quadratics, *, participation: float) -> str:
    """Return how far theta is from the minimiser after the rounds; "refused" where the method needs everyone."""
    rule = Uniform(participation)
    try:
        check_everyone(algorithm, rule)
    except InputError:
        return "refused"
    draws = drawn(rule, num_clients=NUM_CLIENTS, rounds=NUM_ROUNDS)
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    for progress, _ in rounds(algorithm, task, theta=theta, draws=draws):
        theta = algorithm.model(progress.server)
    gap = float((theta - task.minimiser()).norm())
    return "under 1e-8" if gap < 1e-8 else f"{gap:.0e}" if gap < 0.01 else f"{gap:.2f}"


def sizes(algorithm: AnyAlgorithm, task: Quadratics) -> tuple[Sizes, Sizes, Sizes]:
    """Return what a client keeps, what it sends, and what the server keeps, counted from a visit."""
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    server, client = algorithm.init_server(theta), algorithm.init_client(theta)
    problem = task.problem(Assignment(0, 1, 1), buffers=NO_BUFFERS)
    upload, kept = algorithm.client_update(algorithm.download(server), client, problem)
    return Sizes.of(kept), Sizes.of(upload), Sizes.of(server)


def facts(algorithm: AnyAlgorithm, task: Quadratics) -> tuple[str, ...]:
    """Return what an algorithm's file and its messages tell."""
    file = Path(inspect.getfile(type(algorithm)))
    return (file.name, str(len(file.read_text().splitlines())), *map(str, sizes(algorithm, task)), _who(algorithm))


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


def _who(algorithm: AnyAlgorithm) -> str:
    if trait(algorithm, NeedsEveryClient):
        return "all"
    return "all compute, any communicate" if trait(algorithm, SkipsCommunication) else "any"


def table() -> WorkedOut:
    """Look at each algorithm, and play it."""
    columns = (
        "method",
        "file",
        "lines",
        "a client keeps",
        "a client sends",
        "the server keeps",
        "participation",
        "distance with everyone",
        "distance with a fifth",
        "keys and their defaults",
    )
    task = quadratics()
    rows = (
        (
            name,
            *facts(algorithm, task),
            distance(algorithm, task, participation=1.0),
            distance(algorithm, task, participation=FIFTH),
            keys(algorithm),
        )
        for name, algorithm in methods().items()
    )
    return WorkedOut(columns, tuple(rows))


# What a client sends, and what server and client keep, in a table of the source that is not in print.
PUBLISHED_SIZES = {
    "fedavg": ("d", "(d, 0)"),
    "fedprox": ("d", "(d, 0)"),
    "scaffold": ("2d", "(2d, d)"),
    "fedadmm": ("d", "(d, 2d)"),
}


def messages_table() -> WorkedOut:
    """Return the floats in a message and in storage, counted from the types."""
    task = quadratics()
    rows = []
    for label, method in METHODS.items():
        kept, sent, server = (size.in_vectors for size in sizes(method.algorithm, task))
        rows.append((label, sent, f"({server}, {kept})", *PUBLISHED_SIZES.get(label, ("-", "-"))))
    columns = ("method", "message", "storage (server, client)", "the paper's message", "the paper's storage")
    return WorkedOut(columns, tuple(rows))
