"""Differential privacy over every algorithm: what is off changes no bit, and what is on keeps the invariants."""

import math
from typing import Any

import pytest
import torch

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config.privacy_rules import check_clipped
from fedadmm.core.algorithm import Algorithm, Message, Turnout
from fedadmm.core.errors import InputError
from fedadmm.core.mean import Collector, norm_of
from fedadmm.core.optional import imbalance, invariant_of
from fedadmm.core.transport import Transport
from fedadmm.engine.probe import probe
from fedadmm.secure.settings import Secure
from fedadmm.uploads.accountant import Accountant
from fedadmm.uploads.chain import transport_of
from fedadmm.uploads.clip import ClipStep
from fedadmm.uploads.privacy import PrivateSums
from fedadmm.uploads.settings import Attack, Privacy, UploadSettings
from methods import METHODS, mostly_slow
from play import Play, Watched, identical
from worlds import NUM_CLIENTS, World, quadratic_world

EVERYONE = [list(range(NUM_CLIENTS))] * 3
ROUNDS = ([1, 3], [0, 3, 4], [], [1, 2])


def _private(
    method: Algorithm, world: World, *, clip: float, noise: float = 0.0, share: float = 1.0, seed: int = 0
) -> Transport:
    like = probe(method, world.theta).upload
    sums = PrivateSums(Accountant(noise, share, 1e-3), clip, NUM_CLIENTS, like, seed)
    return Transport(steps=(ClipStep(clip),), private=sums)


def _is_refused(method: Algorithm) -> bool:
    try:
        check_clipped(method)
    except InputError:
        return True
    return False


def test_the_methods_that_are_refused_are_those_that_upload_numbers_or_models() -> None:
    # fast_fedadmm with rho = "auto" uploads a stiffness; with a number it does not, and is accepted below.
    refused = {name for name, kind in ALGORITHMS.items() if _is_refused(kind())}
    numbers = {"fast_fedadmm", "fedadmm_auto", "feddyn_auto", "fednova", "fedexp", "fedvarp", "mifa"}
    assert refused == numbers | {"fedpd"}
    check_clipped(ALGORITHMS["fast_fedadmm"](rho=0.1))


def test_without_noise_and_with_an_infinite_clip_it_is_the_plain_run(method: Algorithm, world: World) -> None:
    if _is_refused(method):
        return
    plain = world.play(method).rounds(EVERYONE)
    private = world.play(method, transport=_private(method, world, clip=math.inf)).rounds(EVERYONE)
    assert identical(private.checkpoint, plain.checkpoint)
    assert identical(private.states, plain.states)


def test_what_the_server_has_added_up_is_what_clipped_clients_keep(method: Algorithm, world: World) -> None:
    """Cohorts vary, and one is empty, while the mean is over 2.5 clients each time, which no algorithm notices."""
    if _is_refused(method):
        return
    norms: list[float] = []
    play = world.play(method, transport=_watched(_private(method, world, clip=0.05, share=0.5), norms))
    for clients in ROUNDS:
        play.round(clients)
        assert _imbalance(play, method, world) < 200 * torch.finfo(world.theta.dtype).eps
    assert max(norms) <= 0.05
    assert max(norms) > 0.0499  # some were longer


def _imbalance(play: Play, method: Algorithm, world: World) -> float:
    invariant = invariant_of(method, play.checkpoint.server, initial=world.theta, registered=float(NUM_CLIENTS))
    if invariant is None or invariant.unseen is None:  # a mean over the seen, whose true number is not told
        return 0.0
    return imbalance(invariant, [(1.0, state) for state in play.states.values()], registered=float(NUM_CLIENTS))


def _watched(transport: Transport, norms: list[float]) -> Transport:
    """Return the same with a collector inside that notes the norms of all uploads."""

    class Watching:
        def __init__(self, plain: Collector) -> None:
            self._plain = plain

        @property
        def weight(self) -> float:
            return self._plain.weight

        def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
            norms.append(norm_of(message))
            self._plain.add(message, weight=weight, clients=clients)

        def mean(self) -> Message:
            return self._plain.mean()

    return Transport(transport.steps, (lambda plain, _: Watching(plain),), private=transport.private)


def test_noise_is_the_same_in_a_round_that_is_played_again_and_another_in_the_next(
    method: Algorithm, world: World
) -> None:
    if _is_refused(method):
        return
    private = _private(method, world, clip=1.0, noise=1.0).private
    assert isinstance(private, PrivateSums)
    first, again, later = (torch.cat([v for v in private.noise(n) if torch.is_tensor(v)]) for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.isclose(first, later).any()


ACCEPTED = [name for name, method in METHODS.items() if not _is_refused(method)]


def _chain(method: Algorithm, world: World, *, clip: float = 0.05, **tables: Any) -> Transport:
    """Return the transport of [privacy] without noise, and of other tables, as an experiment makes it."""
    _, client, like = probe(method, world.theta)
    settings = UploadSettings(privacy=Privacy(clip=clip, noise=0.0, delta=1e-3), **tables)
    private = PrivateSums(Accountant(0.0, 0.5, 1e-3), clip, NUM_CLIENTS, like, seed=0)
    about: dict[str, Any] = {"client": type(client), "num_clients": NUM_CLIENTS}
    found = transport_of(settings, seed=0, like=like, private=private, **about)
    assert found is not None
    return found


@pytest.mark.parametrize("name", mostly_slow(ACCEPTED, plain=["fedadmm", "scaffold"]))
def test_masked_private_sums_are_the_private_ones_within_the_rounding_of_their_encoding(name: str) -> None:
    """Five clients in each round: with fewer, a masked round may be void."""
    method = METHODS[name]
    worlds = quadratic_world(), quadratic_world()
    tables: list[dict[str, Any]] = [{}, {"secure": Secure(bits=64, range=1e3)}]
    plain, masked = (
        world.play(method, transport=_chain(method, world, **table)).rounds(EVERYONE)
        for world, table in zip(worlds, tables, strict=True)
    )
    assert torch.allclose(masked.theta, plain.theta, rtol=0, atol=1e-10)
    assert not torch.equal(plain.theta, worlds[0].theta)


@pytest.mark.parametrize("name", mostly_slow(ACCEPTED, plain=["fedadmm", "scaffold"]))
def test_an_attacker_moves_a_private_sum_no_farther_than_clip(name: str) -> None:
    method, world, norms = METHODS[name], quadratic_world(), []
    attack = Attack(name="scaling", share=1.0, factor=1e6)
    world.play(method, transport=_watched(_chain(method, world, attack=attack), norms)).rounds(EVERYONE)
    assert 0.0499 < max(norms) <= 0.05


@pytest.mark.parametrize("name", ["fedavg", "feddyn", "fedadmm"])
def test_an_empty_cohort_releases_noise_and_moves_nobody(name: str) -> None:
    world, method = quadratic_world(), ALGORITHMS[name]()
    transport = _private(method, world, clip=1.0, noise=1.0, share=0.5)
    play = world.play(method, transport=transport)
    summary = play.round([])
    assert isinstance(transport.private, PrivateSums)
    noise = transport.private.noise(1)[0] / 2.5  # over the clients that were expected
    theta = play.checkpoint.server.theta
    scale = {"fedavg": 1.0, "feddyn": 1.0 + 2.5 / 5, "fedadmm": 1.0}[name]  # FedDyn adds the mean dual too: 2.5 of 5
    assert torch.allclose(theta - world.theta, scale * noise)
    assert (summary.clients, play.states) == ((), {})
    assert summary.released["epsilon_spent"] > 0


def test_a_method_is_told_how_many_clients_are_expected_and_not_how_many_came() -> None:
    world, told = quadratic_world(), []
    transport = _private(ALGORITHMS["fedavg"](), world, clip=1.0, noise=1.0, share=0.5)
    play = world.play(Watched(ALGORITHMS["fedavg"](), on_server=told.append), transport=transport)
    play.rounds(ROUNDS)  # of two, three, none and two
    # Half of five clients in a round, and all but a half, a quarter, ... of them so far.
    assert told == [Turnout(t, 2.5, 5.0, 5 * (1 - 0.5**t), 2.5) for t in range(1, 5)]
