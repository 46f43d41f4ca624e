"""Robust means against scipy, numpy and arithmetic by hand, and against uploads that are absurd."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from fedadmm.core.algorithm import Message
from fedadmm.core.mean import MeanInOrder
from fedadmm.core.seeds import stream
from fedadmm.uploads.robust import RobustWrap, krum_order
from fedadmm.uploads.settings import Robust

RULES: dict[str, dict[str, Any]] = {
    "median": {},
    "trimmed_mean": {"trim": 0.3},
    "krum": {"liars": 2},
    "geometric_median": {},
    "norm_clip": {"norm": "1x"},
}


def _rows(num: int = 9, size: int = 40) -> torch.Tensor:
    return torch.from_numpy(stream(0, "rows").standard_normal((num, size)))


def _mean(rows: torch.Tensor, weights: Any = None, **table: Any) -> torch.Tensor:
    collector = RobustWrap(Robust(**table))(MeanInOrder(), 1)
    for place, row in enumerate(rows):
        memory = row.clone()
        collector.add((memory,), weight=1.0 if weights is None else weights[place], clients=(place,))
        memory.fill_(torch.nan)  # a worker writes its next upload there
    assert collector.weight == (len(rows) if weights is None else sum(weights))
    mean: Message = collector.mean()
    return mean[0]


@pytest.mark.parametrize("num", [1, 2, 8, 9])
def test_the_median_is_numpys(num: int) -> None:
    rows = _rows(num)
    np.testing.assert_allclose(_mean(rows, name="median"), np.median(rows.numpy(), axis=0), rtol=1e-14)


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.12, 0.3, 0.49])
@pytest.mark.parametrize("num", [1, 5, 9, 10])
def test_the_trimmed_mean_is_scipys(trim: float, num: int) -> None:
    rows = _rows(num)
    expected = stats.trim_mean(rows.numpy(), trim, axis=0)
    np.testing.assert_allclose(_mean(rows, name="trimmed_mean", trim=trim), expected, rtol=1e-12)


def test_krum_by_hand() -> None:
    # With f = 1 each of five is scored by its 5 - 1 - 2 = 2 nearest: 1 + 4.84, 1 + 1.44, 1.44 + 4.84, 0.25 + 60.84, and
    # 0.25 + 68.89. The 3 nearest would make 2.2 the best.
    rows = torch.tensor([[0.0], [1.0], [2.2], [10.0], [10.5]])
    assert krum_order(rows, liars=1) == [1, 0, 2, 3, 4]
    assert _mean(rows, name="krum", liars=1).item() == 1.0
    assert _mean(rows, name="krum", liars=1, select=2).item() == 0.5


def test_krum_is_that_of_a_plain_loop() -> None:
    rows, f = _rows(11).numpy(), 3
    scores = []
    for i in range(11):
        distances = sorted(sum((rows[i] - rows[j]) ** 2) for j in range(11) if j != i)
        scores.append(sum(distances[: 11 - f - 2]))
    expected = rows[int(np.argmin(scores))]
    np.testing.assert_array_equal(_mean(torch.from_numpy(rows), name="krum", liars=f), expected)


def test_krum_of_too_few_is_void() -> None:
    collector = RobustWrap(Robust(name="krum", liars=1))(MeanInOrder(), 1)
    for row in _rows(4):
        collector.add((row,), weight=1.0)
    assert collector.weight == 0.0


@pytest.mark.parametrize("weights", [None, [1.0, 5.0, 2.0, 1.0, 1.0, 3.0, 1.0]])
def test_the_geometric_median_minimises_the_sum_of_distances(weights: Any) -> None:
    rows = _rows(7, 5)
    numbers = rows.numpy()

    def total(point: Any) -> float:
        return float(np.average(np.linalg.norm(numbers - point, axis=1), weights=weights))

    best = optimize.minimize(total, numbers.mean(axis=0), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(_mean(rows, weights, name="geometric_median"), best.x, atol=1e-5)


def test_the_geometric_median_of_one_place_is_that_place() -> None:
    rows = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [5.0, 5.0]], dtype=torch.float64)
    assert float(_mean(rows, name="geometric_median").norm()) < 1e-4


@pytest.mark.parametrize("rows", [torch.randn(1, 5), torch.ones(4, 5), torch.full((3, 5), 0.1), torch.zeros(2, 5)])
def test_the_geometric_median_of_uploads_that_are_alike_is_such_an_upload(rows: torch.Tensor) -> None:
    np.testing.assert_allclose(_mean(rows, name="geometric_median"), rows[0], rtol=1e-6)


def test_norm_clipping_by_hand() -> None:
    # Lengths 5, 1 and 10. To 2: (1.2, 1.6), (1, 0), (0, 2). To their median, 5: (3, 4), (1, 0), (0, 5).
    rows = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 10.0]], dtype=torch.float64)
    np.testing.assert_allclose(_mean(rows, name="norm_clip", norm=2.0), [2.2 / 3, 3.6 / 3], rtol=1e-12)
    np.testing.assert_allclose(_mean(rows, name="norm_clip", norm="1x"), [4 / 3, 9 / 3], rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_two_absurd_uploads_of_nine_do_little(rule: str) -> None:
    rows = _rows()
    honest = rows[2:].mean(dim=0)
    rows[0], rows[1] = 1e6, -3e6 * rows[1]
    assert float((_mean(rows, name=rule, **RULES[rule]) - honest).norm()) < 10
    assert float((rows.mean(dim=0) - honest).norm()) > 1e5


def test_numbers_are_further_coordinates() -> None:
    collector = RobustWrap(Robust(name="median"))(MeanInOrder(), 1)
    for number in (1.0, 2.0, 1e9):
        collector.add((torch.zeros(2), number), weight=1.0)
    assert collector.mean()[1] == 2.0
