"""A rho that is measured is above 0, so a rho of 0 says without doubt that none was measured yet."""

import pytest
import torch

from fedadmm.algorithms.fedadmm_auto import FedADMMAuto
from fedadmm.algorithms.feddyn_auto import FedDynAuto
from fedadmm.core.algorithm import AnyAlgorithm
from hand import v
from play import Play
from quadratics import on_a_line


@pytest.mark.parametrize("algorithm", [FedDynAuto(), FedADMMAuto()])
def test_a_solver_that_overshoots_is_measured_once_too(algorithm: AnyAlgorithm) -> None:
    # f(w) = 1/2 (w - 3)^2 from theta = 1, one step of length 10, first guess rho = 1 / 10: the gradient is -2, w = 21.
    # What held it back is 2 / 20 = 1 / 10, and less rho nothing is left.
    play = Play(algorithm, on_a_line([1.0], [3.0], num_steps=1, learning_rate=10.0), v(1.0), num_clients=1)
    play.round([0])
    download = algorithm.download(play.checkpoint.server)
    assert 0 < download.rho < 1e-9
    assert download.is_measured
    assert torch.isfinite(download.theta).all()
    assert float(play.visits([0])[0].upload.stiffness) == 0.0  # it is not measured a second time
