"""Ray, as far as the engine asks for it, in this process: what takes seconds on a cluster takes none here."""

import pickle
import random
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

import fedadmm.engine.ray
import fedadmm.engine.ray_actor


class RayHere:
    """Actors that are plain objects; answers arrive in an arbitrary order, and some actors are lost over theirs."""

    def __init__(self, *, num_cpus: int, lost: Collection[int] = ()) -> None:
        self._num_cpus, self._lost = num_cpus, lost
        self._order = random.Random(0)
        self.connected, self.connection = True, None
        self.bytes_received = self.bytes_sent = 0  # by the driver
        self.num_answers = self.num_lost = 0  # an answer whose number is in `lost` ends its actor instead

    def put(self, value: Any) -> "_Reference":
        """Return a reference to a value."""
        return _Reference(value)

    def get(self, reference: "_Reference") -> Any:
        """Return what a reference stands for."""
        if reference.number in self._lost:
            self.num_lost += 1
            raise ActorDiedError
        if reference.number is not None:
            self.bytes_received += len(pickle.dumps(reference.value))
        return reference.value

    def wait(self, streams: list[Any], *, num_returns: int) -> Any:
        """Return one of the streams as that whose answer has arrived."""
        assert num_returns == 1
        return [self._order.choice(streams)], []

    def remote(self, kind: type[Any]) -> "_Option":
        """Return what makes an actor."""
        return _Option(lambda *given: _Actor(kind(*given), self))

    def cluster_resources(self) -> dict[str, float]:
        """Return what the cluster has."""
        return {"CPU": float(self._num_cpus)}

    def is_initialized(self) -> bool:
        """Return whether it is there."""
        return self.connected

    def init(self, address: str | None = None, **options: Any) -> None:
        """Connect, and keep how."""
        self.connected, self.connection = True, (address, options.get("num_cpus"))

    def shutdown(self) -> None:
        """Let go."""
        self.connected = False

    def kill(self, actor: "_Actor") -> None:
        """End an actor."""
        actor.home = None


class _Reference(SimpleNamespace):
    def __init__(self, value: Any, number: int | None = None) -> None:
        self.value, self.number = value, number


class _Option:
    """Something with `.options(...)` and `.remote(...)`."""

    def __init__(self, call: Any) -> None:
        self.remote = call

    def options(self, **_: Any) -> "_Option":
        return self


class _Actor:
    def __init__(self, home: Any, cluster: RayHere) -> None:
        self.home, self._cluster = home, cluster
        self.update, self.evaluate = self._method("update"), self._method("evaluate")

    def _method(self, name: str) -> _Option:
        def call(message: _Reference, *rest: Any) -> Iterator[_Reference]:
            self._cluster.bytes_sent += len(pickle.dumps((message.value, rest)))
            return self._stream(getattr(self.home, name)(message.value, *rest))

        return _Option(call)

    def _stream(self, answers: Iterator[Any]) -> Iterator[_Reference]:
        for answer in answers:
            self._cluster.num_answers += 1
            yield _Reference(answer, self._cluster.num_answers)


def use_ray_here(patch: pytest.MonkeyPatch, *, num_cpus: int, lost: Collection[int] = ()) -> RayHere:
    """Let the engine meet this Ray instead of the real one."""
    here = RayHere(num_cpus=num_cpus, lost=lost)
    patch.setattr(fedadmm.engine.ray, "ray", here)
    patch.setattr(fedadmm.engine.ray_actor, "ray", here)
    return here
