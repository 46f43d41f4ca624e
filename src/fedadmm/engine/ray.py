"""The same round over a Ray cluster, for those who outgrow one machine.

Client c belongs to share c modulo the number of shares. An actor holds a share's states in memory, so that only theta
goes out. Back comes one mean for each share, and a copy of each new state as soon as it is made: the run's store is
where a state counts and survives. An actor that is lost, or its node, is replaced; the new one gets a state out of the
store when it first needs it. So the result does not depend on what was lost, and not on where a share was run.

A mean of means is grouped otherwise than the serial engine's mean. Over n clients the two differ, in every coordinate,
by at most 2 (ceil(log2 n) + 4) eps times the mean magnitude of the uploads: 3.3e-6 of it for a thousand in float32.
"""

import logging
import os
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.engine import PersonalOf, RoundTime, Store, Task, num_cores
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.core.state_parts import with_parts
from fedadmm.engine.pool import DEATHS_ALLOWED
from fedadmm.engine.probe import probe
from fedadmm.engine.ray_actor import ActorSetup, ShareActor, ShareResult, as_bytes, packed
from fedadmm.engine.serial import evaluated
from fedadmm.state.encoding import decode
from fedadmm.training.evaluation import combined

Weight = Callable[[int], float]  # of a client in a mean
Ask = Callable[[int], Any]  # puts a question to the actor of a share, and returns the stream of its answers


class RayEngine:
    """Runs client updates in one actor for each of `num_shares` shares."""

    took = RoundTime()

    def __init__(
        self, algorithm: AnyAlgorithm, task: Task, store: Store, *, initial: Vector, weight: Weight, num_shares: int
    ) -> None:
        if not initial.is_cpu:
            raise InputError(f'engine="ray" trains on CPUs, and device="{initial.device}"; use engine="serial"')
        forms = probe(algorithm, initial)
        kinds = type(forms.download), type(with_parts(forms.client, task.personal))
        self._upload_form = forms.upload
        self._task, self._store, self._weight, self._client_kind = task, store, weight, kinds[1]
        self._actors: list[Any] = []  # the actor of each share
        self._end = weakref.finalize(self, _end, self._actors, _connect(num_shares))
        self._setup = ray.put(packed(ActorSetup(algorithm, task, initial, kinds, store.float_type)))
        if num_shares > (cpus := _num_cpus()):
            raise InputError(f"workers={num_shares}, and the Ray cluster has {cpus} CPUs; use fewer, or add nodes")
        self._actors += [_actor(self._setup, num_cpus=1) for _ in range(num_shares)]
        # By share, the clients that its actor knows as the store does.
        self._up_to_date: list[set[int]] = [set() for _ in self._actors]
        self._published: tuple[Message, Any] = (), None

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the assigned clients, in rising order; one of each share brings the mean of all."""
        message = self._publish(download, buffers)
        shares: dict[int, list[Assignment]] = defaultdict(list)
        for assignment in assignments:
            shares[assignment.client % len(self._actors)].append(assignment)

        def ask(share: int) -> Any:
            work = [(assignment, self._weight(assignment.client)) for assignment in shares[share]]
            update = self._actors[share].update.options(num_returns="streaming")
            return update.remote(message, work, self._news(share, shares[share]))

        shares_done: dict[int, ShareResult] = {}
        for share, answer in self._answers(shares, ask):
            if isinstance(answer, ShareResult):
                shares_done[share] = answer
            else:
                assignment, state = answer
                self._store.stage(assignment.round, assignment.client, self._client_kind(*decode(state)))
        results = (result for share in shares_done.values() for result in self._results(share, buffers))
        yield from sorted(results, key=lambda result: result.client)

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples, whose parts the actors share."""
        message = self._publish(download, buffers)
        parts = range(self._task.num_parts)
        num_shares = min(len(self._actors), len(parts))

        def ask(share: int) -> Any:
            evaluate = self._actors[share].evaluate.options(num_returns="streaming")
            return evaluate.remote(message, parts[share::num_shares])

        scores = dict(answer for _, answer in self._answers(range(num_shares), ask))
        return combined(scores[part] for part in parts)

    def evaluate_clients(
        self, download: Any, *, buffers: Buffers, clients: Sequence[int], personal_of: PersonalOf
    ) -> list[dict[str, float]]:
        """Return loss and metrics on the own examples of each of these clients: here, where their states are."""
        return evaluated(self._task, download, buffers=buffers, clients=clients, personal_of=personal_of)

    def close(self) -> None:
        """End the actors, and the connection to Ray if it was made here."""
        self._end()

    def _publish(self, download: Any, buffers: Buffers) -> Any:
        """Put a model into the object store; the one that was evaluated last is there already."""
        fields = (*download, *buffers)
        known, message = self._published
        if len(known) != len(fields) or any(a is not b for a, b in zip(known, fields, strict=True)):
            message = ray.put((as_bytes(download), as_bytes(buffers)))
            self._published = fields, message
        return message

    def _news(self, share: int, assignments: Iterable[Assignment]) -> dict[int, bytes]:
        """Return the states that an actor lacks: those of a run that is resumed, or of an actor that was lost."""
        clients = {assignment.client for assignment in assignments} - self._up_to_date[share]
        states = {client: self._store.get(client) for client in clients}
        self._up_to_date[share] |= clients
        return {
            client: as_bytes(state, float_type=self._store.float_type)
            for client, state in states.items()
            if state is not None
        }

    def _answers(self, shares: Iterable[int], ask: Ask) -> Iterator[tuple[int, Any]]:
        """Yield (share, answer) as answers arrive; a share whose actor is lost is asked again, from the start."""
        streams: dict[Any, int] = {ask(share): share for share in shares}
        losses: Counter[int] = Counter()
        while streams:
            ready: list[Any] = ray.wait(list(streams), num_returns=1)[0]
            stream, share = ready[0], streams[ready[0]]
            try:
                answer = ray.get(next(stream))
            except StopIteration:
                del streams[stream]
            except RayTaskError as error:
                error.cause.add_note(f"raised in an actor:\n{error}")
                raise error.cause from None
            except (RayActorError, ObjectLostError) as loss:
                losses[share] += 1
                if losses[share] == DEATHS_ALLOWED:
                    raise _hopeless(share, loss) from loss
                del streams[stream]
                self._replace(share)
                streams[ask(share)] = share
            else:
                yield share, answer

    def _replace(self, share: int) -> None:
        ray.kill(self._actors[share])
        # It asks for no CPU of its own: with a node gone there may be none left, and it would wait forever.
        self._actors[share] = _actor(self._setup, num_cpus=0)
        self._up_to_date[share].clear()

    def _results(self, share: ShareResult, buffers: Buffers) -> Iterator[ClientResult]:
        """Yield the results of a share: the first that was applied brings the mean, the others an empty form."""
        applied = tuple(result.client for result in share.results if result.finite and not result.silent)
        for result in share.results:
            upload, left_behind, members = self._upload_form, buffers, applied[:0]
            if share.mean is not None and result.client == applied[0]:
                fields, floats_and_integers = map(decode, share.mean)
                upload, left_behind, members = type(upload)(*fields), Buffers(*floats_and_integers), applied
            stats = result.stats._replace(buffers=left_behind)
            yield result._replace(upload=upload, stats=stats, mean_of=members)


def count_shares(num_workers: int | None) -> int:
    """Return how many shares there are: one for each worker that was asked for, or for each CPU of the cluster."""
    if num_workers is not None:
        return num_workers
    if not ray.is_initialized() and "RAY_ADDRESS" not in os.environ:
        return num_cores()
    connected = _connect(1)
    try:
        return max(1, _num_cpus())
    finally:
        if connected:
            ray.shutdown()


def _connect(num_cpus: int) -> bool:
    """Make sure of a Ray: the one in use, that of RAY_ADDRESS, or one started here; return whether we are to end it."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if "RAY_ADDRESS" in os.environ:
        ray.init(**quiet)
    else:
        ray.init("local", num_cpus=num_cpus, include_dashboard=False, **quiet)
    return True


def _num_cpus() -> int:
    return int(ray.cluster_resources().get("CPU", 0))


def _actor(setup: Any, *, num_cpus: int) -> Any:
    # In a list the setup is not looked at before the first question, whose answer can say what is wrong with it.
    return ray.remote(ShareActor).options(num_cpus=num_cpus, scheduling_strategy="SPREAD").remote([setup])


def _end(actors: list[Any], connected: bool) -> None:
    if not ray.is_initialized():
        return
    for actor in actors:
        ray.kill(actor)
    if connected:
        ray.shutdown()


def _hopeless(share: int, loss: Exception) -> InputError:
    return InputError(
        f"the clients of share {share} ended {DEATHS_ALLOWED} actors, perhaps for want of memory; use fewer workers, "
        f"a smaller batch_size, or nodes with more memory. Ray says: {loss}"
    )
