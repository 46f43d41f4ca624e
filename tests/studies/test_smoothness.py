"""L against the eigenvalues of the Hessian that torch makes of the loss."""

import pytest
import torch
from torch.nn import functional

from fedadmm.studies.theory.quadratics import heterogeneous
from fedadmm.studies.theory.smoothness import LOGISTIC, SOFTMAX, SQUARES, largest_curvature, of_linear_model

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(20, 3, dtype=torch.float64, generator=GENERATOR)
CLASSES = torch.randint(2, (20,), generator=GENERATOR)
ROWS = torch.cat([INPUTS, torch.ones(20, 1).double()], dim=1)


def _softmax(w: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(ROWS @ w.view(4, 2), CLASSES)


def _logistic(w: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(ROWS @ w, CLASSES.double())


def _squares(w: torch.Tensor) -> torch.Tensor:
    return (ROWS @ w - CLASSES).square().mean() / 2


@pytest.mark.parametrize(
    ("loss", "curvature", "size"), [(_softmax, SOFTMAX, 8), (_logistic, LOGISTIC, 4), (_squares, SQUARES, 4)]
)
def test_no_hessian_is_more_curved_than_l_and_that_at_zero_is_as_curved(loss, curvature, size) -> None:
    bound = of_linear_model(INPUTS, curvature=curvature)

    def curved(w: torch.Tensor) -> float:
        return float(torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, w)).max())

    # At w = 0 both classes are as likely: there the bound is reached.
    assert curved(torch.zeros(size).double()) == pytest.approx(bound)
    generator = torch.Generator().manual_seed(1)
    for scale in (0.1, 1.0, 3.0):
        w = scale * torch.randn(size, dtype=torch.float64, generator=generator)
        assert curved(w) <= bound * (1 + 1e-12)


def test_power_iteration_finds_the_largest_eigenvalue_from_below() -> None:
    task = heterogeneous(3, 6, seed=0)
    assert task.smoothness == pytest.approx(1.0)
    start = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for hessian in (task.hessians[0], -task.hessians[0]):
        found = largest_curvature(lambda v, hessian=hessian: hessian @ v, start=start)
        assert 0.97 < found <= 1 + 1e-12
    assert largest_curvature(torch.zeros_like, start=start) == 0
