"""Run an experiment from Python, in a run folder; and open one that is there."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedadmm.api.progress import Bars, bars
from fedadmm.api.result import Callbacks, Result, listeners_of, played, warn_if_diverged
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import load_plan
from fedadmm.core.calls import checked_call
from fedadmm.core.errors import InputError
from fedadmm.runs.assembly import federation_of
from fedadmm.runs.goal import Goal
from fedadmm.runs.listeners import Listener
from fedadmm.runs.records import Record, RunFolder, not_a_run_folder
from fedadmm.runs.side_by_side import SideBySide, processes_for
from fedadmm.runs.sinks import sinks_from

Planned = tuple[Experiment, str]  # with what tells it from others of its label
RunAll = Callable[[Sequence[Planned]], Sequence[Result]]


@dataclass(frozen=True)
class Session:
    """What the runs of one call share: where they are, and who is told of their rounds."""

    out: Path
    data_dir: Path | None = None
    log_to: str | Sequence[str] = ""
    callbacks: Callbacks = ()
    progress: bool = True
    tell_refused: bool = True  # name each client whose update is refused
    accept_code: bool = False  # go on with other code than a run began with

    def run(self, experiment: Experiment, *, values: str = "") -> Result:
        """Run an experiment; `values` tell it from others of its label."""
        folder = self.out / experiment.folder_name
        sinks = [sink(experiment, folder) for sink in sinks_from(self.log_to)]
        federation = partial(federation_of, experiment, data_dir=self.data_dir)
        goal, label = Goal.of(experiment), f"{experiment.method} {values}".strip()
        seen = bars(goal, label, progress=self.progress, tell_refused=self.tell_refused)
        heard = [*sinks, *listeners_of(self.callbacks), *seen]
        return played(experiment, federation, folder=folder, listeners=heard, accept_code=self.accept_code)

    def run_all(self, planned: Sequence[Planned]) -> list[Result]:
        """Run experiments: side by side, where that is faster and nobody listens in this process."""
        processes = processes_for([one for one, _ in planned])
        if processes == 1 or self.callbacks or self.log_to:
            return [self.run(one, values=values) for one, values in planned]
        bars = Bars(named(planned), tell_refused=self.tell_refused) if self.progress else None
        shown = bars if bars is not None and bars.is_seen else None
        results = [*played_at_once(planned, self.out, data_dir=self.data_dir, processes=processes, bars=shown)]
        ended = [result for result in results if result is not None]
        for result in ended:
            warn_if_diverged(result)
        return ended


def named(planned: Sequence[Planned]) -> list[tuple[Goal, str]]:
    """Return what the bars of these runs show: how far they go, and what they are called."""
    return [(Goal.of(one), f"{one.method} {values}".strip()) for one, values in planned]


def played_at_once(
    planned: Sequence[Planned],
    out: Path,
    *,
    data_dir: Path | None,
    processes: int,
    bars: Bars | None,
    asked: Callable[[], bool] = lambda: False,
    listeners: Sequence[Listener] = (),
) -> Generator[Result | None]:
    """Yield the results of runs that are played side by side, in their order; None for one that was not begun."""
    experiments = [one for one, _ in planned]
    tell = (lambda told: None) if bars is None else bars.tell
    with nullcontext() if bars is None else bars:
        ended = SideBySide(out, data_dir, processes, tell, asked, listeners).play(experiments)
        for experiment, played in zip(experiments, ended, strict=True):
            federation = partial(federation_of, experiment, data_dir=data_dir)
            goal, folder = Goal.of(experiment), out / experiment.folder_name
            yield (
                None
                if played is None
                else Result(experiment, played.history, goal, federation, None, folder, played.rounds_before)
            )


@checked_call
def run(
    experiment: Experiment | str | Path,
    *,
    out: str | Path = "runs",
    data_dir: str | Path | None = None,
    log_to: str | Sequence[str] = (),
    callbacks: Callbacks = (),
    progress: bool = True,
    accept_code: bool = False,
) -> Result:
    """Run an experiment in a folder inside `out`, or go on with it where it stopped, as `fedadmm run` does.

    experiment: an Experiment, or the name of a preset or of a TOML file.
    log_to: other tools that take the rounds: "tensorboard", "wandb", "mlflow".
    callbacks: as in `simulate`.
    accept_code: go on although your code has changed since the run began; it then has rounds of both.
    """
    session = replace(session_of(out, data_dir, log_to, callbacks, progress), accept_code=accept_code)
    return session.run(experiment_of(experiment))


@checked_call
def open_run(folder: str | Path, *, data_dir: str | Path | None = None) -> Result:
    """Return the result of a run that is in a folder, as far as it came."""
    path, place = Path(folder), RunFolder(Path(folder))
    if not (path / "experiment.toml").exists():
        raise not_a_run_folder(path, lacks="experiment.toml")
    experiment = place.read_experiment()
    history = [Record.from_json(table) for table in place.read_records()]
    federation = partial(federation_of, experiment, data_dir=None if data_dir is None else Path(data_dir))
    return Result(experiment, history, Goal.of(experiment), federation, folder=path, rounds_before=len(history))


@checked_call
def load_experiment(
    plan: str | Path, *, variant: str | None = None, changes: Mapping[str, Any] | None = None
) -> Experiment:
    """Return the experiment of a preset or a file, or of a variant, with changes such as {"algorithm.rho": 0.1}."""
    return load_plan(str(plan)).experiment(variant, changes=dict(changes or {}))


def experiment_of(experiment: Experiment | str | Path) -> Experiment:
    """Return an experiment, or that of a preset or a TOML file."""
    if isinstance(experiment, str | Path):
        return load_experiment(experiment)
    if not isinstance(experiment, Experiment):
        raise InputError(
            f"experiment={experiment!r} is not an experiment; give a fedadmm.Experiment, the name of a preset such "
            "as 'digits', or a TOML file"
        )
    return experiment


def session_of(
    out: str | Path, data_dir: str | Path | None, log_to: str | Sequence[str], callbacks: Callbacks, progress: bool
) -> Session:
    """Return the session that the arguments of a call describe."""
    return Session(Path(out), None if data_dir is None else Path(data_dir), log_to, callbacks, progress)
