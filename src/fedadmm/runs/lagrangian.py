"""The augmented Lagrangian (equation 3) and the optimality gap V^t (equation 7), from the clients' shares of them."""

from collections.abc import Iterable
from typing import NamedTuple

import torch

from fedadmm.core.algorithm import Vector


class Share(NamedTuple):
    """What each client adds to the Lagrangian and to V^t."""

    lagrangian: torch.Tensor  # [..., client]: f(w) + <y, w - theta> + rho/2 |w - theta|^2
    theta: Vector  # [..., client, d]: its part of grad_theta, -y - rho (w - theta)
    w: torch.Tensor  # [..., client]: |grad_w|^2
    consensus: torch.Tensor  # [..., client]: |w - theta|^2
    error: torch.Tensor  # [..., client]: |grad f(w) + y|^2, the epsilon that its last solve reached


class Gap(NamedTuple):
    """V^t by its terms."""

    theta: torch.Tensor  # |grad_theta L|^2
    w: torch.Tensor  # the sum of |grad_{w_i} L_i|^2
    consensus: torch.Tensor  # the sum of |w_i - theta|^2

    @property
    def total(self) -> torch.Tensor:
        """V^t."""
        return self.theta + self.w + self.consensus


class Certificate(NamedTuple):
    """Where a run stands."""

    lagrangian: torch.Tensor
    gap: Gap
    largest_error: torch.Tensor  # over clients, of the epsilon that the last solve reached


def share(
    *,
    w: Vector,  # [..., client, d], as are y and gradient
    y: Vector,
    theta: Vector,  # [..., d]
    rho: float,
    value: torch.Tensor,  # [..., client]: f(w)
    gradient: Vector,
) -> Share:
    """Return the clients' shares, in double precision."""
    y, gradient = y.double(), gradient.double()
    apart = w.double() - theta.double().unsqueeze(-2)
    pull = y + rho * apart
    squared = apart.square().sum(dim=-1)
    return Share(
        value.double() + (y * apart).sum(dim=-1) + rho / 2 * squared,
        -pull,
        (gradient + pull).square().sum(dim=-1),
        squared,
        (gradient + y).square().sum(dim=-1),
    )


def certificate_of(shares: Iterable[tuple[float, Share]]) -> Certificate:
    """Return the sums over clients, which may come in parts, each part with a weight: 1 for the paper's sums.

    Other weights are those of a weighted objective, or m / k where k of m clients were drawn: the sums are then
    estimates without bias, but for |grad_theta|^2, which comes out too large.
    """
    parts = [
        (
            weight * part.lagrangian.sum(dim=-1),
            weight * part.theta.sum(dim=-2),
            weight * part.w.sum(dim=-1),
            weight * part.consensus.sum(dim=-1),
            part.error.amax(dim=-1),
        )
        for weight, part in shares
    ]
    lagrangian, theta, w, consensus, errors = (torch.stack(column) for column in zip(*parts, strict=True))
    gap = Gap(theta.sum(dim=0).square().sum(dim=-1), w.sum(dim=0), consensus.sum(dim=0))
    return Certificate(lagrangian.sum(dim=0), gap, errors.amax(dim=0))
