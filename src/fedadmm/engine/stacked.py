"""Clients as one tensor program, for models so small that Python is the cost.

An algorithm runs unchanged: the server's vectors are [d], a client's [K, d], and its scalars [K, 1]. Sums are grouped
otherwise than in the serial engine, so results agree to rounding, not to the bit.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.engine import Store
from fedadmm.core.errors import calling
from fedadmm.core.mean import ABSURD, is_finite, is_number
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.round import Assignment, Buffers, ClientResult, received
from fedadmm.engine.probe import probe
from fedadmm.engine.process import keep_freed_blocks, threads
from fedadmm.engine.serial import SerialEngine
from fedadmm.training.task import LearningTask


class StackedEngine(SerialEngine):
    """Runs client updates in stacks of bounded memory."""

    _task: LearningTask

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        task: LearningTask,
        store: Store,
        *,
        initial: Vector,
        weight: Callable[[int], float] | None,
        num_threads: int = 1,
    ) -> None:
        """Begin; with the clients' weights a stack is averaged at once, without each result has its own upload."""
        super().__init__(algorithm, task, store, initial=initial)
        self._weight, self._num_threads = weight, 1 if task.has_convolutions else num_threads
        self._upload_form = probe(algorithm, initial).upload
        keep_freed_blocks()

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the assigned clients, in the order of the assignments."""
        if not assignments:
            return
        num_stacks = -(-len(assignments) // self._task.stack_size(assignments))
        size = -(-len(assignments) // num_stacks)
        for first in range(0, len(assignments), size):
            part = assignments[first : first + size]
            results = self._run_stack(download, self._task.stack(part, buffers=buffers))
            in_order = [results[assignment.client] for assignment in part]
            yield from in_order if self._weight is None else _carried(in_order)

    def _run_stack(self, download: Any, problem: Any) -> dict[int, ClientResult]:
        """Return the results of a stack, each with its own upload or with the mean of all that are finite."""
        algorithm, round = self._algorithm, problem.round
        clients = [assignment.client for assignment in problem.assignments]
        found = self._store.get_many(clients)
        fresh = algorithm.init_client(self._initial if algorithm.newcomer == "initial" else download.theta)
        states: list[Any] = [fresh if state is None else state for state in found]
        if trait(algorithm, SkipsCommunication) is not None:
            asked = zip(problem.assignments, states, strict=True)
            states = [received(algorithm, download, state, assignment) for assignment, state in asked]
        with threads(self._num_threads):
            before = stacked(states, like=download.theta)
            with calling(f"client_update of {type(algorithm).__name__}, for a stack of clients in round {round},"):
                upload, after = algorithm.client_update(download, before, problem)
            norms = _row_norms(upload, len(clients), form=self._upload_form)
            oversized = [norm > each.max_norm for norm, each in zip(norms, problem.assignments, strict=True)]
            whole = _finite_rows((*upload, *after), len(clients))
        finite = [own and not too_long for own, too_long in zip(whole, oversized, strict=True)]
        # In memory of their own where they are kept as they are: a row would keep the whole stack.
        rows = unstacked(after, len(clients), form=fresh, copy=self._store.file is None)
        kept = zip(clients, rows, finite, strict=True)
        self._store.stage_many(round, {client: state for client, state, ok in kept if ok})
        if self._weight is None:
            uploads = unstacked(upload, len(clients), form=self._upload_form)
        else:
            weights = [
                self._weight(assignment.client) if ok and assignment.sends else None
                for assignment, ok in zip(problem.assignments, finite, strict=True)
            ]
            uploads = [mean_of_stack(upload, weights, form=self._upload_form)] * len(clients)
        all_stats = [own._replace(upload_norm=norm) for own, norm in zip(problem.stats(), norms, strict=True)]
        results = zip(problem.assignments, uploads, all_stats, found, finite, oversized, strict=True)
        return {
            assignment.client: ClientResult(
                assignment.client, own, stats, state is None, ok, silent=not assignment.sends, oversized=too_long
            )
            for assignment, own, stats, state, ok, too_long in results
        }


def _carried(results: Sequence[ClientResult]) -> list[ClientResult]:
    """Let the first finite result stand for the mean of all, and the others for nothing."""
    members = tuple(result.client for result in results if result.finite and not result.silent)
    return [result._replace(mean_of=members if result.client in members[:1] else ()) for result in results]


def stacked(messages: Sequence[Message], *, like: Vector) -> Any:
    """Return messages of one form as one: vectors [K, d], numbers [K, 1]."""
    columns = (_stacked_field(list(column), like) for column in zip(*messages, strict=True))
    return type(messages[0])(*columns)


def _stacked_field(column: list[Any], like: Vector) -> Any:
    first = column[0]
    if isinstance(first, torch.Tensor):
        rows = torch.stack(column)
        return rows if rows.ndim > 1 else rows[:, None]
    kind = like.dtype if isinstance(first, float) else None
    return torch.tensor(column, dtype=kind, device=like.device)[:, None]


def unstacked(message: Message, num_clients: int, *, form: Message, copy: bool = True) -> list[Message]:
    """Return the message of each client, as views or copies; what is not stacked is the same for all.

    `form` is that of one message.
    """
    fields = [_rows(field, num_clients, like, copy=copy) for field, like in zip(message, form, strict=True)]
    if not fields:
        return [message] * num_clients
    return [type(message)(*row) for row in zip(*fields, strict=True)]


def mean_of_stack(message: Message, weights: Sequence[float | None], *, form: Message) -> Message:
    """Return the mean of the messages that have a weight, in the form of one message; `form` itself if none has."""
    kept = [place for place, weight in enumerate(weights) if weight is not None]
    if not kept:
        return form
    own: Any = torch.tensor([weights[place] for place in kept], dtype=torch.float64)
    shares = own / own.sum()
    fields = []
    for field, like in zip(message, form, strict=True):
        if not isinstance(field, torch.Tensor):
            fields.append(field)
            continue
        rows = field.expand(len(weights), *field.shape[1:]) if field.ndim > 1 else field.expand(len(weights), -1)
        rows = rows if len(kept) == len(weights) else rows[kept]
        mean = shares.to(rows) @ rows
        fields.append(mean.reshape(like.shape) if isinstance(like, torch.Tensor) else float(mean))
    return type(message)(*fields)


def _rows(field: Any, num_clients: int, like: Any, *, copy: bool) -> Sequence[Any]:
    if not isinstance(field, torch.Tensor):
        return [field] * num_clients
    if isinstance(like, torch.Tensor):
        rows = field.expand(num_clients, *like.shape) if like.ndim else field.reshape(-1)
        each: Sequence[Any] = torch.unbind_copy(rows) if copy else rows.unbind()  # type: ignore[assignment, func-returns-value]
        return each
    return field.expand(num_clients, 1).flatten().tolist()


def _row_norms(message: Message, num_clients: int, *, form: Message) -> list[float]:
    """Return the norm of each client's message, as norm_of does; `form` is that of one message."""
    fields = [(torch.as_tensor(field), is_number(like)) for field, like in zip(message, form, strict=True)]
    norms = [field.norm(dim=-1) if not number else field.abs() * (field.abs() > ABSURD) for field, number in fields]
    rows = [norm.reshape(-1).expand(num_clients).tolist() for norm in norms]
    return [math.hypot(*own) for own in zip(*rows, strict=True)] or [0.0] * num_clients


def _finite_rows(fields: Message, num_clients: int) -> list[bool]:
    """Return for each client whether no field of its own holds a NaN or an infinity."""
    finite = torch.ones(num_clients, dtype=torch.bool)
    for field in fields:
        if isinstance(field, torch.Tensor) and field.ndim > 1:
            rows = torch.isfinite(field.sum(dim=1))  # a finite sum proves finite terms; large ones may overflow it
            finite &= (rows if rows.all() else torch.isfinite(field).all(dim=1)).cpu()
        else:
            finite &= is_finite((field,))
    return finite.tolist()
