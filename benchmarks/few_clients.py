"""What becomes of the default where few clients are in a round: digits, two shards a client, 100 clients.

python benchmarks/few_clients.py
"""

import itertools
import math
from typing import Any

import typer
from recording import Record, show
from rich.progress import track

import fedadmm
from fedadmm.studies.ratios import Standing

ROUNDS, TARGET = 60, 0.85
NUM_CLIENTS = (1, 2, 3, 5, 10)  # in a round
LEARNING_RATES = (0.05, 0.1, 0.2)
SEEDS = range(3)


class AlwaysFar(fedadmm.FastFedADMM):
    """The default without its rule for few clients."""

    def server_update(self, server: Any, mean: Any, turnout: fedadmm.Turnout) -> Any:
        """Look ahead as if many clients were in the round."""
        return super().server_update(server, mean, turnout._replace(num_uploads=math.inf))


METHODS: dict[str, fedadmm.Algorithm] = {
    "fast_fedadmm": fedadmm.FastFedADMM(),
    "without the rule for few clients": AlwaysFar(),
    "fedavg": fedadmm.FedAvg(),
    "fedacg": fedadmm.FedACG(),
}


def main(record: Record = None) -> None:
    """Print the mean rounds of each method at its best learning rate, with the fewest and the most of a seed."""
    cells = list(itertools.product(METHODS, NUM_CLIENTS))
    found = {cell: _standing(*cell).with_spread for cell in track(cells, description="Runs")}
    rows = [{"method": name, **{f"{size} of 100": found[name, size] for size in NUM_CLIENTS}} for name in METHODS]
    show(rows, title=f"Rounds to {TARGET}, of at most {ROUNDS}", record=record)


def _standing(method: str, size: int) -> Standing:
    tried = [Standing(method, tuple(_arrival(method, size, rate, s) for s in SEEDS), ROUNDS) for rate in LEARNING_RATES]
    return min(tried, key=lambda standing: standing.rounds)


def _arrival(method: str, size: int, learning_rate: float, seed: int) -> float:
    digits = fedadmm.federate(fedadmm.load("digits"), num_clients=100, partition="shards", seed=seed)
    result = fedadmm.simulate(
        METHODS[method],
        model="mlp",
        data=digits,
        rounds=ROUNDS,
        participation=size / 100,
        target=TARGET,
        stop_at_target=True,
        seed=seed,
        local=fedadmm.LocalTraining(epochs="1..5", batch_size=10, learning_rate=learning_rate),
        engine="serial",
        progress=False,
    )
    return result.rounds_to_target or math.inf


if __name__ == "__main__":
    typer.run(main)
