"""Trained models: the file in a run folder, and what can be taken out of the folder: that, or a client's state."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn

from fedadmm.config.experiment import Experiment
from fedadmm.config.tables import DataSettings
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.errors import InputError
from fedadmm.core.optional import HasPersonalModel, trait
from fedadmm.core.round import ServerCheckpoint
from fedadmm.data.datasets import moments_of
from fedadmm.runs.assembly import stored_types
from fedadmm.runs.records import RunFolder
from fedadmm.runs.simulation import simulation_of
from fedadmm.state.disk import DiskStore

MAKE_AGAIN = "run the same experiment again: it makes the file anew from the store"


class StoredModel(NamedTuple):
    """A model as it is in model.safetensors."""

    round: int  # after which it was so
    tensors: dict[str, torch.Tensor]
    parameters: list[str]  # the trainable ones, in the order in which theta holds them

    @classmethod
    def of(cls, module: nn.Module, *, round: int, without: Sequence[str] = ()) -> "StoredModel":
        """Return a network as it is stored, without the parts that each client keeps for itself."""
        tensors = {n: value.detach().cpu().clone() for n, value in module.state_dict().items() if n not in without}
        return cls(round, tensors, [n for n, p in module.named_parameters() if p.requires_grad and n not in without])

    @property
    def theta(self) -> torch.Tensor:
        """The trainable parameters as one vector."""
        return torch.cat([self.tensors[name].reshape(-1) for name in self.parameters])


def read_model(folder: RunFolder, *, name: str = "model.safetensors") -> StoredModel | None:
    """Return what is in a model's file, None if there is none."""
    path = folder.path / name
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["fedadmm"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            model = StoredModel(int(facts["round"]), tensors, list(facts["parameters"]))
            _ = model.theta  # its parameters are there
            return model
    except Exception as error:  # a damaged header leads anywhere
        raise InputError(f"{path} is damaged: {error}; {MAKE_AGAIN}") from error


def is_of(model: StoredModel, checkpoint: ServerCheckpoint, algorithm: AnyAlgorithm) -> bool:
    """Return whether a stored model is that of the server's checkpoint."""
    theta = algorithm.model(checkpoint.server)
    return model.round == checkpoint.round and torch.equal(model.theta, theta.to(model.theta.dtype))


def write_model(
    folder: RunFolder,
    module: nn.Module,
    *,
    round: int,
    name: str = "model.safetensors",
    without: Sequence[str] = (),
    data: DataSettings | None = None,
) -> None:
    """Write a network to a file, whole or not at all, unless it is there already.

    without: names to leave out. data: what it was trained on; the file says how its inputs were normalised.
    """
    model = StoredModel.of(module, round=round, without=without)
    # The metadata is one key, because safetensors does not keep an order of several.
    facts = {"round": round, "parameters": model.parameters} | normalisation_of(data)
    folder.write(name, save(model.tensors, metadata={"fedadmm": json.dumps(facts)}))


def normalisation_of(data: DataSettings | None) -> dict[str, dict[str, list[float]]]:
    """Return how the inputs were normalised, as a model's file has it: pixels from 0 to 1, less mean, over std."""
    moments = None if data is None else moments_of(data.name, data.normalisation)
    return {} if moments is None else {"normalisation": moments}


def export(
    run: Path, *, client: int | None, personal: bool, data_dir: Path | None
) -> tuple[dict[str, torch.Tensor], int]:
    """Return tensors by their names and the round after which they were so.

    They are the model of a run, or the state of a client, or its personal model under the model's names.
    """
    folder = RunFolder(run)
    with folder.at_rest():
        experiment = folder.read_experiment()
        with closing(DiskStore(folder.state, types=stored_types(experiment), identity=None, readonly=True)) as store:
            model = _newest_model(folder, store, data_dir)
            tensors = model.tensors
            if personal:
                tensors = _personal_model(store, client, model, experiment, data_dir)
            elif client is not None:
                tensors = state_tensors(_state(store, client), model)
    return tensors, model.round


def _newest_model(folder: RunFolder, store: DiskStore, data_dir: Path | None) -> StoredModel:
    """Return the model after the last committed round: the file's if it is in step, else made from the store."""
    experiment, checkpoint = folder.read_experiment(), store.checkpoint()
    rounds = 0 if checkpoint is None else checkpoint.round
    model = read_model(folder)
    if model is not None and model.round == rounds:
        if checkpoint is not None and not is_of(model, checkpoint, experiment.algorithm):
            raise InputError(f"{folder.model} is not that of the store; {MAKE_AGAIN}")
        return model
    simulation = simulation_of(experiment, data_dir=data_dir, store=store)
    return StoredModel.of(simulation.model(), round=rounds, without=simulation.task.model.personal_names)


def _personal_model(
    store: DiskStore, client: int | None, model: StoredModel, experiment: Experiment, data_dir: Path | None
) -> dict[str, torch.Tensor]:
    """Return the model with a client's own weights in the place of the server's, and the parts that it keeps."""
    if client is None:
        raise InputError("--personal-model needs to know whose; give --client as well")
    state, algorithm, tensors = _state(store, client), experiment.algorithm, model.tensors
    personal, has_parts = trait(algorithm, HasPersonalModel), experiment.model.personal is not None
    if personal is None and not has_parts:
        raise InputError(f"{type(algorithm).__name__} keeps no model of a client's own; export the model instead")
    if has_parts:
        simulation = simulation_of(experiment.replace(engine="serial"), data_dir=data_dir, store=store)
        tensors = StoredModel.of(simulation.client_model(client), round=model.round).tensors
    return tensors if personal is None else tensors | _in_shapes(personal.personal_model(state), model)


def state_tensors(state: Any, model: StoredModel | None) -> dict[str, torch.Tensor]:
    """Return the fields of a client's state, and those of the model's size in the shapes of the model too."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in state._asdict().items():
        tensors[name] = torch.as_tensor(value)
        if model is not None and tensors[name].shape == model.theta.shape:
            parts = _in_shapes(tensors[name], model)
            tensors |= {f"{name}.{key}": part for key, part in parts.items()}
    return tensors


def _state(store: DiskStore, client: int) -> Any:
    state = store.get(client)
    if state is None:
        raise InputError(f"client {client} has no state: it never took part; {len(store)} clients have one")
    return state


def _in_shapes(vector: torch.Tensor, model: StoredModel) -> dict[str, torch.Tensor]:
    """Return a flat vector as the model's parameters."""
    shapes = {key: model.tensors[key].shape for key in model.parameters}
    parts = torch.split(vector, [shape.numel() for shape in shapes.values()])
    return {key: part.view(shape).clone() for (key, shape), part in zip(shapes.items(), parts, strict=True)}
