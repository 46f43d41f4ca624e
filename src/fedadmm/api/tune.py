"""The same search over the settings of every method, and what it found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from fedadmm.api.comparison import Methods, methods_named, named
from fedadmm.api.result import html_table
from fedadmm.api.running import RunAll, Session
from fedadmm.config.experiment import Experiment
from fedadmm.core.calls import checked_call
from fedadmm.core.errors import InputError
from fedadmm.core.files import dotted
from fedadmm.core.settings import check_seeds
from fedadmm.report.table import markdown
from fedadmm.runs.goal import Goal
from fedadmm.runs.records import TUNING, Record
from fedadmm.runs.tuning import (
    LEARNING_RATES,
    TUNED_FILE,
    Ended,
    Search,
    Trial,
    Values,
    at_the_edge,
    check_search,
    full_key,
    grid,
    read_own_values,
    trial_rows,
    values_text,
    with_values,
    write_tuned,
)
from fedadmm.runs.tuning import search as search_best


@dataclass(frozen=True, repr=False)
class Tuning:
    """What a search found: `tuning["fedavg"]` is a method's experiment at its best values."""

    trials: dict[str, list[Trial]]  # of each method, the winner first
    experiments: list[Experiment]  # at the best values
    file: Path  # that has the values

    @property
    def best(self) -> dict[str, Values]:
        """The best values of each method."""
        return {method: trials[0].values for method, trials in self.trials.items()}

    def __getitem__(self, method: str) -> Experiment:
        return named(dict(zip(self.trials, self.experiments, strict=True)), method)

    def __repr__(self) -> str:
        parts = [
            "\n".join([f"{method}\n{markdown(trial_rows(trials))}".rstrip(), *at_the_edge(trials), ""])
            for method, trials in self.trials.items()
        ]
        return "\n".join([*parts, f"The winners, first in each table, are in {self.file}"])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a table for each method, the winner first."""
        tables = (
            f"<p>{escape(method)}</p>{html_table(trial_rows(t))}<p>{escape(' '.join(at_the_edge(t)))}</p>"
            for method, t in self.trials.items()
        )
        return "".join(tables)


@checked_call
def tune(
    methods: Methods,
    *,
    search: Search | None = None,
    algorithms: Sequence[str] | None = None,
    changes: Mapping[str, Any] | None = None,
    rounds: int | None = None,
    seeds: int = 1,
    out: str | Path = "runs",
    data_dir: str | Path | None = None,
    progress: bool = True,
) -> Tuning:
    """Find each method's best values on held-out training examples, as `fedadmm tune` does; all get as many rounds.

    methods, algorithms, changes: as in `compare`. They are judged by their `metric`.
    search: the values to try by their keys, such as {"algorithm.rho": [0.01, 0.1], "local.learning_rate": [0.1, 0.5]};
        learning rates if None. A method without a key of [algorithm] goes without it.
    rounds: those of the two finalists of four candidates, the experiment's if None. The candidates of a method, few or
        many, share about three times as many.
    """
    given = methods_named(methods, algorithms=algorithms, changes=changes)
    experiments = [method for method in given if isinstance(method, Experiment)]
    if len(experiments) < len(given):
        raise InputError("a result cannot be tuned, because it has been run; give experiments")
    place = None if data_dir is None else Path(data_dir)
    session = Session(Path(out) / TUNING, place, progress=progress, tell_refused=False)
    found = [*tuned(experiments, search=search, rounds=rounds, seeds=seeds, out=Path(out), run_all=session.run_all)]
    best = [with_values(one, trials[0].values) for one, trials in found]
    return Tuning({one.method: trials for one, trials in found}, best, Path(out) / TUNED_FILE)


def tuned(
    experiments: Sequence[Experiment],
    *,
    search: Search | None,
    rounds: int | None,
    seeds: int,
    out: Path,
    run_all: RunAll,
    rates: Sequence[float] = LEARNING_RATES,
) -> Iterator[tuple[Experiment, list[Trial]]]:
    """Yield each method with its trials, the winner first, as soon as they are there and the file has its values."""
    check_seeds(seeds)
    if rounds is not None and rounds < 2:
        raise InputError(f"rounds={rounds} is out of range; use a whole number from 2 on")
    known = read_own_values(out)
    if search is not None:
        check_search(search, experiments)
    for one in experiments:
        # What was found for other keys before holds while these are searched.
        before = known.get(one.name, {}).get(one.method, {})
        searched = {full_key(key) for key in grid(one, search, rates=rates)[0]}
        experiment = with_values(one, {k: v for k, v in before.items() if full_key(k) not in searched})
        candidates = grid(experiment, search, rates=rates)

        def played(many: Sequence[Experiment], keys: Sequence[str] = tuple(candidates[0])) -> list[Ended]:
            tables = [dotted(one.to_table()) for one in many]
            texts = [values_text({key: table.get(full_key(key)) for key in keys}) for table in tables]
            several = [f", seed {one.seed}" if seeds > 1 else "" for one in many]
            named = [f"{text}{seed}" for text, seed in zip(texts, several, strict=True)]
            results = run_all(list(zip(many, named, strict=True)))
            return [_ended(one, result.history) for one, result in zip(many, results, strict=True)]

        all_seeds = range(experiment.seed, experiment.seed + seeds)
        length = rounds or experiment.rounds
        trials = search_best(experiment, candidates, rounds=length, seeds=all_seeds, run_all=played)
        if searched:  # a method that has none of the keys keeps what it has
            write_tuned(out, experiment.name, experiment.method, trials[0].values)
        yield experiment, trials


def _ended(experiment: Experiment, history: Sequence[Record]) -> Ended:
    """Return the rounds that an experiment asks for, of a folder that may have more, and whether they diverged."""
    played = list(history[: experiment.rounds])
    return played, Goal.of(experiment).status(played) == "diverged"
