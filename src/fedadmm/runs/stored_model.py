"""A trained model in a run folder: model.safetensors."""

import json
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from fedadmm.core.errors import InputError
from fedadmm.runs.folder import RunFolder


class StoredModel(NamedTuple):
    """A model as it is in model.safetensors."""

    round: int  # after which it was so
    tensors: dict[str, torch.Tensor]
    parameters: list[str]  # the trainable ones, in the order in which theta holds them

    @classmethod
    def of(cls, module: nn.Module, *, round: int) -> "StoredModel":
        """Return a network as it is stored."""
        tensors = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
        return cls(round, tensors, [name for name, p in module.named_parameters() if p.requires_grad])

    def to_bytes(self) -> bytes:
        """Return the file's content; the metadata is one key, as safetensors does not keep an order of several."""
        facts = {"round": self.round, "parameters": self.parameters}
        content: bytes = save(self.tensors, metadata={"fedadmm": json.dumps(facts)})
        return content

    @property
    def theta(self) -> torch.Tensor:
        """The trainable parameters as one vector."""
        return torch.cat([self.tensors[name].reshape(-1) for name in self.parameters])


def read_model(folder: RunFolder) -> StoredModel | None:
    """Return what is in model.safetensors, None if there is none."""
    if not folder.model.exists():
        return None
    try:
        with safe_open(folder.model, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["fedadmm"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{folder.model} is damaged: {error}; run makes it again") from error
    return StoredModel(facts["round"], tensors, facts["parameters"])


def write_model(folder: RunFolder, module: nn.Module, *, round: int, name: str = "model.safetensors") -> None:
    """Write a network to a file, whole or not at all, unless it is there already."""
    folder.write(name, StoredModel.of(module, round=round).to_bytes())
