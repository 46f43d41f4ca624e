"""What the duals and the look-ahead of fast FedADMM give on the problems that judge it.

The default's own rounds, and FedACG's, are those of results/family.csv; the others run at the default's learning rate.
A problem that the record has with the same rounds of both is not run again.

FEDADMM_DATA=... python benchmarks/ablation_judged.py
"""

import json
import math
from dataclasses import replace
from pathlib import Path
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
    "with one look-ahead for all coordinates": {"look_ahead": 0.85},
}
STUDY = PAPER["family"]


def main(record: Record = None) -> None:
    """Print the mean rounds of each variant on each problem, with the fewest and the most of a seed."""
    known = judgements(STUDY, read_arrivals(arrivals_file(STUDY, ROOT / "results")), at_means=False)
    judging = [one for one in known if one.problem not in STUDY.aside]
    rows: dict[str, dict[str, str]] = {name: {} for name in ("fast_fedadmm", *VARIANTS, "fedacg")}
    before = _recorded(record)
    for one in track(judging, description="Problems"):
        rows["fast_fedadmm"][one.problem] = one.default.with_spread
        rows["fedacg"][one.problem] = one.standings["fedacg"].with_spread
        if all(before.get(name, {}).get(one.problem) == rows[name][one.problem] for name in ("fast_fedadmm", "fedacg")):
            for name in VARIANTS:
                rows[name][one.problem] = before[name][one.problem]
            continue
        own = [run.experiment for run in STUDY.runs("paper", columns=[one.problem])]
        (won,) = [experiment for experiment in own if experiment.label == one.default.method]
        for name, changes in VARIANTS.items():
            changed = won.replace(algorithm=replace(won.algorithm, **changes))
            seeds = range(len(one.default.arrivals))
            arrivals = tuple(arrival(changed.replace(seed=seed)) or math.inf for seed in seeds)
            rows[name][one.problem] = Standing(name, arrivals, changed.rounds).with_spread
    show([{"variant": name, **cells} for name, cells in rows.items()], title="Rounds to the target", record=record)


def _recorded(record: Path | None) -> dict[str, dict[str, str]]:
    """Return the rows that are recorded, by their variant."""
    if record is None or not record.exists():
        return {}
    return {row["variant"]: row for row in json.loads(record.read_text())["rows"]}


if __name__ == "__main__":
    typer.run(main)
