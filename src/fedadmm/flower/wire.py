"""How vectors travel in Flower's records: as the fields of our messages, or as a model."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.errors import InputError
from fedadmm.engine.probe import probe
from fedadmm.training.flat import FlatModel


class WrongFormatError(Exception):
    """Arrays that are not those of this model and this algorithm."""


class Payload(NamedTuple):
    """What an ArrayRecord carries: a message, and the float buffers beside it."""

    message: Any
    floats: Vector


class Wire:
    """The fields of a message, each as one array: what the algorithm needs and nothing else.

    Beside that, a model as Flower users know it: an array for each parameter and each float buffer.
    """

    def __init__(self, algorithm: AnyAlgorithm, model: FlatModel) -> None:
        theta = model.weights.clone()
        self.download, client, self.upload = probe(algorithm, theta)
        self.client_type = type(client)
        self.floats = model.buffers().floats
        parameters = {name: p.shape for name, p in model.module.named_parameters() if p.requires_grad}
        buffers = {name: b.shape for name, b in model.module.named_buffers() if b.is_floating_point()}
        self._shapes = {name: tuple(shape) for name, shape in {**parameters, **buffers}.items()}
        self._sizes = [theta.numel(), self.floats.numel()]

    @property
    def description(self) -> list[str]:
        """One line for each array of the model, such as "0.weight 200x64"."""
        return [f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in self._shapes.items()]

    def model_arrays(self, theta: Vector, floats: Vector) -> ArrayRecord:
        """Return theta and the float buffers as the arrays of a model."""
        parts = torch.cat([theta, floats]).split([math.prod(shape) for shape in self._shapes.values()])
        shaped = zip(self._shapes.items(), parts, strict=True)
        return ArrayRecord({name: _array(part.view(shape)) for (name, shape), part in shaped})

    def read_model(self, arrays: ArrayRecord) -> Payload:
        """Return theta and the float buffers of a model's arrays."""
        found = _tensors(arrays, self._shapes)
        return Payload(*torch.cat([found[name].reshape(-1) for name in self._shapes]).split(self._sizes))

    def pack_download(self, payload: Payload) -> ArrayRecord:
        """Return what travels to a client."""
        return _pack(payload)

    def unpack_download(self, arrays: ArrayRecord) -> Payload:
        """Return the download and the buffers."""
        return _unpack(arrays, self.download, self.floats)

    def pack_upload(
        self, payload: Payload, *, theta: Vector, residual: Vector | None
    ) -> tuple[ArrayRecord, Vector | None]:
        """Return what travels to the server, and what rounding held back of it for the next upload; here nothing."""
        return _pack(payload), None

    def unpack_upload(self, arrays: ArrayRecord, *, theta: Vector) -> Payload:
        """Return the upload and the buffers."""
        return _unpack(arrays, self.upload, self.floats)


class ModelWire(Wire):
    """Models both ways, theta down and theta + delta up, so that what Flower makes of models can be made of them.

    theta + delta is rounded to theta's precision. The client keeps what that held back and adds it to its next upload,
    so that the sum of what the server got is the sum of what the client made, up to one rounding.
    """

    def __init__(self, algorithm: AnyAlgorithm, model: FlatModel) -> None:
        super().__init__(algorithm, model)
        if len(self.upload) != 1 or len(self.download) != 1:
            name, fields = type(self.upload).__module__, [*self.upload._fields, *self.download._fields]
            raise InputError(
                f'wire="model" carries one vector each way, and {name} has {", ".join(fields)}; use wire="upload"'
            )
        # The residual is part of a client's state, so a method whose clients keep nothing keeps none.
        self._keeps_residual = bool(self.client_type._fields)

    def pack_download(self, payload: Payload) -> ArrayRecord:
        """Return theta and the buffers under the model's names."""
        return self.model_arrays(payload.message.theta, payload.floats)

    def unpack_download(self, arrays: ArrayRecord) -> Payload:
        """Return the download and the buffers."""
        theta, floats = self.read_model(arrays)
        return Payload(self.download._replace(theta=theta), floats)

    def pack_upload(
        self, payload: Payload, *, theta: Vector, residual: Vector | None
    ) -> tuple[ArrayRecord, Vector | None]:
        """Return theta + delta under the model's names, and what its rounding held back."""
        (delta,) = payload.message
        delta = delta if residual is None else delta + residual
        sent = theta + delta
        held_back = delta - (sent - theta) if self._keeps_residual else None
        return self.model_arrays(sent, payload.floats), held_back

    def unpack_upload(self, arrays: ArrayRecord, *, theta: Vector) -> Payload:
        """Return the upload and the buffers."""
        sent, floats = self.read_model(arrays)
        return Payload(type(self.upload)(sent - theta), floats)


WIRES: dict[str, type[Wire]] = {"upload": Wire, "model": ModelWire}


def integer(record: ConfigRecord | MetricRecord, key: str) -> int:
    """Return a whole number of a record."""
    value = record[key]
    if not isinstance(value, int):
        raise TypeError(f"{key} is {value!r}, not a whole number")
    return value


def number(record: MetricRecord, key: str) -> float:
    """Return a number of a record."""
    value = record[key]
    if not isinstance(value, int | float):
        raise TypeError(f"{key} is {value!r}, not a number")
    return float(value)


def _pack(payload: Payload) -> ArrayRecord:
    fields = payload.message._asdict()
    if payload.floats.numel():
        fields["buffers"] = payload.floats
    return ArrayRecord({key: _array(value) for key, value in fields.items()})


def _unpack(arrays: ArrayRecord, like: Any, floats: Vector) -> Payload:
    fields = like._asdict()
    shapes = {key: tuple(torch.as_tensor(value).shape) for key, value in fields.items()}
    if floats.numel():
        shapes["buffers"] = tuple(floats.shape)
    found = _tensors(arrays, shapes)
    buffers = found.pop("buffers", floats)
    values = {k: found[k] if isinstance(v, torch.Tensor) else found[k].item() for k, v in fields.items()}
    return Payload(like._replace(**values), buffers)


def _array(value: Any) -> Array:
    return Array(value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value))


def _tensors(arrays: ArrayRecord, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    found = {key: tuple(array.shape) for key, array in arrays.items()}
    if found != dict(shapes):
        key = next(key for key in [*shapes, *found] if found.get(key) != shapes.get(key))
        raise WrongFormatError(f"{key} has shape {found.get(key)}, and {shapes.get(key)} was expected")
    return {key: torch.from_numpy(array.numpy().copy()) for key, array in arrays.items()}
