"""Train over a federation's data that is given as Python objects."""

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from fedadmm.api.progress import bars
from fedadmm.api.result import Callbacks, Result, check_rounds, listeners_of, played
from fedadmm.config.compatibility import Options, options_from
from fedadmm.config.experiment import Experiment, Weighting
from fedadmm.config.tables import CertificateSettings, FloatType
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm
from fedadmm.core.engine import EngineName
from fedadmm.core.errors import InputError, checked_call
from fedadmm.core.metrics import Direction
from fedadmm.core.participation import ParticipationRule
from fedadmm.data.examples import Examples
from fedadmm.data.federated import FederatedData, PartitionedData
from fedadmm.data.reading import Table
from fedadmm.network.settings import Clock, Faults
from fedadmm.runs.assembly import Federation, assemble
from fedadmm.runs.goal import Goal
from fedadmm.training.evaluation import Loss, Metric
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction
from fedadmm.uploads.settings import Attack, Compression, Robust


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
    loss: Loss = functional.cross_entropy,
    l2: float = 0.0,
    personal: Sequence[str] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    metric: str | None = None,
    direction: Direction | None = None,
    target: float | None = None,
    stop_at_target: bool = False,
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
    compression: Compression | dict[str, Any] | None = None,
    robust: Robust | dict[str, Any] | None = None,
    attack: Attack | dict[str, Any] | None = None,
    callbacks: Callbacks = (),
    progress: bool = True,
    out: str | Path | None = None,
    name: str = "run",
) -> Result:
    """Train a model over a federation's data and return the result.

    participation: a fraction, a probability per client, or a function of (round, generator, devices).
    personal: patterns of the names of parameters and buffers that each client keeps for itself, such as ["head.*"].
    metrics: functions of (outputs, targets) by their names, beside the accuracy. metric: what the run is judged
        by, the test accuracy, or the loss where there is none; direction: "higher" or "lower", of a metric of yours.
    target: a score of the metric, see result.rounds_to_target; `stop_at_target` ends the run there.
    max_norm: the norm above which an upload is refused, or "100x" for a multiple of the median of the last rounds.
    float_type: "float64", or "bfloat16" for autocast, on weights in float32; that of the model's weights if None.
    devices: facts about the clients, one value each, for a participation of your own.
    certificate, clock, faults, compression, robust, attack: tables as in an experiment's file, such as
        compression={"name": "int8"}; the name of a compressor may be an object of yours.
    callbacks: functions that are called after every round with its record and the simulation, or Listeners. One that
        returns True ends the run after that round, which counts: callbacks=[lambda record, _: record.accuracy > 0.9].
        With evaluate_every, accuracy and loss are None in a round that was not evaluated.
    out: folder in which the run gets a folder of its own, called after `name`; the same call then goes on with it.
    """
    given = locals()
    _check_arguments(algorithm, data, rounds, local)
    given["local"] = LocalTraining() if local is None else local
    options = options_from({field.name: given[field.name] for field in fields(Options) if field.name in given})
    federation = Assembled(assemble(algorithm, options))
    judge = federation.whole.judge
    goal = Goal(rounds, judge, target, stop_at_target)
    experiment = described(federation.whole, goal, name=name, whole=out is not None)
    folder = None if out is None else Path(out) / experiment.folder_name
    heard = [*listeners_of(callbacks), *bars(goal, experiment.method, progress=progress)]
    return played(experiment, federation, folder=folder, goal=goal, listeners=heard)


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


def described(federation: Federation, goal: Goal, *, name: str, whole: bool) -> Experiment:
    """Return what an experiment's file can say of a federation that was made of Python objects.

    What it cannot say is in a digest in the data's name: another run has another folder. whole: read all examples.
    """
    options = federation.options
    shared = {key: getattr(options, key) for key in Experiment.model_fields if hasattr(options, key)}
    rule: Any = options.participation
    if not isinstance(rule, int | float):
        rule = tuple(map(float, rule)) if isinstance(rule, Sequence | np.ndarray) else _name(rule)
    of_model: dict[str, Any] = {"name": _name(options.model), "loss": _name(options.loss)}
    of_model |= {"l2": options.l2 or None, "personal": options.personal}
    digest, num_clients = _digest(federation, whole=whole), options.data.num_clients
    of_data: dict[str, Any] = {"name": f"python:{digest}", "partition": "given", "num_clients": num_clients}
    of_data["float_type"] = options.float_type
    if federation.task.held_out is not None:
        held, kept = (int(part.num_examples.sum()) for part in (federation.task.held_out, options.data))
        of_data["client_test"] = round(held / (held + kept), 3)
    own = {"metrics": {key: _name(function) for key, function in (options.metrics or {}).items()}}
    return Experiment(
        **shared
        | {"name": name, "rounds": max(1, goal.rounds), "target": goal.target, "stop_at_target": goal.stop_at_target}
        | {"algorithm": federation.algorithm, "participation": rule, "model": of_model | own, "data": of_data}
        | {"devices": None if options.devices is None else "python:devices", "device": str(options.device)}
    )


def _name(value: Any) -> str:
    """Return a string as it is, and of a function or a network where it is defined."""
    if isinstance(value, str):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return named.__name__ if named.__module__ == functional.__name__ else f"{named.__module__}:{named.__qualname__}"


def _digest(federation: Federation, *, whole: bool) -> str:
    """Return a digest over data, or some of it, initial weights and functions."""
    options, found = federation.options, hashlib.blake2b(digest_size=5)
    for part in (_code(module.forward) for module in federation.task.model.module.modules()):
        found.update(part)
    reader = federation.task.reader
    tables = [] if reader is None else [vars(part) for part in reader.parts if isinstance(part, Table)]
    read = reader.samples() if whole and reader is not None else []
    tensors = (federation.initial, federation.task.personal, _examples(options.data, whole=whole), tables, read)
    for tensor in tree_leaves(tensors):  # of tuples and dicts of tensors, too
        if isinstance(tensor, torch.Tensor):
            found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    found.update(np.asarray(options.data.num_examples).tobytes())
    own = {"participation": options.participation, "loss": options.loss, **(options.metrics or {})}
    for key, value in own.items():
        found.update(key.encode() + (_code(value) if callable(value) else repr(value).encode()))
    for key, numbers in (options.devices or {}).items():
        found.update(key.encode() + np.asarray(numbers).tobytes())
    return found.hexdigest()


def _examples(data: FederatedData, *, whole: bool) -> list[Examples]:
    """Return all examples if they are wanted and in memory, else those of some clients, and the test examples."""
    if whole and isinstance(data, PartitionedData):
        found = [Examples(data.inputs, data.targets)]
    else:
        some = {0, data.num_clients // 2, data.num_clients - 1} if whole else {0}
        found = [data.client(client) for client in sorted(some)]
    held_out: FederatedData | None = getattr(data, "held_out", None)
    found += [] if data.test is None else [data.test]
    return found + ([] if held_out is None else _examples(held_out, whole=whole))


def _code(function: Callable[..., Any]) -> bytes:
    """Return the code of a function, of another callable what it prints as."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return repr(function).encode() if isinstance(function, nn.Module) else _name(function).encode()
    constants = [c for c in code.co_consts if not hasattr(c, "co_code")]
    return code.co_code + repr((code.co_names, constants)).encode()


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
