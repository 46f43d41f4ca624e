"""Compressors against independent computations: means over draws, numpy's sort, the papers' recursions by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedadmm.algorithms import FedADMM, FedAvg
from fedadmm.core.mean import num_bytes
from fedadmm.core.seeds import stream
from fedadmm.core.state_parts import HeldBack, without_part
from fedadmm.core.transport import Transport
from fedadmm.engine.probe import probe
from fedadmm.uploads.compression import CompressionStep, compressor_of
from fedadmm.uploads.settings import Compression
from play import Play
from quadratics import heterogeneous

NAMES = ("bfloat16", "int8", "int4", "top_k", "random_k")
D = 600  # two blocks of 256 and a part of one


def _table(name: str, **changes: Any) -> Compression:
    return Compression(name=name, **({"keep": 0.1} if name in ("top_k", "random_k") else {}) | changes)


def _vector(size: int = D, *, spike: float = 1.0) -> torch.Tensor:
    vector = torch.from_numpy(stream(0, "vector").standard_normal(size)).float()
    vector[0] *= spike
    return vector


def _read(table: Compression, vector: torch.Tensor, *, draw: int = 0) -> torch.Tensor:
    compressor = compressor_of(table)
    arrays = compressor.compress(vector, stream(1, "draw", draw))
    return compressor.decompress(arrays, len(vector), stream(1, "draw", draw))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8", "int4", "random_k"])
def test_without_error_feedback_the_mean_over_draws_is_the_vector(name: str) -> None:
    vector, num = _vector(50, spike=10.0), 3000
    read = torch.stack([_read(_table(name), vector, draw=draw) for draw in range(num)]).double()
    error = read.std(dim=0) / math.sqrt(num)
    assert ((read.mean(dim=0) - vector).abs() <= 5 * error + 1e-6).all()
    assert float(read.std(dim=0).max()) > 1e-3  # and it is random


@pytest.mark.slow
def test_int4_draws_one_of_the_two_levels_around_as_qsgd_does() -> None:
    # A block with scale 7: levels are whole numbers, and 2.25 is 3 with probability 1/4, -0.5 is -1 with 1/2.
    vector = torch.tensor([7.0, 2.25, -0.5, 0.0])
    read = torch.stack([_read(_table("int4"), vector, draw=draw) for draw in range(4000)])
    assert (read[:, 0] == 7).all()
    assert (read[:, 3] == 0).all()
    assert set(read[:, 1].tolist()) == {2.0, 3.0}
    assert set(read[:, 2].tolist()) == {-1.0, 0.0}
    # Five standard deviations of a share over 4,000 draws: 5 sqrt(p (1 - p) / 4000).
    assert abs(float((read[:, 1] == 3).float().mean()) - 0.25) < 0.035
    assert abs(float((read[:, 2] == -1).float().mean()) - 0.5) < 0.04


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spike", [1.0, 1e4])
def test_with_error_feedback_every_compressor_is_a_contraction(name: str, spike: float) -> None:
    vector = _vector(spike=spike)
    read = _read(_table(name, error_feedback=True), vector)
    assert float((read - vector).norm()) < float(vector.norm())


def test_top_k_keeps_what_numpy_sorts_first() -> None:
    vector = _vector()
    largest = np.argsort(-np.abs(vector.numpy()), kind="stable")[:60]
    expected = np.zeros(D, dtype=np.float32)
    expected[largest] = vector.numpy()[largest]
    for keep in (0.1, 0.01):  # as bits, and as numbers
        count = round(keep * D)
        expected[largest[count:]] = 0.0
        np.testing.assert_array_equal(_read(_table("top_k", keep=keep), vector).numpy(), expected)
        # The bound of a k-contraction: |C(x) - x|^2 <= (1 - k / d) |x|^2.
        assert float((torch.from_numpy(expected) - vector).norm()) ** 2 <= (1 - keep) * float(vector.norm()) ** 2


@pytest.mark.parametrize(
    ("table", "num"),
    [
        (_table("bfloat16"), 2 * D),
        (_table("int8"), D + 4 * 3),  # a byte each, and three scales
        (_table("int8", block=100), D + 4 * 6),
        (_table("int4"), D // 2 + 4 * 3),
        (_table("top_k"), 4 * 60 + D // 8),  # 60 values, and a bit for each place
        (_table("top_k", keep=0.01), 4 * 6 + 4 * 6),  # six values, and their places
        (_table("random_k"), 4 * 60),  # the server draws the places
    ],
    ids=str,
)
def test_the_bytes_are_those_of_the_encoding(table: Compression, num: int) -> None:
    arrays = compressor_of(table).compress(_vector(), stream(0, "x"))
    assert num_bytes(tuple(arrays.values())) == num


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("feedback", [False, True])
def test_zeros_tiny_numbers_and_one_coordinate_come_back(name: str, feedback: bool) -> None:
    table = _table(name, error_feedback=feedback)
    assert _read(table, torch.zeros(7)).equal(torch.zeros(7))
    tiny = torch.full((5,), 1e-44)  # below the least normal number
    assert _read(table, tiny).isfinite().all()
    assert _read(table, torch.tensor([3.0])).item() == pytest.approx(3.0, rel=0.01)


def _play(method: Any, table: Compression) -> Play:
    theta = torch.linspace(-2, 3, 12, dtype=torch.float64)
    step = CompressionStep(table, 0, probe(method, theta).upload)
    task = heterogeneous(4, 12, num_steps=3, learning_rate=0.2)
    return Play(method, task, theta, num_clients=4, transport=Transport(steps=(step,), keeps_held_back=True))


def _largest(vector: np.ndarray, count: int) -> np.ndarray:
    kept = np.zeros_like(vector)
    places = np.argsort(-np.abs(vector), kind="stable")[:count]
    kept[places] = vector[places]
    return kept


def test_what_clients_of_admm_send_is_ef21_of_the_quantity_that_the_server_adds_up() -> None:
    # EF21: c = C(h - g), g <- g + c, where h is the change of u = w + y / rho since the beginning.
    method = FedADMM(rho=0.5, eta="participation", newcomer="initial")
    play = _play(method, _table("top_k", keep=0.25, error_feedback=True))
    initial, known = play.theta.numpy().copy(), np.zeros((4, 12))
    for clients in ([0, 1, 2], [1, 3], [0, 1, 2, 3], [1], [0, 1]):
        play.round(clients)
        for client in clients:
            state, part = without_part(play.states[client], HeldBack)
            h = (state.w + state.y / state.rho).numpy() - initial
            known[client] += _largest(h - known[client], 3)
            assert part is not None
            np.testing.assert_allclose(part.held_back.numpy(), h - known[client], atol=1e-12)
        np.testing.assert_allclose(play.theta.numpy(), initial + known.mean(axis=0), atol=1e-12)
    assert np.abs(known).max() > 0.1


def test_what_clients_of_fedavg_send_is_error_feedback_of_their_steps() -> None:
    # c = C(u + e), e <- u + e - c; the steps u are those of a client that starts from the same theta.
    play = _play(FedAvg(), _table("top_k", keep=0.25, error_feedback=True))
    kept = np.zeros((4, 12))
    for clients in ([0, 1, 2], [1, 3], [0, 1, 2, 3], [1]):
        plain = Play(FedAvg(), play.engine._task, play.theta, num_clients=4)
        steps = {visit.client: visit.upload[0].numpy() for visit in plain.visits(clients)}
        theta, sent = play.theta.numpy().copy(), []
        play.round(clients)
        for client in clients:
            sent.append(_largest(steps[client] + kept[client], 3))
            kept[client] += steps[client] - sent[-1]
        np.testing.assert_allclose(play.theta.numpy(), theta + np.mean(sent, axis=0), atol=1e-12)
