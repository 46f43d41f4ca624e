"""Methods that choose their own constants against the best constants of their family: rounds to the target, as ratios.

A family is the first word of a method's name: feddyn_auto chooses what feddyn-0.1-seen is given.
"""

import csv
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedadmm.core.files import made_whole
from fedadmm.report.runs import RunData, Section
from fedadmm.report.table import markdown
from fedadmm.studies.paper.study import Study


class Arrival(NamedTuple):
    """What is kept of a run: the round in which it reached the target, if it did."""

    problem: str
    method: str
    seed: int
    arrived: int | None
    rounds: int  # played
    target: float
    best: float | None = None  # its best score; None: not kept

    @classmethod
    def of(cls, problem: str, run: RunData) -> "Arrival":
        """Return what is kept of a run."""
        seed, target = int(run.experiment["seed"]), float(run.target or 0)
        return cls(problem, run.label, seed, run.arrival, len(run.rounds), target, run.metric.best(run.known_scores))


class Standing(NamedTuple):
    """A method on a problem: its mean rounds over the seeds, inf unless every seed arrived."""

    method: str
    arrivals: tuple[float, ...]  # of each seed, inf for a miss
    limit: int  # the rounds that it was given

    @property
    def rounds(self) -> float:
        """The mean over the seeds."""
        return sum(self.arrivals) / len(self.arrivals)

    def __str__(self) -> str:
        return f"{self.rounds:.1f}" if math.isfinite(self.rounds) else f"{self.limit}+"

    @property
    def with_spread(self) -> str:
        """The mean, and the fewest and the most rounds that a seed took."""
        spread = f" ({min(self.arrivals):.0f}..{max(self.arrivals):.0f})" if math.isfinite(self.rounds) else ""
        return f"{self}{spread}"

    @property
    def family(self) -> str:
        """The method whose constants it has, or chooses."""
        return self.method.partition("-")[0].partition("_")[0]

    @property
    def constants(self) -> str:
        """The constants in the method's name; none if it did not arrive."""
        return self.method.partition("-")[2].replace("-", ", ") if math.isfinite(self.rounds) else "none"


class Comparison(NamedTuple):
    """A problem: the best constants of each family that was run on it, and the methods that choose their own."""

    problem: str
    target: float
    seeds: tuple[int, ...]
    best: dict[str, Standing]
    chosen: tuple[Standing, ...]

    def ratio(self, standing: Standing) -> float:
        """Return rounds against the best of its family; a miss on one side gives 0 or inf, on both or no run NaN."""
        return standing.rounds / self.best[standing.family].rounds if standing.family in self.best else math.nan

    def ratio_text(self, standing: Standing) -> str:
        """Return the ratio as it is printed; where one side missed, what it is over or under."""
        ratio = self.ratio(standing)
        if math.isnan(ratio):
            return "-"
        if math.isinf(ratio):
            return f"over {standing.limit / self.best[standing.family].rounds:.2f}"
        if ratio == 0:
            return f"under {standing.rounds / self.best[standing.family].limit:.2f}"
        return f"{ratio:.2f}"


def arrivals_file(study: Study, results: Path) -> Path:
    """Return the file in which a study of many runs keeps the rounds of their arrival."""
    return results / f"{study.name}.csv"


def keep_ended(study: Study, sections: Iterable[Section], *, results: Path) -> list[Arrival]:
    """Add the runs of a study that have ended to what was kept, and return all of it."""
    ended = [(section.title, run) for section in sections for run in section.runs if run.status != "stopped"]
    return keep_arrivals(arrivals_file(study, results), [Arrival.of(problem, run) for problem, run in ended])


def read_arrivals(path: Path) -> list[Arrival]:
    """Return what was kept; nothing if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        _, *rows = csv.reader(file)
    return [
        Arrival(problem, method, int(seed), int(arrived) if arrived else None, int(rounds), float(target), *best)
        for problem, method, seed, arrived, rounds, target, *score in rows
        for best in [[float(number) for number in score if number]]
    ]


def keep_arrivals(path: Path, new: Iterable[Arrival]) -> list[Arrival]:
    """Add runs to what was kept, and return all; a run that was made again takes the place of the old one."""
    known = {(a.problem, a.method, a.seed): a for a in [*read_arrivals(path), *new]}
    kept = [known[key] for key in sorted(known)]
    with made_whole(path) as partial, partial.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Arrival._fields)
        writer.writerows(["" if value is None else value for value in arrival] for arrival in kept)
    return kept


def comparisons(arrivals: Sequence[Arrival], *, chosen: Sequence[str]) -> list[Comparison]:
    """Return the problems on which all that choose have run, and a family's constants, over their seeds; worst first.

    The order is that of the first of `chosen`: the problem on which it fares worst is on top.
    """
    families: dict[str, set[str]] = {}
    for method in {arrival.method for arrival in arrivals} - set(chosen):
        families.setdefault(Standing(method, (), 0).family, set()).add(method)
    found = []
    for problem, own in by_problem(arrivals).items():
        run = {arrival.method for arrival in own}
        whole = {family: methods for family, methods in families.items() if methods <= run}
        seeds, standings = _standings(own, set(chosen).union(*whole.values()))
        if not (whole and seeds):
            continue
        best = {
            family: min((standings[method] for method in sorted(whole[family])), key=lambda standing: standing.rounds)
            for family in sorted(whole)
        }
        found.append(Comparison(problem, own[0].target, seeds, best, tuple(standings[method] for method in chosen)))
    return sorted(found, key=lambda c: -(1.0 if math.isnan(ratio := c.ratio(c.chosen[0])) else ratio))


def ratio_rows(found: Sequence[Comparison], *, aside: Collection[str]) -> list[dict[str, str]]:
    """Return the rows of the table; `aside` are the problems on which the rules were made."""
    families = sorted({family for comparison in found for family in comparison.best})
    return [
        {"problem": c.problem + (" (made on it)" if c.problem in aside else "")}
        | {"target": f"{c.target:g}", "seeds": str(len(c.seeds))}
        | {
            f"best {family}": f"{c.best[family].constants}: {c.best[family]}" if family in c.best else "not run"
            for family in families
        }
        | {s.method: f"{s} ({c.ratio_text(s)})" for s in c.chosen}
        for c in found
    ]


def ratios_markdown(study: Study, *, results: Path) -> str:
    """Return the table of what was kept of a study, and the means over the problems that judge."""
    kept = read_arrivals(arrivals_file(study, results))
    found = comparisons(kept, chosen=study.chosen)
    if not found:
        return "No run yet.\n"
    means = sorted(overall(found, aside=study.aside).items(), key=lambda item: item[1].ratio)
    return (
        f"{markdown(ratio_rows(found, aside=study.aside))}\n"
        "Geometric mean of the ratios over the problems above that judge:\n\n"
        + "".join(f"- `{method}`: {mean.ratio:.2f}, over {mean.num_problems}\n" for method, mean in means)
    )


class Overall(NamedTuple):
    """A method's mean ratio, and over how many problems."""

    ratio: float
    num_problems: int


def overall(found: Sequence[Comparison], *, aside: Collection[str]) -> dict[str, Overall]:
    """Return each choosing method's mean ratio over the problems that judge, as a geometric mean; inf for a miss.

    A problem on which no constants arrived counts as their limit, in their favour.
    """
    ratios: dict[str, list[float]] = {}
    for comparison in found:
        for standing in comparison.chosen if comparison.problem not in aside else ():
            if (best := comparison.best.get(standing.family)) is not None:
                ratios.setdefault(standing.method, []).append(standing.rounds / min(best.rounds, best.limit))
    return {method: Overall(geometric_mean(own), len(own)) for method, own in ratios.items()}


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of some ratios."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def by_problem(arrivals: Iterable[Arrival]) -> dict[str, list[Arrival]]:
    """Return the runs of each problem."""
    found: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        found.setdefault(arrival.problem, []).append(arrival)
    return found


def _standings(own: Sequence[Arrival], methods: Iterable[str]) -> tuple[tuple[int, ...], dict[str, Standing]]:
    """Return the seeds that all of these methods have on a problem, and how each stands over them; none if none."""
    by_method = {method: {a.seed: a for a in own if a.method == method} for method in methods}
    seeds = tuple(sorted(set.intersection(*(set(runs) for runs in by_method.values()))))
    if not seeds:
        return (), {}
    limit = max(arrival.rounds for arrival in own)
    return seeds, {method: standing(method, [runs[s] for s in seeds], limit) for method, runs in by_method.items()}


def standing(method: str, runs: Iterable[Arrival], limit: int) -> Standing:
    """Return how a method stands on a problem, from a run of each seed."""
    return Standing(method, tuple(math.inf if run.arrived is None else run.arrived for run in runs), limit)
