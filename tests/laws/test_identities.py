"""Law 7, identities of the papers: which method becomes which, and under what setting."""

from collections.abc import Callable

import pytest
import torch

from fedadmm.algorithms import FedADMM, FedADMMReleased, FedAvg, FedDyn, FedProx, FedSGD, Scaffold
from fedadmm.api.simulate import simulate
from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.round import Assignment
from fedadmm.core.schedules import Step
from fedadmm.training.local import LocalTraining
from play import Watched, identical
from worlds import World, made, network, some_data

ROUNDS = ([0, 1, 3], [0, 2, 3], [1, 2, 4])


def _uploads(world: World, algorithm: Algorithm, field: Callable[..., Vector]) -> list[Vector]:
    """Return a field of what every client uploads in a first round."""
    return [field(visit.upload) for visit in world.play(algorithm).visits(range(5))]


def test_fedadmm_with_y_at_0_from_theta_solves_fedproxs_problem(world: World) -> None:
    # Over three rounds, the dual of every client put back to 0 after each.
    algorithm, prox = FedADMM(rho=0.5, start="global"), FedProx(rho=0.5)
    play = world.play(algorithm)
    for clients in ROUNDS:
        ours = world.play(prox).given(server=prox.init_server(play.theta), states={}, round=play.checkpoint.round)
        steps = [visit.upload.step for visit in ours.visits(clients)]
        theta = play.theta
        play.round(clients)
        for client, step in zip(clients, steps, strict=True):
            torch.testing.assert_close(play.states[client].w - theta, step, rtol=1e-6, atol=1e-7)
        at_zero = {i: state._replace(y=torch.zeros_like(state.y)) for i, state in play.states.items()}
        checkpoint = play.checkpoint
        play.given(server=checkpoint.server, states=at_zero, round=checkpoint.round, seen=checkpoint.seen)


def test_the_local_problem_without_dual_and_penalty_is_fedavgs(world: World) -> None:
    def solve(**terms: object) -> Vector:
        problem = world.task.problem(Assignment(1, 1, 1), buffers=world.buffers)
        return problem.solve(start=world.theta, **terms).w

    zeros = torch.zeros_like(world.theta)
    plain = solve()
    assert identical(solve(rho=0.0, centre=world.theta), plain)
    assert identical(solve(dual=zeros), plain)
    torch.testing.assert_close(solve(dual=zeros, rho=1e-12, centre=world.theta), plain)


def test_fedadmms_first_model_tends_to_fedavgs_as_rho_vanishes(world: World) -> None:
    play = world.play(FedADMM(rho=1e-9))
    play.round(range(5))
    steps = _uploads(world, FedAvg(), lambda upload: upload.step)
    for client, step in enumerate(steps):
        torch.testing.assert_close(play.states[client].w - world.theta, step, rtol=1e-5, atol=1e-7)


def test_fedprox_without_penalty_is_fedavg(world: World) -> None:
    prox, avg = (world.play(algorithm).rounds(ROUNDS) for algorithm in (FedProx(rho=0.0), FedAvg()))
    assert identical(tuple(prox.checkpoint), tuple(avg.checkpoint))


@pytest.mark.parametrize("local", [{}, {"momentum": 0.5}, {"weight_decay": 0.01}], ids=str)
@pytest.mark.parametrize("model", ["mlp", network])
def test_fedprox_without_penalty_is_fedavg_bit_for_bit_on_a_network(model: object, local: dict) -> None:
    prox, avg = (
        simulate(
            algorithm,
            model=model if isinstance(model, str) else made(model),
            data=some_data([8, 10, 6, 12, 8]),
            rounds=3,
            participation=0.6,
            local=LocalTraining(epochs="1..3", batch_size=6, **local),
            engine="serial",
        )
        for algorithm in (FedProx(rho=0.0), FedAvg())
    )
    assert identical(prox.theta, avg.theta)
    assert identical(tuple(prox.buffers), tuple(avg.buffers))


def test_scaffolds_first_round_is_fedavgs(world: World) -> None:
    # All control variates are 0.
    scaffold, avg = (world.play(algorithm).rounds(ROUNDS[:1]) for algorithm in (Scaffold(), FedAvg()))
    assert identical(scaffold.theta, avg.theta)


def test_scaffolds_second_round_is_not(world: World) -> None:
    scaffold, avg = (world.play(algorithm).rounds(ROUNDS[:2]) for algorithm in (Scaffold(), FedAvg()))
    assert float((scaffold.theta - avg.theta).abs().max()) > 1e-3


def test_fedsgd_is_fedavg_with_one_full_batch_step() -> None:
    data = some_data([8, 10, 6, 12, 8])
    sgd, avg = (
        simulate(algorithm, model="mlp", data=data, rounds=3, participation=0.6, local=local, engine="serial")
        for algorithm, local in ((FedSGD(), LocalTraining()), (FedAvg(), LocalTraining(epochs=1, batch_size="full")))
    )
    torch.testing.assert_close(sgd.theta, avg.theta)


def test_the_first_message_of_fedadmm_is_the_released_codes_and_twice_fedproxs(world: World) -> None:
    # With w_i = theta and y_i = 0: delta = 2 w - w_i - theta = 2 (w - theta).
    ours = _uploads(world, FedADMM(rho=0.5), lambda upload: upload.delta)
    released = _uploads(world, FedADMMReleased(rho=0.5), lambda upload: upload.delta)
    prox = _uploads(world, FedProx(rho=0.5), lambda upload: upload.step)
    for delta, theirs, step in zip(ours, released, prox, strict=True):
        torch.testing.assert_close(delta, theirs, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(theirs, 2 * step, rtol=1e-5, atol=1e-6)


def test_the_released_message_is_2_w_minus_theta(world: World) -> None:
    # In every round, whatever the dual: y changes by rho (w - theta), so the message is 2/rho times that change.
    changes: list[tuple[Vector, Vector]] = []
    rho = Step(before=0.5, after=0.8, at_round=2)

    def watch(*, before: tuple, after: tuple, upload: tuple, problem: object, **_: object) -> None:
        changes.append((upload[0], 2 * (after[0] - before[0]) / rho.at(problem.round)))

    world.play(Watched(FedADMMReleased(rho=rho), on_client=watch)).rounds(ROUNDS)
    assert len(changes) == 9
    for message, expected in changes:
        torch.testing.assert_close(message, expected, rtol=1e-5, atol=1e-6)


def test_algorithm_1s_message_is_2_w_minus_own_old_w_minus_theta(world: World) -> None:
    # While rho is constant: (w + y/rho) - (w_old + y_old/rho) with y = y_old + rho (w - theta).
    def watch(*, server: tuple, before: tuple, after: tuple, upload: tuple, **_: object) -> None:
        torch.testing.assert_close(upload[0], 2 * after[0] - before[0] - server[0], rtol=1e-5, atol=1e-6)

    world.play(Watched(FedADMM(rho=0.5), on_client=watch)).rounds(ROUNDS)


def test_feddyn_over_all_and_over_seen_agree_once_all_are_seen(world: World) -> None:
    everyone = [range(5), [0, 2], [1, 3, 4]]
    over_all, over_seen = (world.play(FedDyn(over=over)).rounds(everyone) for over in ("all", "seen"))
    assert identical(tuple(over_all.checkpoint), tuple(over_seen.checkpoint))
