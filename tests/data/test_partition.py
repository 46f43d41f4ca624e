import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedadmm.core.errors import InputError
from fedadmm.core.seeds import stream
from fedadmm.data import partition
from fedadmm.data.partition import dirichlet, iid, imbalanced, natural, shards


def sizes(indices):
    return np.array([len(own) for own in indices])


def assert_each_example_once(indices, num_examples):
    assert np.array_equal(np.sort(np.concatenate(indices)), np.arange(num_examples))


def some_labels(num_examples, num_classes=10):
    return stream(0, "labels").integers(0, num_classes, num_examples)


ALPHAS = st.sampled_from([5e-324, 1e-300, 1e-9, 0.01, 0.5, 1.0, 100.0, 1e9, 1e300, 1.7e308])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), ALPHAS, st.data(), st.integers(0, 2**32))
def test_dirichlet_gives_each_example_once_and_leaves_nobody_empty(labels, alpha, data, seed):
    num_clients = data.draw(st.integers(1, len(labels)) | st.just(len(labels)))
    labels = np.array(labels)
    generator = np.random.default_rng(seed)
    indices = dirichlet(labels, num_clients=num_clients, alpha=alpha, generator=generator)
    assert len(indices) == num_clients
    assert sizes(indices).min() >= 1
    assert_each_example_once(indices, len(labels))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.data(), st.integers(0, 2**32))
def test_iid_and_shards_give_each_example_once_and_differ_by_little(labels, data, seed):
    labels, generator = np.array(labels), np.random.default_rng(seed)
    num_clients = data.draw(st.integers(1, len(labels)))
    per_client = data.draw(st.integers(1, len(labels) // num_clients))
    dealt = iid(labels, num_clients=num_clients, generator=generator)
    assert_each_example_once(dealt, len(labels))
    assert np.ptp(sizes(dealt)) <= 1
    dealt = shards(labels, num_clients=num_clients, shards_per_client=per_client, generator=generator)
    assert_each_example_once(dealt, len(labels))
    assert len(dealt) == num_clients
    assert np.ptp(sizes(dealt)) <= per_client


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1e-9, 1e9])
def test_dirichlet_ends_for_as_many_clients_as_mnist_has_examples(alpha):
    indices = dirichlet(some_labels(60_000), num_clients=60_000, alpha=alpha, generator=stream(0, "partition"))
    assert set(sizes(indices)) == {1}


def test_dirichlet_with_a_large_alpha_gives_everyone_the_same_mixture():
    labels = np.repeat(np.arange(5), 200)
    for own in dirichlet(labels, num_clients=10, alpha=1e9, generator=stream(0, "partition")):
        # 200 of each class over 10 clients is 20 each, to rounding.
        assert np.abs(np.bincount(labels[own], minlength=5) - 20).max() <= 1


def test_dirichlet_with_a_tiny_alpha_gives_each_class_to_one_client():
    labels = np.repeat(np.arange(5), 200)
    indices = dirichlet(labels, num_clients=10, alpha=1e-9, generator=stream(0, "partition"))
    for label in range(5):
        largest = max((labels[own] == label).sum() for own in indices)
        assert largest >= 200 - 9  # at most one given away to each of the nine others


def test_dirichlet_shares_have_the_variance_of_the_distribution():
    # Of m shares with parameter alpha, each has mean 1/m and variance (1/m)(1 - 1/m) / (m alpha + 1).
    draws = [partition._dirichlet_shares(4, alpha=0.5, generator=stream(0, "draw", i)) for i in range(4000)]
    assert np.mean(draws, axis=0) == pytest.approx(0.25, abs=0.02)
    assert np.var(draws, axis=0) == pytest.approx(0.25 * 0.75 / 3, abs=0.004)


def test_shards_are_runs_of_sorted_labels():
    labels = some_labels(1000)
    indices = shards(labels, num_clients=50, shards_per_client=2, generator=stream(0, "partition"))
    ranks = np.argsort(np.argsort(labels, kind="stable"))
    for own in indices:
        # 1000 / 100 = 10 examples in a shard: two runs of ten consecutive places in the sorted order.
        places = ranks[own].reshape(2, 10)
        assert np.array_equal(places, places[:, :1] + np.arange(10))
        assert np.all(places[:, 0] % 10 == 0)


def test_shards_are_dealt_at_random():
    labels = some_labels(1000)
    dealt = [shards(labels, num_clients=50, generator=stream(seed, "partition")) for seed in (0, 0, 1)]
    assert all(np.array_equal(one, two) for one, two in zip(dealt[0], dealt[1], strict=True))
    assert any(not np.array_equal(one, two) for one, two in zip(dealt[0], dealt[2], strict=True))
    # Dealt in order, client 0 would hold the first two shards, and so the lowest labels only.
    firsts = [shards(labels, num_clients=50, generator=stream(seed, "partition"))[0] for seed in range(20)]
    assert len({int(labels[own].max()) for own in firsts}) > 3


@pytest.mark.parametrize(("num_examples", "mean", "stdev"), [(60_000, 300, 171.0329), (50_000, 250, 142.5274)])
def test_imbalanced_has_the_statistics_of_the_paper(num_examples, mean, stdev):
    # Two clients of each size 1..99, and two of 50: the variance in shards is 161,700 / 199; 6 or 5 examples each.
    indices = imbalanced(some_labels(num_examples), num_clients=200, generator=stream(0, "partition"))
    held = sizes(indices)
    assert held.mean() == mean
    assert held.std(ddof=1) == pytest.approx(stdev, abs=5e-5)
    assert held[:4].tolist() == [mean // 50, mean // 50, 2 * mean // 50, 2 * mean // 50]
    assert held[-4:].tolist() == [99 * mean // 50, 99 * mean // 50, mean, mean]
    assert_each_example_once(indices, num_examples)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(0, 100), st.integers(0, 2**32))
def test_imbalanced_gives_each_example_once(num_groups, extra, seed):
    labels = some_labels(num_groups**2 + extra)
    indices = imbalanced(labels, num_clients=2 * num_groups, generator=np.random.default_rng(seed))
    assert_each_example_once(indices, len(labels))
    assert sizes(indices).min() >= 1


def test_natural_makes_one_client_of_each_group():
    indices = natural(np.array([7, 3, 7, 9, 3]))
    assert [own.tolist() for own in indices] == [[1, 4], [0, 2], [3]]


LABELS = np.zeros(10, dtype=int)
ANY = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: iid(LABELS, num_clients=11, generator=ANY), "num_clients=11 is more than the 10 examples; use at"),
        (
            lambda: iid(LABELS, num_clients=0, generator=ANY),
            "num_clients=0 is not a number of clients; use a whole number from 1 on",
        ),
        (
            lambda: shards(LABELS, num_clients=6, generator=ANY),
            "need 12 shards, more than the 10 examples; use at most 1",
        ),
        (lambda: shards(LABELS, num_clients=2, shards_per_client=0, generator=ANY), "shards_per_client=0 leaves"),
        (lambda: imbalanced(LABELS, num_clients=5, generator=ANY), "num_clients=5 cannot be put in groups of two"),
        (lambda: imbalanced(LABELS, num_clients=2, generator=ANY), "use an even number from 4 on"),
        (
            lambda: imbalanced(LABELS, num_clients=8, generator=ANY),
            "16 shards, more than the 10 examples; use at most 6",
        ),
        (lambda: dirichlet(LABELS, num_clients=11, alpha=1, generator=ANY), "more than the 10 examples"),
        (lambda: dirichlet(LABELS, num_clients=2, alpha=0, generator=ANY), "alpha=0 is not a Dirichlet parameter; use"),
        (lambda: dirichlet(LABELS, num_clients=2, alpha=-1.0, generator=ANY), "alpha=-1.0 is not a Dirichlet"),
        (lambda: dirichlet(LABELS, num_clients=2, alpha=float("nan"), generator=ANY), "alpha=nan is no"),
        (lambda: dirichlet(LABELS, num_clients=2, alpha=float("inf"), generator=ANY), "alpha=inf is no"),
        (lambda: natural(None), "use mnist after `fedadmm data fetch qmnist`"),
        (lambda: natural(LABELS, num_clients=3), "num_clients=3, but the data has 1 groups; use 1 or leave it out"),
    ],
)
def test_impossible_partitions_are_refused_with_the_value_and_the_remedy(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
