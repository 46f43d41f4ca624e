"""The chain of all mechanisms that an experiment asks for, in the order in which an upload meets them."""

from typing import NamedTuple

from fedadmm.core.algorithm import Message
from fedadmm.core.transport import Private, Step, Transport, Wrap
from fedadmm.uploads.attack import AttackStep, LieWrap, attackers
from fedadmm.uploads.clip import ClipStep
from fedadmm.uploads.compression import CompressionStep
from fedadmm.uploads.robust import BufferWrap, RobustWrap
from fedadmm.uploads.settings import Attack, Compression, Privacy, Robust, keeps_held_back


class UploadSettings(NamedTuple):
    """The tables about uploads, None where there is none."""

    compression: Compression | None = None
    robust: Robust | None = None
    attack: Attack | None = None
    privacy: Privacy | None = None


def transport_of(
    settings: UploadSettings, *, seed: int, num_clients: int, like: Message, private: Private | None = None
) -> Transport | None:
    """Return what becomes of uploads, None if nothing does; `like` is an upload, for its form alone.

    private: the server's half of differential privacy, where this is the server.
    """
    compression, robust, attack, privacy = settings
    steps: list[Step] = []
    wraps: list[Wrap] = []
    buffer_wraps: list[Wrap] = []
    codec = None
    if attack is not None and attack.name not in ("label_flip", "lie"):
        steps.append(AttackStep(attack, attackers(attack, num_clients=num_clients, seed=seed), seed))
    if robust is not None:
        if isinstance(robust.norm, float | int):
            steps.append(ClipStep(robust.norm))
        wraps.append(RobustWrap(robust))
        buffer_wraps.append(BufferWrap(robust))
    if attack is not None and attack.name == "lie":  # told to the robust mean
        wraps.append(LieWrap(attack, attackers(attack, num_clients=num_clients, seed=seed)))
    if privacy is not None:
        steps.append(ClipStep(privacy.clip))
    if compression is not None:
        codec = CompressionStep(compression, seed, like)
        steps.append(codec)
    if not any(settings):
        return None
    keeps, chain = keeps_held_back(compression), (tuple(steps), tuple(wraps), tuple(buffer_wraps))
    return Transport(*chain, keeps_held_back=keeps, codec=codec, private=private)
