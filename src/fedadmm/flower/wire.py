"""How vectors travel in Flower's records: as the fields of our messages, or as a model."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.errors import InputError
from fedadmm.engine.shared import probe_upload
from fedadmm.training.flat import FlatModel


class WrongFormatError(Exception):
    """Arrays that are not those of this model and this algorithm."""


class Payload(NamedTuple):
    """What an ArrayRecord carries: a message, and the float buffers beside it."""

    message: Any
    floats: Vector


class Wire(Protocol):
    """Packs what goes down and what comes up, and unpacks it at the other end."""

    @property
    def format(self) -> "MessageFormat": ...

    def pack_download(self, payload: Payload) -> ArrayRecord: ...
    def unpack_download(self, arrays: ArrayRecord) -> Payload: ...

    def pack_upload(self, payload: Payload, *, theta: Vector, residual: Vector | None) -> tuple[ArrayRecord, Any]:
        """Return what travels, and what rounding held back of it for the next upload (None: nothing is kept)."""
        ...

    def unpack_upload(self, arrays: ArrayRecord, *, theta: Vector) -> Payload: ...


class MessageFormat:
    """The names and shapes of a model, and the fields of an algorithm's messages over it."""

    def __init__(self, algorithm: AnyAlgorithm, model: FlatModel) -> None:
        theta = model.weights.clone()
        self.download = algorithm.download(algorithm.init_server(theta))
        self.upload = probe_upload(algorithm, self.download, theta)
        self.client_type = type(algorithm.init_client(theta))
        self.floats = model.buffers().floats
        named = dict(model.module.named_parameters())
        self.parameters = {name: p.shape for name, p in named.items() if p.requires_grad}
        buffers = model.module.named_buffers()
        self.buffers = {name: b.shape for name, b in buffers if b.is_floating_point()}

    @property
    def description(self) -> list[str]:
        """One line for each array of the model, such as "0.weight 200x64"."""
        shapes = {**self.parameters, **self.buffers}
        return [f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items()]

    def model_arrays(self, theta: Vector, floats: Vector) -> ArrayRecord:
        """Return a model as Flower users know it: an array for each parameter and each float buffer."""
        parts = [*_split(theta, self.parameters), *_split(floats, self.buffers)]
        names = [*self.parameters, *self.buffers]
        return ArrayRecord({name: _array(part) for name, part in zip(names, parts, strict=True)})

    def read_model(self, arrays: ArrayRecord) -> Payload:
        """Return theta and the float buffers of a model's arrays."""
        expected = {**self.parameters, **self.buffers}
        found = _tensors(arrays, {name: tuple(shape) for name, shape in expected.items()})
        return Payload(_joined(found, self.parameters), _joined(found, self.buffers))


class UploadWire:
    """The fields of a message, each as one array: what the algorithm needs and nothing else."""

    def __init__(self, format: MessageFormat) -> None:
        self.format = format

    def pack_download(self, payload: Payload) -> ArrayRecord:
        """Return the download's fields and the buffers."""
        return _pack(payload)

    def unpack_download(self, arrays: ArrayRecord) -> Payload:
        """Return the download and the buffers."""
        return _unpack(arrays, self.format.download, self.format.floats)

    def pack_upload(self, payload: Payload, *, theta: Vector, residual: Vector | None) -> tuple[ArrayRecord, Any]:
        """Return the upload's fields and the buffers; nothing is rounded, so nothing is held back."""
        return _pack(payload), None

    def unpack_upload(self, arrays: ArrayRecord, *, theta: Vector) -> Payload:
        """Return the upload and the buffers."""
        return _unpack(arrays, self.format.upload, self.format.floats)


class ModelWire:
    """Models both ways, theta down and theta + delta up, so that what Flower makes of models can be made of them.

    theta + delta is rounded to theta's precision. The client keeps what that held back and adds it to its next upload,
    so that the sum of what the server got is the sum of what the client made, up to one rounding.
    """

    def __init__(self, format: MessageFormat) -> None:
        (upload, download), name = (format.upload, format.download), type(format.upload).__module__
        if len(upload) != 1 or len(download) != 1:
            fields = [*getattr(upload, "_fields", ()), *getattr(download, "_fields", ())]
            raise InputError(
                f'wire="model" carries one vector each way, and {name} has {", ".join(fields)}; use wire="upload"'
            )
        self.format = format
        # The residual is part of a client's state, so a method whose clients keep nothing keeps none.
        self._keeps_residual = bool(format.client_type._fields)

    def pack_download(self, payload: Payload) -> ArrayRecord:
        """Return theta and the buffers under the model's names."""
        return self.format.model_arrays(payload.message.theta, payload.floats)

    def unpack_download(self, arrays: ArrayRecord) -> Payload:
        """Return the download and the buffers."""
        theta, floats = self.format.read_model(arrays)
        return Payload(self.format.download._replace(theta=theta), floats)

    def pack_upload(self, payload: Payload, *, theta: Vector, residual: Vector | None) -> tuple[ArrayRecord, Any]:
        """Return theta + delta under the model's names, and what its rounding held back."""
        (delta,) = payload.message
        delta = delta if residual is None else delta + residual
        sent = theta + delta
        held_back = delta - (sent - theta) if self._keeps_residual else None
        return self.format.model_arrays(sent, payload.floats), held_back

    def unpack_upload(self, arrays: ArrayRecord, *, theta: Vector) -> Payload:
        """Return the upload and the buffers."""
        sent, floats = self.format.read_model(arrays)
        return Payload(type(self.format.upload)(sent - theta), floats)


def make_wire(name: str, format: MessageFormat) -> Wire:
    """Return the wire of a name."""
    return UploadWire(format) if name == "upload" else ModelWire(format)


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


def _unpack(arrays: ArrayRecord, format: Message, floats: Vector) -> Payload:
    fields: dict[str, Any] = format._asdict()  # type: ignore[attr-defined]
    shapes = {key: tuple(torch.as_tensor(value).shape) for key, value in fields.items()}
    if floats.numel():
        shapes["buffers"] = tuple(floats.shape)
    found: dict[str, Any] = _tensors(arrays, shapes)
    buffers = found.pop("buffers", floats)
    values = {k: found[k] if isinstance(v, torch.Tensor) else found[k].item() for k, v in fields.items()}
    return Payload(type(format)(**values), buffers)


def _array(value: Any) -> Array:
    return Array(value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value))


def _tensors(arrays: ArrayRecord, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    found = {key: tuple(array.shape) for key, array in arrays.items()}
    if found != dict(shapes):
        key = next(key for key in [*shapes, *found] if found.get(key) != shapes.get(key))
        raise WrongFormatError(f"{key} has shape {found.get(key)}, and {shapes.get(key)} was expected")
    return {key: torch.from_numpy(array.numpy().copy()) for key, array in arrays.items()}


def _split(vector: Vector, shapes: Mapping[str, torch.Size]) -> list[torch.Tensor]:
    parts = torch.split(vector, [shape.numel() for shape in shapes.values()])
    return [part.view(shape) for part, shape in zip(parts, shapes.values(), strict=True)]


def _joined(tensors: Mapping[str, torch.Tensor], names: Mapping[str, Any]) -> Vector:
    return torch.cat([torch.empty(0), *(tensors[name].reshape(-1) for name in names)])
