"""An object as bytes and its tensors beside them, so that the processes of a machine can share the tensors' memory."""

import io
import pickle
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from ray import cloudpickle

SHARED = (torch.float32, torch.float64, torch.int64, torch.uint8)


class PackedObject(NamedTuple):
    """What Ray's object store hands out without a copy: `memory` is read-only there."""

    head: bytes
    memory: list[npt.NDArray[np.uint8]]


def packed(thing: Any) -> PackedObject:
    """Return an object as bytes with its tensors beside them."""
    head = io.BytesIO()
    memory: list[npt.NDArray[np.uint8]] = []

    def beside(buffer: pickle.PickleBuffer) -> None:
        memory.append(np.frombuffer(buffer.raw(), dtype=np.uint8))

    _Pickler(head, protocol=5, buffer_callback=beside).dump(thing)
    return PackedObject(head.getvalue(), memory)


def unpacked(packed_object: PackedObject) -> Any:
    """Return the object; its plain tensors lie in the packed memory and must not be written to."""
    return pickle.loads(packed_object.head, buffers=packed_object.memory)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    def reducer_override(self, thing: Any) -> Any:
        # Not a module's parameters, which are a class of their own and are trained.
        if type(thing) is torch.Tensor and thing.dtype in SHARED and thing.is_contiguous() and thing.is_cpu:
            return _tensor, (thing.detach().numpy(),)
        return super().reducer_override(thing)


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch cannot mark a tensor as read-only, and says so
        return torch.from_numpy(array)
