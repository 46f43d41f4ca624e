"""Laws 1 and 2: an update leaves its inputs alone, and everything that a client keeps has a say in what it uploads."""

import typing
from dataclasses import fields
from typing import Any

import pytest
import torch

from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.round import Assignment
from methods import METHODS
from play import Play, copied, identical
from worlds import NUM_CLIENTS, World, quadratic_world

TWO_ROUNDS = ([0, 1, 3], [0, 2, 3])
CLEARLY = 1e-3  # rounding is far below it, the effect of a perturbation of size 1 far above


def _literals(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    return [value for part in typing.get_args(annotation) for value in _literals(part)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_choice_of_every_algorithm_is_under_the_laws(name: str) -> None:
    algorithm = ALGORITHMS[name]
    hints = typing.get_type_hints(algorithm)
    offered = {(f.name, value) for f in fields(algorithm) for value in _literals(hints[f.name])}
    used = {
        (f.name, getattr(method, f.name))
        for method in METHODS.values()
        if type(method) is algorithm
        for f in fields(algorithm)
    }
    assert offered <= used


def test_client_update_leaves_its_inputs_bit_identical(method: Algorithm, world: World) -> None:
    play = world.play(method).rounds(TWO_ROUNDS)
    for client, state in play.states.items():
        download = method.download(play.checkpoint.server)
        before = copied(download), copied(state), copied(play.checkpoint.buffers)
        problem = world.task.problem(Assignment(client, 3, 1), buffers=play.checkpoint.buffers)
        method.client_update(download, state, problem)
        assert identical(before, (tuple(download), tuple(state), tuple(play.checkpoint.buffers)))


def test_server_update_leaves_its_inputs_bit_identical(method: Algorithm, world: World) -> None:
    play = world.play(method).rounds(TWO_ROUNDS)
    checkpoint = play.checkpoint
    before = copied(checkpoint.server), copied(checkpoint.buffers)
    visits = play.visits([1, 2, 4])
    uploads = [copied(visit.upload) for visit in visits]
    play.round([1, 2, 4])
    assert identical(before, (tuple(checkpoint.server), tuple(checkpoint.buffers)))
    assert identical(uploads, [tuple(visit.upload) for visit in visits])


def _perturbed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        generator = torch.Generator().manual_seed(7)
        return value + torch.randn(value.shape, generator=generator).to(value.dtype)
    return 2 * value


def _differs_clearly(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return any(float(torch.as_tensor(a - b).abs().max()) > CLEARLY for a, b in zip(left, right, strict=True))


def _silent_fields(method: Algorithm, world: World, *, of: str, problem: Any = lambda p: p) -> list[str]:
    """Return the fields of the client's state, or of its download, that have no effect on its upload in round 3."""
    play = Play(method, _Wrapped(world.task, problem), world.theta, num_clients=NUM_CLIENTS, buffers=world.buffers)
    play.rounds(TWO_ROUNDS)

    def upload(server: Any, state: Any) -> Any:
        assigned = Assignment(0, 3, 1)
        return method.client_update(server, state, play.engine._task.problem(assigned, buffers=world.buffers))[0]

    server, state = method.download(play.checkpoint.server), play.states[0]
    skipping = trait(method, SkipsCommunication) if of == "download" else None
    receive = (lambda server, state: state) if skipping is None else skipping.receive
    assert all(bool(torch.as_tensor(field).any()) for field in state), "a law of zeros says nothing"
    usual = upload(server, receive(server, state))
    silent = []
    for name, value in (state if of == "client" else server)._asdict().items():
        changed = {name: _perturbed(value)}
        other = (
            upload(server, state._replace(**changed))
            if of == "client"
            else upload(server._replace(**changed), receive(server._replace(**changed), state))
        )
        if not _differs_clearly(usual, other):
            silent.append(name)
    return silent


class _Wrapped:
    """A task whose problems went through a wrapper."""

    def __init__(self, task: Any, wrap: Any) -> None:
        self._task, self._wrap = task, wrap

    def problem(self, assignment: Assignment, **how: Any) -> Any:
        return self._wrap(self._task.problem(assignment, **how))


class _DeafToDuals:
    """A problem whose solver never sees the dual, as in FedLab's SCAFFOLD."""

    def __init__(self, problem: Any) -> None:
        self._problem = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)

    def solve(self, *, dual: Any = None, **how: Any) -> Any:
        return self._problem.solve(**how)


@pytest.mark.parametrize("of", ["client", "download"])
def test_perturbing_any_field_changes_the_upload(method: Algorithm, world: World, of: str) -> None:
    assert _silent_fields(method, world, of=of) == []


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, "y") for name in ("fedadmm", "fedadmm, rho rising", "fedadmm, global", "fedadmm_released")]
    + [("feddyn", "y"), ("scaffold", "c_i"), ("afedpd", "mu"), ("adabest", "h_i"), ("local_ghbm", "anchor")],
)
def test_a_correction_that_never_reaches_the_gradient_breaks_the_law(name: str, field: str) -> None:
    assert _silent_fields(METHODS[name], quadratic_world(), of="client", problem=_DeafToDuals) == [field]


@pytest.mark.parametrize("name", ["scaffold", "fedadmm, seen"])
def test_the_solution_itself_moves_with_the_correction(world: World, name: str) -> None:
    # SCAFFOLD's c must move w, not only the c_i that is made from w; so must the own model that FedADMM starts from.
    method = METHODS[name]
    play = world.play(method).rounds(TWO_ROUNDS)

    def solution(server: Any, state: Any) -> Any:
        problem = world.task.problem(Assignment(0, 3, 1), buffers=world.buffers)
        upload, after = method.client_update(server, state, problem)
        return upload.step if name == "scaffold" else after.w

    server, state = play.checkpoint.server, play.states[0]
    usual = solution(server, state)
    if name == "scaffold":
        other = solution(server._replace(c=_perturbed(server.c)), state)
    else:
        other = solution(server, state._replace(w=_perturbed(state.w)))
    assert _differs_clearly((usual,), (other,))
