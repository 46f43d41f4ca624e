"""Attacks: who attacks, what is sent, and the lie of "A Little Is Enough" by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import fedadmm
from fedadmm.core.mean import MeanInOrder
from fedadmm.core.round import Assignment
from fedadmm.core.transport import Sent
from fedadmm.data.federated import flipped
from fedadmm.uploads.attack import AttackStep, LieWrap, attackers, largest_z, lie_of
from fedadmm.uploads.settings import Attack

VECTOR = torch.linspace(-1, 2, 50, dtype=torch.float64)


def _sent(name: str, *, client: int = 3, **more: Any) -> torch.Tensor:
    step = AttackStep(Attack(name=name, share=0.5, **more), frozenset({3}), seed=0)
    sent = step(Sent((VECTOR, 7.0), ()), before=(), assignment=Assignment(client, 1, 1))
    assert sent.upload[1] == 7.0
    vector: torch.Tensor = sent.upload[0]
    return vector


def test_attackers_are_a_share_of_the_clients_that_the_seed_draws() -> None:
    table = Attack(name="lie", share=0.3)
    first, again, other = (attackers(table, num_clients=50, seed=seed) for seed in (0, 0, 1))
    assert len(first) == 15
    assert first == again
    assert first != other


def test_the_attacks_on_one_upload_by_hand() -> None:
    assert _sent("sign_flip").equal(-VECTOR)
    assert _sent("scaling", factor=4.0).equal(4 * VECTOR)
    noise = _sent("noise", factor=2.0) - VECTOR
    assert float(noise.norm() / VECTOR.norm()) == pytest.approx(2.0, rel=0.3)
    assert _sent("sign_flip", client=2).equal(VECTOR)


@pytest.mark.parametrize(("n", "m"), [(50, 24), (50, 12), (20, 8), (11, 5)])
def test_a_lie_is_shifted_as_far_as_a_majority_allows(n: int, m: int) -> None:
    s = n // 2 + 1 - m
    assert largest_z(n, m) == pytest.approx(stats.norm.ppf((n - m - s) / (n - m)))


def test_a_lie_is_shifted_by_nothing_where_it_would_have_no_majority() -> None:
    assert largest_z(10, 1) == 0.0


def test_the_attackers_of_a_round_send_the_same_lie_of_their_own_uploads() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 4)))
    lie = lie_of([(row,) for row in rows[:3]], z=1.5)[0]
    expected = rows[:3].numpy().mean(axis=0) - 1.5 * rows[:3].numpy().std(axis=0)
    np.testing.assert_allclose(lie, expected, rtol=1e-12)
    collector = LieWrap(Attack(name="lie", share=0.5, factor=1.5), frozenset({0, 1, 2}))(MeanInOrder(), 1)
    for client, row in enumerate(rows):
        memory = row.clone()
        collector.add((memory,), weight=1.0, clients=(client,))
        memory.fill_(torch.nan)
    assert collector.weight == 6
    np.testing.assert_allclose(collector.mean()[0], (3 * lie + rows[3:].sum(dim=0)) / 6, rtol=1e-12)


def test_labels_are_flipped_at_the_attackers_alone() -> None:
    data = fedadmm.federate(fedadmm.load("digits"), num_clients=10, seed=0)
    wrong = flipped(data, {2, 7})
    for client in range(10):
        targets, expected = wrong.client(client).targets, data.client(client).targets
        assert targets.equal(9 - expected if client in (2, 7) else expected)
    assert wrong.test is data.test
