"""The chain of all mechanisms that an experiment asks for, in the order in which an upload meets them."""

from typing import NamedTuple

from fedadmm.core.algorithm import Message
from fedadmm.core.transport import Step, Transport, Wrap
from fedadmm.uploads.compression import CompressionStep
from fedadmm.uploads.settings import Compression, keeps_held_back


class UploadSettings(NamedTuple):
    """The tables about uploads, None where there is none."""

    compression: Compression | None = None


def transport_of(settings: UploadSettings, *, seed: int, like: Message) -> Transport | None:
    """Return what becomes of uploads, None if nothing does; `like` is an upload, for its form alone."""
    if not any(settings):
        return None
    steps: list[Step] = []
    wraps: list[Wrap] = []
    codec = None
    if settings.compression is not None:
        codec = CompressionStep(settings.compression, seed, like)
        steps.append(codec)
    return Transport(tuple(steps), tuple(wraps), keeps_held_back=keeps_held_back(settings.compression), codec=codec)
