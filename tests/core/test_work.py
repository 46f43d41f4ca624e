"""How many epochs a client does: a number, a range, or a list."""

from collections import Counter

from fedadmm.core.participation import FixedEpochs, ListedEpochs, UniformEpochs
from fedadmm.core.seeds import stream


def test_fixed_work_is_the_same_for_everyone() -> None:
    assert {FixedEpochs(3).epochs(client, generator=stream(0, "work", client)) for client in range(9)} == {3}


def test_listed_work_is_each_clients_own() -> None:
    work = ListedEpochs((4, 1, 2))
    assert [work.epochs(client, generator=stream(0, "work", client)) for client in range(3)] == [4, 1, 2]


def test_uniform_work_takes_every_number_of_its_range_equally_often() -> None:
    # 5,000 draws from 1..5: 1,000 of each, with a deviation of sqrt(5000 * 0.2 * 0.8) = 28.
    work = UniformEpochs(1, 5)
    counts = Counter(work.epochs(0, generator=stream(0, "work", round, 0)) for round in range(5000))
    assert sorted(counts) == [1, 2, 3, 4, 5]
    assert all(abs(count - 1000) < 4 * 28 for count in counts.values())


def test_a_range_of_one_number_is_that_number() -> None:
    assert {UniformEpochs(2, 2).epochs(0, generator=stream(0, "work", round)) for round in range(9)} == {2}
