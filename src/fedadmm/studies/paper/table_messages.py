"""A table of the source that is not in print: floats in a message and in storage, counted from the types, in d."""

import torch

from fedadmm.core.algorithm import Message
from fedadmm.core.messages import num_bytes
from fedadmm.engine.shared import Standstill
from fedadmm.studies.paper.methods import METHODS
from fedadmm.studies.paper.preset import Preset, WorkedOut

PUBLISHED = {
    "fedavg": ("d", "(d, 0)"),
    "fedprox": ("d", "(d, 0)"),
    "scaffold": ("2d", "(2d, d)"),
    "fedadmm": ("d", "(d, 2d)"),
}
DIMENSION = 1_000_000


def table() -> WorkedOut:
    """Let each method make a message and weigh it."""
    rows = []
    theta = torch.zeros(DIMENSION)
    for label, method in METHODS.items():
        algorithm = method.algorithm
        server, client = algorithm.init_server(theta), algorithm.init_client(theta)
        upload, kept = algorithm.client_update(algorithm.download(server), client, Standstill())
        ours = (_sizes(upload), f"({_sizes(server)}, {_sizes(kept)})")
        rows.append((label, *ours, *PUBLISHED.get(label, ("-", "-"))))
    columns = ("method", "message", "storage (server, client)", "the paper's message", "the paper's storage")
    return WorkedOut(columns, tuple(rows))


def _sizes(message: Message) -> str:
    """Return a message's size in d; a scalar beside the vectors does not count."""
    sizes = round(num_bytes(message) / (4 * DIMENSION))
    return {0: "0", 1: "d"}.get(sizes, f"{sizes}d")


TABLE_MESSAGES = Preset("table_messages", "Unprinted table: message size and storage", table=table)
