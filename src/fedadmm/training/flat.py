"""A module as one flat vector of trainable parameters, and its buffers beside it."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError
from fedadmm.core.round import Buffers


def independent_copy(module: nn.Module) -> nn.Module:
    """Return a copy whose parameters own their memory, in this process alone."""
    twin = copy.deepcopy(module)
    for parameter in twin.parameters():
        parameter.data = parameter.data.clone()  # under "spawn" what was copied lies in shared memory
    return twin


def channels_last(inputs: torch.Tensor) -> torch.Tensor:
    """Return images with their channels side by side in memory, on which convolutions and pools are faster."""
    if inputs.dim() != 4:
        return inputs
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = inputs.shape
    # For one channel the strides are ambiguous, and torch would take them for the other order.
    return inputs.as_strided(inputs.shape, (channels * height * width, 1, width * channels, channels))


def squared_norm(vector: Vector) -> float:
    """Return |vector|^2, summed in double precision."""
    norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    return norm * norm


def split(vector: Vector, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return views of a flat vector in these shapes."""
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]


class FlatModel:
    """A module whose trainable parameters are views of one vector, `weights`."""

    def __init__(self, module: nn.Module, *, device: str | torch.device = "cpu") -> None:
        try:
            self.module = module.to(device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f'device="{device}" cannot be used: {error}; use "cpu"') from error
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not self.parameters:
            raise InputError("the model has no trainable parameters; give one a requires_grad of True")
        types = {p.dtype for p in self.parameters}
        if len(types) > 1:
            raise InputError(f"the model mixes parameters of {types}; use one type")
        self.weights: Vector = torch.cat([p.detach().reshape(-1) for p in self.parameters])  # [d]
        self.views = self.split(self.weights)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.data = view
        buffers = list(self.module.buffers())
        self._floats = [b for b in buffers if b.is_floating_point()]
        self._integers = [b for b in buffers if not b.is_floating_point()]

    def split(self, vector: Vector) -> list[torch.Tensor]:
        """Return views of a flat vector in the shapes of the parameters."""
        return split(vector, self.parameters)

    def load(self, weights: Vector) -> None:
        """Copy a vector into the module."""
        self.weights.copy_(weights)

    def load_buffers(self, buffers: Buffers) -> None:
        """Copy buffers into the module."""
        for own, flat in ((self._floats, buffers.floats), (self._integers, buffers.integers)):
            for buffer, part in zip(own, torch.split(flat, [b.numel() for b in own]), strict=True):
                buffer.copy_(part.view_as(buffer))

    def buffers(self) -> Buffers:
        """Return a copy of the module's buffers."""
        empty = self.weights.new_empty(0)
        return Buffers(
            torch.cat([empty, *(b.reshape(-1).to(empty.dtype) for b in self._floats)]),
            torch.cat([empty.long(), *(b.reshape(-1).long() for b in self._integers)]),
        )
