"""What bfloat16 states cost in accuracy: the best of 60 rounds of digits, for three seeds, beside float32.

python benchmarks/float_types.py
"""

import tempfile
from typing import Annotated

import typer
from recording import Record, show

import fedadmm

STEPS = {"eta = 1 (as printed)": 1.0, 'eta = "seen"': "seen"}


def main(
    seeds: Annotated[int, typer.Option(help="Seeds 0, 1 and so on.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds of each run.")] = 60,
    record: Record = None,
) -> None:
    """Print the best test accuracy of each seed."""
    rows = []
    for name, eta in STEPS.items():
        row = {"FedADMM": name}
        for float_type in ("float32", "bfloat16"):
            changes = {"algorithm.eta": eta, "state.float_type": float_type, "rounds": rounds}
            row[float_type] = ", ".join(f"{_best(changes | {'seed': seed}):.3f}" for seed in range(seeds))
        rows.append(row)
    show(rows, title="Best test accuracy on digits, a number for each seed", record=record)


def _best(changes: dict[str, object]) -> float:
    experiment = fedadmm.load_experiment("digits", changes={"algorithm.name": "fedadmm", **changes})
    with tempfile.TemporaryDirectory() as folder:
        best = fedadmm.run(experiment, out=folder, progress=False).best
    assert best is not None
    return best


if __name__ == "__main__":
    typer.run(main)
