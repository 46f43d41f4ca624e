"""Laws 3 and 4: a client gets back what it returned, whoever ran before it, and shares it with nobody."""

from typing import Any

import torch

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.round import Assignment, RoundSummary, received
from fedadmm.studies.laws import laws
from play import Watched, copied, identical
from worlds import World

ROUNDS = ([0, 1, 3], [0, 2, 3], [0, 1, 2, 4])


def test_what_a_client_returned_is_what_it_is_given_next(method: Algorithm, world: World) -> None:
    given: list[Any] = []
    returned: list[Any] = []

    def watch(*, server: Any, before: Any, after: Any, **_: Any) -> None:
        given.append((server, copied(before)))
        returned.append(copied(after))

    play = world.play(Watched(method, on_client=watch))
    kept: dict[int, Any] = {}
    for clients in ROUNDS:
        given.clear()
        returned.clear()
        play.round(clients)
        for client, (server, before), after in zip(clients, given, returned, strict=True):
            theta = world.theta if method.newcomer == "initial" else server.theta
            expected = kept[client] if client in kept else method.init_client(theta)
            assert identical(before, tuple(received(method, server, expected, Assignment(client, 1, 1))))
            kept[client] = type(expected)(*after)
    assert identical(kept, play.states)


def test_the_order_in_which_clients_run_does_not_matter(method: Algorithm, world: World) -> None:
    assert laws.order_is_free(method, world) is None


def test_clients_do_not_share_memory(method: Algorithm, world: World) -> None:
    # Two vectors that share memory would be one dual for two clients (as in FL-bench's FedADMM).
    assert laws.nothing_shared(method, world) is None


def test_a_clients_update_does_not_depend_on_the_states_of_others(method: Algorithm, world: World) -> None:
    play = world.play(method).rounds(ROUNDS[:2])
    (alone,) = play.visits([3])
    for state in (state for client, state in play.states.items() if client != 3):
        for vector in _vectors(state):
            vector.add_(1.0)
    *_, among_others = play.visits([0, 1, 2, 3])
    assert identical(tuple(alone.upload), tuple(among_others.upload))


def test_a_client_that_never_took_part_has_no_state(method: Algorithm, world: World) -> None:
    play = world.play(method).rounds(ROUNDS[:2])
    assert list(play.store) == [0, 1, 2, 3]
    assert len(play.store) == 4
    assert play.store.get(4) is None


def test_a_round_with_nobody_leaves_theta_as_it_is(method: Algorithm, world: World) -> None:
    play = world.play(method).rounds(ROUNDS[:2])
    before, states = play.checkpoint, dict(play.states)
    summary = play.round([])
    assert identical(tuple(play.checkpoint), (3, *tuple(before)[1:]))
    assert identical(play.states, states)
    assert summary == RoundSummary((), (), None, 0, 0, 0, 0, {})


def _vectors(state: Any) -> list[torch.Tensor]:
    return [field for field in state if isinstance(field, torch.Tensor)]
