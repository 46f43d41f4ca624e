"""Every local solver minimises L(w) = f(w) + <dual, w> + rho/2 |w - centre|^2, and stops where it may."""

from typing import Any

import pytest
import torch
from scipy.optimize import minimize
from torch import nn
from torch.nn import functional

from fedadmm.core.round import Assignment
from fedadmm.data.federated import PartitionedData
from fedadmm.training.local import LocalTraining
from fedadmm.training.problem import SGDProblem
from fedadmm.training.task import LearningTask
from quadratics import NO_BUFFERS, heterogeneous, on_a_line
from solved_quadratics import SolvedQuadratics
from worlds import learning_task, made, network, some_data

CLIENT, RHO = 1, 0.5


def _vectors(size: int, count: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(count)]


def _softmax() -> nn.Module:
    return nn.Linear(4, 3).double()


def _data() -> PartitionedData:
    data = some_data([8, 10, 6])
    return PartitionedData(data.inputs.double(), data.targets, data.offsets, None, 3)


def _problem(*, epochs: int = 1, gradients: int | None = None, **local: Any) -> SGDProblem:
    return _problem_of(learning_task(made(_softmax), _data(), **local), epochs=epochs, gradients=gradients)


def _problem_of(task: LearningTask, *, epochs: int = 1, gradients: int | None = None) -> SGDProblem:
    return task.problem(Assignment(CLIENT, 1, epochs, gradients), buffers=task.model.buffers())


def _squared_gradient(w: torch.Tensor, *, dual: torch.Tensor, centre: torch.Tensor, decay: float = 0) -> float:
    """Return |grad L|^2 of the softmax regression, by autograd on the whole of L."""
    w = w.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_lagrangian(w, dual=dual, centre=centre, decay=decay), w)
    return float(gradient @ gradient)


def _lagrangian(w: torch.Tensor, *, dual: torch.Tensor, centre: torch.Tensor, decay: float = 0) -> torch.Tensor:
    inputs, targets = _data().client(CLIENT)
    value = functional.cross_entropy(inputs @ w[:12].view(3, 4).T + w[12:], targets)
    return value + dual @ w + RHO / 2 * ((w - centre) ** 2).sum() + decay / 2 * (w @ w)


def _optimum(dual: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """Return scipy's minimiser of L."""

    def value_and_gradient(w: Any) -> tuple[float, Any]:
        tensor = torch.tensor(w, requires_grad=True)
        value = _lagrangian(tensor, dual=dual, centre=centre)
        return float(value.detach()), torch.autograd.grad(value, tensor)[0].numpy()

    found = minimize(value_and_gradient, centre.numpy(), jac=True, method="BFGS", options={"gtol": 1e-10})
    return torch.from_numpy(found.x)


@pytest.mark.parametrize("solver", ["sgd", "gd", "lbfgs"])
@pytest.mark.parametrize("dimension", [1, 3, 20])
def test_every_solver_reaches_the_closed_form_minimiser_of_a_quadratic(solver: str, dimension: int) -> None:
    plain = heterogeneous(3, dimension, seed=2)
    local = LocalTraining(solver=solver, tolerance=1e-24, max_steps=2000, learning_rate=0.6)
    task = SolvedQuadratics(plain.hessians, plain.targets, local=local)
    start, dual, centre = _vectors(dimension)
    problem = task.problem(Assignment(CLIENT, 1, 1), buffers=NO_BUFFERS)
    w = problem.solve(start=start, dual=dual, rho=RHO, centre=centre).w
    # H (w - a) + y + rho (w - c) = 0, that is (H + rho I) w = H a - y + rho c.
    hessian, target = plain.hessians[CLIENT], plain.targets[CLIENT]
    matrix = hessian + RHO * torch.eye(dimension, dtype=torch.float64)
    expected = torch.linalg.solve(matrix, hessian @ target - dual + RHO * centre)
    torch.testing.assert_close(w, expected, rtol=0, atol=5e-12)
    epsilon = problem.stats().epsilon
    assert epsilon is not None
    assert epsilon <= 1e-24
    assert problem.stats().steps < 200


@pytest.mark.parametrize("solver", ["gd", "lbfgs", "sgd"])
def test_every_solver_reaches_scipys_minimiser_on_a_network(solver: str) -> None:
    start, dual, centre = _vectors(15)
    problem = _problem(epochs=3000, solver=solver, batch_size="full", learning_rate=0.3, tolerance=1e-20)
    w = problem.solve(start=start, dual=dual, rho=RHO, centre=centre).w
    torch.testing.assert_close(w, _optimum(dual, centre), rtol=0, atol=1e-8)
    stats = problem.stats()
    assert stats.epsilon == pytest.approx(_squared_gradient(w, dual=dual, centre=centre), rel=1e-3)
    assert stats.epsilon <= 1e-20
    assert stats.steps < 1000


def test_gradient_descent_stops_at_the_first_step_that_is_accurate_enough() -> None:
    start, dual, centre = _vectors(15)
    terms = {"dual": dual, "centre": centre}
    w, path = start, [start]
    for _ in range(60):
        w = w.clone().requires_grad_()
        w = (w - 0.3 * torch.autograd.grad(_lagrangian(w, **terms), w)[0]).detach()
        path.append(w)
    squares = [_squared_gradient(w, **terms) for w in path]
    for wanted in (0, 1, 7, 40):
        tolerance = squares[wanted] * (1 + 1e-9)
        problem = _problem(epochs=60, solver="gd", learning_rate=0.3, tolerance=tolerance)
        w, num_steps = problem.solve(start=start, rho=RHO, **terms)
        assert problem.stats().steps == wanted
        assert problem.stats().gradient_evaluations == 10 * (wanted + 1)  # the one at the start, and one a step
        assert (num_steps, problem.num_steps) == (max(1, wanted), 60)
        torch.testing.assert_close(w, path[wanted], rtol=1e-12, atol=1e-13)
        assert problem.stats().epsilon == pytest.approx(squares[wanted], rel=1e-9)


@pytest.mark.slow
def test_lbfgs_stops_at_the_first_point_that_is_accurate_enough() -> None:
    start, dual, centre = _vectors(15)

    def run(**limits: Any) -> SGDProblem:
        problem = _problem(**({"epochs": 60, "solver": "lbfgs"} | limits))
        problem.solve(start=start, dual=dual, rho=RHO, centre=centre)
        return problem

    asked = [run(epochs=steps).stats() for steps in range(1, 16)]
    assert [stats.steps for stats in asked] == list(range(1, 16))  # every step of the budget is taken
    first = next(k for k, stats in enumerate(asked, start=1) if stats.epsilon <= 1e-8)
    assert first > 3
    stopped = run(tolerance=1e-8).stats()
    assert stopped.steps == first
    assert stopped.epsilon == asked[first - 1].epsilon


def test_lbfgs_ends_at_the_best_point_of_its_budget() -> None:
    start, dual, centre = _vectors(15)
    values = []
    for steps in (1, 2, 3, 5, 8):
        problem = _problem(epochs=steps, solver="lbfgs")
        w = problem.solve(start=start, dual=dual, rho=RHO, centre=centre).w
        values.append(float(_lagrangian(w, dual=dual, centre=centre)))
        assert problem.stats().gradient_evaluations == 10 * (steps + 1)
    assert values == sorted(values, reverse=True)
    assert values[0] < float(_lagrangian(start, dual=dual, centre=centre))


def test_sgd_stops_after_the_first_epoch_that_is_accurate_enough() -> None:
    start, dual, centre = _vectors(15)
    settings = {"batch_size": 4, "learning_rate": 0.05}
    terms = {"dual": dual, "centre": centre}
    runs = [_problem(epochs=epochs, **settings).solve(start=start, rho=RHO, **terms).w for epochs in (4, 5)]
    squares = [_squared_gradient(w, **terms) for w in runs]
    assert squares[1] < squares[0]
    problem = _problem(epochs=9, **settings, tolerance=squares[1] * (1 + 1e-9))
    w, num_steps = problem.solve(start=start, rho=RHO, **terms)
    assert torch.equal(w, runs[1])
    stats = problem.stats()
    assert (stats.steps, num_steps, problem.num_steps) == (15, 15, 27)  # five epochs of ten examples in batches of four
    assert stats.gradient_evaluations == 5 * (10 + 10)  # an epoch, and a check after each
    assert stats.epsilon == pytest.approx(squares[1], rel=1e-9)


def test_sgd_does_not_notice_that_it_is_checked() -> None:
    """On a network with dropout, batch normalisation and momentum, down to the buffers."""

    def visit(**limits: Any) -> tuple[torch.Tensor, Any]:
        task = learning_task(made(network), some_data([8, 10, 6]), momentum=0.5, batch_size=5, **limits)
        problem = _problem_of(task, epochs=3)
        w = problem.solve(start=task.model.weights.clone(), rho=RHO, centre=task.model.weights.clone()).w
        return w, problem.stats()

    (w, stats), (checked, checked_stats) = visit(), visit(tolerance=1e-30)
    assert torch.equal(w, checked)
    assert all(map(torch.equal, stats.buffers, checked_stats.buffers))
    assert (stats.steps, stats.loss) == (checked_stats.steps, checked_stats.loss)
    assert (stats.gradient_evaluations, checked_stats.gradient_evaluations) == (30, 60)
    assert stats.epsilon is None
    assert checked_stats.epsilon > 1e-30


@pytest.mark.parametrize(
    ("limits", "steps", "evaluations"),
    [
        # Ten examples in batches of four are steps of 4, 4 and 2.
        ({"max_steps": 4}, 4, 14),
        ({"max_steps": 99}, 9, 30),
        ({"gradients": 13}, 3, 10),
        ({"gradients": 14}, 4, 14),
        ({"gradients": 1}, 1, 4),  # one step is always taken
        ({"gradients": 14, "max_steps": 2}, 2, 8),
        ({"gradients": 24, "tolerance": 1e-30}, 4, 34),  # 10, a check of 10, 4, and the last check
        ({"gradients": 27, "tolerance": 1e-30}, 4, 34),
        # A step of all examples, after the gradient at the start.
        ({"solver": "gd"}, 3, 40),
        ({"solver": "gd", "max_steps": 2}, 2, 30),
        ({"solver": "gd", "gradients": 39}, 2, 30),
        ({"solver": "lbfgs", "gradients": 39}, 2, 30),
        ({"solver": "gd", "gradients": 5}, 1, 20),
    ],
    ids=str,
)
def test_a_budget_ends_a_solve(limits: dict[str, Any], steps: int, evaluations: int) -> None:
    start, dual, centre = _vectors(15)
    problem = _problem(epochs=3, **{"batch_size": 4, "learning_rate": 0.01} | limits)
    expected = problem.num_steps
    _, num_steps = problem.solve(start=start, dual=dual, rho=RHO, centre=centre)
    stats = problem.stats()
    assert (stats.steps, stats.gradient_evaluations, num_steps) == (steps, evaluations, steps)
    assert problem.num_steps == expected  # the budget stays what it was
    assert expected == steps or "tolerance" in limits  # nobody knows beforehand where checks take the time


def test_weight_decay_is_a_part_of_f() -> None:
    start, dual, centre = _vectors(15)
    for solver in ("sgd", "lbfgs"):
        problem = _problem(
            epochs=500, solver=solver, batch_size="full", learning_rate=0.3, weight_decay=0.2, tolerance=1e-16
        )
        w = problem.solve(start=start, dual=dual, rho=RHO, centre=centre).w
        assert _squared_gradient(w, dual=dual, centre=centre, decay=0.2) <= 1.01e-16


@pytest.mark.parametrize("solver", ["gd", "lbfgs"])
def test_a_network_that_draws_numbers_is_one_function_in_a_visit(solver: str) -> None:
    def visit() -> tuple[torch.Tensor, Any]:
        task = learning_task(made(network), some_data([8, 10, 6]), solver=solver, learning_rate=0.1)
        before = task.model.buffers()
        problem = _problem_of(task, epochs=20)
        w = problem.solve(start=task.model.weights.clone()).w
        assert not torch.equal(problem.stats().buffers.floats, before.floats)
        return w, problem.stats()

    (w, stats), (again, _) = visit(), visit()
    assert torch.equal(w, again)
    assert stats.steps == 20
    assert stats.epsilon < visit_of_one_step(solver)


def visit_of_one_step(solver: str) -> float:
    task = learning_task(made(network), some_data([8, 10, 6]), solver=solver, learning_rate=0.1)
    problem = _problem_of(task, epochs=1)
    problem.solve(start=task.model.weights.clone())
    epsilon = problem.stats().epsilon
    assert epsilon is not None
    return epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("float_type", "rounding"), [(torch.float32, 1e-12), (torch.float64, 1e-28)], ids=str)
def test_lbfgs_goes_down_to_the_rounding_and_ends_there(float_type: torch.dtype, rounding: float) -> None:
    data = some_data([8, 10, 6])
    data = PartitionedData(data.inputs.to(float_type), data.targets, data.offsets, None, 3)
    task = learning_task(made(lambda: nn.Linear(4, 3).to(float_type)), data, solver="lbfgs")
    for start in _vectors(15, 4):
        problem = _problem_of(task, epochs=1000)
        problem.solve(start=start.to(float_type), rho=0.1, centre=torch.zeros(15, dtype=float_type))
        assert problem.stats().epsilon < rounding
        assert problem.stats().steps < 500


def test_a_divergent_descent_is_no_solution() -> None:
    plain = on_a_line([1.0, 3.0], [3.0, 0.0])
    local = LocalTraining(solver="gd", learning_rate=1e200, max_steps=9, tolerance=1e-9)
    task = SolvedQuadratics(plain.hessians, plain.targets, local=local)
    problem = task.problem(Assignment(0, 1, 1), buffers=NO_BUFFERS)
    assert not problem.solve(start=torch.zeros(1, dtype=torch.float64)).w.isfinite().all()


@pytest.mark.parametrize(("solver", "evaluations"), [("sgd", 4), ("gd", 2 * 10), ("lbfgs", 2 * 10)])
def test_a_client_takes_one_step_however_short_the_time(solver: str, evaluations: int) -> None:
    start, dual, centre = _vectors(15)
    problem = _problem(epochs=3, gradients=0, solver=solver, batch_size=4)
    problem.solve(start=start, dual=dual, rho=RHO, centre=centre)
    assert (problem.stats().steps, problem.stats().gradient_evaluations) == (1, evaluations)
