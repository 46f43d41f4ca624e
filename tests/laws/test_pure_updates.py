"""Laws 1 and 2: an update leaves its inputs alone, and everything that a client keeps has a say in what it uploads."""

import typing
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.round import Assignment
from fedadmm.studies.laws import laws
from methods import METHODS
from worlds import World, quadratic_world


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


def test_updates_leave_their_inputs_bit_identical(method: Algorithm, world: World) -> None:
    assert laws.inputs_stay(method, world) is None


def test_the_model_begins_at_theta_and_is_read_off_the_server_alone(method: Algorithm, world: World) -> None:
    assert laws.model_is_read_off(method, world) is None


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


def test_perturbing_any_field_changes_the_upload(method: Algorithm, world: World) -> None:
    state = world.play(method).rounds(laws.TWO_ROUNDS).states[0]
    assert all(bool(torch.as_tensor(field).any()) for field in state), "a law of zeros says nothing"
    assert laws.client_matters(method, world) is None
    assert laws.download_matters(method, world) is None


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, "y") for name in ("fedadmm", "fedadmm, rho rising", "fedadmm, global", "fedadmm_released")]
    + [("feddyn", "y"), ("scaffold", "c_i"), ("afedpd", "mu"), ("adabest", "h_i"), ("local_ghbm", "anchor")],
)
def test_a_correction_that_never_reaches_the_gradient_breaks_the_law(name: str, field: str) -> None:
    world = quadratic_world()
    deaf = replace(world, task=_Wrapped(world.task, _DeafToDuals))
    assert laws.silent_fields(METHODS[name], deaf, of="client") == [field]


@pytest.mark.parametrize("name", ["scaffold", "fedadmm, seen"])
def test_the_solution_itself_moves_with_the_correction(world: World, name: str) -> None:
    # SCAFFOLD's c must move w, not only the c_i that is made from w; so must the own model that FedADMM starts from.
    method = METHODS[name]
    play = world.play(method).rounds(laws.TWO_ROUNDS)

    def solution(server: Any, state: Any) -> Any:
        problem = world.task.problem(Assignment(0, 3, 1), buffers=world.buffers)
        upload, after = method.client_update(server, state, problem)
        return upload.step if name == "scaffold" else after.w

    server, state = play.checkpoint.server, play.states[0]
    usual = solution(server, state)
    if name == "scaffold":
        other = solution(server._replace(c=laws.perturbed(server.c)), state)
    else:
        other = solution(server, state._replace(w=laws.perturbed(state.w)))
    assert laws.differs_clearly((usual,), (other,))
