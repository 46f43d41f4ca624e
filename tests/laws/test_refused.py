"""Law 9: an update that is refused leaves no trace."""

from typing import Any

import pytest
import torch

from fedadmm.algorithms import MIFA, FastFedADMM, FedAvg, FedDyn, FedExP, FedNova, FedVARP
from fedadmm.core.algorithm import Algorithm, Turnout
from fedadmm.core.round import norm_limit
from methods import METHODS
from play import Watched, identical
from worlds import World, network_world, quadratic_world

BEFORE = ([0, 1, 3],)
WEIGHTS = (1.0, 2.0, 3.0, 4.0, 5.0)


@pytest.mark.parametrize("bad", [0, 4], ids=["lowest id", "newcomer"])
def test_a_refused_client_was_not_selected(method: Algorithm, world: World, bad: int) -> None:
    refusing, without = (world.play(method, weights=WEIGHTS).rounds(BEFORE) for _ in range(2))
    world.poison(bad)
    everyone, others = [0, 1, 2, 4], [client for client in (0, 1, 2, 4) if client != bad]
    summary = refusing.round(everyone)
    expected = without.round(others)
    assert (summary.clients, summary.refused) == (tuple(others), (bad,))
    assert summary.bytes_down == expected.bytes_down * len(everyone) // len(others)  # it did travel
    # Nothing of it is left: theta, buffers, seen and all states are the same to the bit.
    assert identical(tuple(refusing.checkpoint), tuple(without.checkpoint))
    assert identical(refusing.states, without.states)


def test_when_all_are_refused_only_the_round_counts(method: Algorithm, world: World) -> None:
    play = world.play(method).rounds(BEFORE)
    before, states = play.checkpoint, dict(play.states)
    world.poison(2)
    world.poison(4)
    assert play.round([2, 4]).refused == (2, 4)
    assert identical(tuple(play.checkpoint), (2, *tuple(before)[1:]))
    assert identical(play.states, states)


def test_the_loss_of_a_round_is_the_mean_over_its_applied_clients() -> None:
    # BUG in core/round.py: `stats` holds the refused clients too, so one NaN makes the round's loss NaN.
    world = network_world()
    expected = world.play(FedAvg()).round([0, 1]).client_loss
    world.poison(2)
    assert world.play(FedAvg()).round([0, 1, 2]).client_loss == expected


def test_the_loss_of_a_round_is_weighted_as_its_uploads_are() -> None:
    alone = [network_world().play(FedAvg()).round([client]).client_loss for client in (0, 3)]
    both = network_world().play(FedAvg(), weights=WEIGHTS).round([0, 3]).client_loss
    assert both == pytest.approx((1.0 * alone[0] + 4.0 * alone[1]) / 5, rel=1e-6)


def test_an_upload_that_is_finite_and_absurd_is_refused_and_named(method: Algorithm) -> None:
    world = quadratic_world()
    play = world.play(method).rounds(BEFORE)
    assert play.round([0, 1, 2]).oversized == ()
    world.task.targets[1].fill_(1e17)
    summary = play.round([0, 1, 4])
    assert (summary.clients, summary.refused, summary.oversized) == ((0, 4), (1,), (1,))


@pytest.mark.parametrize(
    ("sender", "field"),
    [(FedExP(), "squared"), (FastFedADMM(), "stiffness"), (FedVARP(), "lr"), (MIFA(), "lr"), (FedNova(), "tau")],
    ids=str,
)
def test_a_number_that_is_finite_and_absurd_is_refused_too(sender: Algorithm, field: str) -> None:
    class Lying(Watched):
        def client_update(self, server: Any, client: Any, problem: Any) -> tuple[Any, Any]:
            upload, after = super().client_update(server, client, problem)
            return upload._replace(**{field: 1e17}) if problem.client == 1 else upload, after

    play = quadratic_world().play(Lying(sender))
    summary = play.round([0, 1, 4])
    assert (summary.clients, summary.refused, summary.oversized) == ((0, 4), (1,), (1,))
    assert float(play.theta.abs().max()) < 100


def test_the_limit_is_a_number_a_multiple_of_the_running_median_or_a_million_models() -> None:
    theta, medians = torch.tensor([3.0, 4.0]), [100.0, None, *[2.0] * 10]
    assert norm_limit(7.5, theta=theta, medians=medians) == 7.5
    assert norm_limit("100x", theta=theta, medians=medians) == 200.0  # the first round is forgotten
    assert norm_limit("100x", theta=theta, medians=[]) == norm_limit(None, theta=theta, medians=medians) == 5e6
    assert norm_limit(None, theta=theta / 100, medians=[]) == 1e6


def test_the_weight_of_a_refused_client_is_neither_active_nor_seen() -> None:
    world = quadratic_world()
    turnouts: list[Turnout] = []
    play = world.play(Watched(FedAvg(), on_server=turnouts.append), weights=WEIGHTS)
    play.round([0, 1])  # weights 1 + 2, both new
    world.poison(4)
    play.round([1, 3, 4])  # weights 2 + 4 applied; 3 is new, so seen is 1 + 2 + 4
    play.round([0, 3])  # weights 1 + 4, nobody new
    assert turnouts == [Turnout(1, 3.0, 15.0, 3.0, 2), Turnout(2, 6.0, 15.0, 7.0, 2), Turnout(3, 5.0, 15.0, 7.0, 2)]


@pytest.mark.parametrize("name", METHODS)
def test_a_refused_newcomer_is_still_a_newcomer(name: str) -> None:
    world = quadratic_world()
    target = world.task.targets[4].clone()
    play = world.play(METHODS[name]).rounds(BEFORE)
    world.poison(4)
    play.round([0, 4])
    world.task.targets[4] = target  # it recovers
    (visit,) = play.visits([4])
    assert visit.first_visit
    assert visit.finite
    assert torch.isfinite(visit.upload[0]).all()


def test_a_client_whose_state_alone_is_not_finite_is_refused() -> None:
    class Spoiling(FedDyn):
        """FedDyn, but for a state that overflows while the upload does not."""

        def client_update(self, server: Any, client: Any, problem: Any) -> tuple[Any, Any]:
            upload, after = super().client_update(server, client, problem)
            return upload, after._replace(y=after.y * torch.inf) if problem.client == 1 else after

    play = quadratic_world().play(Spoiling())
    assert play.round([0, 1]).refused == (1,)
    assert list(play.store) == [0]
