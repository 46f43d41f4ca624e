"""Random streams are named: the same name gives the same numbers for ever, another name gives others."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedadmm.core.seeds import stream, stream_key, streams, torch_seed

names = st.tuples(
    st.integers(0, 2**63 - 1),
    st.sampled_from(["participation", "work", "batches", "dropout", "model", "partition"]),
    st.lists(st.integers(0, 10**6), max_size=3).map(tuple),
)


def test_the_streams_of_this_version_are_those_of_every_version() -> None:
    # Pinned: a change here changes every published result.
    assert stream_key(0, "participation", 1) == 0x3FE016691C43047A266CA686D09711A0
    assert stream(0, "participation", 1).integers(0, 1000, 5).tolist() == [575, 120, 627, 88, 118]
    assert stream(7, "batches", 2, 3, 0).permutation(6).tolist() == [5, 2, 1, 4, 0, 3]
    assert torch_seed(0, "model") == 9026764789482177982


@given(names, names)
def test_two_names_have_two_streams(one: tuple, other: tuple) -> None:
    def key(name: tuple) -> int:
        return stream_key(name[0], name[1], *name[2])

    assert (key(one) == key(other)) == (one == other)


def test_the_parts_of_a_name_do_not_run_together() -> None:
    keys = [
        stream_key(1, "work", 11, 1),
        stream_key(1, "work", 1, 11),
        stream_key(11, "work", 1, 1),
        stream_key(1, "work", 111),
        stream_key(1, "work1", 11),
        stream_key(1, "work"),
    ]
    assert len(set(keys)) == len(keys)


def test_streams_that_share_a_generator_are_those_that_have_their_own() -> None:
    keys = [(2, client, epoch) for client in range(5) for epoch in range(2)]
    for generator, indices in zip(streams(7, "batches", keys), keys, strict=True):
        alone = stream(7, "batches", *indices)
        # An odd number of draws of 32 bits leaves half of a word behind for the next stream, if nobody drops it.
        for draw in (lambda one: one.permutation(6), lambda one: one.integers(0, 10, 3, dtype=np.int32)):
            assert draw(generator).tolist() == draw(alone).tolist()


def test_a_stream_does_not_depend_on_what_was_drawn_before() -> None:
    first = stream(3, "work", 5).random(4)
    np.random.default_rng().random(100)
    stream(3, "work", 4).random(100)
    np.testing.assert_array_equal(stream(3, "work", 5).random(4), first)


def test_neighbouring_streams_are_uncorrelated() -> None:
    # 200 streams of 500 numbers each: the mean of their squared correlations is 1/500 if they are independent.
    draws = np.stack([stream(0, "work", round).standard_normal(500) for round in range(200)])
    correlations = np.corrcoef(draws)[np.triu_indices(200, k=1)]
    assert abs(500 * float((correlations**2).mean()) - 1) < 0.05


@given(names)
def test_a_torch_seed_fits_torch(name: tuple) -> None:
    seed = torch_seed(name[0], name[1], *name[2])
    assert 0 <= seed < 2**63
    assert torch.Generator().manual_seed(seed).initial_seed() == seed
