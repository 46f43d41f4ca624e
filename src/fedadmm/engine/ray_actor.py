"""Where a share of the clients lives: what runs in an actor of the ray engine, and how objects get there."""

import io
import pickle
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ray
import torch
from ray import cloudpickle

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.engine import Scores, Task
from fedadmm.core.mean import MeanInOrder
from fedadmm.core.round import Assignment, Buffers, ClientResult, run_client
from fedadmm.state.encoding import decode, encode

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


SentModel = tuple[bytes, bytes]  # what is downloaded, and the buffers
NOTHING = Buffers(torch.empty(0), torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True)
class ActorSetup:
    """All that an actor needs."""

    algorithm: AnyAlgorithm
    task: Task
    initial: Vector
    kinds: tuple[type[Any], type[Any]]  # of what is downloaded, and of a client's state
    float_type: torch.dtype | None  # of the vectors of a state, as the store keeps it


class ShareResult(NamedTuple):
    """What the clients of a share answered in a round."""

    mean: tuple[bytes, bytes] | None  # of the finite uploads that are sent, and of the buffers that came with them
    results: list[ClientResult]  # of every client, ids rising, without uploads and buffers


class ShareActor:
    """Keeps the states of a share of the clients and runs their updates, on one thread.

    A state that an update made counts as soon as a later round is asked for: then its own round was committed.
    """

    def __init__(self, setup: list[Any]) -> None:
        torch.set_num_threads(1)
        (self._reference,) = setup
        self._setup: ActorSetup | None = None
        self._states: dict[int, bytes] = {}
        self._staged: dict[int, bytes] = {}
        self._round = 0  # of what is staged

    def update(
        self, message: SentModel, work: Sequence[tuple[Assignment, float]], news: dict[int, bytes]
    ) -> Iterator[tuple[Assignment, bytes] | ShareResult]:
        """Yield each new state with its assignment, at last the summary.

        work: assignments with the weights of their clients. news: states that are not here yet.
        """
        self._states.update(news)
        setup, download, buffers = self._ready(message)
        round = work[0][0].round
        if round > self._round:
            self._states.update(self._staged)
        self._staged, self._round = {}, round

        uploads, floats = MeanInOrder(), MeanInOrder()
        integers = buffers.integers
        results: list[ClientResult] = []
        for assignment, weight in work:
            kept = self._states.get(assignment.client)
            state = None if kept is None else setup.kinds[1](*decode(kept))
            problem = setup.task.problem(assignment, buffers=buffers)
            result, after = run_client(
                setup.algorithm, download, assignment, state=state, initial=setup.initial, problem=problem
            )
            results.append(result._replace(upload=(), stats=result.stats._replace(buffers=NOTHING)))
            if not result.finite:
                continue
            if not result.silent:
                integers = integers if uploads.weight else result.stats.buffers.integers
                uploads.add(result.upload, weight=weight)
                floats.add((result.stats.buffers.floats,), weight=weight)
            self._staged[result.client] = as_bytes(after, float_type=setup.float_type)
            yield assignment, self._staged[result.client]
        means = (as_bytes(uploads.mean()), as_bytes((*floats.mean(), integers))) if uploads.weight else None
        yield ShareResult(means, results)

    def evaluate(self, message: SentModel, parts: Sequence[int]) -> Iterator[tuple[int, Scores]]:
        """Yield the scores of some parts of the test examples."""
        setup, download, buffers = self._ready(message)
        for part in parts:
            yield part, setup.task.evaluate_part(part, download.theta, buffers=buffers)

    def _ready(self, message: SentModel) -> tuple[ActorSetup, Any, Buffers]:
        if self._setup is None:
            setup: ActorSetup = unpacked(ray.get(self._reference))
            self._setup = replace(setup, task=setup.task.private())
        download, buffers = message
        return self._setup, self._setup.kinds[0](*decode(download)), Buffers(*decode(buffers))


def as_bytes(message: Message, *, float_type: torch.dtype | None = None) -> bytes:
    """Return a message as it travels."""
    return b"".join(encode(message, float_type=float_type))
