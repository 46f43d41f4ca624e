"""Lemmas 1 to 3 along a path, as inequalities between numbers: as printed, and as they hold from t = 0 on.

The proofs use y_i = e_i - grad f_i(w_i) with |e_i|^2 <= epsilon_i. A dual of zero has e_i = grad f_i(theta^0), whatever
epsilon_i is. So the lemmas hold from the start once the error of a client that was never visited is
|grad f_i(theta^0)|^2 (`Path.errors`); and as printed where nobody who matters is new.
"""

from typing import NamedTuple

import torch

from fedadmm.studies.theory.bounds import descent
from fedadmm.studies.theory.walk import Path

ROUNDING = 1e-12


class Inequality(NamedTuple):
    """left <= right, up to the rounding of the numbers that went into them."""

    left: torch.Tensor
    right: torch.Tensor
    size: torch.Tensor

    @property
    def holds(self) -> torch.Tensor:
        """Whether it does, for each."""
        return self.left <= self.right + ROUNDING * self.size


def lemma_1(path: Path, *, smoothness: float, printed: bool) -> Inequality:
    """Bound the step of a dual by that of its model, [T, client]; nobody moves where `active` is False."""
    dual, step = _squared(path.y.diff(dim=0)), _squared(path.w.diff(dim=0))
    right = _errors(path, printed=printed) + 2 * smoothness**2 * step
    return Inequality(dual, right, _squared(path.y[1:]) + _squared(path.y[:-1]))


def lemma_2(path: Path, *, rho: float, smoothness: float, printed: bool) -> Inequality:
    """Bound the change of the Lagrangian in each round, [T]."""
    step = _squared(path.w.diff(dim=0))
    each = -descent(rho=rho, smoothness=smoothness) * step
    each = each + path.active * path.errors[1:] / (2 * smoothness) + _errors(path, printed=printed) / rho
    num_clients = path.w.shape[1]
    right = each.sum(dim=1) - num_clients * rho / 2 * _squared(path.theta.diff(dim=0))
    return Inequality(path.certificate.lagrangian.diff(), right, _size(path, rho)[1:])


def lemma_3(path: Path, *, rho: float, smoothness: float, lowest: float, printed: bool) -> Inequality:
    """Bound the Lagrangian from below by f* less the errors, [T + 1]."""
    errors = path.errors * path.seen if printed else path.errors
    left = lowest - errors.sum(dim=1) / (2 * smoothness)
    return Inequality(left, path.certificate.lagrangian, _size(path, rho) + abs(lowest))


def _errors(path: Path, *, printed: bool) -> torch.Tensor:
    """Return what the errors of a visit and of the one before allow a dual to move, squared."""
    now, last = path.errors[1:], path.errors[:-1]
    if not printed:
        return path.active * 4 * (now + last)
    return path.active * 8 * torch.maximum(now, torch.where(path.seen[:-1], last, now))


def _size(path: Path, rho: float) -> torch.Tensor:
    """Return the size of what cancels in a Lagrangian."""
    return path.certificate.lagrangian.abs() + (rho * _squared(path.w) + _squared(path.y) / rho).sum(dim=1)


def _squared(vectors: torch.Tensor) -> torch.Tensor:
    return vectors.square().sum(dim=-1)
