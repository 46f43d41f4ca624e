"""Nobody learns more than the sum of the others without more helpers than are stated: one less than the threshold."""

from itertools import combinations

import numpy as np
import pytest

from fedadmm.secure.protocol import Revealed, reveal
from secure_attack import learned
from secure_played import added, play, words_of

Words = tuple[np.ndarray, ...]


def same(left: Words, right: Words) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(
    ("num", "threshold", "degree", "lost"),
    [
        (5, 3, 4, {}),
        (5, 3, 4, {"words": {1}}),
        (5, 3, 4, {"shares": {4}}),
        (5, 3, 4, {"unmask": {2}}),
        (8, 3, 4, {"words": {6}}),  # each client has 4 neighbours, on a circle
        (8, 3, 5, {"keys": {0}, "unmask": {3}}),  # an odd degree does not fit seven clients: 4
    ],
)
def test_helpers_below_the_threshold_learn_the_sum_of_the_others_and_nothing_else(
    num: int, threshold: int, degree: int, lost: dict[str, set[int]]
) -> None:
    words = words_of(num)
    total, seen, kept = play(words, threshold=threshold, degree=degree, lost=lost)
    for size in range(threshold):
        for helping in combinations(seen.keys, size):
            others = frozenset(seen.words) - set(helping)
            found = learned(seen, {client: kept[client] for client in helping})
            assert list(found) == [others]
            assert same(found[others], added(words, others))
    assert same(total, added(words, set(seen.words)))


def test_a_threshold_of_helpers_learns_every_upload() -> None:
    # So the attack above is one: it needs one helper more.
    words = words_of(5)
    _, seen, kept = play(words, threshold=3)
    found = learned(seen, {client: kept[client] for client in (0, 1, 2)})
    assert set(found) == {frozenset({3}), frozenset({4})}
    assert all(same(found[frozenset({client})], words[client]) for client in (3, 4))


def test_words_that_come_too_late_stay_hidden_by_the_clients_own_mask() -> None:
    words = words_of(5)
    _, seen, _ = play(words, threshold=3, lost={"words": {1}})
    late = play(words, threshold=3)[1]  # another run; what matters is that client 1's words came, and counted not
    assert set(seen.revealed[0].masking) == {1}
    with_late = seen._replace(words=seen.words | {1: late.words[1]})
    assert list(learned(with_late, {})) == [frozenset({0, 2, 3, 4})]


def test_a_server_that_tells_clients_different_things_has_one_seed_of_a_client_at_most() -> None:
    # It tells 1 and 2 that client 0 sent, and 3 and 4 that it did not: two shares of either seed, of three.
    words = words_of(5)
    _, seen, kept = play(words, threshold=3)
    revealed: dict[int, Revealed] = {}
    for client in (1, 2, 3, 4):
        near = {other: seen.keys[other] for other in seen.graph[client]}
        inbox = {other: seen.sealed[other][client] for other in near}
        senders = {0, 1, 2, 3, 4} if client < 3 else {1, 2, 3, 4}
        revealed[client] = reveal(kept[client], seen.terms, near, inbox, senders=senders)
    assert not [group for group in learned(seen._replace(revealed=revealed), {}) if 0 in group]
