"""What each part of fast FedADMM gives: rounds of the preset `ablation` until its target, with it and without.

python benchmarks/ablation.py
"""

import tempfile

import typer
from recording import Record, show

import fedadmm

VARIANTS = {
    "fast_fedadmm": "fast_fedadmm",
    "without_duals": "without duals",
    "without_look_ahead": "without look-ahead",
    "look_ahead_everywhere": "with one look-ahead for all coordinates",
    "without_mean": "without the running mean",
    "without_duals_and_look_ahead": "without duals and look-ahead",
    "without_all_three": "without all three: FedAvg",
}
COLUMNS: dict[str, dict[str, object]] = {
    "all of 20": {},
    "a tenth of 100": {"participation": 0.1, "data.num_clients": 100, "local.learning_rate": 0.2},
}


def main(record: Record = None) -> None:
    """Print the rounds of each variant; a plus is a target that was missed."""
    rows = [
        {"variant": name, **{column: _rounds(variant, changes) for column, changes in COLUMNS.items()}}
        for variant, name in VARIANTS.items()
    ]
    show(rows, title="Rounds to the target", record=record)


def _rounds(variant: str, changes: dict[str, object]) -> str:
    experiment = fedadmm.load_experiment("ablation", variant=variant, changes={**changes, "stop_at_target": True})
    rounds = arrival(experiment)
    return f"{experiment.rounds}+" if rounds is None else str(rounds)


def arrival(experiment: fedadmm.Experiment) -> int | None:
    """Run an experiment, and return the rounds to its target; None if it misses it."""
    with tempfile.TemporaryDirectory() as folder:
        return fedadmm.run(experiment, out=folder, progress=False).rounds_to_target


if __name__ == "__main__":
    typer.run(main)
