"""What the duals and the running mean of fast FedADMM give on the problems that judge it.

The default's own rounds, and FedACG's, are those of results/family.csv; the others run at the default's learning rate.

FEDADMM_DATA=... python benchmarks/ablation_judged.py
"""

import math
from dataclasses import replace
from typing import Any

import typer
from ablation import arrival
from recording import ROOT, Record, show
from rich.progress import track

from fedadmm.studies.judging import judgements
from fedadmm.studies.paper import PAPER
from fedadmm.studies.ratios import Standing, arrivals_file, read_arrivals

VARIANTS: dict[str, dict[str, Any]] = {
    "without duals": {"rho": 0.0},
    "without the running mean": {"average": 0.0},
    "without both": {"rho": 0.0, "average": 0.0},
}
STUDY = PAPER["family"]


def main(record: Record = None) -> None:
    """Print the mean rounds of each variant on each problem, with the fewest and the most of a seed."""
    known = judgements(STUDY, read_arrivals(arrivals_file(STUDY, ROOT / "results")), at_means=False)
    judging = [one for one in known if one.problem not in STUDY.aside]
    rows: dict[str, dict[str, str]] = {name: {} for name in ("fast_fedadmm", *VARIANTS, "fedacg")}
    for one in track(judging, description="Problems"):
        rows["fast_fedadmm"][one.problem] = one.default.with_spread
        rows["fedacg"][one.problem] = one.standings["fedacg"].with_spread
        own = [run.experiment for run in STUDY.runs("paper", columns=[one.problem])]
        (won,) = [experiment for experiment in own if experiment.label == one.default.method]
        for name, changes in VARIANTS.items():
            changed = won.replace(algorithm=replace(won.algorithm, **changes))
            seeds = range(len(one.default.arrivals))
            arrivals = tuple(arrival(changed.replace(seed=seed)) or math.inf for seed in seeds)
            rows[name][one.problem] = Standing(name, arrivals, changed.rounds).with_spread
    show([{"variant": name, **cells} for name, cells in rows.items()], title="Rounds to the target", record=record)


if __name__ == "__main__":
    typer.run(main)
