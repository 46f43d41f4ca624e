"""Clipping: a client shortens its upload to a norm, and its state moves as far as what it sends."""

import math
from dataclasses import dataclass

from fedadmm.core.algorithm import Message
from fedadmm.core.mean import is_number
from fedadmm.core.round import Assignment
from fedadmm.core.transport import Sent, followed, scaled

ROUNDING = 1e-6  # by which a clipped upload is shortened further, so that rounding cannot make it longer than clip


@dataclass(frozen=True)
class ClipStep:
    """The step of a client that shortens its upload, to the norm it was asked for where that is adaptive."""

    clip: float

    def __call__(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        """Return the upload at most `clip` long, and the state moved as far."""
        clip = self.clip if assignment.clip is None else assignment.clip
        vectors = [field for field in sent.upload if not is_number(field)]
        norm = math.hypot(*(float(vector.double().norm()) for vector in vectors))
        # Whether the update was within clip is told to a server that asks for it alone.
        within = None if assignment.clip is None else norm <= clip
        if norm <= clip:
            return sent._replace(within_clip=within)
        factor = clip / norm * (1 - ROUNDING)
        state = followed(before, sent.state, factor)
        return sent._replace(upload=scaled(sent.upload, factor), state=state, within_clip=within)
