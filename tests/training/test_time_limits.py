"""How exact a client has to be, which solver it runs and how much time it has: read, drawn, and refused."""

from typing import Any

import numpy as np
import pytest

from fedadmm import Devices, Experiment, FedADMM, FedAvg, Simulation
from fedadmm.config.plans import load_plan
from fedadmm.core.errors import InputError
from fedadmm.core.participation import Uniform
from fedadmm.core.per_client import Distribution
from fedadmm.core.seeds import stream
from fedadmm.engine.planner import Planner
from fedadmm.training.local import LocalTraining
from worlds import made, perceptron, some_data

SPREAD = {"distribution": "log_uniform", "low": 1e-4, "high": 1e-2}
MIXED = {"sgd": 0.5, "gd": 0.2, "lbfgs": 0.3}
WITH_OWN = {"sgd": 0.5, "own.solvers:newton": 0.3, "own.solvers:cauchy": 0.2}
LIMITS: list[dict[str, Any]] = [
    {"solver": "lbfgs"},
    {"solver": ["sgd", "gd", "own.solvers:newton"]},
    {"solver": MIXED},
    {"solver": WITH_OWN},
    {"tolerance": 1e-3},
    {"tolerance": {"schedule": "power", "start": 1.0, "power": 2}},
    {"tolerance": [0.1, 0.2, 0.3]},
    {"tolerance": SPREAD | {"power": 2.0}},
    {"max_steps": 7},
    {"seconds": 2.0, "speed": 100.0},
    {"seconds": 2.0, "speed": [100.0, 200.0, 300.0]},
    {"seconds": 2.0, "speed": {"distribution": "lognormal", "median": 100.0, "sigma": 1.0}},
    {"seconds": 2.0, "speed": "pace"},
]


def epsilons(tolerance: Any, *, round: int, seed: int = 0, clients: int = 3) -> list[float | None]:
    return [LocalTraining(tolerance=tolerance).tolerance_at(round, client=i, seed=seed) for i in range(clients)]


def test_a_tolerance_is_a_number_a_schedule_or_a_list() -> None:
    assert epsilons(1e-3, round=4) == [1e-3] * 3
    assert epsilons({"schedule": "power", "start": 0.8, "power": 2}, round=4) == [0.05] * 3
    assert epsilons([0.1, 0.2, 0.3], round=4) == [0.1, 0.2, 0.3]
    assert epsilons(None, round=4) == [None] * 3


def test_a_tolerance_may_be_drawn_for_each_client_once() -> None:
    drawn = np.array(epsilons(SPREAD, round=1, clients=400))
    assert ((drawn > 1e-4) & (drawn < 1e-2)).all()
    # Log-uniform: as many below the geometric mean of the ends, 1e-3, as above; four sigma are 0.1.
    assert np.mean(drawn < 1e-3) == pytest.approx(0.5, abs=0.1)
    assert epsilons(SPREAD, round=9, clients=400) == drawn.tolist()
    assert epsilons(SPREAD, round=1, clients=400, seed=1) != drawn.tolist()
    falling = epsilons(SPREAD | {"power": 2.0}, round=10, clients=400)
    assert falling == pytest.approx((drawn / 100).tolist())


@pytest.mark.slow
def test_a_solver_is_one_for_all_one_for_each_or_drawn_by_shares() -> None:
    def solvers(solver: Any, clients: int) -> list[str]:
        return [LocalTraining(solver=solver).solver_of(client, seed=3) for client in range(clients)]

    assert solvers(None, 2) == solvers("sgd", 2) == ["sgd", "sgd"]
    assert solvers("gd", 2) == ["gd", "gd"]
    assert solvers(["gd", "lbfgs"], 2) == ["gd", "lbfgs"]
    for shares in (MIXED, WITH_OWN):
        drawn = solvers(shares, 1000)
        assert drawn == solvers(dict(reversed(shares.items())), 1000)
        for name, share in shares.items():
            assert drawn.count(name) == pytest.approx(1000 * share, abs=70)  # four sigma
    assert set(solvers({"gd": 1.0}, 50)) == {"gd"}


def test_seconds_and_a_speed_are_a_number_of_gradients() -> None:
    facts = {"pace": np.array([10.0, 20.0])}

    def gradients(speed: Any, client: int) -> int | None:
        local = LocalTraining(seconds=2.5, speed=speed)
        planner = Planner(FedAvg(), participation=Uniform(1.0), local=local, devices=Devices(50, facts), seed=0)
        return planner.assignment(1, client).max_gradients

    assert [gradients(100, client) for client in (0, 1)] == [250, 250]
    assert [gradients([3.0, 4.0], client) for client in (0, 1)] == [7, 10]
    assert [gradients("pace", client) for client in (0, 1)] == [25, 50]
    spread = Distribution(distribution="uniform", low=40, high=400)
    drawn = {gradients(spread, client) for client in range(50)}
    assert len(drawn) > 40
    assert drawn == {gradients(spread, client) for client in range(50)}
    assert min(drawn) >= 100
    assert max(drawn) <= 1000


def test_a_lognormal_has_its_median_and_its_sigma() -> None:
    spread = Distribution(distribution="lognormal", median=100, sigma=0.5)
    logs = np.log([spread.draw(stream(0, "test", i)) for i in range(2000)])
    assert np.median(logs) == pytest.approx(np.log(100), abs=0.06)  # four sigma
    assert np.std(logs) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_a_limit_survives_toml_and_is_in_the_hash(limits: dict[str, Any]) -> None:
    experiment = Experiment(local=limits)
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert experiment.hash != Experiment(local={}).hash
    assert hash(experiment.local) == hash(LocalTraining(**limits))


def test_the_old_name_of_the_tolerance_is_refused_with_the_new_one() -> None:
    sentence = "accuracy is now called tolerance; change the name"
    with pytest.raises(InputError, match=sentence):
        LocalTraining(accuracy=0.1)
    with pytest.raises(InputError, match=sentence):
        Experiment.from_toml("[local]\naccuracy = 0.1")
    with pytest.raises(InputError, match=sentence):
        load_plan("digits").experiment("fedadmm", changes={"local.accuracy": 0.1})
    with pytest.raises(InputError, match=sentence):
        Experiment().local.replace(accuracy=0.1)


def test_a_tolerance_has_the_hash_that_it_had_as_an_accuracy() -> None:
    # The names of run folders: what they were when the first such runs were made.
    assert Experiment(algorithm=FedADMM(), local={"tolerance": 0.5}).hash == "fab84edd23"
    assert Experiment(algorithm=FedADMM(), local={"tolerance": SPREAD | {"power": 2.0}}).hash == "8271af95ca"


def test_sgd_by_name_is_sgd() -> None:
    assert Experiment(local=LocalTraining(solver="sgd")).hash == Experiment(local=LocalTraining()).hash


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"solver": "newton"}, "solver='newton' is unknown; use one of sgd, gd, lbfgs, or \"package.module:"),
        ({"solver": ["gd", "bfgs"]}, "solver='bfgs' is unknown"),
        ({"solver": 3}, "solver=3 is not valid"),
        ({"solver": {"sgd": 0.5}}, "shares of solvers are [0.5, 0.0, 0.0]; use numbers from 0 on whose sum"),
        (
            {"solver": {"adam": 1.0}},
            "solver='adam' is unknown; use one of sgd, gd, lbfgs, or \"package.module:function\"",
        ),
        ({"solver": {"sgd": 0.5, "own:newton": 0.4}}, "are [0.5, 0.0, 0.0, 0.4]; use numbers from 0 on whose"),
        ({"solver": {"own:newton": "x"}}, "own:newton='x' is not valid"),
        ({"solver": np.linalg.solve}, 'solver=solve is a function; give its name, as "numpy.linalg:solve"'),
        ({"solver": ["sgd", lambda: None]}, 'is a function; give its name, as "package.module:function"'),
        ({"tolerance": 0}, "tolerance=0 is out of range; use a finite number greater than 0"),
        ({"tolerance": -1e-3}, "tolerance=-0.001 is out of range"),
        ({"tolerance": [0.1, 0.0]}, "tolerance=0.0 is out of range"),
        ({"tolerance": "high"}, "tolerance='high' is neither a number nor a schedule"),
        ({"tolerance": {"schedule": "power", "start": 0, "power": 2}}, "tolerance=0 is out of range"),
        ({"tolerance": {"start": 1.0, "power": 2}}, "tolerance has schedule=None; use one of constant, step"),
        ({"tolerance": {"distribution": "normal"}}, "distribution='normal' is not valid"),
        ({"tolerance": {"distribution": "uniform", "low": 1}}, "a uniform distribution has low and high, not low"),
        ({"tolerance": SPREAD | {"low": 1.0}}, "low=1 is above high=0.01; exchange them"),
        ({"tolerance": SPREAD | {"low": 0.0}}, "low=0.0 is out of range"),
        ({"tolerance": SPREAD | {"power": -2.0}}, "power=-2.0 is out of range"),
        ({"max_steps": 0}, "max_steps=0 is out of range; use a whole number from 1 on"),
        ({"max_steps": [1, 2]}, "max_steps=[1, 2] is not a single number; give one for all clients: what may differ"),
        ({"seconds": [1.0, 2.0], "speed": 1.0}, "seconds=[1.0, 2.0] is not a single number; give one for all"),
        ({"seconds": SPREAD, "speed": 1.0}, "is not a single number; give one for all clients"),
        ({"speed": 1.0}, "speed=1.0 means nothing alone; give seconds beside it; what times the rounds is clock.speed"),
        ({"seconds": 0, "speed": 1.0}, "seconds=0.0 is out of range"),
        ({"seconds": 1, "speed": [1.0, 0.0]}, "speed=0.0 is out of range"),
        ({"solver": "gd", "momentum": 0.5}, "momentum=0.5 is for SGD, which no client runs; leave it out"),
    ],
)
def test_a_mistake_is_answered_by_the_value_and_the_remedy(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        LocalTraining(**settings)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"solver": ["gd", "sgd"]}, "solver lists 2 names for 3 clients; give one for each"),
        ({"tolerance": [0.1]}, "tolerance lists 1 numbers for 3 clients; give one for each"),
        ({"seconds": 1.0}, "seconds=1.0 means nothing alone; give speed beside it, or a clock, whose speed is used"),
        ({"seconds": 1, "speed": [1.0] * 4}, "speed lists 4 numbers for 3 clients; give one for each"),
        ({"solver": "nowhere:solve"}, 'solver "nowhere:solve": there is no module nowhere'),
        ({"seconds": 1, "speed": "pace"}, "speed='pace' is not a fact of the devices, which have energy; name one"),
        ({"seconds": 1, "speed": "energy"}, "the fact 'energy' is not a speed of 3 devices; give each a finite"),
    ],
)
def test_what_does_not_fit_the_clients_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        LocalTraining(**settings).check(3, facts={"energy": np.array([1.0, 0.0, 2.0])})
    assert sentence in str(caught.value)


def test_the_steps_in_a_time_are_those_of_whole_epochs() -> None:
    def played(**local: Any) -> Any:
        settings = LocalTraining(epochs=10, batch_size=10, seconds=40.0, speed=1.0, **local)
        return Simulation(
            FedAvg(), model=made(perceptron), data=some_data([19] * 4), local=settings, participation=1.0, seed=0
        ).advance()

    # An epoch has batches of 10 and 9; with drop_last it has the 10 alone. There is time for 40 gradients.
    assert (played().steps, played().gradient_evaluations) == (4 * 4, 4 * 38)
    assert (played(drop_last=True).steps, played(drop_last=True).gradient_evaluations) == (4 * 4, 4 * 40)


def test_the_draw_of_a_solver_by_shares_is_what_it_was() -> None:
    names = [LocalTraining(solver=MIXED).solver_of(client, seed=3) for client in range(12)]
    assert names == ["sgd", "sgd", "sgd", "sgd", "lbfgs", "sgd", "sgd", "lbfgs", "lbfgs", "gd", "lbfgs", "lbfgs"]


def test_a_function_among_the_shares_has_to_exist() -> None:
    with pytest.raises(InputError, match=r'solver "own\.solvers:(cauchy|newton)"'):
        LocalTraining(solver=WITH_OWN).check(3)
    LocalTraining(solver={"sgd": 1.0, "own.solvers:newton": 0.0}).check(3)
