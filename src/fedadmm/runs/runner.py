"""Play a run to its end: an experiment in a folder (`run`), or a call from Python (`simulate`)."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from fedadmm.config.experiment import CertificateSettings, Experiment
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm, Vector
from fedadmm.core.engine import Store, state_types
from fedadmm.core.errors import InputError
from fedadmm.core.metrics import ACCURACY, Metric
from fedadmm.core.participation import ParticipationRule
from fedadmm.core.round import Buffers
from fedadmm.data.federated import FederatedData
from fedadmm.data.text import corpus_digest
from fedadmm.engine.choice import settings_for
from fedadmm.network.devices import digests_of
from fedadmm.runs.assembly import Federation, federation_of
from fedadmm.runs.certificate import warn_of_old_rounds
from fedadmm.runs.client_scores import ClientScores
from fedadmm.runs.export import write_model
from fedadmm.runs.listeners import Callback, Listener, play
from fedadmm.runs.records import Goal, Record, RunFolder, Status
from fedadmm.runs.simulation import Simulation
from fedadmm.state.disk import DiskStore
from fedadmm.state.memory import MemoryStore
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction


@dataclass(frozen=True)
class Run:
    """A run that has ended, for now."""

    folder: RunFolder
    experiment: Experiment
    history: list[Record]
    status: Status
    rounds_before: int  # that were there when it began


def run(experiment: Experiment, *, out: Path, data_dir: Path | None = None, listeners: Sequence[Listener] = ()) -> Run:
    """Run an experiment in its folder inside `out`, from the first round that is not there yet."""
    folder, goal = RunFolder(out / experiment.folder_name), Goal.of(experiment)
    with ExitStack() as held:
        federation = federation_of(experiment, data_dir=data_dir)
        held.enter_context(folder.lock())
        simulation = Simulation.of(federation, _opened(experiment, folder, federation, held))
        held.callback(simulation.close)
        if experiment.certificate is not None:
            before = _certificate_before(folder)
            warn_of_old_rounds(experiment.certificate, before=before, history=simulation.history)
        folder.write_experiment(experiment.replace(rounds=max(experiment.rounds, len(simulation.history))))
        if simulation.engine.reason is not None:
            folder.write("engine.txt", f"{simulation.engine}\n".encode())  # what engine = "auto" picked, and why
        folder.write_records(simulation.history)
        rounds_before = len(simulation.history)
        write = Callback(lambda record, simulation: folder.append_record(record))
        try:
            play(simulation, goal, listeners=[write, *listeners])
        except Exception:
            if not simulation.history:  # a mistake that only the first round brought out
                held.close()
                folder.remove()
            raise
        write_model(folder, simulation.model(), round=len(simulation.history))
        return Run(folder, experiment, simulation.history, goal.status(simulation.history), rounds_before)


def _opened(experiment: Experiment, folder: RunFolder, federation: Federation, held: ExitStack) -> Store:
    """Return the store of a run, which is closed with what is held."""
    float_type = torch.bfloat16 if experiment.state.float_type == "bfloat16" else None
    if experiment.state.store == "memory":
        return MemoryStore(float_type=float_type)
    store = DiskStore(
        folder.state,
        types=state_types(experiment.algorithm),
        identity=identity_of(experiment, arithmetic=federation.engine.arithmetic),
        initial=federation.initial,
        float_type=float_type,
        durability=experiment.state.durability,
        advice=_advice,
    )
    held.callback(store.close)
    return store


def identity_of(experiment: Experiment, *, arithmetic: str) -> dict[str, str]:
    """Return what the bytes of a run depend on; the arithmetic is that of its engine."""
    versions = {"fedadmm": version("fedadmm"), "torch": torch.__version__}
    files = digests_of(experiment.clock)
    if experiment.data.name == "text":
        files |= {"text": corpus_digest()}
    return {"experiment": experiment.hash, **versions, **files, "arithmetic": arithmetic}


def _advice(key: str, written: str | None) -> str | None:
    """Return which engine goes on with a run of another arithmetic."""
    return f"use {settings_for(written)}" if key == "arithmetic" and written is not None else None


def _certificate_before(folder: RunFolder) -> CertificateSettings | None:
    """Return the certificate's settings in experiment.toml as it is, None also where it cannot be read."""
    try:
        return folder.read_experiment().certificate
    except InputError:
        return None


@dataclass(frozen=True)
class Result:
    """What `simulate` returns."""

    simulation: Simulation
    goal: Goal

    @property
    def status(self) -> Status:
        """\"finished\", \"stopped\" by a callback with rounds left, \"diverged\" if every client of the last round was
        refused, or \"collapsed\" if the last of ten rounds or more is worse than the first.
        """
        return self.goal.status(self.history)

    @property
    def theta(self) -> Vector:
        """The trained model as a flat vector."""
        return self.simulation.theta

    @property
    def buffers(self) -> Buffers:
        """The trained model's buffers."""
        return self.simulation.checkpoint.buffers

    @property
    def history(self) -> list[Record]:
        """One record per round."""
        return self.simulation.history

    def model(self) -> nn.Module:
        """Return the trained network."""
        return self.simulation.model()

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

    def evaluate_clients(self, metric: str = "accuracy", *, model: Literal["theta", "own"] = "theta") -> ClientScores:
        """Return a metric on every client's own examples, of the trained model or of each client's own."""
        return self.simulation.evaluate_clients(metric, model=model)


def simulate(
    algorithm: AnyAlgorithm,
    *,
    model: str | nn.Module | ModelFunction,
    data: FederatedData,
    rounds: int,
    participation: ParticipationRule = 0.1,
    local: LocalTraining | None = None,
    seed: int = 0,
    target: float | None = None,
    stop_at_target: bool = False,
    callbacks: Sequence[Listener | Callable[[Record, Simulation], object]] = (),
    **options: Any,
) -> Result:
    """Train a model over a federation's data and return the result; `options` are those of `Simulation`.

    participation: a fraction, a probability per client, or a function of (round, generator, devices).
    target: the score at which the run has arrived, of the `metric` in the options (by default the test accuracy).
    certificate, clock, faults (options): tables as in an experiment's file, such as certificate={"every": 10}.
    callbacks: functions that are called after every round with its record and the simulation, or Listeners. One that
        returns True ends the run after that round, which counts: callbacks=[lambda record, _: record.accuracy > 0.9].
    """
    _check_arguments(algorithm, data, rounds, local, callbacks)
    local = LocalTraining() if local is None else local
    simulation = Simulation(
        algorithm, model=model, data=data, local=local, participation=participation, seed=seed, **options
    )
    metric = simulation.federation.judge
    if target is not None:
        (ACCURACY if metric is None else metric).check_target(target)
    goal = Goal(len(simulation.history) + rounds, metric, target, stop_at_target)
    listeners = [callback if isinstance(callback, Listener) else Callback(callback) for callback in callbacks]
    try:
        play(simulation, goal, listeners=listeners)
    finally:
        simulation.close()
    if simulation.diverged:
        last = len(simulation.history)
        warnings.warn(
            f"diverged in round {last}: no client's update was finite; lower local.learning_rate", stacklevel=2
        )
    return Result(simulation, goal)


def _check_arguments(algorithm: Any, data: Any, rounds: Any, local: Any, callbacks: Any) -> None:
    """Refuse what a type checker would, for those who have none."""
    if not isinstance(algorithm, Algorithm):
        raise InputError(f"algorithm={algorithm!r} is not an algorithm; give one, such as fedadmm.FedAvg()")
    if not hasattr(data, "num_clients"):
        raise InputError(f"data of type {type(data).__name__} has no clients; deal it out with fedadmm.federate(...)")
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
        raise InputError(f"rounds={rounds!r} is not a number of rounds; use a whole number such as 60")
    if local is not None and not isinstance(local, LocalTraining):
        raise InputError(
            f"local={local!r} is not local training; use fedadmm.LocalTraining(epochs=..., learning_rate=...)"
        )
    if not isinstance(callbacks, Sequence) or not all(
        isinstance(callback, Listener) or callable(callback) for callback in callbacks
    ):
        raise InputError(f"callbacks={callbacks!r} is not a list of functions; use callbacks=[function]")
