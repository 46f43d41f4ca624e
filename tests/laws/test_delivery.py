"""Law 9: an update counts exactly once; what is lost, late or doubled leaves no trace."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.errors import InputError
from laws.conftest import ON_A_NETWORK
from methods import METHODS, PLAIN
from nodes import Federation
from play import identical
from worlds import NUM_CLIENTS, WORLDS, World

# What happens to a client's request in a round, then to each reply: it arrives so often, or in a later round.
COPIES = st.sampled_from([1, 1, 1, 0, 2])
DELAY = st.sampled_from([0, 0, 0, 1, 2])
MESSAGES = st.tuples(COPIES, DELAY, COPIES, DELAY)
CLIENTS = st.dictionaries(st.integers(0, NUM_CLIENTS - 1), MESSAGES, max_size=NUM_CLIENTS)
ROUNDS = st.lists(st.tuples(CLIENTS, st.sampled_from([True, True, True, False])), min_size=1, max_size=7)
RESTORES = st.lists(
    st.tuples(st.sampled_from(["server", "client"]), st.integers(0, 6), st.integers(1, 3), st.integers(0, 4)),
    max_size=2,
)


def play(federation: Federation, rounds: list[Any], restores: list[Any]) -> None:
    """Play rounds whose messages meet their fates; a round in which the server dies is not committed."""
    late_requests: dict[int, list[Any]] = {}
    late_replies: dict[int, list[Any]] = {}
    past_disks = [list(federation.disks)]
    for now, (fates, server_lives) in enumerate(rounds):
        for what, when, back, client in restores:
            if when == now and what == "server":
                federation.restore_server(back)
            elif when == now:
                federation.disks[client] = past_disks[max(0, len(past_disks) - back)][client]
        for mail in federation.open_round(fates):
            copies, delay, _, _ = fates[mail.request.client]
            late_requests.setdefault(now + delay, []).extend([mail] * copies)
        for mail in late_requests.pop(now, []):
            _, _, copies, delay = fates.get(mail.request.client, (1, 0, 1, 0))
            for reply in federation.answer(mail):
                late_replies.setdefault(now + delay, []).extend([reply] * copies)
        if server_lives:
            federation.close_round(late_replies.pop(now, []))
        past_disks.append(list(federation.disks))


def assert_lossless(federation: Federation, method: Algorithm, world: World, *, restored: bool) -> None:
    """Compare with the lossless run in which the clients whose replies did not count were not selected."""
    assert all(len(set(applied)) == len(applied) for applied in federation.server.history)
    reference = world.play(method).rounds(federation.server.history)
    assert identical(tuple(federation.server.checkpoint), tuple(reference.checkpoint))
    for client in range(NUM_CLIENTS):
        try:
            assert identical(federation.state(client), reference.states.get(client))
        except InputError:
            assert restored
    assert restored or not federation.refusals


def hold_the_law(name: str, world: World, rounds: list[Any], restores: list[Any]) -> None:
    federation = Federation(METHODS[name], world)
    play(federation, rounds, restores)
    assert_lossless(federation, METHODS[name], world, restored=bool(restores))


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
@given(rounds=ROUNDS, restores=RESTORES)
def test_any_history_is_the_lossless_one_without_the_clients_that_did_not_count(
    name: str, rounds: list[Any], restores: list[Any]
) -> None:
    hold_the_law(name, WORLDS["quadratics"](), rounds, restores)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@given(rounds=ROUNDS, restores=RESTORES)
@settings(max_examples=16, derandomize=False)
def test_so_are_more_than_a_thousand_others_of_all_methods(name: str, rounds: list[Any], restores: list[Any]) -> None:
    hold_the_law(name, WORLDS["quadratics"](), rounds, restores)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_A_NETWORK)
@given(rounds=ROUNDS, restores=RESTORES)
@settings(max_examples=8)
def test_so_are_histories_of_a_network_with_buffers(name: str, rounds: list[Any], restores: list[Any]) -> None:
    hold_the_law(name, WORLDS["network"](), rounds, restores)
