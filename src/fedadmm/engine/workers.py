"""Client updates in worker processes; the result is the serial engine's to the bit.

Theta, buffers and uploads are in shared memory, and so are the states of the clients at work, but where these are in a
file, which the workers read and write themselves. The uploads are summed in the order of the round, whatever the order
of their arrival.
"""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.engine import PersonalOf, RoundTime, StatesOnDisk, Store, Task
from fedadmm.core.mean import num_bytes
from fedadmm.core.round import Assignment, Buffers, ClientResult, run_client
from fedadmm.core.state_parts import HeldBack, vectors_of, with_parts
from fedadmm.core.transport import Transport
from fedadmm.engine.pool import Handler, Pool
from fedadmm.engine.probe import probe
from fedadmm.engine.process import keep_freed_blocks
from fedadmm.engine.serial import evaluated
from fedadmm.training.evaluation import combined


class SharedMessage:
    """A message whose vectors are in shared memory; the rest of it travels beside them."""

    def __init__(self, form: Message) -> None:
        """Make room for messages of this form."""
        self._kind: type[Any] = type(form)
        self._vectors = [torch.empty_like(f).share_memory_() if isinstance(f, torch.Tensor) else None for f in form]

    def write(self, message: Message) -> list[Any]:
        """Copy the vectors that there is room for, and return the rest, with `...` in the places of those."""
        rest: list[Any] = []
        for field, vector in zip(message, self._vectors, strict=True):
            if vector is not None and _fits(field, vector):
                vector.copy_(field)
                rest.append(...)
            else:
                rest.append(field)
        return rest

    def read(self, rest: Sequence[Any]) -> Any:
        """Return the message that was written; its vectors are the shared ones."""
        fields = zip(rest, self._vectors, strict=True)
        return self._kind(*(vector if field is ... else field for field, vector in fields))

    def copy(self, rest: Sequence[Any]) -> Any:
        """Return the message that was written, in memory of its own."""
        return self._kind(*(f.clone() if isinstance(f, torch.Tensor) else f for f in self.read(rest)))


def _fits(field: Any, vector: torch.Tensor) -> bool:
    return isinstance(field, torch.Tensor) and (field.dtype, field.shape) == (vector.dtype, vector.shape)


# The result of an update and its new state, where the store has no file; the vectors of both are in its slot.
Answer = tuple[ClientResult, list[Any] | None]

SLOTS_PER_WORKER = 4  # uploads of each worker that may wait to be summed
WAITING_BYTES = 1 << 28  # that uploads may take while they wait: fewer wait where they are large, one of each worker


class Update(NamedTuple):
    """A job: one client's update."""

    assignment: Assignment
    download: list[Any]  # of what it downloads, what is not in shared memory
    slot: int  # where its state is, where the store has no file, and where its upload goes
    version: int | None  # the round of the client's state in the store's file
    state: list[Any] | None  # of the state in the slot, what is not in shared memory

    def __str__(self) -> str:
        return f"the update of client {self.assignment.client}"


class Evaluation(NamedTuple):
    """A job: a part of the test examples."""

    part: int
    download: list[Any]

    def __str__(self) -> str:
        return "the evaluation"


class ClientEvaluation(NamedTuple):
    """A job: the own examples of some clients."""

    clients: Sequence[int]
    personal: bytes  # the parts that each keeps, pickled whole: torch would share the memory of each
    download: list[Any]

    def __str__(self) -> str:
        return f"the evaluation of {len(self.clients)} clients"


@dataclass(frozen=True)
class WorkerSetup:
    """All that a worker needs."""

    algorithm: AnyAlgorithm
    task: Task
    initial: Vector
    file: StatesOnDisk | None
    download: SharedMessage
    buffers: SharedMessage
    uploads: list[SharedMessage]  # one a slot
    states: list[SharedMessage]  # likewise; none where the store has a file
    transport: Transport | None

    def __call__(self) -> Handler:
        """Return what answers a job, in a worker: with a network and an open file of its own."""
        task = self.task.private()
        file = None if self.file is None else self.file.own()

        def handle(job: Update | Evaluation | ClientEvaluation) -> Any:
            download, buffers = self.download.read(job.download), self.buffers.read([..., ...])
            if isinstance(job, Evaluation):
                return task.evaluate_part(job.part, download.theta, buffers=buffers)
            if isinstance(job, ClientEvaluation):
                parts = dict(zip(job.clients, pickle.loads(job.personal), strict=True))
                return evaluated(task, download, buffers=buffers, clients=job.clients, personal_of=parts.get)
            return self._update(job, task.problem(job.assignment, buffers=buffers), download, file)

        return handle

    def _update(self, job: Update, problem: Any, download: Any, file: StatesOnDisk | None) -> Answer:
        client, round = job.assignment.client, job.assignment.round
        # A copy: parts of the old state may end in the new one, which is written in its place.
        state = None if job.state is None else self.states[job.slot].copy(job.state)
        if file is not None and job.version is not None:
            state = file.get_version(client, job.version)
        result, state = run_client(
            self.algorithm,
            download,
            job.assignment,
            state=state,
            initial=self.initial,
            problem=problem,
            transport=self.transport,
        )
        result = result._replace(upload=tuple(self.uploads[job.slot].write(result.upload)), wire=None)
        kept = None
        if result.finite and file is not None:
            file.stage(round, client, state)
        elif result.finite:
            kept = self.states[job.slot].write(state)
        return result, kept


def _setup(
    algorithm: AnyAlgorithm, task: Task, store: Store, *, initial: Vector, num_workers: int, transport: Transport | None
) -> WorkerSetup:
    """Return what the workers need; the messages it is made from are gone before they fork, who would keep them."""
    forms = probe(algorithm, initial)
    fitting = WAITING_BYTES // max(1, num_bytes(forms.upload))
    slots = range(max(num_workers, min(SLOTS_PER_WORKER * num_workers, fitting)))
    uploads = [SharedMessage(forms.upload) for _ in slots]
    keeps = transport is not None and transport.keeps_held_back
    form = with_parts(forms.client, task.personal, HeldBack(vectors_of(forms.upload)) if keeps else None)
    states = [SharedMessage(form) for _ in slots] if store.file is None else []
    shared, download, buffers = initial.clone().share_memory_(), forms.download, task.buffers()
    return WorkerSetup(
        algorithm, task, shared, store.file, SharedMessage(download), SharedMessage(buffers), uploads, states, transport
    )


class WorkersEngine:
    """Runs client updates in `num_workers` processes."""

    took = RoundTime()

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        task: Task,
        store: Store,
        *,
        initial: Vector,
        num_workers: int,
        transport: Transport | None = None,
    ) -> None:
        keep_freed_blocks()  # of the mean, which is made here
        self._task, self._store = task, store
        self._setup = _setup(algorithm, task, store, initial=initial, num_workers=num_workers, transport=transport)
        self._num_slots = len(self._setup.uploads)
        self.pool = Pool(self._setup, num_workers=num_workers)

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the assigned clients, in the order of the assignments."""
        published = self._publish(download, buffers)
        costs = [self._task.cost(assignment) for assignment in assignments]
        answers: Iterator[Answer] = self.pool.run(
            lambda number: self._update(number, assignments[number], published), costs=costs, window=self._num_slots
        )
        for number, (assignment, (result, state)) in enumerate(zip(assignments, answers, strict=True)):
            slot = number % self._num_slots
            if state is not None:
                self._store.stage(assignment.round, assignment.client, self._setup.states[slot].copy(state))
            yield result._replace(upload=self._setup.uploads[slot].read(result.upload))

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples, whose parts the workers share."""
        published = self._publish(download, buffers)
        parts = self._task.num_parts
        return combined(self.pool.run(lambda part: Evaluation(part, published), costs=[1.0] * parts, window=parts))

    def evaluate_clients(
        self, download: Any, *, buffers: Buffers, clients: Sequence[int], personal_of: PersonalOf
    ) -> list[dict[str, float]]:
        """Return loss and metrics on the own examples of each of these clients, of which each worker takes some."""
        published = self._publish(download, buffers)
        size = max(1, len(clients) // self._num_slots)
        shares = [clients[first : first + size] for first in range(0, len(clients), size)]

        def job(number: int) -> ClientEvaluation:
            personal = [personal_of(client) for client in shares[number]]
            return ClientEvaluation(shares[number], pickle.dumps(personal), published)

        found = self.pool.run(job, costs=[1.0] * len(shares), window=len(shares))
        return [scores for share in found for scores in share]

    def close(self) -> None:
        """End the workers."""
        self.pool.close()

    def _publish(self, download: Any, buffers: Buffers) -> list[Any]:
        self._setup.buffers.write(buffers)
        return self._setup.download.write(download)

    def _update(self, number: int, assignment: Assignment, download: list[Any]) -> Update:
        slot = number % self._num_slots
        if self._setup.file is not None:
            return Update(assignment, download, slot, self._store.round_of(assignment.client), None)
        state = self._store.get(assignment.client)
        beside = None if state is None else self._setup.states[slot].write(state)
        return Update(assignment, download, slot, None, beside)
