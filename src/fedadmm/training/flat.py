"""A module as one flat vector of trainable parameters, and its buffers beside it."""

import copy
import inspect
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError, failure
from fedadmm.core.round import Buffers
from fedadmm.core.state_parts import Personal
from fedadmm.data.examples import Tree, cloned, mapped


def independent_copy(module: nn.Module) -> nn.Module:
    """Return a copy whose parameters own their memory, in this process alone."""
    # What a forward has left behind, as the deprecated weight_norm does, has a history, which torch does not copy.
    left = (value for part in module.modules() for value in vars(part).values() if isinstance(value, Tensor))
    try:
        known: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in left if not tensor.is_leaf}
        twin = copy.deepcopy(module, known)
    except (RuntimeError, TypeError) as error:  # some are in lists, or of a stack
        raise failure(
            "copying the model",
            error,
            remedy="keep no outputs of forward, and nothing that cannot be copied, in the model",
        ) from error
    for parameter in twin.parameters():
        parameter.data = parameter.data.clone()  # under "spawn" what was copied lies in shared memory
    return twin


def channels_last(inputs: Any) -> Any:
    """Return images with their channels side by side in memory, on which convolutions and pools are faster."""
    if not isinstance(inputs, Tensor) or inputs.dim() != 4:
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


def _in_type(part: Any, *, kind: torch.dtype) -> Any:
    return part.to(kind) if isinstance(part, Tensor) and part.is_floating_point() else part


def _why(error: Exception) -> str:
    """Return why a device cannot be used; torch's list of all devices that anybody ever had is left out."""
    first = str(error).splitlines()[0].rstrip(".")
    return "torch knows no such device" if first.startswith("Expected one of") else first


def _devices(asked: str | torch.device) -> str:
    """Return the devices that can be used here, in the place of one that was asked for."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here = "".join(f', or "{name}"' for name, is_there in found.items() if is_there)
    would_be = '; a GPU would be "cuda", and torch sees none here'
    return f'use "cpu"{here}' + ("" if here or str(asked).startswith("cuda") else would_be)


class FlatModel:
    """A module whose trainable parameters are views of one vector, `weights`, but for the personal ones."""

    def __init__(
        self, module: nn.Module, *, device: str | torch.device = "cpu", personal: Sequence[str] | None = None
    ) -> None:
        """Lay out the module; parameters and buffers whose names match a pattern of `personal` are kept apart."""
        try:
            self.module = module.to(device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f'device="{device}" cannot be used: {_why(error)}; {_devices(device)}') from error
        trained = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        if not trained:
            raise InputError("the model has no trainable parameters; give one a requires_grad of True")
        types = {p.dtype for p in trained.values()}
        if len(types) > 1:
            raise InputError(f"the model mixes parameters of {types}; use one type")
        if not all(kind.is_floating_point for kind in types):
            raise InputError(
                f"the model has parameters of {types}; keep real ones and make complex numbers of them in forward, "
                "with torch.view_as_complex"
            )
        buffers = dict(self.module.named_buffers())
        own = _matching(self.module, personal or ())
        self.personal_names = [name for name, tensor in (trained | buffers).items() if id(tensor) in own]
        self.names = [name for name in trained if name not in self.personal_names]  # in the order of `weights`
        if not self.names:
            raise InputError(
                f"model.personal={list(personal or ())} matches every trainable parameter, and clients would share "
                "nothing; leave some of them out"
            )
        self.parameters = [trained[name] for name in self.names]
        self.personal_parameters = [p for name, p in trained.items() if name not in self.names]
        empty = self.parameters[0].detach().new_empty(0)
        self.weights, self.personal_weights = (
            _flattened(own, empty) for own in (self.parameters, self.personal_parameters)
        )  # [d] each
        self.views = self.split(self.weights)
        self.autocast = False  # whether it computes in bfloat16 where torch thinks that safe
        self.needs_two = False  # whether it cannot train on one example alone, as batch normalisation cannot
        self.works_in_place = False  # whether its forward changes its inputs, and so is given copies
        self.keeps_order = False  # whether its forward makes views of images, and so wants their usual order of memory
        slots = [_BufferSlot(self.module, name, buffer) for name, buffer in buffers.items()]
        self._shared = _by_type([slot for slot in slots if slot.name not in self.personal_names])
        self._personal = _by_type([slot for slot in slots if slot.name in self.personal_names])

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array that a model has on the way: shared parameters, then shared float buffers."""
        floats = {slot.name: slot.numbers for slot in self._shared[0]}
        shared: dict[str, Tensor] = dict(zip(self.names, self.parameters, strict=True)) | floats
        return {name: tuple(tensor.shape) for name, tensor in shared.items()}

    @property
    def is_narrow(self) -> bool:
        """Whether outputs have fewer digits than float32."""
        return self.autocast or self.weights.dtype in (torch.bfloat16, torch.float16)

    def __call__(self, inputs: Tree) -> Tree:
        """Return what the module makes of inputs; the loss is then taken in float32 at least.

        Those of a tuple or a dict are arguments of its forward, if it takes this many or these names, or else one.
        """
        if self.works_in_place:
            inputs = cloned(inputs)
        if not self.is_narrow:
            return self._outputs(inputs)
        if not self.autocast:
            inputs = mapped(partial(_in_type, kind=self.weights.dtype), inputs)
        with torch.autocast(self.weights.device.type, torch.bfloat16, enabled=self.autocast):
            outputs = self._outputs(inputs)
        return mapped(partial(_in_type, kind=torch.float32), outputs)

    def laid_out(self, inputs: Tree) -> Tree:
        """Return inputs as the model is fastest on them."""
        return inputs if self.keeps_order else mapped(channels_last, inputs)

    def _outputs(self, inputs: Tree) -> Tree:
        if isinstance(inputs, Tensor):
            return self.module(inputs)
        spread = (inputs, {}) if isinstance(inputs, tuple | list) else ((), inputs)
        try:
            inspect.signature(self.module.forward).bind(*spread[0], **spread[1])
        except TypeError:
            return self.module(inputs)
        return self.module(*spread[0], **spread[1])

    def seed(self, seed: int) -> None:
        """Give the generators from which dropout and the like draw, torch's own and others, a seed."""
        # The CPU's generator is seeded alone there: torch.manual_seed looks for every other device, at 0.2 ms a call.
        seeded = torch.default_generator if self.weights.is_cpu else torch
        seeded.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - models and losses draw from it, too
        random.seed(seed)

    def split(self, vector: Vector) -> list[torch.Tensor]:
        """Return views of a flat vector in the shapes of the parameters."""
        return split(vector, self.parameters)

    def load(self, weights: Vector) -> None:
        """Copy a vector into the module."""
        self.weights.copy_(weights)

    def load_buffers(self, buffers: Buffers) -> None:
        """Copy buffers into the module."""
        for slots, flat in zip(self._shared, buffers, strict=True):
            _load([slot.reset() for slot in slots], flat)

    def buffers(self) -> Buffers:
        """Return a copy of the module's buffers, but for the personal ones."""
        floats, integers = ([slot.numbers for slot in slots] for slots in self._shared)
        empty = self.weights.new_empty(0)
        return Buffers(_joined(floats, like=empty), _joined(integers, like=empty.long()))

    @property
    def personal(self) -> Personal | None:
        """A copy of the parts that a client keeps, None if there are none."""
        if not self.personal_names:
            return None
        floats, integers = ([slot.numbers for slot in slots] for slots in self._personal)
        empty = self.weights.new_empty(0)
        return Personal(_joined([self.personal_weights, *floats], like=empty), _joined(integers, like=empty.long()))

    @contextmanager
    def unnoticed(self) -> Iterator[None]:
        """Put buffers, and the parts that a client keeps, back to what they were."""
        buffers, personal = self.buffers(), self.personal
        try:
            yield
        finally:
            self.load_buffers(buffers)
            if personal is not None:
                self.load_personal(personal)

    def load_personal(self, personal: Personal) -> None:
        """Copy the parts of a client into the module."""
        floats, integers = ([slot.reset() for slot in slots] for slots in self._personal)
        _load([self.personal_weights, *floats], personal.personal)
        _load(integers, personal.personal_integers)


def _matching(module: nn.Module, patterns: Sequence[str]) -> set[int]:
    """Return the ids of the parameters and buffers whose names match; refuse a pattern that none matches."""
    parameters = module.named_parameters(remove_duplicate=False)  # tied weights have several names
    named = [*parameters, *module.named_buffers(remove_duplicate=False)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in named):
            names = ", ".join([name for name, _ in named][:6])
            raise InputError(
                f"model.personal has {pattern!r}, and no parameter of the model has such a name; its names are {names}"
                f"{', ...' if len(named) > 6 else ''}; * stands for any letters"
            )
    return {id(tensor) for name, tensor in named if any(fnmatchcase(name, pattern) for pattern in patterns)}


def _flattened(parameters: Sequence[nn.Parameter], empty: Vector) -> Vector:
    """Return one vector, of which the parameters are views from now on."""
    weights = _joined([p.detach() for p in parameters], like=empty)
    for parameter, view in zip(parameters, split(weights, parameters), strict=True):
        parameter.data = view
    return weights


class _BufferSlot:
    """A buffer of a module, which its forward may put another tensor in the place of."""

    def __init__(self, module: nn.Module, name: str, tensor: Tensor) -> None:
        path, _, self._attribute = name.rpartition(".")
        self.name, self._owner, self._own = name, module.get_submodule(path), tensor
        if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
            self._own = tensor.clone(memory_format=torch.contiguous_format)  # it was expanded: its numbers share memory
            self.reset()

    @property
    def numbers(self) -> Tensor:
        """The real numbers of what stands there now; a complex number is two."""
        found = getattr(self._owner, self._attribute)
        if not isinstance(found, Tensor) or (found.shape, _kind(found)) != (self._own.shape, _kind(self._own)):
            now = f"{tuple(found.shape)} of {found.dtype}" if isinstance(found, Tensor) else repr(found)
            raise InputError(
                f"the model's buffer {self.name} was {tuple(self._own.shape)} of {self._own.dtype}, and its forward "
                f"made it {now}; keep its shape and its kind, or make it no buffer"
            )
        return _real(found.detach())

    def reset(self) -> Tensor:
        """Put the module's own tensor back, and return its numbers, to be written to."""
        if getattr(self._owner, self._attribute) is not self._own:
            setattr(self._owner, self._attribute, self._own)
        return _real(self._own)

    @property
    def is_whole(self) -> bool:
        """Whether it has whole numbers."""
        return _kind(self._own) == "whole"


def _kind(tensor: Tensor) -> str:
    return "complex" if tensor.is_complex() else "float" if tensor.is_floating_point() else "whole"


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _by_type(slots: Sequence[_BufferSlot]) -> tuple[list[_BufferSlot], list[_BufferSlot]]:
    return [slot for slot in slots if not slot.is_whole], [slot for slot in slots if slot.is_whole]


def _joined(tensors: Sequence[torch.Tensor], *, like: torch.Tensor) -> Vector:
    return torch.cat([like, *(tensor.reshape(-1).to(like.dtype) for tensor in tensors)])


def _load(tensors: Sequence[torch.Tensor], flat: Vector) -> None:
    for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
