"""Run folders as a run writes them, without a run."""

import json
from pathlib import Path

EXPERIMENT = """name = "x"
label = {label}
seed = {seed}
rounds = {rounds}
target = {target}
[algorithm]
name = {algorithm}
rho = {rho}
[data]
name = {data}
num_clients = 10
partition = "iid"
"""


def write_run(
    folder: Path,
    accuracies: list[float | None],
    *,
    label: str = "fedavg",
    algorithm: str | None = None,
    seed: int = 0,
    rounds: int = 3,
    target: float = 0.5,
    rho: float = 0.1,
    data: str = "digits",
    refused: bool = False,
    **numbers: list[float | None],
) -> Path:
    """Write a run of 1,000 bytes, 10 gradients and half a second a round, and return its folder.

    numbers: what else the rounds have, such as loss=[2.0, 1.0].
    """
    folder.mkdir(parents=True)
    texts = {"label": label, "algorithm": algorithm or label, "data": data}
    quoted = {key: json.dumps(text) for key, text in texts.items()}
    (folder / "experiment.toml").write_text(
        EXPERIMENT.format(seed=seed, rounds=rounds, target=target, rho=rho, **quoted)
    )
    costs = {"bytes_up": 1000, "bytes_down": 1000, "steps": 1, "gradient_evaluations": 10, "seconds": 0.5}
    costs |= {"loss": None, "client_loss": None}
    rows = [
        {"round": n, "accuracy": a, "clients": [1], "refused": [], **costs} for n, a in enumerate(accuracies, start=1)
    ]
    for row, *values in zip(rows, *numbers.values(), strict=True):
        row |= dict(zip(numbers, values, strict=True))
    if refused:
        rows[-1] |= {"clients": [], "refused": [1]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
