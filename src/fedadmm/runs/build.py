"""From an experiment's names to the objects of a simulation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from fedadmm.config.experiment import DataSettings, Experiment
from fedadmm.core.errors import InputError
from fedadmm.core.names import import_named
from fedadmm.core.participation import ParticipationRule
from fedadmm.core.store import Store
from fedadmm.data import PartitionedData, federate, load
from fedadmm.data.generated import GeneratedData, synthetic
from fedadmm.data.quadratic import quadratic
from fedadmm.data.transforms import hold_out, in_float_type, two_classes
from fedadmm.runs.assembly import Federation, Options, assemble
from fedadmm.runs.simulation import Simulation
from fedadmm.state.memory import MemoryStore
from fedadmm.training.evaluation import Loss, least_squares
from fedadmm.training.models import initial_model

MADE: dict[str, Callable[..., PartitionedData | GeneratedData]] = {"synthetic": synthetic, "quadratic": quadratic}


def simulation_of(experiment: Experiment, *, data_dir: Path | None = None, store: Store | None = None) -> Simulation:
    """Return the simulation that an experiment describes, with its state in memory if not in a store."""
    return Simulation.of(federation_of(experiment, data_dir=data_dir), MemoryStore() if store is None else store)


def federation_of(experiment: Experiment, *, data_dir: Path | None = None) -> Federation:
    """Return the federation that an experiment describes; a mistake in it is found here, before any round."""
    data = data_of(experiment, data_dir=data_dir)
    model, float_type = experiment.model, experiment.data.float_type
    options = Options(
        model=initial_model(
            model.name,
            seed=experiment.seed,
            inputs=data.client(0).inputs,
            num_classes=data.num_classes,
            float_type=None if float_type is None else getattr(torch, float_type),
            **model.options,
        ),
        data=data,
        local=experiment.local,
        participation=_participation(experiment.participation),
        seed=experiment.seed,
        weighting=experiment.weighting,
        loss=_loss(model.loss),
        l2=model.l2 or 0.0,
        metric=experiment.metric or "accuracy",
        metrics={name: import_named(path, what="metric") for name, path in model.metrics.items()},
        devices=import_named(experiment.devices, what="devices")() if experiment.devices else None,
        device=experiment.device,
        engine=experiment.engine,
        workers=experiment.workers,
        faults=experiment.faults,
        certificate=experiment.certificate,
        clock=experiment.clock,
    )
    return assemble(experiment.algorithm, options)


def data_of(experiment: Experiment, *, data_dir: Path | None = None) -> PartitionedData | GeneratedData:
    """Return the data of an experiment, dealt to its clients."""
    settings = experiment.data
    if settings.name in MADE:
        return _made(settings, seed=experiment.seed)
    if settings.options:
        raise InputError(f'data "{settings.name}" takes no options; they are for {", ".join(MADE)}')
    dataset = load(settings.name, data_dir=data_dir, normalisation=settings.normalisation)
    if settings.validation is not None:
        dataset = hold_out(dataset, fraction=settings.validation, seed=experiment.seed)
    data = federate(
        dataset,
        num_clients=settings.num_clients,
        partition=settings.partition,
        shards_per_client=settings.shards_per_client,
        alpha=settings.alpha,
        seed=experiment.seed,
    )
    if settings.positive is not None:
        data = two_classes(data, positive=settings.positive)
    return data if settings.float_type is None else in_float_type(data, getattr(torch, settings.float_type))


def _made(settings: DataSettings, *, seed: int) -> PartitionedData | GeneratedData:
    if settings.num_clients is None or settings.partition != "natural":
        raise InputError(
            f'data "{settings.name}" with num_clients={settings.num_clients} and partition {settings.partition!r}: '
            'it is made client by client; give num_clients, and partition = "natural"'
        )
    for key in ("normalisation", "validation", "positive", "float_type"):
        if getattr(settings, key) is not None:
            raise InputError(f'data "{settings.name}" is taken as it is; leave out {key}')
    return MADE[settings.name](num_clients=settings.num_clients, seed=seed, **settings.options)


def _participation(rule: float | tuple[float, ...] | str) -> ParticipationRule:
    if not isinstance(rule, str):
        return rule
    function: Any = import_named(rule, what="participation")
    return function


def _loss(name: str) -> Loss:
    if ":" in name:
        function: Loss = import_named(name, what="loss")
        return function
    if name == "least_squares":
        return least_squares
    if not hasattr(functional, name):
        raise InputError(
            f"loss={name!r} is unknown; use least_squares, a function of torch.nn.functional or "
            '"package.module:function"'
        )
    found: Loss = getattr(functional, name)
    return found
