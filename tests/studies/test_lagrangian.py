"""The Lagrangian and V^t, against torch's own derivatives."""

import torch

from fedadmm.runs.certificate import certificate_of, share
from fedadmm.studies.theory.quadratics import heterogeneous

TASK = heterogeneous(3, 4, seed=2)
RHO = 1.7


def _some(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    w, y = torch.randn(2, 3, 4, dtype=torch.float64, generator=generator)
    return w, y, torch.randn(4, dtype=torch.float64, generator=generator)


def _shares(w: torch.Tensor, y: torch.Tensor, theta: torch.Tensor, clients: slice = slice(None)):
    value, gradient = TASK.values(w)[clients], TASK.gradients(w)[clients]
    return share(w=w[clients], y=y[clients], theta=theta, rho=RHO, value=value, gradient=gradient)


def test_the_terms_of_v_are_the_derivatives_of_the_lagrangian() -> None:
    w, y, theta = (tensor.requires_grad_() for tensor in _some(0))
    apart = w - theta
    by_equation_3 = (TASK.values(w) + (y * apart).sum(dim=1) + RHO / 2 * apart.square().sum(dim=1)).sum()
    of_w, of_y, of_theta = torch.autograd.grad(by_equation_3, (w, y, theta))
    found = certificate_of([(1.0, _shares(w.detach(), y.detach(), theta.detach()))])
    torch.testing.assert_close(found.lagrangian, by_equation_3.detach())
    torch.testing.assert_close(found.theta, of_theta.square().sum())
    torch.testing.assert_close(found.w, of_w.square().sum())
    torch.testing.assert_close(found.consensus, of_y.square().sum())
    torch.testing.assert_close(found.gap, sum(d.square().sum() for d in (of_w, of_y, of_theta)))


def test_v_is_zero_at_the_minimiser_with_its_duals_and_nowhere_near() -> None:
    theta = TASK.minimiser()
    w = theta.expand(3, -1).clone()
    y = -TASK.gradients(w)
    assert certificate_of([(1.0, _shares(w, y, theta))]).gap < 1e-24
    for moved in ((w + 0.1, y, theta), (w, y + 0.1, theta), (w, y, theta + 0.1)):
        assert certificate_of([(1.0, _shares(*moved))]).gap > 1e-3


def test_clients_may_come_in_parts() -> None:
    w, y, theta = _some(1)
    whole = certificate_of([(1.0, _shares(w, y, theta))])
    parts = certificate_of([(1.0, _shares(w, y, theta, slice(i, i + 1))) for i in range(3)])
    torch.testing.assert_close(tuple(parts), tuple(whole))
    error = (TASK.gradients(w) + y).square().sum(dim=1).max()
    torch.testing.assert_close(whole.largest_error, error)
