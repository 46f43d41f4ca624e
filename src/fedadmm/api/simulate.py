"""Train over a federation's data that is given as Python objects."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedadmm.api.described import described
from fedadmm.api.progress import bars
from fedadmm.api.result import Callbacks, Result, check_rounds, listeners_of, played
from fedadmm.config.compatibility import Options, options_from
from fedadmm.config.experiment import Weighting
from fedadmm.config.tables import CertificateSettings, FloatType, StateSettings
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm
from fedadmm.core.calls import checked_call
from fedadmm.core.engine import EngineName
from fedadmm.core.errors import InputError
from fedadmm.core.metrics import Direction
from fedadmm.core.participation import ParticipationRule
from fedadmm.data.federated import FederatedData, PartitionedData
from fedadmm.network.settings import Clock, Faults
from fedadmm.runs.assembly import Federation, assemble
from fedadmm.runs.goal import Goal
from fedadmm.runs.sinks import sinks_from
from fedadmm.secure.settings import Secure
from fedadmm.training.evaluation import Loss, Metric
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction
from fedadmm.uploads.settings import Attack, Compression, Privacy, Robust


@checked_call
def simulate(
    algorithm: AnyAlgorithm,
    *,
    model: str | nn.Module | ModelFunction,
    data: FederatedData,
    rounds: int,
    participation: ParticipationRule = 0.1,
    local: LocalTraining | None = None,
    seed: int = 0,
    loss: str | Loss = functional.cross_entropy,
    l2: float = 0.0,
    personal: Sequence[str] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    metric: str | None = None,
    direction: Direction | None = None,
    target: float | None = None,
    stop_at_target: bool = False,
    patience: int | None = None,
    evaluate_every: int | None = None,
    max_norm: float | str | None = None,
    weighting: Weighting = "equal",
    devices: Mapping[str, Sequence[float]] | None = None,
    float_type: FloatType | None = None,
    device: str | torch.device = "cpu",
    engine: EngineName = "workers",
    workers: int | None = None,
    faults: Faults | dict[str, Any] | None = None,
    certificate: CertificateSettings | dict[str, Any] | None = None,
    clock: Clock | dict[str, Any] | None = None,
    privacy: Privacy | dict[str, Any] | None = None,
    compression: Compression | dict[str, Any] | None = None,
    robust: Robust | dict[str, Any] | None = None,
    attack: Attack | dict[str, Any] | None = None,
    secure: Secure | dict[str, Any] | None = None,
    callbacks: Callbacks = (),
    progress: bool = True,
    out: str | Path | None = None,
    name: str = "run",
    label: str | None = None,
    state: StateSettings | dict[str, Any] | None = None,
    log_to: str | Sequence[str] = (),
    accept_code: bool = False,
) -> Result:
    """Train a model over a federation's data and return the result.

    participation: a fraction, a probability per client, or a function of (round, generator, devices).
    loss: a function of (outputs, targets) that returns their mean loss, or its name as in a file, such as "mse_loss".
    personal: patterns of the names of parameters and buffers that each client keeps for itself, such as ["head.*"].
    metrics: functions of (outputs, targets) by their names, beside the accuracy. metric: what the run is judged
        by, the test accuracy, or the loss where there is none; direction: "higher" or "lower", of a metric of yours.
    target: a score of the metric, see result.rounds_to_target; `stop_at_target` ends the run there.
    patience: ends the run once its best score has not improved for this many rounds.
    max_norm: the norm above which an upload is refused, or "100x" for a multiple of the median of the last rounds.
    float_type: "float64", or "bfloat16" for autocast, on weights in float32; that of the model's weights if None.
    devices: facts about the clients, one value each, for a participation of your own.
    certificate, clock, faults, privacy, secure, compression, robust, attack, state: tables as in an experiment's file:
        compression={"name": "int8"}; the name of a compressor may be an object of yours.
    callbacks: functions that are called after every round with its record and the simulation, or Listeners. One that
        returns True ends the run after that round, which counts: callbacks=[lambda record, _: record.accuracy > 0.9].
        With evaluate_every, accuracy and loss are None in a round that was not evaluated.
    out: folder in which the run gets a folder of its own, called after `name`; the same call then goes on with it.
        log_to: other tools that take its rounds: "tensorboard", "wandb", "mlflow".
        accept_code: go on with it although your code has changed since; it then has rounds of both.
    label: what a comparison calls the run, the algorithm's name if None.
    """
    given = locals()
    _check_arguments(algorithm, data, rounds, local)
    if out is None and (log_to or state is not None):
        raise InputError("log_to and state are about a run folder, and there is none; give out")
    given["local"] = LocalTraining() if local is None else local
    options = options_from({field.name: given[field.name] for field in fields(Options) if field.name in given})
    if options.privacy is not None:
        options = replace(options, privacy=options.privacy.over(rounds))
    federation = Assembled(assemble(algorithm, options))
    judge = federation.whole.judge
    goal = Goal(rounds, judge, target, stop_at_target, patience)
    named = {"name": name, "label": label, "state": StateSettings() if state is None else state}
    experiment = described(federation.whole, goal, named=named, whole=out is not None)
    folder = None if out is None else Path(out) / experiment.folder_name
    sinks = [sink(experiment, folder) for sink in sinks_from(log_to)] if folder is not None else []
    heard = [*sinks, *listeners_of(callbacks), *bars(goal, experiment.method, progress=progress)]
    return played(experiment, federation, folder=folder, goal=goal, listeners=heard, accept_code=accept_code)


@dataclass(frozen=True)
class Assembled:
    """A federation that is there; once it was pickled, it is assembled again when it is needed."""

    whole: Federation

    def __call__(self) -> Federation:
        """Return the federation."""
        return self.whole

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how it is assembled again, with the network as it was before the first round."""
        whole = self.whole
        whole.task.model.load(whole.initial)
        whole.task.model.load_buffers(whole.begin.buffers)
        whole.task.load_personal(None)
        options = replace(whole.options, model=whole.task.model.module)
        for field in fields(options):
            value = getattr(options, field.name)
            try:
                pickle.dumps(None if isinstance(value, nn.Module | PartitionedData) else value)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise InputError(
                    f"{field.name}={value!r} cannot be pickled; define it by `def` in a module, not in a function "
                    "or as a lambda"
                ) from error
        return partial, (assemble, whole.algorithm, options)


def _check_arguments(algorithm: Any, data: Any, rounds: Any, local: Any) -> None:
    """Refuse what a type checker would, for those who have none."""
    if not isinstance(algorithm, Algorithm):
        raise InputError(f"algorithm={algorithm!r} is not an algorithm; give one, such as fedadmm.FedAvg()")
    if not hasattr(data, "num_clients"):
        raise InputError(f"data of type {type(data).__name__} has no clients; deal it out with fedadmm.federate(...)")
    check_rounds(rounds)
    if local is not None and not isinstance(local, LocalTraining):
        raise InputError(
            f"local={local!r} is not local training; use fedadmm.LocalTraining(epochs=..., learning_rate=...)"
        )
