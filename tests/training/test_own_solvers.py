"""A solver of the user's own: a function of (objective, start, budget) that returns w."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment
from fedadmm.training.local import LocalTraining
from quadratics import NO_BUFFERS, on_a_line
from solved_quadratics import SolvedQuadratics

OWN = """
import torch

def newton_on_a_line(objective, start, budget):
    value, gradient = objective(start)
    _, further = objective(start + 1)
    return start - gradient / (further - gradient)

def endless(objective, start, budget):
    w = start
    while True:
        w = w - 0.1 * objective(w)[1]

def in_place(objective, start, budget):
    for _ in range(budget.steps):
        _, gradient = objective(start)
        start.sub_(gradient.mul_(budget.learning_rate))
    return start

def spoils(objective, start, budget):
    _, gradient = objective(start)
    gradient.zero_()
    return start - objective(start)[1] / 4

def raises(objective, start, budget):
    return 1 / 0

def shapeless(objective, start, budget):
    return start[None]

def nothing(objective, start, budget):
    objective(start)

def by_old_name(objective, start, budget):
    return start - budget.accuracy

number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_solvers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def _solve_on_a_line(name: str, **limits: Any) -> tuple[float, Any]:
    local = LocalTraining(solver=f"own_solvers:{name}", learning_rate=0.1, **{"max_steps": 5} | limits)
    plain = on_a_line([1.0, 3.0], [3.0, 0.0])
    task = SolvedQuadratics(plain.hessians, plain.targets, local=local)
    problem = task.problem(Assignment(1, 1, 1), buffers=NO_BUFFERS)
    start = torch.tensor([2.0], dtype=torch.float64)
    w = problem.solve(start=start, rho=1.0, centre=torch.tensor([4.0], dtype=torch.float64)).w
    assert start.tolist() == [2.0]
    return float(w), problem.stats()


@pytest.mark.usefixtures("own")
def test_a_solver_of_the_users_own() -> None:
    # f(w) = 3/2 w^2 and 1/2 (w - 4)^2: the minimiser of their sum is 1, its gradient 4 w - 4.
    w, stats = _solve_on_a_line("newton_on_a_line")
    assert w == pytest.approx(1.0, abs=1e-14)
    assert (stats.steps, stats.epsilon) == (3, pytest.approx(0, abs=1e-26))  # with the gradient where it ended


@pytest.mark.usefixtures("own")
def test_a_solver_of_the_users_own_is_ended_by_the_budget_and_by_the_tolerance() -> None:
    # From 2, w - 1 shrinks to 0.6 of itself in a step, and the squared gradient 16 (w - 1)^2 with it.
    w, stats = _solve_on_a_line("endless")
    assert w == pytest.approx(1 + 0.6**5)
    assert stats.steps == 6  # the sixth gradient is the one at the end
    w, stats = _solve_on_a_line("endless", tolerance=16 * 0.6**4 * 1.001)
    assert w == pytest.approx(1 + 0.6**2)
    w, _ = _solve_on_a_line("in_place")
    assert w == pytest.approx(1 + 0.6**5)
    assert _solve_on_a_line("spoils")[0] == pytest.approx(1.0)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("raises", r'solver "own_solvers:raises" fails; correct it\n  ZeroDivisionError: .*own_solvers.py, line'),
        ("shapeless", r'solver "own_solvers:shapeless" returned \(1, 1\); return a vector of shape \(1,\)'),
        ("nothing", 'solver "own_solvers:nothing" returned NoneType; return a vector'),
        ("number", 'solver "own_solvers:number" is of type int; name a function'),
        ("by_old_name", r"of a budget, accuracy is now called tolerance; change the name"),
        ("absent", 'solver "own_solvers:absent": own_solvers has no absent'),
    ],
)
def test_a_mistake_in_ones_own_solver_is_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        _solve_on_a_line(name)
