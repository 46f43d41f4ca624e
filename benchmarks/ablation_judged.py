"""What each part of fast FedADMM gives on the problems that judge it: mean rounds over the seeds of `reproduce family`.

The default's own rounds, and FedACG's, are those of results/family.csv; the others run at the default's learning rate.

FEDADMM_DATA=... python benchmarks/ablation_judged.py
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from recording import ROOT, Record, show
from rich.progress import track

import fedadmm
from fedadmm.config.experiment import Experiment
from fedadmm.studies.judging import Judgement, judgements
from fedadmm.studies.paper import PAPER
from fedadmm.studies.ratios import arrivals_file, read_arrivals

VARIANTS: dict[str, dict[str, Any]] = {
    "without duals": {"rho": 0.0},
    "without the running mean": {"average": 0.0},
    "without both": {"rho": 0.0, "average": 0.0},
}
STUDY = PAPER["family"]


def main(record: Record = None) -> None:
    """Print the mean rounds of each variant on each problem; a plus is a seed that missed the target."""
    known = judgements(STUDY, read_arrivals(arrivals_file(STUDY, ROOT / "results")), at_means=False)
    judging = [one for one in known if one.problem not in STUDY.aside]
    found: dict[tuple[str, str], list[int | None]] = {(one.problem, name): [] for one in judging for name in VARIANTS}
    jobs = [(one.problem, name, run) for one in judging for name in VARIANTS for run in _experiments(one, name)]
    for problem, name, experiment in track(jobs, description="Runs"):
        found[problem, name].append(_rounds(experiment))
    rows = [
        {"variant": "fast_fedadmm"} | {one.problem: f"{one.default.rounds:.1f}" for one in judging},
        *({"variant": name} | {one.problem: _mean(found[one.problem, name]) for one in judging} for name in VARIANTS),
        {"variant": "fedacg, at its own rate"} | {one.problem: _of(one, "fedacg") for one in judging},
    ]
    show(rows, title="Rounds to the target, means over seeds", record=record)


def _experiments(one: Judgement, name: str) -> Iterator[Experiment]:
    """Yield the winner's runs with another algorithm, one for each seed."""
    (run,) = [r for r in STUDY.runs("paper", columns=[one.problem]) if r.experiment.label == one.default.method]
    for seed in range(len(one.default.arrivals)):
        yield run.experiment.replace(seed=seed, algorithm=replace(run.experiment.algorithm, **VARIANTS[name]))


def _rounds(experiment: Experiment) -> int | None:
    with tempfile.TemporaryDirectory() as folder:
        return fedadmm.run(experiment, out=Path(folder), progress=False).rounds_to_target


def _mean(arrivals: list[int | None]) -> str:
    there = [rounds for rounds in arrivals if rounds is not None]
    return f"{sum(there) / len(there):.1f}" if len(there) == len(arrivals) else "100+"


def _of(one: Judgement, method: str) -> str:
    return f"{one.standings[method].rounds:.1f}"


if __name__ == "__main__":
    typer.run(main)
