"""The masked sums: exact whoever is lost in whichever stage, and void where they would be had with too few."""

import numpy as np
import pytest

from fedadmm.secure.in_one_process import MaskedSum
from fedadmm.secure.protocol import Keys, Revealed, Terms, VoidError, draw_secrets, masked, reveal, seal_shares, unmask
from secure_played import STAGES, added, play, words_of

WORDS = words_of(5)  # a complete graph of degree 4 has a threshold of 3


def same(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> bool:
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("client", [0, 2, 4])
def test_the_sum_is_exact_whichever_client_is_lost_in_whichever_stage(stage: str, client: int) -> None:
    total, seen, _ = play(WORDS, threshold=3, lost={stage: {client}})
    # Who was lost in the last stage had sent: it counts.
    senders = set(WORDS) - ({client} if stage != "unmask" else set())
    assert set(seen.words) == senders
    assert same(total, added(WORDS, senders))


def test_one_may_be_lost_in_each_of_three_stages_on_a_sparse_graph() -> None:
    words = words_of(12)
    total, seen, _ = play(words, threshold=4, degree=6, lost={"shares": {3}, "words": {9}, "unmask": {6}})
    assert same(total, added(words, set(words) - {3, 9}))
    assert all(len(others) == 6 for others in seen.graph.values())


@pytest.mark.parametrize("stage", STAGES)
def test_a_round_with_fewer_clients_than_the_threshold_asks_for_is_void(stage: str) -> None:
    # A threshold of 3 needs three neighbours of each, so four clients; in the last stage three holders of each seed.
    lost = {3, 4} if stage != "unmask" else {2, 3, 4}
    with pytest.raises(VoidError):
        play(WORDS, threshold=3, lost={stage: lost})


def test_two_clients_lost_one_after_the_other_are_too_many_for_a_threshold_of_three() -> None:
    with pytest.raises(VoidError, match="neighbours left"):
        play(WORDS, threshold=3, lost={"shares": {0}, "words": {1}})


def test_the_masks_are_not_there_twice() -> None:
    first, second = (play(WORDS, threshold=3)[1].words[0] for _ in range(2))
    assert not same(first, second)


def test_words_are_hidden_even_if_all_are_zero() -> None:
    zeros = {client: tuple(np.zeros_like(word) for word in own) for client, own in WORDS.items()}
    total, seen, _ = play(zeros, threshold=3)
    assert same(total, zeros[0])
    assert all(word.all() for own in seen.words.values() for word in own)


def test_a_threshold_of_half_the_neighbours_is_refused_as_a_lying_server_could_have_both_seeds() -> None:
    keys = {client: draw_secrets(client).keys for client in range(1, 5)}
    with pytest.raises(VoidError, match="a threshold of 2 is not more than half of 4 neighbours"):
        seal_shares(draw_secrets(0), Terms("test", 2), keys)


def test_a_client_reveals_one_share_of_each_neighbour() -> None:
    told = play(WORDS, threshold=3, lost={"words": {1}})[1].revealed
    for client, (own_mask, masking) in told.items():
        assert set(own_mask) == {0, 2, 3, 4} - {client}
        assert set(masking) == {1}


def test_shares_that_were_changed_or_meant_for_others_are_not_revealed() -> None:
    _, seen, kept = play(WORDS, threshold=3)
    near = {other: seen.keys[other] for other in (1, 2, 3, 4)}
    inbox = {other: seen.sealed[other][0] for other in near}
    changed = inbox | {1: inbox[1][:-1] + bytes([inbox[1][-1] ^ 1]), 2: seen.sealed[2][3], 3: inbox[4]}
    assert set(reveal(kept[0], seen.terms, near, changed, senders=WORDS).own_mask) == {4}
    other_round = seen.terms._replace(name="test 2")
    assert not reveal(kept[0], other_round, near, inbox, senders=WORDS).own_mask


@pytest.mark.parametrize("lost", [{}, {"words": {4}}], ids=["own mask", "masks"])
def test_a_wrong_share_makes_a_round_void_and_never_a_wrong_sum(lost: dict[str, set[int]]) -> None:
    _, seen, _ = play(WORDS, threshold=3, lost=lost)
    kind = "masking" if lost else "own_mask"
    about = 4 if lost else 1
    shares = getattr(seen.revealed[0], kind)
    wrong: Revealed = seen.revealed[0]._replace(**{kind: shares | {about: bytes(17)}})
    with pytest.raises(VoidError, match=f"client {about}"):
        unmask(
            added(seen.words, seen.words),
            seen.terms,
            seen.graph,
            seen.keys,
            seen.revealed | {0: wrong},
            senders=seen.words,
        )


def test_a_client_that_is_left_with_few_neighbours_does_not_mask_and_does_not_reveal() -> None:
    _, seen, kept = play(WORDS, threshold=3)
    two: dict[int, Keys] = {other: seen.keys[other] for other in (1, 2)}
    with pytest.raises(VoidError, match="client 0 has 2 neighbours left, and a threshold of 3"):
        masked(kept[0], seen.terms, two, WORDS[0])
    near = {other: seen.keys[other] for other in (1, 2, 3, 4)}
    inbox = {other: seen.sealed[other][0] for other in near}
    with pytest.raises(VoidError, match="client 0 has 2 neighbours left"):
        reveal(kept[0], seen.terms, near, inbox, senders=[0, 1, 2])


def test_the_protocol_in_one_process_adds_as_if_there_were_no_masks() -> None:
    words = words_of(9)
    total = MaskedSum(list(words), Terms("test", 3), degree=4, generator=np.random.default_rng(0))
    for client in (8, 0, 3, 4, 5, 6, 7, 1):
        total.add(client, words[client])
    assert same(total.total(), added(words, set(words) - {2}))


def test_the_protocol_in_one_process_is_void_with_few_senders() -> None:
    total = MaskedSum(list(WORDS), Terms("test", 3), degree=4, generator=np.random.default_rng(0))
    with pytest.raises(VoidError, match="nobody has sent"):
        total.total()
    for client in (0, 1, 2):
        total.add(client, WORDS[client])
    with pytest.raises(VoidError, match="each needs 3 neighbours"):
        total.total()
