"""Which engine is the fastest in which workload, and which one `engine = "auto"` takes.

python benchmarks/choice.py --workloads digits,tiny,middle,middle_crowd,lenet,silo,crowd --pairs 5

The engines and the bare PyTorch loop play a round each in turns, so that all see the same minutes.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Annotated

import typer
from bare import BareLoop
from engines import Case, make_data, seconds, simulation
from recording import Record, against, show
from workloads import WORKLOADS, Workload

import fedadmm
from fedadmm import FedADMM, FedAvg, Simulation
from fedadmm.runs.simulation import simulation_of

ENGINES = ("serial", "workers", "stacked")
AVERAGING, ON_DISK = Case(FedAvg(), "in memory", 1), Case(FedADMM(eta="seen"), "on disk", 1)
CASES = {
    "digits": (AVERAGING,),
    **dict.fromkeys(("tiny", "middle", "middle_crowd"), (AVERAGING, ON_DISK)),
    **dict.fromkeys(("lenet", "silo", "crowd"), (AVERAGING,)),
}
FEWER = {"silo": 2, "crowd": 10}  # clients of a round, for CNN 1 takes long in a stack
TARGETS = {("middle", "FedAvg"): 0.6, ("middle_crowd", "FedAvg"): 0.6}  # of the fastest engine over the bare loop
ENOUGH = 8  # seconds for which short rounds are repeated, as they scatter


def workload_of(name: str) -> Workload:
    """Return a workload, some with fewer clients in a round."""
    return WORKLOADS[name]._replace(clients_per_round=FEWER.get(name, WORKLOADS[name].clients_per_round))


@contextmanager
def started(name: str, case: Case, engine: str) -> Iterator[Simulation]:
    """Start a workload; `digits` is softmax regression with 10 of 100 clients, which have some 14 examples each."""
    if name != "digits":
        with simulation(workload_of(name), case, engine, make_data(workload_of(name))) as run:
            yield run
        return
    changes = {"engine": engine, "model.name": "softmax_regression", "local.epochs": 1}
    run = simulation_of(fedadmm.load_experiment("digits", variant="fedavg", changes=changes))
    try:
        yield run
    finally:
        run.close()


def row(name: str, case: Case, *, pairs: int) -> dict[str, str]:
    """Time a case on all engines in turns."""
    with ExitStack() as started_here:
        runs = {engine: started_here.enter_context(started(name, case, engine)) for engine in (*ENGINES, "auto")}
        parameters, auto = runs["auto"].num_parameters, runs.pop("auto").engine.name
        bare = None if name == "digits" else started_here.enter_context(closing(BareLoop.of(workload_of(name))))
        for run in runs.values():
            run.advance()
        turns, began = [], time.perf_counter()
        while len(turns) < pairs or (len(turns) < 10 * pairs and time.perf_counter() - began < ENOUGH):
            turn = {engine: seconds(run.advance) for engine, run in runs.items()}
            turns.append(turn | ({} if bare is None else {"bare": bare.seconds(epochs=1)}))
    medians = {engine: statistics.median(turn[engine] for turn in turns) for engine in ENGINES}
    fastest = min(medians, key=medians.__getitem__)
    found = {"workload": name, "parameters": f"{parameters:,}", "what": str(case)}
    found |= {f"{engine} [ms]": f"{1000 * taken:.0f}" for engine, taken in medians.items()}
    found |= {"fastest": fastest, "auto takes": auto}
    ratio = None if bare is None else statistics.median(turn[fastest] / turn["bare"] for turn in turns)
    shown = "" if ratio is None else f"{ratio:.2f}"
    return found | {"fastest / bare loop": shown, **against(ratio, TARGETS.get((name, str(case))))}


def main(
    workloads: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(CASES),
    pairs: Annotated[int, typer.Option(help="Rounds of each engine at least.")] = 5,
    record: Record = None,
) -> None:
    """Print the median milliseconds of a round on each engine."""
    rows = []
    for name in workloads.split(","):
        for case in CASES[name]:
            rows.append(row(name, case, pairs=pairs))
            print(*rows[-1].values(), file=sys.stderr, flush=True)
    show(rows, title="A round of each engine", record=record)


if __name__ == "__main__":
    typer.run(main)
