"""How long several runs take side by side: 8 seeds of digits beside one, and a search beside its runs one by one.

python benchmarks/sweeps.py
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from recording import Record, against, show

COMPARE = ["-m", "fedadmm", "compare", "digits", "--algorithms", "fast_fedadmm"]
TUNE = ["-m", "fedadmm", "tune", "digits", "--algorithms", "fedavg", "--rounds", "10"]
TUNE += ["--search", "local.learning_rate=0.1,0.5"]
# A number of workers that is given is kept to, and then one run follows the other.
ALONE = ["--set", "workers=2"]
# What is run, beside what, and the ratio that is aimed at.
SWEEPS: dict[str, tuple[list[str], list[str], float]] = {
    "8 seeds, side by side": ([*COMPARE, "--seeds", "8"], COMPARE, 2.5),
    "tune, beside one by one": (TUNE, [*TUNE, *ALONE], 1 / 3),
}


def main(times: Annotated[int, typer.Option(help="Pairs of each, in turns.")] = 5, record: Record = None) -> None:
    """Print the median seconds of each, and the median of its ratios to what it is beside."""
    rows = []
    for name, (command, beside, target) in SWEEPS.items():
        pairs = [(_seconds(beside), _seconds(command)) for _ in range(times)]
        ratio = statistics.median(long / short for short, long in pairs)
        other, own = (statistics.median(times) for times in zip(*pairs, strict=True))
        row = {"what": name, "median [s]": f"{own:.1f}", "beside it [s]": f"{other:.1f}", "ratio": f"{ratio:.2f}"}
        rows.append(row | against(ratio, target))
        print(*rows[-1].values(), file=sys.stderr, flush=True)
    show(rows, title="Sweeps / one run, or one by one", record=record)


def _seconds(command: list[str]) -> float:
    with tempfile.TemporaryDirectory() as place:
        begin = time.perf_counter()
        subprocess.run([sys.executable, *command], cwd=Path(place), capture_output=True, check=True)
        return time.perf_counter() - begin


if __name__ == "__main__":
    typer.run(main)
