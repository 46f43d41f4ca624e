"""A server optimizer is an algorithm around one whose server adds a step, and it is its paper's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedadmm import Experiment, InputError
from fedadmm.algorithms import ALGORITHMS, FedAdam, FedAvg, FedAvgM, FedProx, FedSGD, FedYogi, Scaffold, fedavg
from fedadmm.algorithms.wrapper import PLAIN, ServerOptimizer
from fedadmm.config.plans import Plan
from fedadmm.core.algorithm import AnyAlgorithm, Turnout, Vector
from fedadmm.core.optional import UploadsStep
from fedadmm.core.schedules import Step
from methods import METHODS
from play import Play, Watched, identical
from quadratics import heterogeneous
from small_runs import outcome, simulation_of
from worlds import quadratic_world

TURNOUT = Turnout(round=1, active=2.0, registered=4.0, seen=3.0)
HALVED = Step(before=1.0, after=0.5, at_round=3)
WHO = ([0, 1, 3], [0, 2, 4], [1, 2, 4], [3], [0, 1, 2, 3, 4])


def _play(algorithm: Any) -> Play:
    task = heterogeneous(5, 3, num_steps=4, learning_rate=0.2)
    return Play(algorithm, task, torch.ones(3).double(), num_clients=5)


@pytest.mark.parametrize("name", [name for name in METHODS if isinstance(METHODS[name], UploadsStep)])
def test_what_is_added_to_theta_does_not_depend_on_theta(name: str) -> None:
    method = METHODS[name]
    play = _play(method).rounds(WHO[:2])
    server, visits = play.checkpoint.server, play.visits([1, 2])
    ends = [
        method.server_update(server._replace(theta=theta), visits[0].upload, TURNOUT).theta - theta
        for theta in (torch.zeros(3).double(), torch.tensor([1.0, -20.0, 3.0]).double())
    ]
    torch.testing.assert_close(*ends, rtol=1e-12, atol=1e-12)


class SignStep(ServerOptimizer):
    """A server that remembers nothing and moves by 1/10 against the sign of each coordinate's gradient."""

    inner: AnyAlgorithm = PLAIN

    memory = ()

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return ()

    def stepped(self, theta: Vector, g: Vector, *memory: Vector, round: int) -> tuple[Vector, ...]:
        return (theta - 0.1 * g.sign(),)


def test_a_server_optimizer_may_remember_nothing() -> None:
    plain, signed = (_play(method).rounds([[0, 1]]).checkpoint.server.theta for method in (FedAvg(), SignStep()))
    torch.testing.assert_close(signed, 1.0 + 0.1 * (plain - 1.0).sign())


def test_those_that_upload_a_step_are_known() -> None:
    names = [name for name, algorithm in ALGORITHMS.items() if issubclass(algorithm, UploadsStep)]
    assert names == ["fedadmm_released", "fedsgd", "fedavg", "fedprox", "scaffold", "fednova", "fedcm", "local_ghbm"]


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_five_rounds_are_algorithm_2s(kind: Any) -> None:
    # Reddi et al., Algorithm 2, in numpy, with the mean steps that the rounds had.
    steps: list[np.ndarray] = []

    class Seen(FedAvg):
        """FedAvg, watched."""

        def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
            steps.append(mean.step.numpy().copy())
            return super().server_update(server, mean, turnout)

    eta, beta_1, beta_2, tau = 0.1, 0.9, 0.99, 1e-3
    play = _play(kind(eta=eta, beta_1=beta_1, beta_2=beta_2, tau=tau, inner=Seen())).rounds(WHO)
    x, m, v = np.ones(3), np.zeros(3), np.full(3, tau**2)
    for delta in steps:
        m = beta_1 * m + (1 - beta_1) * delta
        if kind is FedAdam:
            v = beta_2 * v + (1 - beta_2) * delta**2
        else:
            v = v - (1 - beta_2) * delta**2 * np.sign(v - delta**2)
        x = x + eta * m / (np.sqrt(v) + tau)
    assert len(steps) == len(WHO)
    np.testing.assert_allclose(play.theta.numpy(), x, rtol=1e-12)
    np.testing.assert_allclose(play.checkpoint.server.m.numpy(), -m, rtol=1e-12)


def test_momentum_adds_up() -> None:
    # The same step s in every round: theta moves by s, (1 + b) s, (1 + b + b^2) s.
    method, s = FedAvgM(beta=0.5), fedavg.Upload(torch.ones(2))
    server = method.init_server(torch.zeros(2))
    thetas = []
    for _ in range(3):
        server = method.server_update(server, s, TURNOUT)
        thetas.append(float(server.theta[0]))
    assert thetas == [1.0, 2.5, 4.25]


def test_without_momentum_fedavgm_is_what_it_wraps() -> None:
    for inner in (FedAvg(eta=0.5), FedProx(rho=0.3), Scaffold()):
        ours, theirs = (_play(method).rounds(WHO) for method in (FedAvgM(beta=0.0, inner=inner), inner))
        torch.testing.assert_close(ours.theta, theirs.theta, rtol=1e-12, atol=1e-12)
        assert identical(list(ours.states), list(theirs.states))


def test_a_step_too_small_for_thetas_precision_is_not_lost() -> None:
    # 10,000 + 0.0001 is 10,000 in float32.
    method = FedAvgM()
    server = method.server_update(method.init_server(torch.tensor([1e4])), fedavg.Upload(torch.tensor([1e-4])), TURNOUT)
    assert float(server.v) == pytest.approx(-1e-4)


def test_clients_download_what_the_inner_algorithm_sends() -> None:
    theta = torch.ones(3)
    for inner in (FedAvg(), Scaffold()):
        method = FedAdam(inner=inner)
        assert identical(
            tuple(method.download(method.init_server(theta))), tuple(inner.download(inner.init_server(theta)))
        )
        assert type(method.download(method.init_server(theta))) is type(inner.init_server(theta))


def test_what_an_optimizer_remembers_survives_on_disk(tmp_path: Path) -> None:
    method = METHODS["fedadam, with scaffold"]
    whole = outcome(simulation_of(method, engine="serial"), rounds=4)
    stopped = simulation_of(method, engine="serial", folder=tmp_path / "state")
    outcome(stopped, rounds=2)
    stopped._store.close()
    resumed = simulation_of(method, engine="serial", folder=tmp_path / "state")
    assert bool(resumed.checkpoint.server.m.any())
    assert identical(outcome(resumed, rounds=2), whole)


def test_an_inner_algorithm_is_a_table_in_a_table() -> None:
    experiment = Experiment(algorithm={"name": "fedadam", "inner": {"name": "fedprox", "rho": 1}})
    assert experiment.algorithm == FedAdam(inner=FedProx(rho=1))
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.hash == experiment.replace(algorithm=FedAdam(inner=FedProx(rho=1.0))).hash
    assert experiment.hash != experiment.replace(algorithm=FedAdam()).hash


def test_an_inner_algorithm_can_be_changed_from_the_command_line() -> None:
    plan = Plan({"algorithm": {"name": "fedyogi", "inner": {"name": "fedprox", "rho": 0.3}}})
    assert plan.experiment(changes={"algorithm.inner.rho": 0.5}).algorithm == FedYogi(inner=FedProx(rho=0.5))
    changed = plan.experiment(changes={"algorithm.inner.name": "scaffold"})
    assert changed.algorithm == FedYogi(inner=Scaffold())
    assert plan.experiment("fedavg").algorithm == FedAvg()


@pytest.mark.parametrize(
    ("inner", "sentence"),
    [
        ({"rho": 0.3}, "name=None is unknown; use one of fedadmm"),
        ({"name": "feddyn"}, "FedDyn's server does more than add its clients' mean step"),
        ({"name": "fedprox", "eta": 1}, "unknown key 'eta'; fedprox has rho"),
        ("fedprox", "inner='fedprox' is not an algorithm"),
    ],
)
def test_a_mistake_in_the_inner_algorithm_gets_a_sentence(inner: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment(algorithm={"name": "fedadam", "inner": inner})


def test_a_watched_algorithm_keeps_its_newcomers() -> None:
    assert FedAdam(inner=FedAvg()).newcomer == Watched(FedAvg()).newcomer == "current"


@pytest.mark.parametrize(
    ("plain", "decayed"),
    [
        (FedAvg(), FedAvg(eta=HALVED)),
        (Scaffold(), Scaffold(eta=HALVED)),
        (FedProx(rho=0.1), FedAvgM(beta=0.0, eta=HALVED, inner=FedProx(rho=0.1))),
        (FedSGD(), FedAvgM(beta=0.0, eta=HALVED, inner=FedSGD())),
    ],
    ids=["fedavg", "scaffold", "fedprox", "fedsgd"],
)
def test_a_baseline_may_halve_its_servers_step_as_the_released_code_does(plain: Any, decayed: Any) -> None:
    # Until round 2 both are the same. In round 3 the server goes half of the way from theta_2 to where it would go.
    plays = [quadratic_world().play(method).rounds([[0, 1], [1, 3]]) for method in (plain, decayed)]
    before = plays[0].theta
    torch.testing.assert_close(plays[1].theta, before)
    there, halfway = (play.rounds([[0, 2]]).theta for play in plays)
    torch.testing.assert_close(halfway, before + (there - before) / 2)
