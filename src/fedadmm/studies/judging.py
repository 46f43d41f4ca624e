"""The default method against all others, each at the learning rate and the constants that win a race on the first seed.

One rule for every method:
- On seed 0 the race begins at the middle of the grid of learning rates. The neighbours of the best rate so far come
  next, until both have run: then the best has a slower one on each side. The method's own constants race after it, one
  after the other, each at the best of all before it.
- The best is what arrives first, or, as long as nothing does, what has the best score. A run ends as soon as it can no
  longer be ahead of one that arrived.
- The winner runs with the other seeds too. If it did not arrive with seed 0, that is a miss already. Those that arrive
  in the same round all do, and the one with the fewest rounds over all seeds counts.
- A method is out if it needs more than OUT times the rounds of the best of its kind with seed 0: its runs end there,
  and it is not run with the other seeds. The kinds are the classic methods and the others, each at its own model or at
  the running mean. The first of a kind runs before the others, so that they have a limit. A rate that misses with
  another seed sets no limit: then methods that were out by it are in again.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedadmm.report.table import markdown
from fedadmm.runs.goal import Goal
from fedadmm.studies.campaign import Job
from fedadmm.studies.paper.study import Study, usual
from fedadmm.studies.ratios import Arrival, Standing, arrivals_file, by_problem, geometric_mean, read_arrivals, standing

Point = tuple[float, ...]  # a learning rate, then the method's own constants
Grids = Sequence[Sequence[float]]  # the values of each, the usual one of a constant in the middle
Tried = Mapping[Point, Arrival]  # with seed 0
OUT = 1.25


def leader(tried: Tried) -> Point:
    """Return the best point of those that were tried; the lower one of equals."""

    def place(point: Point) -> tuple[float, float, Point]:
        run = tried[point]
        return (math.inf, -(run.best or 0.0), point) if run.arrived is None else (run.arrived, 0.0, point)

    return min(tried, key=place)


def winners(tried: Tried) -> list[Point]:
    """Return the points that win a race: the leader, and those that arrived with it."""
    best = leader(tried)
    return [at for at in sorted(tried) if at == best or tried[at].arrived == (tried[best].arrived or math.nan)]


def untried(grids: Grids, tried: Tried) -> list[Point]:
    """Return the points, lowest first, that are to be tried next; none once the race is decided."""
    best = tuple(map(usual, grids))
    for axis, grid in enumerate(grids):
        line = [(*best[:axis], value, *best[axis + 1 :]) for value in grid]
        if not (known := {point: tried[point] for point in line if point in tried}):
            return [best]
        best = leader(known)
        at = line.index(best)
        if left := [point for point in line[max(at - 1, 0) : at + 2] if point not in tried]:
            return left
    return []


def limit_of(runs: Iterable[Arrival]) -> int | None:
    """Return the rounds after which a method is out, from the runs of its kind; None as long as none arrived."""
    runs = list(runs)
    missed = {run.method for run in runs if run.seed != 0 and run.arrived is None}
    arrived = [run.arrived for run in runs if run.seed == 0 and run.arrived is not None and run.method not in missed]
    return math.ceil(OUT * min(arrived)) if arrived else None


def kind_of(method: str, study: Study) -> tuple[bool, ...]:
    """Return with which methods one is compared for being out; the default with none."""
    if method == study.default:
        return ()
    return method.removeprefix("mean_") in study.classic, method.startswith("mean_")


def needed(study: Study, jobs: Iterable[Job]) -> list[Job]:
    """Return the runs that the races need as far as they are decided now, each with the rounds that it may take."""
    kinds: dict[tuple[object, ...], dict[str, dict[tuple[Point, int], Job]]] = {}
    for job in jobs:
        method, point = _split(job.experiment.label, study)
        kind = kinds.setdefault((job.paper_run.column, *kind_of(method, study)), {})
        kind.setdefault(method, {})[point, job.experiment.seed] = job
    return [job for methods in kinds.values() for job in _needed_of_a_kind(methods, study)]


def _needed_of_a_kind(methods: Mapping[str, Mapping[tuple[Point, int], Job]], study: Study) -> Iterator[Job]:
    limit = limit_of(_arrival(job) for jobs in methods.values() for job in jobs.values() if job.is_done)
    for method, jobs in methods.items():
        grids = _grids(method, (point for point, _ in jobs), study)
        own = list(_needed_of_a_method(jobs, grids, limit))
        yield from own
        if limit is None and not all(job.is_done for job in own):
            return  # the next one waits for a limit


def _needed_of_a_method(jobs: Mapping[tuple[Point, int], Job], grids: Grids, out: int | None) -> Iterator[Job]:
    racing = {point: job for (point, seed), job in jobs.items() if seed == 0}
    arrived = [_arrival(job).arrived for job in racing.values()]
    limit = min((rounds for rounds in (*arrived, out) if rounds is not None), default=None)
    if limit is not None:
        racing = {point: job.limited(limit) for point, job in racing.items()}
    tried = {point: _arrival(job) for point, job in racing.items() if job.is_done}
    left = untried(grids, tried)
    yield from (racing[point] for point in (*tried, *left[:1]))  # whether and how far others run depends on this one
    if not left and not _is_out(tried[leader(tried)], out):
        won = winners(tried)
        yield from (job for (point, seed), job in jobs.items() if point in won and seed != 0)


def _is_out(winner: Arrival, out: int | None) -> bool:
    return winner.arrived is None or (out is not None and winner.arrived > out)


def _arrival(job: Job) -> Arrival:
    if job.arrival is not None:
        return job.arrival
    goal, run = Goal.of(job.experiment), job.experiment
    metric, arrived = goal.judge(job.records), goal.arrival(job.records)
    column, best = job.paper_run.column, metric.best(metric.scores(job.records))
    return Arrival(column, run.label or "", run.seed, arrived, len(job.records), run.target or 0.0, best)


def _split(row: str | None, study: Study) -> tuple[str, Point]:
    """Return the method and the point that a row's name has: a constant that is not there has its usual value."""
    method, _, named = (row or "").partition("-")  # such as fedacg and 0.1-lam0.95
    rate, given = named.partition("-")[0], dict(re.findall(r"-([a-z]+)([\d.]+)", named))
    own = study.constants.get(method, {})
    return method, (float(rate), *(float(given.get(name, usual(grid))) for name, grid in own.items()))


def _grids(method: str, points: Iterable[Point], study: Study) -> Grids:
    """Return the values that race: the learning rates of the points, and of each of the method's own constants."""
    return [sorted({rate for rate, *_ in points}), *study.constants.get(method, {}).values()]


class Judgement(NamedTuple):
    """A problem: how each method stands where it won its race, and who is held against whom."""

    problem: str
    target: float
    standings: dict[str, Standing]
    default: Standing
    classic: Standing
    other: Standing

    @property
    def ratios(self) -> tuple[float, float]:
        """The default's rounds against the best classic's and the best other's; their miss counts as their limit."""
        classic, other = (self.default.rounds / min(s.rounds, s.limit) for s in (self.classic, self.other))
        return classic, other


def at_their_best(study: Study, arrivals: Sequence[Arrival]) -> list[Judgement]:
    """Return the judgements against whichever rows are faster: those at their own models, or at a running mean."""
    own, means = ({j.problem: j for j in judgements(study, arrivals, at_means=some)} for some in (False, True))
    return [
        j._replace(
            classic=min(j.classic, means[name].classic, key=lambda s: s.rounds),
            other=min(j.other, means[name].other, key=lambda s: s.rounds),
        )
        for name, j in own.items()
        if name in means
    ]


def judgements(study: Study, arrivals: Sequence[Arrival], *, at_means: bool) -> list[Judgement]:
    """Return the problems on which every race that counts is decided and its winner has run with every seed.

    at_means: against the rows that are evaluated at a running mean, as the default is; else against the others.
    """
    assert study.default is not None
    found = []
    for problem, own in by_problem(arrivals).items():
        standings = _standings(study, problem, own, at_means=at_means)
        if standings is None:
            continue
        others = {method: s for method, s in standings.items() if method != study.default}
        classic = [s for method, s in others.items() if method.removeprefix("mean_") in study.classic]
        nearest = [min(group, key=lambda s: s.rounds) for group in (classic, list(others.values()))]
        found.append(Judgement(problem, own[0].target, standings, standings[study.default], *nearest))
    return found


def _standings(study: Study, problem: str, own: Sequence[Arrival], *, at_means: bool) -> dict[str, Standing] | None:
    """Return how each method stands on a problem where it won its race; None if something is missing."""
    known = {(arrival.method, arrival.seed): arrival for arrival in own}
    races: dict[str, dict[Point, str]] = {}
    for run in study.runs("paper", columns=[problem]):
        method, point = _split(run.experiment.label, study)
        if method != study.default and method.startswith("mean_") != at_means:
            continue
        races.setdefault(method, {})[point] = run.experiment.label or ""
        rounds = run.experiment.rounds
    found = {}
    for method, rows in races.items():
        tried = {point: known[row, 0] for point, row in rows.items() if (row, 0) in known}
        if untried(_grids(method, rows, study), tried):
            return None
        limit = limit_of(run for run in own if kind_of(_split(run.method, study)[0], study) == kind_of(method, study))
        winner, won = tried[leader(tried)], [rows[point] for point in winners(tried)]
        runs = {row: [known[row, seed] for seed in range(study.paper_seeds) if (row, seed) in known] for row in won}
        if all(len(own) == study.paper_seeds for own in runs.values()):
            found[method] = min((standing(row, own, rounds) for row, own in runs.items()), key=lambda s: s.rounds)
        elif _is_out(winner, limit):
            played_on = winner.arrived is None and winner.rounds == rounds
            given = rounds if limit is None or played_on else min(limit, rounds)
            found[method] = standing(won[0], [winner._replace(arrived=None)], given)
        else:
            return None
    return found


def judged_rows(study: Study, found: Sequence[Judgement]) -> list[dict[str, str]]:
    """Return the rows of the table, each method with what won its race, and the spread over the seeds."""
    return [
        {
            "problem": j.problem + (" (designed on it)" if j.problem in study.aside else ""),
            "target": f"{j.target:g}",
            "default": _text(j.default),
            "best classic": f"{_text(j.classic)}, ratio {j.ratios[0]:.2f}",
            "best other": f"{_text(j.other)}, ratio {j.ratios[1]:.2f}",
        }
        for j in found
    ]


def _text(standing: Standing) -> str:
    return f"{standing.method}: {standing.with_spread}"


def judged_means(study: Study, found: Sequence[Judgement]) -> tuple[float, float] | None:
    """Return the geometric means of the two ratios over the problems that judge; None if none has run."""
    ratios = [j.ratios for j in found if j.problem not in study.aside]
    if not ratios:
        return None
    classic, other = map(geometric_mean, zip(*ratios, strict=True))
    return classic, other


def judged_tables(study: Study, arrivals: Sequence[Arrival]) -> Iterator[tuple[str, list[dict[str, str]], str]]:
    """Yield the title, the rows and the means of both tables of a study of the default."""
    for at_means, title in ((False, "Each method at its own model"), (True, "All at a running mean of their models")):
        found = judgements(study, arrivals, at_means=at_means)
        means = judged_means(study, found)
        told = f"Geometric means over the problems that judge: {means[0]:.2f} and {means[1]:.2f}." if means else ""
        yield title, judged_rows(study, found), told


def all_methods(study: Study, arrivals: Sequence[Arrival]) -> list[dict[str, str]]:
    """Return a row for each method: its mean rounds on each problem."""
    found = [j for at_means in (False, True) for j in judgements(study, arrivals, at_means=at_means)]
    empty = {j.problem: "" for j in found}
    rows: dict[str, dict[str, str]] = {}
    for judgement in found:
        for method, own in judgement.standings.items():
            rows.setdefault(method, {"method": method, **empty})[judgement.problem] = str(own)
    return list(rows.values())


def judged_markdown(study: Study, *, results: Path) -> str:
    """Return both tables of a study of the default, their means, and what each method needs."""
    kept = read_arrivals(arrivals_file(study, results))
    parts = []
    for title, rows, means in judged_tables(study, kept):
        parts.append(f"{title}:\n\n" + (markdown(rows) if rows else "No run yet.\n"))
        if means:
            parts.append(f"{means}\n")
    if best := judged_means(study, at_their_best(study, kept)):
        parts.append(f"Each other at whichever of both is faster: {best[0]:.2f} and {best[1]:.2f}.\n")
    if rows := all_methods(study, kept):
        parts.append(f"Every method, mean rounds:\n\n{markdown(rows)}")
    return "\n".join(parts)
