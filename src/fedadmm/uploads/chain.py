"""The chain of all mechanisms that an experiment asks for, in the order in which an upload meets them."""

from fedadmm.core.algorithm import Message
from fedadmm.core.transport import Codec, Private, Step, Sums, Transport, Wrap
from fedadmm.uploads.attack import AttackStep, LieWrap, attackers
from fedadmm.uploads.clip import ClipStep
from fedadmm.uploads.compression import CompressionStep, compressor_of
from fedadmm.uploads.robust import BufferWrap, RobustWrap
from fedadmm.uploads.settings import UploadSettings


def transport_of(
    settings: UploadSettings,
    *,
    seed: int,
    num_clients: int,
    like: Message,
    client: type[Message],
    private: Private | None = None,
) -> Transport | None:
    """Return what becomes of uploads, None if nothing does.

    like: an upload, for its form alone. client: the type of a client's state.
    private: the server's half of differential privacy, where this is the server.
    """
    compression, robust, attack, privacy, secure = settings
    steps: list[Step] = []
    wraps: list[Wrap] = []
    buffer_wraps: list[Wrap] = []
    sums: Sums | None = None
    codec: Codec | None = None
    keeps_rest = settings.keep_rest(client)
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
        compressor_of(compression)  # finds a mistake in a user's name before the first round
        steps.append(codec)
    if secure is not None:
        from fedadmm.secure.encoding import Encoding
        from fedadmm.secure.transport import MaskedSums, RoundingStep  # an extra

        encoding = Encoding(secure.coordinates(num_clients), like)
        rounding = codec = RoundingStep(encoding, seed, keeps_rest, lengthens=privacy is None)
        steps.append(rounding)
        sums = MaskedSums(encoding, secure, seed)
    if not any(settings):
        return None
    chain = (tuple(steps), tuple(wraps), tuple(buffer_wraps))
    return Transport(*chain, keeps_held_back=keeps_rest, codec=codec, private=private, sums=sums)
