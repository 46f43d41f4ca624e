"""Parts of a model that each client keeps for itself: a part of its state, beside the algorithm's fields."""

from typing import NamedTuple

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.state_parts import with_parts, without_part


class Personal(NamedTuple):
    """The parts of one client."""

    personal: Vector  # parameters, then float buffers
    personal_integers: Vector  # the other buffers


def joined(state: Message, personal: Personal | None) -> Message:
    """Return a state with the parts, if there are any."""
    return with_parts(state, personal)


def parted(state: Message) -> tuple[Message, Personal | None]:
    """Return the state without the parts, and the parts, None if there are none."""
    return without_part(state, Personal)
