"""How long the command line takes to start, as ratios to `import torch` of the same minute.

python benchmarks/startup.py
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from recording import Record, show

COMMAND = ["-m", "fedadmm"]
# What is started, and the ratio that it has to stay below.
STARTS: dict[str, tuple[list[str], float]] = {
    "import fedadmm": (["-c", "import fedadmm"], 1.15),
    "all names of fedadmm": (["-c", "from fedadmm import *"], 1.15),
    "--help": ([*COMMAND, "--help"], 0.6),
    "list": ([*COMMAND, "list"], 0.6),
    "show RUN": ([*COMMAND, "show", "RUN"], 0.6),
    "report RUN": ([*COMMAND, "report", "RUN", "-o", "report"], 0.6),
    "a misspelt command": ([*COMMAND, "rnu"], 0.6),
    "a misspelt preset": ([*COMMAND, "run", "digist"], 0.6),
    "completion": (["-c", "from fedadmm.cli import app; app(prog_name='fedadmm')"], 0.6),
}
COMPLETING = {"_FEDADMM_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "fedadmm re"}
RUN = ["run", "digits", "--rounds", "20", "--set", "engine=serial", "--set", "model.name=softmax_regression"]


def main(
    times: Annotated[int, typer.Option(help="Starts of each, in turns with `import torch`.")] = 5, record: Record = None
) -> None:
    """Print the median seconds of each, and its ratio to `import torch` between its own starts."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([sys.executable, *COMMAND, *RUN], cwd=folder, capture_output=True, check=True)
        (run,) = (folder / "runs").iterdir()
        for name, (arguments, promised) in STARTS.items():
            given = [str(run) if argument == "RUN" else argument for argument in arguments]
            own, torch = [], []
            for _ in range(times):
                torch.append(_seconds(["-c", "import torch"], cwd=folder, completing=False))
                own.append(_seconds(given, cwd=folder, completing=name == "completion"))
            median = statistics.median(own)
            ratio = median / statistics.median(torch)
            kept = "yes" if ratio <= promised else "no"
            row = {"what is started": name, "median [s]": f"{median:.2f}", "ratio": f"{ratio:.2f}"}
            rows.append(row | {"promised": f"{promised:.2f}", "kept": kept})
            print(*rows[-1].values(), file=sys.stderr, flush=True)
    show(rows, title="Start-up / `import torch`", record=record)


def _seconds(arguments: list[str], *, cwd: Path, completing: bool) -> float:
    environment = os.environ | (COMPLETING if completing else {})
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, check=False)
    return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(main)
