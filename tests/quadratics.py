"""Quadratics on a line, for arithmetic by hand, beside those of the library."""

from collections.abc import Sequence

import torch

from fedadmm.studies.theory.quadratics import NO_BUFFERS, QuadraticProblem, Quadratics, heterogeneous

__all__ = ["NO_BUFFERS", "QuadraticProblem", "Quadratics", "heterogeneous", "on_a_line"]


def on_a_line(curvatures: Sequence[float], targets: Sequence[float], **how: float | Sequence[int] | None) -> Quadratics:
    """Return clients with f_i(w) = h_i/2 (w - a_i)^2, for arithmetic by hand."""
    return Quadratics(torch.tensor(curvatures)[:, None, None], torch.tensor(targets)[:, None], **how)
