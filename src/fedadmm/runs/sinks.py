"""Where a run's records go beside its folder: TensorBoard, Weights & Biases, MLflow, behind one small interface.

A sink only listens: it changes neither the bytes of a run nor its hash. When it is closed it holds every round of
the run once, also those that were played before it was asked for or before the run was resumed.
"""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.core.files import dotted
from fedadmm.runs.listeners import Listener
from fedadmm.runs.records import CLIENT_KEYS, NO_NUMBERS, Record

if TYPE_CHECKING:
    from fedadmm.runs.simulation import Simulation


OpenSink = Callable[[Experiment, Path], Listener]  # with the run folder


def numbers_of(record: Record) -> dict[str, float]:
    """Return the numbers of a record: clients are counted, so are the refused, lost and silent; None is left out."""
    table = record.to_json()
    counts = {key: len(table[key]) for key in CLIENT_KEYS if key in table}
    numbers = {key: value for key, value in table.items() if key not in NO_NUMBERS and key != "round"} | counts
    return {key: float(value) for key, value in numbers.items() if value is not None}


class Sink(Listener):
    """A listener that takes every round of a run, those that are there already first."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self._experiment, self._folder = experiment, folder

    def started(self, history: Sequence[Record]) -> None:
        """Open the sink and write the rounds that are there already."""
        self.open()
        for record in history:
            self.write(record)

    def after_round(self, record: Record, simulation: Simulation) -> None:
        """Write the round."""
        self.write(record)

    def open(self) -> None:
        """Begin to write."""
        raise NotImplementedError

    def write(self, record: Record) -> None:
        """Write the numbers of a round."""
        raise NotImplementedError


class TensorBoardSink(Sink):
    """Event files in RUN/tensorboard, written anew from the first round on when a run is resumed."""

    def open(self) -> None:
        """Open a new file of events."""
        from torch.utils.tensorboard import SummaryWriter

        folder = self._folder / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(str(folder))
        self._writer.add_text("experiment", f"```toml\n{self._experiment.to_toml()}```")

    def write(self, record: Record) -> None:
        """Add a scalar for each number of the round."""
        for name, value in numbers_of(record).items():
            self._writer.add_scalar(name, value, record.round)

    def ended(self) -> None:
        """Write out what is buffered."""
        self._writer.close()


class WandbSink(Sink):
    """An offline run in RUN/wandb, for `wandb sync`; written anew from the first round on when a run is resumed."""

    def open(self) -> None:
        """Begin a new run."""
        import wandb

        experiment, folder = self._experiment, self._folder
        shutil.rmtree(folder / "wandb", ignore_errors=True)
        (folder / "wandb").mkdir()
        self._run = wandb.init(
            mode="offline",
            project=experiment.name,
            name=experiment.method,
            id=folder.name[-64:],  # the hash at its end tells runs apart
            dir=str(folder),
            config=experiment.to_table(),
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def write(self, record: Record) -> None:
        """Log the numbers of the round as one step."""
        self._run.log(numbers_of(record), step=record.round)

    def ended(self) -> None:
        """End the run."""
        self._run.finish()


class MlflowSink(Sink):
    """A run in RUN/mlflow.db, or where MLFLOW_TRACKING_URI says; a resumed run goes on with the rounds it lacks."""

    def open(self) -> None:
        """Find the run, or begin it."""
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        experiment, folder = self._experiment, self._folder
        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        try:
            self._client = MlflowClient(tracking_uri=where)
            self._run = self._find_or_begin(experiment, folder.name)
            self._there = {metric.step for metric in self._client.get_metric_history(self._run, "seconds")}
        except MlflowException as error:
            raise InputError(f"MLflow cannot write to {where}: {error}; fix MLFLOW_TRACKING_URI") from error
        self._client.update_run(self._run, status="RUNNING")

    def write(self, record: Record) -> None:
        """Log the numbers of the round in one batch, unless they are there."""
        if record.round in self._there:
            return
        from mlflow.entities import Metric

        now = int(1000 * time.time())  # milliseconds, as MLflow counts
        metrics = [Metric(name, value, now, record.round) for name, value in numbers_of(record).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def ended(self) -> None:
        """Say that nobody writes any more."""
        self._client.set_terminated(self._run)

    def _find_or_begin(self, experiment: Experiment, name: str) -> str:
        from mlflow.entities import Param

        known = self._client.get_experiment_by_name(experiment.name)
        number = self._client.create_experiment(experiment.name) if known is None else known.experiment_id
        if found := self._client.search_runs([number], f"attributes.run_name = '{name}'"):
            return str(found[0].info.run_id)
        run = str(self._client.create_run(number, run_name=name).info.run_id)
        settings = dotted(experiment.to_table()).items()
        self._client.log_batch(run, params=[Param(key, str(value)) for key, value in settings])
        return run


# With the modules that its extra, which is called as the sink is, brings.
SINKS: dict[str, tuple[OpenSink, tuple[str, ...]]] = {
    "tensorboard": (TensorBoardSink, ("tensorboard",)),
    "wandb": (WandbSink, ("wandb",)),
    "mlflow": (MlflowSink, ("mlflow", "sqlalchemy", "alembic")),
}


def sinks_from(log_to: str | Sequence[str]) -> list[OpenSink]:
    """Return the sinks that "tensorboard,wandb" or a list names, once each."""
    listed = log_to.split(",") if isinstance(log_to, str) else log_to
    names = dict.fromkeys(name.strip() for name in listed if name.strip())
    if log_to and not names:
        raise InputError(f"log-to={log_to!r} is not a tool; use one or more of {','.join(SINKS)}")
    for name in names:
        if name not in SINKS:
            raise InputError(f"log-to={name!r} is unknown; use one or more of {','.join(SINKS)}")
        for module in SINKS[name][1]:
            try:
                importlib.import_module(module)
            except ImportError as error:
                remedy = f'pip install "fedadmm[{name}]"'
                raise InputError(f"log-to={name} needs {module}, which is not installed; {remedy}") from error
    return [SINKS[name][0] for name in names]
