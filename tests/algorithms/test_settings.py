"""An algorithm is a frozen value with valid settings, and a mistake is answered by a sentence."""

import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest
import torch

from fedadmm.algorithms import (
    ALGORITHMS,
    AdaBest,
    AFedPD,
    Averaged,
    FedACG,
    FedAdam,
    FedADMM,
    FedADMMAuto,
    FedADMMReleased,
    FedAvg,
    FedAvgM,
    FedCM,
    FedDC,
    FedDyn,
    FedDynAuto,
    FedExP,
    FedHybrid,
    FedNova,
    FedPD,
    FedProx,
    FedSGD,
    FedVARP,
    FedYogi,
    LocalGHBM,
    LookAhead,
    RandomisedServer,
    Scaffold,
)
from fedadmm.config.compatibility import check_local
from fedadmm.core.errors import InputError
from fedadmm.core.mean import num_bytes
from fedadmm.core.optional import PlainSGDOnly, trait
from fedadmm.core.schedules import Constant, Cosine, Step
from fedadmm.training.local import LocalTraining
from play import Play
from quadratics import heterogeneous

UNUSUAL = ("fast_fedadmm", "scaffold", "fednova", "fedvarp", "mifa", "fedexp", "afedpd", "fedcm", "feddc", "look_ahead")


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_an_algorithm_is_a_frozen_value(algorithm: Any) -> None:
    one, other = algorithm(), algorithm()
    assert is_dataclass(one)
    assert one == other
    assert hash(one) == hash(other)
    assert eval(repr(one), {algorithm.__name__: algorithm, "Step": Step, "FedAvg": FedAvg, "FedADMM": FedADMM}) == one
    for field in fields(one):
        with pytest.raises(FrozenInstanceError):
            setattr(one, field.name, 1.0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FedADMM(rho=0.0), "rho=0.0 is out of range; use a finite number greater than 0"),
        (lambda: FedADMM(rho=Step(0.1, -1.0, at_round=3)), "rho=-1.0 is out of range"),
        (
            lambda: FedADMM(rho=Step(0.1, 1.0, at_round=3), eta="seen"),
            "which is off the optimum while clients have rhos of different rounds; use one rho for all rounds",
        ),
        (lambda: FedADMM(rho=float("nan")), "rho=nan is out of range"),
        (lambda: FedADMM(rho="big"), "rho='big' is neither a number nor a schedule"),
        (lambda: FedADMM(rho=True), "rho=True is neither a number nor a schedule"),
        (lambda: FedADMM(eta=0.0), "eta=0.0 is out of range"),
        (lambda: FedADMM(eta="all"), 'eta=\'all\' is unknown; use a number, "participation" or "seen"'),
        (lambda: FedADMM(start="own"), 'start=\'own\' is unknown; use "local" or "global"'),
        (lambda: FedADMM(newcomer="old"), 'newcomer=\'old\' is unknown; use "initial" or "current"'),
        (lambda: FedADMM(eta="participation"), 'a newcomer\'s u counts as theta^0 there; use newcomer="initial"'),
        (
            lambda: FedADMM(eta="seen", newcomer="initial"),
            'a newcomer must join at theta there; use newcomer="current"',
        ),
        (lambda: FedADMM(rho="auto"), 'use name = "fedadmm_auto"'),
        (lambda: FedADMM(eta="auto"), 'use name = "fedadmm_auto"'),
        (lambda: FedDyn(rho="auto"), 'use name = "feddyn_auto"'),
        (lambda: FedADMMAuto(rho=0.0), "rho=0.0 is out of range"),
        (lambda: FedADMMAuto(eta=1.0), 'eta=1.0 is unknown to fedadmm_auto; use "auto" or "seen"'),
        (lambda: FedADMMAuto(start="own"), 'start=\'own\' is unknown; use "local" or "global"'),
        (lambda: FedDynAuto(over="few"), 'over=\'few\' is unknown; use "all" or "seen"'),
        (lambda: FedADMMReleased(rho=0), "rho=0 is out of range"),
        (lambda: FedADMMReleased(eta=-1.0), "eta=-1.0 is out of range"),
        (lambda: FedAvg(eta=float("inf")), "eta=inf is out of range"),
        (lambda: FedProx(rho=-0.1), "rho=-0.1 is out of range; use a finite number of at least 0"),
        (lambda: FedDyn(rho=Constant(0.0)), "rho=0.0 is out of range"),
        (lambda: FedDyn(over="few"), 'over=\'few\' is unknown; use "all" or "seen"'),
        (lambda: Scaffold(eta=0.0), "eta=0.0 is out of range"),
        (lambda: FedNova(eta=0.0), "eta=0.0 is out of range"),
        (lambda: FedPD(rho=0.0), "rho=0.0 is out of range"),
        (
            lambda: FedPD(skip_probability=1.0),
            "skip_probability=1.0 is out of range; use a probability below 1, such as 0.5",
        ),
        (lambda: FedPD(skip_probability=None), "skip_probability=None is not a number"),
        (lambda: FedAvgM(beta=1.0), "beta=1.0 is out of range; use a number from 0 to below 1"),
        (lambda: FedAdam(beta_1="much"), "beta_1='much' is not a number"),
        (lambda: FedYogi(tau=0.0), "tau=0.0 is out of range"),
        (lambda: FedAdam(inner="fedprox"), "inner='fedprox' is not an algorithm; write inner = {name = \"fedprox\""),
        (lambda: FedAdam(inner=FedDyn()), "FedDyn's server does more than add its clients' mean step"),
        (lambda: FedAvgM(inner=FedADMM()), "use FedAvgM with FedAvg, FedProx or another that uploads a step"),
        (lambda: FedYogi(inner=FedAvgM()), "FedAvgM's server does more"),
        (lambda: LookAhead(inner=LookAhead()), "LookAhead around LookAhead would remember the same things twice"),
        (lambda: Averaged(inner=LookAhead(inner=Averaged())), "Averaged around Averaged would remember the same"),
        (lambda: LookAhead(inner=Scaffold()), "Scaffold needs clients that start at theta"),
        (lambda: LookAhead(inner=FedSGD()), "FedSGD needs clients that start at theta"),
        (lambda: RandomisedServer(awake=0.0), "awake=0.0 is out of range; use a probability above 0 and up to 1"),
        (lambda: RandomisedServer(inner="fedadmm"), "or in Python inner=FedProx(rho=0.1)"),
        (lambda: RandomisedServer(inner=FedADMM(eta="seen")), "so its server cannot sit out; use FedADMM with eta"),
        (lambda: RandomisedServer(inner=FedDyn()), "does not keep theta the mean of what all clients hold"),
        (lambda: FedVARP(eta=0.0), "eta=0.0 is out of range"),
        (lambda: FedExP(epsilon=0.0), "epsilon=0.0 is out of range; use a finite number greater than 0"),
        (lambda: AdaBest(beta=1.0), "beta=1.0 is out of range; use a number from 0 to below 1"),
        (lambda: AdaBest(mu=-0.1), "mu=-0.1 is out of range"),
        (lambda: AdaBest(mu=Constant(0.1)), "is a schedule; AdaBest needs one number for all rounds"),
        (lambda: AFedPD(rho=0.0), "rho=0.0 is out of range"),
        (lambda: AFedPD(rho=Constant(0.1)), "is a schedule; AFedPD needs one number for all rounds"),
        (lambda: FedCM(alpha=0.0), "alpha=0.0 is out of range; use a number above 0 and up to 1"),
        (lambda: FedCM(alpha=True), "alpha=True is not a number"),
        (lambda: FedCM(eta=0.0), "eta=0.0 is out of range"),
        (lambda: FedDC(alpha=0.0), "alpha=0.0 is out of range"),
        (lambda: LocalGHBM(beta=-1.0), "beta=-1.0 is out of range; use a finite number of at least 0"),
        (lambda: FedACG(lam=1.0), "lam=1.0 is out of range; use a number from 0 to below 1"),
        (lambda: FedACG(beta=-1.0), "beta=-1.0 is out of range; use a finite number of at least 0"),
        (lambda: FedHybrid(rho=0.0), "rho=0.0 is out of range"),
        (lambda: FedHybrid(rho=Constant(1.0)), "is a schedule; FedHybrid needs one number for all rounds"),
        (lambda: FedHybrid(beta_newton=0.0), "beta_newton=0.0 is out of range"),
        (lambda: FedHybrid(newton=1.5), "newton=1.5 is out of range; use a share of the clients from 0 to 1"),
    ],
)
def test_a_mistake_is_answered_by_the_value_and_the_remedy(make: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert sentence in str(caught.value)


def test_only_those_that_read_gradients_off_w_have_no_room_for_momentum_and_weight_decay() -> None:
    names = [name for name, algorithm in ALGORITHMS.items() if trait(algorithm(), PlainSGDOnly)]
    assert names == ["scaffold", "fednova", "feddc"]
    assert trait(FedAdam(inner=Scaffold()), PlainSGDOnly)


def test_what_a_wrapper_sends_is_pickled() -> None:
    method = LookAhead(inner=FedAvg())
    message = method.download(method.init_server(torch.ones(3)))
    again = pickle.loads(pickle.dumps(message))
    assert type(again) is type(message)
    assert again._fields == ("theta", "momentum")


def test_a_wrapper_says_which_method_does_not_fit() -> None:
    with pytest.raises(InputError, match="Scaffold needs clients that start at theta"):
        LookAhead(inner=Averaged(inner=Scaffold()))


@pytest.mark.parametrize("method", [FedSGD(), FedHybrid(), FedAdam(inner=FedSGD())], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize(
    "setting",
    [{"momentum": 0.5}, {"weight_decay": 0.1}, {"clip": 10.0}, {"solver": "lbfgs"}, {"tolerance": 0.01}],
    ids=str,
)
def test_a_method_without_local_steps_refuses_what_it_would_ignore(method: Any, setting: dict[str, Any]) -> None:
    ((key, value),) = setting.items()
    name = type(getattr(method, "inner", method)).__name__
    sentence = f"{name} takes gradients and no local steps, so it would ignore local's {key}={value}"
    with pytest.raises(InputError, match=sentence):
        check_local(method, LocalTraining(**setting))
    check_local(method, LocalTraining(epochs=3))
    check_local(FedAdam(), LocalTraining(**setting))


@pytest.mark.parametrize(
    ("name", "up", "down"),
    # In vectors of d numbers. SCAFFOLD sends and receives its control variates too, FedNova sends one number more;
    # those that choose rho receive it and send what they measured. What a server sums up or remembers stays at home.
    [(name, 1, 1) for name in ALGORITHMS if name not in UNUSUAL and "auto" not in name]
    + [("fast_fedadmm", 1 + 1 / 6, 2 + 1 / 6), ("scaffold", 2, 2), ("fednova", 1 + 1 / 6, 1)]
    # The learning rate; a squared length; the centre beside the start; the last mean step; the momentum.
    + [("fedvarp", 1 + 1 / 6, 1), ("mifa", 1 + 1 / 6, 1), ("fedexp", 1 + 1 / 6, 1), ("afedpd", 1, 2), ("fedcm", 1, 2)]
    + [("feddc", 2, 2), ("look_ahead", 1, 2)]
    + [("fedadmm_auto", 1 + 6 / 6, 1 + 1 / 6), ("feddyn_auto", 1 + 3 / 6, 1 + 1 / 6)],
)
def test_the_cost_of_a_round_is_the_size_of_its_messages(name: str, up: float, down: float) -> None:
    d, num_active = 6, 3
    play = Play(ALGORITHMS[name](), heterogeneous(5, d), torch.zeros(d).double(), num_clients=5)
    summary = play.round([0, 2, 4])
    assert (summary.bytes_up, summary.bytes_down) == (8 * d * num_active * up, 8 * d * num_active * down)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_theta_is_the_first_field_of_a_server_and_of_a_download(algorithm: Any) -> None:
    server = algorithm().init_server(torch.ones(3))
    assert server._fields[0] == "theta"
    assert algorithm().download(server)._fields[0] == "theta"
    assert algorithm().download(server)[0].equal(server.theta)  # nobody knows yet where to look ahead
    assert num_bytes(algorithm().download(server)) <= num_bytes(server)


def test_schedules_reach_the_round_in_which_they_are_used() -> None:
    # FedAvg on one client at a = 1 from theta = 0: theta <- theta + eta (1 - theta), with eta 1/2 and then 1/4.
    play = Play(FedAvg(eta=Step(0.5, 0.25, at_round=2)), heterogeneous(1, 2), torch.zeros(2).double(), num_clients=1)
    target = play.engine._task.targets[0]
    torch.testing.assert_close(play.rounds([[0]]).theta, 0.5 * target)
    torch.testing.assert_close(play.rounds([[0]]).theta, (0.5 + 0.25 * 0.5) * target)


def test_the_released_step_is_halved_at_round_60() -> None:
    eta = FedADMMReleased().eta
    assert [eta.at(round) for round in (1, 59, 60, 61)] == [1.0, 1.0, 0.5, 0.5]


def test_a_cosine_needs_room() -> None:
    with pytest.raises(InputError, match="length=1 leaves a cosine schedule no room"):
        FedADMM(rho=Cosine(1.0, 0.1, length=1))
