"""A table that the source hides: floats in a message and in storage, counted from the types, in model sizes d."""

from typing import Any

import torch

from fedadmm.core.algorithm import Message
from fedadmm.core.messages import num_bytes
from fedadmm.experiments.paper.methods import METHODS
from fedadmm.experiments.paper.preset import Preset, WorkedOut

PUBLISHED = {
    "fedavg": ("d", "(d, 0)"),
    "fedprox": ("d", "(d, 0)"),
    "scaffold": ("2d", "(2d, d)"),
    "fedadmm": ("d", "(d, 2d)"),
}
DIMENSION = 1_000_000


class _Flat:
    """A client's problem whose gradient is zero."""

    num_steps, num_examples, learning_rate, round = 1, 1, 0.1, 1

    def gradient(self, w: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(w)

    def solve(self, *, start: torch.Tensor, **terms: Any) -> torch.Tensor:
        return start


def table() -> WorkedOut:
    """Let each method make a message and weigh it."""
    rows = []
    theta = torch.zeros(DIMENSION)
    for label, method in METHODS.items():
        algorithm = method.algorithm
        server, client = algorithm.init_server(theta), algorithm.init_client(theta)
        upload, kept = algorithm.client_update(algorithm.download(server), client, _Flat())
        ours = (_sizes(upload), f"({_sizes(server)}, {_sizes(kept)})")
        rows.append((label, *ours, *PUBLISHED.get(label, ("-", "-"))))
    columns = ("method", "message", "storage (server, client)", "the paper's message", "the paper's storage")
    return WorkedOut(columns, tuple(rows))


def _sizes(message: Message) -> str:
    """Return a message's size in d; a scalar beside the vectors does not count."""
    sizes = round(num_bytes(message) / theta_bytes())
    return {0: "0", 1: "d"}.get(sizes, f"{sizes}d")


def theta_bytes() -> int:
    """Return the bytes of a model of the table's dimension."""
    return 4 * DIMENSION


TABLE_MESSAGES = Preset("table_messages", "Hidden table: message size and storage", table=table)
