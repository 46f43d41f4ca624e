"""What a run gives: its rounds and its model, as numbers, tables and curves; and the way to go on with it."""

import base64
import inspect
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from fedadmm.api.progress import bars
from fedadmm.config.experiment import Experiment
from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError, near_names
from fedadmm.core.metrics import Metric, metric_like
from fedadmm.core.round import Buffers, ServerCheckpoint
from fedadmm.report.runs import RunData, changes_of_code
from fedadmm.report.table import comparison_rows
from fedadmm.runs.assembly import Federation, stored_types
from fedadmm.runs.client_scores import ClientScores
from fedadmm.runs.code import check_same_code, code_of
from fedadmm.runs.goal import Goal, Status, why_it_diverged
from fedadmm.runs.listeners import Callback, Listener, play
from fedadmm.runs.records import Record, RunFolder
from fedadmm.runs.runner import run_in
from fedadmm.runs.simulation import Simulation
from fedadmm.state.disk import DiskStore
from fedadmm.state.memory import MemoryStore

if TYPE_CHECKING:
    import pandas

    from fedadmm.core.picture import Picture

Callbacks = Sequence[Listener | Callable[[Record, Simulation], object]]


class DivergedWarning(UserWarning):
    """A run has diverged."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A run that has ended, for now. A notebook shows its curve; `plot()` and `to_pandas()` have the rounds."""

    experiment: Experiment
    history: list[Record]  # one record per round
    goal: Goal
    federation: Callable[[], Federation]  # makes it, or has it
    store: MemoryStore | None = None  # of a run without a folder
    folder: Path | None = None  # the run folder
    rounds_before: int = 0  # that were there when it began

    @property
    def status(self) -> Status:
        """\"finished\", \"stopped\" by a callback with rounds left, \"diverged\" if every client of the last round was
        refused, or \"collapsed\" if the last of ten rounds or more is worse than the first.
        """
        return self.goal.status(self.history)

    @property
    def metric(self) -> Metric:
        """What the run is judged by: the test accuracy, the loss where there is only that, or what was asked for."""
        return self.goal.judge(self.history)

    @property
    def scores(self) -> dict[int, float]:
        """The metric after each round that was evaluated, by the round's number."""
        return {record.round: score for record in self.history if (score := self.metric.of(record)) is not None}

    @property
    def rounds_to_target(self) -> int | None:
        """The first round that reached the target, None if none did."""
        return self.goal.arrival(self.history)

    @property
    def best(self) -> float | None:
        """The best score of the run, None if no round has one."""
        return self.metric.best(self.scores.values())

    @property
    def theta(self) -> Vector:
        """The trained model as a flat vector."""
        return self.experiment.algorithm.model(self._checkpoint.server)

    @property
    def buffers(self) -> Buffers:
        """The trained model's buffers."""
        return self._checkpoint.buffers

    def model(self) -> nn.Module:
        """Return the trained network."""
        with self.opened() as simulation:
            return simulation.model()

    def evaluate(self) -> dict[str, float]:
        """Return loss and metrics of the trained model on the test examples."""
        with self.opened() as simulation:
            return simulation.evaluate()

    def evaluate_clients(self, metric: str | None = None, *, model: Literal["theta", "own"] = "theta") -> ClientScores:
        """Return a metric on every client's own examples, of the trained model or of each client's own."""
        with self.opened() as simulation:
            return simulation.evaluate_clients(metric, model=model)

    def client_model(self, client: int) -> nn.Module:
        """Return the trained network as a client has it, with the parts that it keeps (model.personal)."""
        with self.opened() as simulation:
            return simulation.client_model(client)

    def personal_model(self, client: int) -> Vector:
        """Return a client's own model as a flat vector; the server's if it has none."""
        with self.opened() as simulation:
            return simulation.personal_model(client)

    def continue_for(
        self, rounds: int, *, callbacks: Callbacks = (), progress: bool = True, accept_code: bool = False
    ) -> "Result":
        """Play more rounds and return the whole run; this result stays as it is, but a run folder grows.

        accept_code: go on in a run folder although your code has changed since; it then has rounds of both.
        """
        check_rounds(rounds)
        if self.status == "diverged":
            raise InputError(f"the run diverged in round {len(self.history)}; start again with a lower learning rate")
        experiment = self.experiment.replace(rounds=len(self.history) + rounds, stop_at_target=False, patience=None)
        heard = [*listeners_of(callbacks), *bars(Goal.of(experiment), experiment.method, progress=progress)]
        place: dict[str, Any] = {"store": self.store, "folder": self.folder, "accept_code": accept_code}
        return played(experiment, self.federation, listeners=heard, **place)

    @contextmanager
    def opened(self) -> Iterator[Simulation]:
        """Open the run where it ended, to be looked at; of a run folder nobody writes to it meanwhile."""
        if self.store is not None:
            with closing(Simulation.of(self.federation(), self.store)) as simulation:
                yield simulation
            return
        federation = self.federation()
        with self._states() as store:
            check_same_code(store, code_of(self.experiment, federation))
            with closing(Simulation.of(federation, store)) as simulation:
                yield simulation

    @contextmanager
    def _states(self) -> Iterator[DiskStore]:
        assert self.folder is not None
        folder, types = RunFolder(self.folder), stored_types(self.experiment)
        with folder.at_rest(), closing(DiskStore(folder.state, types=types, identity=None, readonly=True)) as store:
            there = len(store.records())
            if there != len(self.history):
                raise InputError(
                    f"{self.folder} has {there} rounds, and this result {len(self.history)}; open it with "
                    "fedadmm.open_run"
                )
            yield store

    @cached_property
    def _checkpoint(self) -> ServerCheckpoint:
        if self.store is not None:
            return self.store.checkpoint() or self.federation().begin
        with self._states() as store:
            return store.checkpoint() or self.federation().begin

    @property
    def run_data(self) -> RunData:
        """The run as a report takes it."""
        table = tomllib.loads(self.experiment.to_toml()) | {"rounds": self.goal.rounds}
        path = self.folder or Path(self.experiment.folder_name)
        changes = () if self.folder is None else changes_of_code(path)
        return RunData(path, table, self.history, changes_of_code=changes)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a row for each round, with the columns of rounds.jsonl."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas, which is not installed; pip install pandas") from None
        rounds = pandas.Index([record.round for record in self.history], name="round")
        return pandas.DataFrame([record.to_json() for record in self.history], index=rounds).drop(columns="round")

    def plot(self, metric: str | None = None, *, width: float = 7.2) -> "Picture":
        """Return a figure of a metric, the run's own if it is None, against rounds and uploaded bytes."""
        return figure_of([self.run_data], metric=metric, width=width)

    def __repr__(self) -> str:
        metric, scores = self.metric, [*self.scores.values()]
        parts = [f"{len(self.history)} of {self.goal.rounds} rounds", self.status]
        parts += [f"{metric.named_text(scores[-1])} (best {metric.text(self.best or 0.0)})"] if scores else []
        target, arrival = self.goal.target, self.rounds_to_target
        parts += [] if target is None else [f"target {target:g} {f'in round {arrival}' if arrival else 'not reached'}"]
        parts += [] if self.folder is None else [str(self.folder)]
        return f"<Result of {self.experiment.method}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the sentence, the curve and the table."""
        if not self.history:
            return f"<p>{escape(repr(self))}</p>"
        return f"<p>{escape(repr(self))}</p>{html_of([self.run_data])}"


def played(
    experiment: Experiment,
    federation: Callable[[], Federation],
    *,
    store: MemoryStore | None = None,
    folder: Path | None = None,
    goal: Goal | None = None,
    listeners: Sequence[Listener] = (),
    accept_code: bool = False,
) -> Result:
    """Play an experiment in a run folder, or from where a store in memory has ended, which stays as it is."""
    goal = goal or Goal.of(experiment)
    if folder is not None:
        ended = run_in(RunFolder(folder), experiment, federation(), listeners=listeners, accept_code=accept_code)
        kept = ended.store if isinstance(ended.store, MemoryStore) else None
        result = Result(experiment, ended.history, goal, federation, kept, folder, ended.rounds_before)
    else:
        store = MemoryStore() if store is None else store.copy()
        with closing(Simulation.of(federation(), store)) as simulation:
            before = len(simulation.history)
            play(simulation, goal, listeners=listeners)
        result = Result(experiment, simulation.history, goal, federation, store, rounds_before=before)
    warn_if_diverged(result)
    return result


def warn_if_diverged(result: Result) -> None:
    """Warn of a run that has diverged, at the user's line."""
    if result.status == "diverged":
        why = why_it_diverged(result.history[-1])
        sentence = f"diverged in round {len(result.history)}: {why}; lower local.learning_rate"
        warnings.warn(sentence, DivergedWarning, stacklevel=_frames_of_ours())


def _frames_of_ours() -> int:
    """Return how many calls of this package stand between the one that asks and the user's line, for a warning."""
    package, count, frame = str(Path(__file__).parents[1]), 0, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(package):
        count, frame = count + 1, frame.f_back
    return count


def figure_of(runs: Sequence[RunData], *, metric: str | None = None, title: str = "", width: float = 7.2) -> "Picture":
    """Return the curves of some runs, by a metric of theirs or by another."""
    # Imported here because matplotlib takes a second.
    from fedadmm.report.figures import accuracy_figure
    from fedadmm.report.methods import BYTES, ROUNDS, SIMULATED, axes_of, by_arrival, methods_of

    if metric is not None:
        records = [record for run in runs for record in run.rounds]
        if all(record.value(metric) is None for record in records):
            known = {
                key
                for record in records
                for key in ("accuracy", "loss", *record.metrics)
                if record.number(key) == record.number(key)
            }
            raise InputError(f"no round has {metric!r}; {near_names(metric, sorted(known), what='metrics')}")
        way = "lower" if metric_like(metric).lower_is_better else "higher"
        changed = {"metric": metric, "direction": way, "target": None}
        runs = [replace(run, experiment={**run.experiment, **changed}) for run in runs]
    methods = by_arrival(methods_of(runs))
    axes = (ROUNDS, SIMULATED if SIMULATED in axes_of(methods) else BYTES)
    return accuracy_figure(methods, title=title, axes=axes, width=width)


def html_of(runs: Sequence[RunData]) -> str:
    """Return the curves and the table of some runs, in HTML that needs no file beside it."""
    image = base64.b64encode(figure_of(runs)._repr_png_()).decode()
    return f'<img alt="curves" src="data:image/png;base64,{image}">{html_table(comparison_rows(runs))}'


def html_table(rows: Sequence[dict[str, str]]) -> str:
    """Return rows of the same columns in HTML."""
    head = "".join(f"<th>{escape(key)}</th>" for key in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row.values())}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def listeners_of(callbacks: Any) -> list[Listener]:
    """Return callbacks as listeners; refuse what cannot be called."""
    if not isinstance(callbacks, Sequence) or not all(isinstance(c, Listener) or callable(c) for c in callbacks):
        raise InputError(f"callbacks={callbacks!r} is not a list of functions; use callbacks=[function]")
    return [callback if isinstance(callback, Listener) else Callback(callback) for callback in callbacks]


def check_rounds(rounds: Any) -> None:
    """Refuse what is not a number of rounds."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
        raise InputError(f"rounds={rounds!r} is not a number of rounds; use a whole number such as 60")
