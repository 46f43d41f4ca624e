"""The parts of a run, made from Python objects and checked against each other before anything is started or written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedadmm.config.certificate import CertificateSettings
from fedadmm.config.compatibility import check_clock, check_model, check_rules
from fedadmm.config.experiment import Weighting
from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.messages import num_bytes
from fedadmm.core.metrics import MetricName, metric_named
from fedadmm.core.names import EngineName
from fedadmm.core.participation import Devices, ParticipationRule, participation_from
from fedadmm.core.round import ServerCheckpoint
from fedadmm.core.store import state_types
from fedadmm.data.federated import FederatedData
from fedadmm.engine import Choice, choose
from fedadmm.engine.planner import Planner, Plans
from fedadmm.engine.probe import probe
from fedadmm.engine.threads import one_thread
from fedadmm.network.device_files import simulated_devices
from fedadmm.network.network import Network, make_network
from fedadmm.network.settings import Clock, Faults
from fedadmm.runs.certificate import check_certifiable
from fedadmm.runs.clients import ClientWeights
from fedadmm.training.evaluation import Loss, Metric, accuracy
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction, initial_model
from fedadmm.training.optimum import Optimum
from fedadmm.training.task import LearningTask


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a federation is made of: the keyword arguments of `Simulation`."""

    model: str | nn.Module | ModelFunction
    data: FederatedData
    local: LocalTraining
    participation: ParticipationRule
    seed: int
    weighting: Weighting = "equal"
    loss: Loss = functional.cross_entropy
    l2: float = 0.0
    metrics: Mapping[str, Metric] | None = None  # beside the accuracy, which there is where targets are classes
    metric: MetricName = "accuracy"
    devices: Mapping[str, Sequence[float]] | None = None  # facts about the clients
    device: str | torch.device = "cpu"
    engine: EngineName = "workers"
    workers: int | None = None
    faults: Faults | None = None
    certificate: CertificateSettings | None = None
    clock: Clock | None = None


def options_from(values: Mapping[str, Any]) -> Options:
    """Return the options of these names and values; refuse a name that is none."""
    names = [field.name for field in fields(Options)]
    for name in values:
        if name not in names:
            raise InputError(f"a simulation has no option {name!r}; it has {', '.join(names)}, open_store")
    return Options(**values)


@dataclass(frozen=True)
class Federation:
    """All that a simulation plays with, but the place of its state."""

    algorithm: AnyAlgorithm
    options: Options
    task: LearningTask
    weights: ClientWeights
    engine: Choice
    network: Network
    planner: Plans
    initial: Vector  # theta^0
    begin: ServerCheckpoint  # before round 1
    optimum: Optimum | None  # where the distance to it is asked for


def assemble(algorithm: AnyAlgorithm, options: Options) -> Federation:
    """Return the federation that these options describe; a mistake in them is found here."""
    data, local, seed = options.data, options.local, options.seed
    participation = participation_from(options.participation)
    facts = {"num_examples": data.num_examples, **{k: np.asarray(v) for k, v in (options.devices or {}).items()}}
    devices = Devices(data.num_clients, facts)
    check_rules(
        algorithm,
        participation=participation,
        local=local,
        devices=devices,
        clock=options.clock,
        faults=options.faults,
        engine=options.engine,
    )
    if options.clock is not None:
        check_clock(options.clock, algorithm, faults=options.faults, engine=options.engine)
    if options.certificate is not None:
        types = state_types(algorithm)
        check_certifiable(options.certificate, algorithm, kind=types.client, num_clients=data.num_clients)
    weights = ClientWeights(options.weighting, data)
    with one_thread():
        task = _task(options)
        check_model(algorithm, task)
        initial = task.model.weights.clone()
        forms = probe(algorithm, initial)
        choice = choose(options.engine, algorithm, task, num_workers=options.workers)
        optimum = task.optimum(weights.values) if metric_named(options.metric).needs_optimum else None
    begin = ServerCheckpoint(0, algorithm.init_server(initial), task.buffers(), 0.0)
    simulated = (
        None if options.clock is None else simulated_devices(options.clock, seed=seed, num_clients=data.num_clients)
    )
    planner = Planner(
        algorithm,
        participation=participation,
        local=local,
        devices=devices,
        seed=seed,
        speed=None if simulated is None else simulated.speed,
    )
    network = make_network(
        options.clock,
        options.faults,
        devices=simulated,
        seed=seed,
        num_examples=data.num_examples,
        bytes_down=num_bytes(forms.download) + num_bytes(begin.buffers),
        bytes_up=num_bytes(forms.upload) + num_bytes(begin.buffers),
        participation=participation,
        assign=planner.assignment,
        least_epochs=local.least_epochs,
    )
    return Federation(
        algorithm, options, task, weights, choice, network, network.schedule or planner, initial, begin, optimum
    )


def _task(options: Options) -> LearningTask:
    if not hasattr(options.data, "num_classes"):
        raise InputError(
            f"{type(options.data).__name__} has no num_classes; give it the number of classes, or 0 where targets are "
            "numbers"
        )
    first = options.data.client(0)
    known = {} if first.targets.is_floating_point() else {"accuracy": accuracy}
    return LearningTask(
        initial_model(options.model, seed=options.seed, inputs=first.inputs, num_classes=options.data.num_classes),
        options.data,
        local=options.local,
        loss=options.loss,
        l2=options.l2,
        metrics=known | dict(options.metrics or {}),
        seed=options.seed,
        device=options.device,
    )
