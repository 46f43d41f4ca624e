"""Client updates in worker processes; the result is the serial engine's to the bit.

Theta, buffers and uploads are in shared memory, and a worker reads and writes the states of its clients where they
live. The uploads are summed in the order of the round, whatever the order of their arrival.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.round import Assignment, Buffers, Effort, Visit, visit_client
from fedadmm.core.store import Store
from fedadmm.engine.pool import Handler, Pool
from fedadmm.engine.serial import Task
from fedadmm.engine.shared import SharedMessage, probe_upload
from fedadmm.learning.evaluation import combined
from fedadmm.state.encoding import decode, encode
from fedadmm.state.file import StateFile

SLOTS_PER_WORKER = 4  # uploads of each worker that may wait to be summed


class Update(NamedTuple):
    """A job: one client's update."""

    assignment: Assignment
    download: list[Any]  # the scalars of what it downloads
    slot: int  # where its upload goes
    version: int | None  # the round of the client's state in the store's file
    state: bytes | None  # the state itself, where the store has no file

    def __str__(self) -> str:
        return f"the update of client {self.assignment.client}"


class Evaluation(NamedTuple):
    """A job: a part of the test examples."""

    part: int
    download: list[Any]

    def __str__(self) -> str:
        return "the evaluation"


class Answer(NamedTuple):
    """What comes back of an update beside its upload."""

    scalars: list[Any]  # of the upload
    effort: Effort
    newcomer: bool
    finite: bool
    state: bytes | None  # the new state, where the store has no file


@dataclass(frozen=True)
class Setup:
    """All that a worker needs."""

    algorithm: Algorithm[Any, Any, Any]
    task: Task
    initial: Vector
    client_kind: type[Any]
    file: StateFile | None
    download: SharedMessage
    buffers: SharedMessage
    slots: list[SharedMessage]

    def __call__(self) -> Handler:
        """Return what answers a job, in a worker: with a network and an open file of its own."""
        task = self.task.private()
        file = None if self.file is None else self.file.own()

        def handle(job: Update | Evaluation) -> Any:
            download, buffers = self.download.read(job.download), self.buffers.read([])
            if isinstance(job, Evaluation):
                return task.evaluate_part(job.part, download.theta, buffers=buffers)
            return self._update(job, task.problem(job.assignment, buffers=buffers), download, file)

        return handle

    def _update(self, job: Update, problem: Any, download: Any, file: StateFile | None) -> Answer:
        client, round = job.assignment.client, job.assignment.round
        state = None if job.state is None else self.client_kind(*decode(job.state))
        if file is not None and job.version is not None:
            state = file.get_version(client, job.version)
        visit, state = visit_client(
            self.algorithm,
            download,
            job.assignment,
            state=state,
            initial=self.initial,
            problem=problem,
        )
        scalars = self.slots[job.slot].write(visit.upload)
        if visit.finite and file is not None:
            file.stage(round, client, state)
        kept = b"".join(encode(state)) if visit.finite and file is None else None
        return Answer(scalars, visit.effort, visit.newcomer, visit.finite, kept)


class WorkersEngine:
    """Runs client updates in `num_workers` processes."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any, Any],
        task: Task,
        store: Store,
        *,
        initial: Vector,
        num_workers: int,
        start_method: str | None = None,
    ) -> None:
        download = algorithm.download(algorithm.init_server(initial))
        upload = probe_upload(algorithm, download, initial)
        self._task, self._store = task, store
        self._setup = Setup(
            algorithm,
            task,
            initial.clone().share_memory_(),
            type(algorithm.init_client(initial)),
            getattr(store, "file", None),
            SharedMessage.like(download),
            SharedMessage.like(task.buffers()),
            [SharedMessage.like(upload) for _ in range(SLOTS_PER_WORKER * num_workers)],
        )
        self.pool = Pool(self._setup, num_workers=num_workers, start_method=start_method)

    def visits(
        self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]
    ) -> Iterator[Visit]:
        """Yield the answers of the assigned clients, in the order of the assignments."""
        scalars = self._publish(download, buffers)
        jobs = [self._job(number, assignment, scalars) for number, assignment in enumerate(assignments)]
        costs = [self._task.cost(assignment) for assignment in assignments]
        answers = self.pool.run(jobs, costs=costs, window=len(self._setup.slots))
        for job, answer in zip(jobs, answers, strict=True):
            client, round = job.assignment.client, job.assignment.round
            if answer.state is not None:
                self._store.stage(round, client, self._setup.client_kind(*decode(answer.state)))
            upload = self._setup.slots[job.slot].read(answer.scalars)
            yield Visit(
                client,
                upload,
                answer.effort,
                answer.newcomer,
                answer.finite,
                silent=not job.assignment.sends,
            )

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples, whose parts the workers share."""
        scalars = self._publish(download, buffers)
        jobs = [Evaluation(part, scalars) for part in range(self._task.num_parts)]
        return combined(self.pool.run(jobs, costs=[1.0] * len(jobs), window=len(jobs)))

    def close(self) -> None:
        """End the workers."""
        self.pool.close()

    def _publish(self, download: Any, buffers: Buffers) -> list[Any]:
        self._setup.buffers.write(buffers)
        return self._setup.download.write(download)

    def _job(self, number: int, assignment: Assignment, scalars: list[Any]) -> Update:
        slot = number % len(self._setup.slots)
        if self._setup.file is not None:
            return Update(assignment, scalars, slot, self._store.round_of(assignment.client), None)  # type: ignore[attr-defined]
        state = self._store.get(assignment.client)
        return Update(assignment, scalars, slot, None, None if state is None else b"".join(encode(state)))
