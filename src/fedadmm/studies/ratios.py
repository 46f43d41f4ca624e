"""Methods that choose their own constants against the best constants of their family: rounds to the target, as ratios.

A family is the first word of a method's name: feddyn_auto chooses what feddyn-0.1-seen is given.
"""

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedadmm.core.files import made_whole
from fedadmm.report.runs import Section
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


class Standing(NamedTuple):
    """A method on a problem: its mean rounds over the seeds, inf unless every seed arrived."""

    method: str
    rounds: float
    limit: int  # the rounds that it was given

    def __str__(self) -> str:
        return f"{self.rounds:.1f}" if math.isfinite(self.rounds) else f"{self.limit}+"

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
    new = [
        Arrival(problem, run.label, int(run.experiment["seed"]), run.arrival, len(run.rounds), float(run.target or 0))
        for problem, run in ended
    ]
    return keep_arrivals(arrivals_file(study, results), new)


def read_arrivals(path: Path) -> list[Arrival]:
    """Return what was kept; nothing if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        _, *rows = csv.reader(file)
    return [
        Arrival(problem, method, int(seed), int(arrived) if arrived else None, int(rounds), float(target))
        for problem, method, seed, arrived, rounds, target in rows
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
        families.setdefault(Standing(method, 0, 0).family, set()).add(method)
    found = []
    for problem, own in _by_problem(arrivals).items():
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
    if study.default is not None:
        return judged_markdown(study, kept)
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
    return {method: Overall(_geometric_mean(own), len(own)) for method, own in ratios.items()}


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _by_problem(arrivals: Iterable[Arrival]) -> dict[str, list[Arrival]]:
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
    return seeds, {method: _standing(method, [runs[s] for s in seeds], limit) for method, runs in by_method.items()}


def _standing(method: str, runs: Sequence[Arrival], limit: int) -> Standing:
    rounds = [math.inf if run.arrived is None else run.arrived for run in runs]
    return Standing(method, sum(rounds) / len(rounds), limit)


class Judgement(NamedTuple):
    """A problem: the default against the best of the classic methods and the best of all others, each at its best."""

    problem: str
    target: float
    default: Standing
    classic: Standing
    other: Standing

    @property
    def ratios(self) -> tuple[float, float]:
        """The default's rounds against the best classic's and the best other's; their miss counts as their limit."""
        classic, other = (self.default.rounds / min(s.rounds, s.limit) for s in (self.classic, self.other))
        return classic, other


def judgements(study: Study, arrivals: Sequence[Arrival], *, at_means: bool) -> list[Judgement]:
    """Return the problems on which every method has run with every learning rate; over the seeds that all have.

    at_means: against the rows that are evaluated at a running mean, as the default is; else against the others.
    """
    assert study.default is not None
    found = []
    rows = {run.experiment.label or "" for run in study.runs("paper")}
    for problem, own in _by_problem(arrivals).items():
        seeds, standings = _standings(own, rows)
        if not seeds:
            continue
        best: dict[str, Standing] = {}
        for row, standing in sorted(standings.items()):
            method = row.partition("-")[0]
            best[method] = min(best.get(method, standing), standing, key=lambda s: s.rounds)
        default = best.pop(study.default)
        others = {method: s for method, s in best.items() if method.startswith("mean_") == at_means}
        classic = [s for method, s in others.items() if method.removeprefix("mean_") in study.classic]
        nearest = [min(group, key=lambda s: s.rounds) for group in (classic, list(others.values()))]
        found.append(Judgement(problem, own[0].target, default, *nearest))
    return found


def judged_rows(study: Study, found: Sequence[Judgement]) -> list[dict[str, str]]:
    """Return the rows of the table, with the learning rate in each row's name."""
    return [
        {
            "problem": j.problem + (" (designed on it)" if j.problem in study.aside else ""),
            "target": f"{j.target:g}",
            "default": f"{j.default.method}: {j.default}",
            "best classic": f"{j.classic.method}: {j.classic} ({j.ratios[0]:.2f})",
            "best other": f"{j.other.method}: {j.other} ({j.ratios[1]:.2f})",
        }
        for j in found
    ]


def judged_means(study: Study, found: Sequence[Judgement]) -> tuple[float, float] | None:
    """Return the geometric means of the two ratios over the problems that judge; None if none has run."""
    ratios = [j.ratios for j in found if j.problem not in study.aside]
    if not ratios:
        return None
    classic, other = map(_geometric_mean, zip(*ratios, strict=True))
    return classic, other


def judged_tables(study: Study, arrivals: Sequence[Arrival]) -> Iterator[tuple[str, list[dict[str, str]], str]]:
    """Yield the title, the rows and the means of both tables of a study of the default."""
    for at_means, title in ((False, "Each method at its own model"), (True, "All at the same running mean")):
        found = judgements(study, arrivals, at_means=at_means)
        means = judged_means(study, found)
        told = f"Geometric means over the problems that judge: {means[0]:.2f} and {means[1]:.2f}." if means else ""
        yield title, judged_rows(study, found), told


def judged_markdown(study: Study, arrivals: Sequence[Arrival]) -> str:
    """Return both tables of a study of the default, and their means."""
    parts = []
    for title, rows, means in judged_tables(study, arrivals):
        parts.append(f"{title}:\n\n" + (markdown(rows) if rows else "No run yet.\n"))
        if means:
            parts.append(f"{means}\n")
    return "\n".join(parts)
