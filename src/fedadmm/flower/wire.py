"""How vectors travel in Flower's records: as the fields of our messages, or as a model."""

import io
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from numpy.lib import format as npy

from fedadmm.config.secure_rules import check_unmasked
from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.mean import num_bytes
from fedadmm.core.state_parts import HeldBack, vectors_of, with_parts
from fedadmm.core.transport import Arrays
from fedadmm.engine.probe import probe
from fedadmm.secure.encoding import Encoding
from fedadmm.secure.fixed_point import Words
from fedadmm.secure.transport import MaskedSums
from fedadmm.training.flat import FlatModel
from fedadmm.uploads.chain import transport_of
from fedadmm.uploads.settings import UploadSettings

BESIDE = 2**20  # bytes of a reply beside its arrays: a line for each array of a model, numbers, signatures
UNTOUCHED = UploadSettings()  # nothing becomes of uploads
WORDS = ("words", "numbers")  # the arrays of a masked upload


class WrongFormatError(Exception):
    """Arrays that are not those of this model and this algorithm."""


class Payload(NamedTuple):
    """What an ArrayRecord carries: a message, and the float buffers beside it."""

    message: Any
    floats: Vector


class UploadRead(NamedTuple):
    """An upload that has travelled, the float buffers beside it, and the bytes that the upload took."""

    message: Any
    floats: Vector
    num_bytes: int


class Wire:
    """The fields of a message, each as one array: what the algorithm needs and nothing else.

    Beside that, a model as Flower users know it: an array for each parameter and each float buffer.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        model: FlatModel,
        tables: UploadSettings = UNTOUCHED,
        *,
        seed: int = 0,
        num_clients: int = 1,
    ) -> None:
        """Begin; `tables` say what becomes of uploads, with the random numbers of `seed`."""
        check_unmasked(tables, num_buffers=sum(part.numel() for part in model.buffers()))
        theta = model.weights.clone()
        self.download, client, self.upload = probe(algorithm, theta)
        self.transport = transport_of(tables, seed=seed, num_clients=num_clients, like=self.upload, client=type(client))
        self._codec = None if self.transport is None else self.transport.codec
        keeps = self.transport is not None and self.transport.keeps_held_back
        held_back = HeldBack(vectors_of(self.upload)) if keeps else None
        self.client_type: type[Any] = type(with_parts(client, model.personal, held_back))
        self.floats, self.num_integers = model.buffers().floats, len(model.buffers().integers)
        self._shapes = model.shapes
        self._sizes, self._dtype = [theta.numel(), self.floats.numel()], theta.dtype

    @property
    def encoding(self) -> Encoding | None:
        """How uploads are encoded to be added under masks, None if they are not."""
        sums = None if self.transport is None else self.transport.sums
        return sums.encoding if isinstance(sums, MaskedSums) else None

    @property
    def most_bytes(self) -> int:
        """The most that a reply may have: masks make words of numbers, and beside them there is a page of facts."""
        return BESIDE + 4 * (num_bytes(self.upload) + self.floats.numel() * self.floats.element_size())

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
        """Return theta and the float buffers of a model's arrays, which are exactly those of our model."""
        kind = np.dtype(str(self._dtype).removeprefix("torch."))
        return self._joined(_tensors(arrays, {name: (kind, shape) for name, shape in self._shapes.items()}))

    def read_own_model(self, arrays: ArrayRecord) -> Payload:
        """Return the same of arrays that Flower made on this machine, which may have another dtype."""
        return self._joined({name: torch.from_numpy(array.numpy()) for name, array in arrays.items()})

    def _joined(self, found: Mapping[str, torch.Tensor]) -> Payload:
        flat = torch.cat([found[name].reshape(-1).to(self._dtype) for name in self._shapes])
        return Payload(*flat.split(self._sizes))

    def pack_download(self, payload: Payload) -> ArrayRecord:
        """Return what travels to a client."""
        return _packed(payload.message._asdict(), payload.floats)

    def unpack_download(self, arrays: ArrayRecord) -> Payload:
        """Return the download and the buffers."""
        return _unpack(arrays, self.download, self.floats)

    def pack_upload(
        self, payload: Payload, *, theta: Vector, residual: Vector | None, encoded: Arrays | None = None
    ) -> tuple[ArrayRecord, Vector | None]:
        """Return what travels to the server, and what rounding held back of it for the next upload; here nothing.

        encoded: the form in which the upload travels, where that is not field by field.
        """
        return _packed(payload.message._asdict() if encoded is None else encoded, payload.floats), None

    def unpack_upload(self, arrays: ArrayRecord, *, theta: Vector, client: int, round: int) -> UploadRead:
        """Return the upload of a client in a round, and the buffers."""
        codec = self._codec
        if codec is None:
            message, floats = _unpack(arrays, self.upload, self.floats)
            return UploadRead(message, floats, num_bytes(message))
        fields, floats = _unpacked(arrays, codec.form(self.upload), self.floats)
        size = num_bytes(tuple(fields.values()))
        return UploadRead(codec.decode(fields, client=client, round=round), floats, size)


class ModelWire(Wire):
    """Models both ways, theta down and theta + delta up, so that what Flower makes of models can be made of them.

    theta + delta is rounded to theta's precision. The client keeps what that held back and adds it to its next upload,
    so that the sum of what the server got is the sum of what the client made, up to one rounding.
    """

    def __init__(
        self, algorithm: AnyAlgorithm, model: FlatModel, tables: UploadSettings = UNTOUCHED, **about: int
    ) -> None:
        super().__init__(algorithm, model, tables, **about)
        if len(self.upload) != 1 or len(self.download) != 1:
            name, fields = type(algorithm).__name__, [*self.upload._fields, *self.download._fields]
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
        self, payload: Payload, *, theta: Vector, residual: Vector | None, encoded: Arrays | None = None
    ) -> tuple[ArrayRecord, Vector | None]:
        """Return theta + delta under the model's names, and what its rounding held back."""
        (delta,) = payload.message
        delta = delta if residual is None else delta + residual
        sent = theta + delta
        held_back = delta - (sent - theta) if self._keeps_residual else None
        return self.model_arrays(sent, payload.floats), held_back

    def unpack_upload(self, arrays: ArrayRecord, *, theta: Vector, client: int, round: int) -> UploadRead:
        """Return the upload and the buffers."""
        message, floats = self.upload_of(self.read_model(arrays), theta=theta)
        return UploadRead(message, floats, num_bytes(message))

    def upload_of(self, model: Payload, *, theta: Vector) -> Payload:
        """Return the upload of a client that sends this model."""
        return Payload(type(self.upload)(model.message - theta), model.floats)


WIRES: dict[str, type[Wire]] = {"upload": Wire, "model": ModelWire}


LARGEST = 2**53  # of the numbers that travel: floats hold all whole numbers up to it


def integer(record: ConfigRecord | MetricRecord, key: str, *, least: int = 0, largest: int = LARGEST) -> int:
    """Return a whole number of a record, within its range."""
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= largest:
        raise WrongFormatError(f"{key} is {str(value)[:40]}, not a whole number from {least} to {largest}")
    return value


def number(record: ConfigRecord | MetricRecord, key: str) -> float:
    """Return a number of a record."""
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongFormatError(f"{key} is {str(value)[:40]}, not a number")
    return float(value)


def integers(record: ConfigRecord, key: str, *, length: int) -> torch.Tensor:
    """Return a list of whole numbers of a record: the integer buffers, of which there are this many."""
    values = record[key]
    if not isinstance(values, list) or len(values) != length:
        raise WrongFormatError(f"{key} is not a list of {length}")
    if not all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values):
        raise WrongFormatError(f"{key} has something that is not a whole number of 64 bits")
    return torch.tensor(values, dtype=torch.int64)


def _packed(fields: Mapping[str, Any], floats: Vector) -> ArrayRecord:
    buffers = {"buffers": floats} if floats.numel() else {}
    return ArrayRecord({key: _array(value) for key, value in {**fields, **buffers}.items()})


def _unpack(arrays: ArrayRecord, like: Any, floats: Vector) -> Payload:
    fields, buffers = _unpacked(arrays, like._asdict(), floats)
    return Payload(like._replace(**fields), buffers)


def _unpacked(arrays: ArrayRecord, like: Mapping[str, Any], floats: Vector) -> tuple[dict[str, Any], Vector]:
    """Return fields of these forms, and the float buffers."""
    expected = {key: _expected(value) for key, value in like.items()}
    if floats.numel():
        expected["buffers"] = _expected(floats)
    found = _tensors(arrays, expected)
    buffers = found.pop("buffers", floats)
    return {k: found[k] if isinstance(v, torch.Tensor) else found[k].item() for k, v in like.items()}, buffers


def _array(value: Any) -> Array:
    return Array(value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value))


Expected = tuple[np.dtype[Any], tuple[int, ...]]  # of an array


def _expected(value: Any) -> Expected:
    array = value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return array.dtype, array.shape


def packed_words(words: tuple[Words, ...]) -> ArrayRecord:
    """Return masked words as arrays."""
    return ArrayRecord({key: Array(own) for key, own in zip(WORDS, words, strict=True)})


def read_words(arrays: ArrayRecord, like: tuple[Words, ...]) -> tuple[Words, ...]:
    """Return masked words of this form."""
    return tuple(_read(arrays, {key: _expected(own) for key, own in zip(WORDS, like, strict=True)}).values())


def _tensors(arrays: ArrayRecord, expected: Mapping[str, Expected]) -> dict[str, torch.Tensor]:
    """Return the tensors in a record of exactly these arrays."""
    return {key: torch.from_numpy(own) for key, own in _read(arrays, expected).items()}


def _read(arrays: ArrayRecord, expected: Mapping[str, Expected]) -> dict[str, npt.NDArray[Any]]:
    """Return the numbers in a record of exactly these arrays."""
    for key in dict.fromkeys([*expected, *arrays]):
        if key not in arrays or key not in expected:
            raise WrongFormatError(f"it has the arrays {', '.join(arrays)}, and {', '.join(expected)} were expected")
    return {key: _numbers(key, arrays[key], *kind) for key, kind in expected.items()}


def _numbers(key: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an array's numbers; what it claims to be is compared with its bytes before any of them is decoded."""
    if (array.dtype, tuple(array.shape)) != (str(dtype), shape):
        raise WrongFormatError(
            f"{key} is {array.dtype} of shape {tuple(array.shape)}, and {dtype} of shape {shape} was expected"
        )
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    header, num_bytes = file.getvalue(), math.prod(shape) * dtype.itemsize
    begin = len(array.data) - num_bytes
    # Versions of numpy differ in the spaces that fill the header up, and so in the two bytes of its length.
    given, fixed = array.data[:begin], len(npy.MAGIC_PREFIX) + 2
    same = given[:fixed] == header[:fixed] and given[fixed + 2 :].split() == header[fixed + 2 :].split()
    if begin < 0 or array.stype != "numpy.ndarray" or not same:
        raise WrongFormatError(f"{key} has {len(array.data)} bytes that are not {dtype} of shape {shape}")
    return np.frombuffer(array.data, dtype, offset=begin).reshape(shape).copy()
