"""Law 7, conserved quantities: what the server holds is a mean or a sum over its clients, whoever took part."""

from collections.abc import Iterable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedadmm.algorithms import FedADMM, FedDyn, Scaffold
from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.optional import imbalance, invariant_of
from fedadmm.core.schedules import Constant, Cosine, Rate, Step
from methods import METHODS
from play import Play
from quadratics import heterogeneous
from worlds import World, quadratic_world

NUM_CLIENTS = 6
EXAMPLES = (1, 4, 2, 7, 3, 5)

who = st.lists(st.sets(st.integers(0, NUM_CLIENTS - 1)), min_size=1, max_size=8)
weightings = st.sampled_from([None, EXAMPLES])
constants = st.sampled_from([0.3, 2.0, Constant(0.7)])
rates = st.sampled_from([0.3, 2.0, Constant(0.7), Step(0.2, 1.5, at_round=3), Cosine(2.0, 0.1, length=6)])
starts = st.sampled_from(["local", "global"])


def _play(algorithm: Algorithm, weights: tuple[int, ...] | None) -> Play:
    task = heterogeneous(NUM_CLIENTS, 3, num_steps=3, learning_rate=0.2)
    theta = torch.tensor([4.0, -1.0, 2.0], dtype=torch.float64)
    return Play(algorithm, task, theta, num_clients=NUM_CLIENTS, weights=weights)


def _weighted_mean(play: Play, vectors: dict[int, Vector], clients: Iterable[int]) -> Vector:
    clients = list(clients)
    return sum(play.weights[i] * vectors[i] for i in clients) / sum(play.weights[i] for i in clients)


def _augmented(play: Play) -> dict[int, Vector]:
    """Return u_i = w_i + y_i / rho_i as each client last uploaded it."""
    return {client: state.w + state.y / state.rho for client, state in play.states.items()}


@pytest.mark.slow
@given(rounds=who, weights=weightings, rho=constants, start=starts)
def test_theta_is_the_mean_of_all_u_with_participation_and_initial(
    rounds: list[set[int]], weights: tuple[int, ...] | None, rho: Rate, start: str
) -> None:
    play = _play(FedADMM(rho=rho, eta="participation", newcomer="initial", start=start), weights)
    initial = play.theta
    for clients in rounds:
        play.round(sorted(clients))
        u = dict.fromkeys(range(NUM_CLIENTS), initial) | _augmented(play)
        torch.testing.assert_close(play.theta, _weighted_mean(play, u, u), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(rounds=who, weights=weightings, rho=constants, start=starts)
def test_theta_is_the_mean_of_the_u_seen_with_seen_and_current(
    rounds: list[set[int]], weights: tuple[int, ...] | None, rho: Rate, start: str
) -> None:
    play = _play(FedADMM(rho=rho, eta="seen", newcomer="current", start=start), weights)
    for clients in rounds:
        play.round(sorted(clients))
        u = _augmented(play)
        if u:
            torch.testing.assert_close(play.theta, _weighted_mean(play, u, u), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(rounds=who, weights=weightings)
def test_the_mean_of_all_c_i_is_c(rounds: list[set[int]], weights: tuple[int, ...] | None) -> None:
    play = _play(Scaffold(), weights)
    for clients in rounds:
        play.round(sorted(clients))
        c_i = {client: torch.zeros(3, dtype=torch.float64) for client in range(NUM_CLIENTS)}
        c_i |= {client: state.c_i for client, state in play.states.items()}
        torch.testing.assert_close(play.checkpoint.server.c, _weighted_mean(play, c_i, c_i), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(rounds=who, weights=weightings, rho=rates, over=st.sampled_from(["all", "seen"]))
def test_y_sum_is_the_weighted_sum_of_all_y(
    rounds: list[set[int]], weights: tuple[int, ...] | None, rho: Rate, over: str
) -> None:
    play = _play(FedDyn(rho=rho, over=over), weights)
    for clients in rounds:
        play.round(sorted(clients))
        total = sum(
            (play.weights[i] * state.y for i, state in play.states.items()), start=torch.zeros(3, dtype=torch.float64)
        )
        torch.testing.assert_close(play.checkpoint.server.y_sum, total, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(rounds=who, weights=weightings)
def test_seen_is_the_weight_of_the_clients_with_a_state(
    rounds: list[set[int]], weights: tuple[int, ...] | None
) -> None:
    play = _play(Scaffold(), weights).rounds(map(sorted, rounds))
    assert play.checkpoint.seen == sum(play.weights[client] for client in play.store)


@pytest.mark.parametrize("newcomer", ["initial", "current"])
def test_a_constant_eta_keeps_no_such_invariant(newcomer: str) -> None:
    play = _play(FedADMM(rho=0.5, eta=1.0, newcomer=newcomer), None)
    u = dict.fromkeys(range(NUM_CLIENTS), play.theta)
    play.rounds([[0, 1], [0, 2], [1, 3]])
    u |= _augmented(play)
    assert float((play.theta - _weighted_mean(play, u, u)).norm()) > 0.1
    seen = _weighted_mean(play, u, play.store)
    assert float((play.theta - seen).norm()) > 0.1


def _imbalance(play: Play, method: Algorithm, initial: Vector) -> float | None:
    """Return how far the invariant that a method itself declares is from holding."""
    registered = sum(play.weights)
    invariant = invariant_of(method, play.checkpoint.server, initial=initial, registered=registered)
    states = [(play.weights[client], state) for client, state in play.states.items()]
    return None if invariant is None else imbalance(invariant, states, registered=registered)


def test_the_invariant_that_a_method_declares_holds(method: Algorithm, world: World) -> None:
    play = world.play(method, weights=EXAMPLES[:5])
    rounding = 100 * torch.finfo(world.theta.dtype).eps
    for clients in ([1, 3], [0, 3, 4], [], [1, 2]):
        play.round(clients)
        assert (_imbalance(play, method, world.theta) or 0.0) < rounding


def test_methods_with_an_invariant_declare_it() -> None:
    theta = torch.zeros(3)
    keepers = {
        name
        for name, method in METHODS.items()
        if invariant_of(method, method.init_server(theta), initial=theta, registered=5.0) is not None
    }
    exact = ("fast_fedadmm", "participation", "seen", "scaffold", "feddyn", "fedhybrid", "auto", "randomised_server")
    exact += ("fedvarp", "mifa", "afedpd", "feddc")
    assert keepers == {name for name in METHODS if any(word in name for word in exact)}


@pytest.mark.parametrize(
    "name",
    [
        *("fedadmm, participation", "fedadmm, seen", "fedadmm_auto", "scaffold", "feddyn", "fedhybrid, newton"),
        *("fedvarp", "mifa", "afedpd", "feddc"),
    ],
)
def test_a_state_that_was_kept_though_its_update_was_lost_breaks_the_invariant(name: str) -> None:
    world = quadratic_world()
    play = world.play(METHODS[name]).rounds([[1, 3], [0, 3, 4]])
    ahead = world.play(METHODS[name]).rounds([[1, 3], [0, 3, 4], [1]])
    play.given(
        server=play.checkpoint.server, states={1: ahead.states[1]}, round=2, seen=play.checkpoint.seen
    )  # client 1 came again, and the server does not know
    assert (_imbalance(play, METHODS[name], world.theta) or 0.0) > 1e-3
