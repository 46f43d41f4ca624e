"""One call from Python: an algorithm, a model, data, and back comes the trained model with its history."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from fedadmm.config.certificate import CertificateSettings
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.metrics import metric_named
from fedadmm.core.participation import ParticipationRule
from fedadmm.core.round import Buffers
from fedadmm.data.federated import FederatedData
from fedadmm.network.settings import Clock, Faults
from fedadmm.runs.clients import ClientScores
from fedadmm.runs.listeners import Callback, Listener, play
from fedadmm.runs.records import Record
from fedadmm.runs.simulation import Simulation
from fedadmm.runs.status import Goal, Status
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction

TABLES: dict[str, Any] = {"certificate": CertificateSettings, "clock": Clock, "faults": Faults}


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
    callbacks: Sequence[Listener | Callable[[Record, Simulation], object]] = (),
    **options: Any,
) -> Result:
    """Train a model over a federation's data and return the result; `options` are those of `Simulation`.

    participation: a fraction, a probability per client, or a function of (round, generator, devices).
    certificate, clock, faults (options): tables as in an experiment's file, such as certificate={"every": 10}.
    callbacks: functions that are called after every round with its record and the simulation, or Listeners. One that
        returns True ends the run after that round, which counts: callbacks=[lambda record, _: record.accuracy > 0.9].
    """
    _check_arguments(algorithm, data, rounds, local, callbacks)
    simulation = Simulation(
        algorithm,
        model=model,
        data=data,
        local=local if local is not None else LocalTraining(),
        participation=participation,
        seed=seed,
        **{key: _as_settings(key, value) for key, value in options.items()},
    )
    goal = Goal(len(simulation.history) + rounds, metric_named(options.get("metric")))
    listeners = [callback if isinstance(callback, Listener) else Callback(callback) for callback in callbacks]
    try:
        play(simulation, goal, listeners=listeners)
    finally:
        simulation.close()
    if simulation.diverged:
        warnings.warn(
            f"diverged in round {len(simulation.history)}: no client's update was finite; lower local.learning_rate",
            stacklevel=2,
        )
    return Result(simulation, goal)


def _as_settings(key: str, value: Any) -> Any:
    """Return the settings that a table stands for; other options are themselves."""
    return TABLES[key](**value) if key in TABLES and isinstance(value, dict) else value


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
