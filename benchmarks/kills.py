"""Kill a run 200 times at random instants, resume it each time, and compare it with one that was never killed.

python benchmarks/kills.py --kills 200 --engine serial
"""

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from recording import Record, show

sys.path += [str(Path(__file__).parents[1] / "tests" / part) for part in ("", "experiments")]

from killed_runs import RunPlace


def main(
    kills: Annotated[int, typer.Option(help="How many kills at least.")] = 200,
    engine: Annotated[str, typer.Option(help="serial or workers.")] = "serial",
    seed: int = 0,
    record: Record = None,
) -> None:
    """Kill runs until there were enough kills."""
    began, rng, done, runs = time.perf_counter(), random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        place = RunPlace.made(Path(folder))
        assert place.run("whole") == 0, place.said
        whole = place.result("whole")
        while done < kills:
            runs += 1
            done += place.killed_again_and_again(f"run{runs}", f"engine={engine}", rng=rng)
            same = place.result(f"run{runs}") == whole
            print(f"{done:4} kills, {runs:3} runs, {'the same bytes' if same else 'OTHER BYTES'}", flush=True)
            if not same:
                raise SystemExit(1)
    row = {"engine": engine, "kills": str(done), "runs": str(runs), "seconds": f"{time.perf_counter() - began:.0f}"}
    row |= {"model and records": "the same bytes"}
    show([row], title="Runs that were killed at random instants", record=record)


if __name__ == "__main__":
    typer.run(main)
