"""The numbers of an update, case by case."""

import pytest

from fedadmm.core.delivery import Collection, Journal, LateError, Reply, Request, answered, settled
from fedadmm.core.errors import InputError

KEPT = Journal(acknowledged=3, pending=5)


def asked(*, number: int = 6, applied: int) -> Request:
    return Request(client=0, number=number, applied=applied)


def test_a_pending_update_that_was_applied_is_acknowledged() -> None:
    assert settled(KEPT, asked(applied=5)) == Journal(acknowledged=5, kept=(3,))


def test_a_pending_update_that_was_not_applied_is_dropped() -> None:
    assert settled(KEPT, asked(applied=3)) == Journal(acknowledged=3)


def test_an_answer_is_pending_beside_what_was_acknowledged() -> None:
    assert answered(KEPT, asked(applied=5)) == Journal(acknowledged=5, pending=6)
    assert answered(Journal(), asked(applied=0)) == Journal(acknowledged=0, pending=6)


def test_the_same_request_again_is_answered_from_the_same_state() -> None:
    request = asked(applied=5)
    assert answered(answered(KEPT, request), request) == answered(KEPT, request)


@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_request_older_than_what_was_answered_is_late(number: int) -> None:
    with pytest.raises(LateError, match=f"request {number} is older than request 5"):
        settled(KEPT, asked(number=number, applied=0))


@pytest.mark.parametrize("journal", [KEPT, Journal(acknowledged=3)])
@pytest.mark.parametrize("applied", [0, 2])
def test_a_server_that_forgot_a_confirmed_update_is_refused(journal: Journal, applied: int) -> None:
    with pytest.raises(InputError, match=f"update 3 confirmed.*its update {applied} as the last.*restore"):
        settled(journal, asked(applied=applied))


def test_a_server_that_forgot_a_pending_update_is_healed() -> None:
    # It applied 5, and was restored to the round before: 5 was never confirmed, so the client drops it.
    assert settled(KEPT, asked(number=9, applied=3)) == Journal(acknowledged=3)


@pytest.mark.parametrize("journal", [KEPT, Journal(), Journal(acknowledged=3)])
def test_a_client_that_lost_an_applied_update_refuses(journal: Journal) -> None:
    with pytest.raises(InputError, match=r"applied update 4 of client 0.*restore the newer one, or have"):
        settled(journal, asked(applied=4))


def test_as_many_older_updates_are_kept_as_is_asked_for() -> None:
    journal = Journal()
    for applied, number in ((0, 1), (1, 2), (2, 3), (2, 4), (4, 5)):  # 3 was not applied
        journal = answered(journal, Request(0, number, applied), keep=2)
    assert journal == Journal(acknowledged=4, pending=5, kept=(1, 2))
    assert answered(journal, Request(0, 6, 5), keep=2) == Journal(acknowledged=5, pending=6, kept=(2, 4))
    assert answered(journal, Request(0, 6, 5)) == Journal(acknowledged=5, pending=6)


OLDER = Journal(acknowledged=5, pending=6, kept=(2, 4))


@pytest.mark.parametrize(("applied", "kept"), [(4, (2,)), (2, ()), (0, ())])
def test_a_client_follows_a_server_that_was_rolled_back(applied: int, kept: tuple[int, ...]) -> None:
    assert settled(OLDER, Request(0, 9, applied, rollback=8)) == Journal(acknowledged=applied, kept=kept)


def test_a_client_that_has_not_kept_a_state_cannot_follow() -> None:
    with pytest.raises(InputError, match=r"rolled back to update 3 of client 0.* of updates 2, 4, 5; restore"):
        settled(OLDER, Request(0, 9, 3, rollback=8))


def test_what_was_confirmed_after_a_rollback_is_not_taken_back_by_it() -> None:
    # The server is a copy of the time of rollback 4, and has forgotten 5, which was confirmed later.
    with pytest.raises(InputError, match="the server's checkpoint is older"):
        settled(OLDER, Request(0, 9, 4, rollback=4))


def test_a_reply_counts_once_and_in_its_round_alone() -> None:
    collection = Collection(6, clients=[0, 1, 2])
    assert collection.counts(Reply(1, 6))
    assert not collection.counts(Reply(1, 6))  # doubled
    assert not collection.counts(Reply(0, 5))  # late
    assert not collection.counts(Reply(4, 6))  # nobody asked it
    assert collection.missing == (0, 2)
