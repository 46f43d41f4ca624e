"""Where the default looks ahead on the language model `text`, and by how many of a round's own steps.

python benchmarks/look_ahead_of_text.py
"""

from types import EllipsisType

import torch
import typer
from recording import Record, show
from torch import Tensor
from torch.nn.utils import parameters_to_vector

import fedadmm
from fedadmm.data import Dataset
from fedadmm.training.models import gru

ROUNDS = 12


def main(record: Record = None) -> None:
    """Print the length of the last round's step and of the look-ahead after it, for each part of the network."""
    text = fedadmm.load("text")
    points: list[tuple[Tensor, Tensor]] = []  # after each round, (theta, bar)
    fedadmm.simulate(
        fedadmm.FastFedADMM(),
        model="gru",
        data=fedadmm.federate(text, num_clients=50, partition="natural", seed=0),
        rounds=ROUNDS,
        local=fedadmm.LocalTraining(epochs="1..5", batch_size=8, learning_rate=1.0),
        callbacks=[lambda _, run: points.append((run.checkpoint.server.theta, run.checkpoint.server.bar))],
    )
    (before, _), (theta, bar) = points[-2:]
    parts = parts_of(text)
    rows = []
    for name, chosen in {**parts, "all": torch.ones_like(theta, dtype=torch.bool)}.items():
        step, ahead = (float(vector[chosen].norm()) for vector in (bar - before, theta - bar))
        numbers = {"step": f"{step:.2f}", "look-ahead": f"{ahead:.2f}", "look-ahead in steps": f"{ahead / step:.1f}"}
        rows.append({"part": name, "numbers": f"{int(chosen.sum()):,}", **numbers})
    show(rows, title=f"Round {ROUNDS}", record=record)


def parts_of(text: Dataset) -> dict[str, Tensor]:
    """Return the parts of the network, each as a mask of the flat vector."""
    network = gru(num_classes=text.num_classes)
    occurs = torch.zeros(text.num_classes, dtype=torch.bool)
    occurs[text.train.targets.unique()] = True

    @torch.no_grad()
    def mask(prefix: str, rows: Tensor | EllipsisType = ...) -> Tensor:
        for name, weights in network.named_parameters():
            weights.zero_()
            if name.startswith(prefix):
                weights[rows] = 1
        return parameters_to_vector(network.parameters()).bool()

    return {
        "embedding": mask("embedding"),
        "GRU": mask("gru"),
        "scores of bytes that occur": mask("scores", occurs),
        "scores of bytes that never occur": mask("scores", ~occurs),
    }


if __name__ == "__main__":
    typer.run(main)
