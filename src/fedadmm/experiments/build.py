"""From an experiment's names to the objects of a simulation."""

from pathlib import Path
from typing import Any

from torch.nn import functional

from fedadmm.core.errors import InputError
from fedadmm.core.naming import import_named
from fedadmm.core.seeds import torch_seed
from fedadmm.data import federate, load
from fedadmm.experiments.experiment import Experiment
from fedadmm.experiments.simulation import OpenStore, ParticipationRule, Simulation
from fedadmm.learning.evaluation import Loss
from fedadmm.learning.models import build


def simulation_of(
    experiment: Experiment, *, data_dir: Path | None = None, open_store: OpenStore | None = None
) -> Simulation:
    """Return the simulation that an experiment describes; a mistake in it is found here, before any round."""
    settings = experiment.data
    data = federate(
        load(settings.name, data_dir=data_dir, normalisation=settings.normalisation),
        num_clients=settings.num_clients,
        partition=settings.partition,
        shards_per_client=settings.shards_per_client,
        alpha=settings.alpha,
        seed=experiment.seed,
    )
    model = experiment.model
    return Simulation(
        experiment.algorithm,
        model=build(
            model.name,
            input_shape=tuple(data.inputs.shape[1:]),
            num_classes=data.num_classes,
            seed=torch_seed(experiment.seed, "model"),
            **model.options,
        ),
        data=data,
        local=experiment.local,
        participation=_participation(experiment.participation),
        seed=experiment.seed,
        weighting=experiment.weighting,
        loss=_loss(model.loss),
        metrics={name: import_named(path, what="metric") for name, path in model.metrics.items()},
        devices=import_named(experiment.devices, what="devices")() if experiment.devices else None,
        device=experiment.device,
        open_store=open_store,
    )


def _participation(rule: float | tuple[float, ...] | str) -> ParticipationRule:
    if not isinstance(rule, str):
        return rule
    function: Any = import_named(rule, what="participation")
    return function


def _loss(name: str) -> Loss:
    if ":" in name:
        function: Loss = import_named(name, what="loss")
        return function
    if not hasattr(functional, name):
        raise InputError(
            f'loss={name!r} is unknown; use a function of torch.nn.functional or "package.module:function"'
        )
    found: Loss = getattr(functional, name)
    return found
