"""Secure aggregation as a mechanism of core/transport.py: a step that rounds uploads, and masked sums of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedadmm.core.algorithm import Message
from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.core.state_parts import vectors_of, with_vectors
from fedadmm.core.transport import Arrays, Sent
from fedadmm.secure.encoding import Encoding
from fedadmm.secure.fixed_point import OutOfRangeError, Words, drawn
from fedadmm.secure.in_one_process import MaskedSum
from fedadmm.secure.protocol import Terms, VoidError
from fedadmm.secure.settings import Secure


@dataclass(frozen=True)
class RoundingStep:
    """The step of a client that rounds its upload to what its words can say, and the codec by which words are read.

    An upload that is out of range is not sent.
    """

    encoding: Encoding
    seed: int
    keeps_rest: bool  # whether what rounding left out is kept, and added to the client's next upload
    lengthens: bool = True  # whether rounding may make an upload longer; else it is towards zero, and not at random

    def __call__(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        """Return the upload as the server will add it up."""
        upload = sent.upload
        if sent.held_back is not None:
            upload = with_vectors(upload, vectors_of(upload) + sent.held_back)
        own = stream(self.seed, "secure rounding", assignment.round, assignment.client)
        try:
            rounded = self.encoding.rounded(upload, drawn(own) if self.lengthens else np.trunc)
        except OutOfRangeError:
            return sent._replace(fits=False)
        rest = vectors_of(upload) - vectors_of(rounded) if self.keeps_rest else None
        return sent._replace(upload=rounded, held_back=rest, wire=self.form(rounded))

    def form(self, upload: Message) -> Arrays:
        """Return the words of a rounded upload."""
        return dict(zip(("words", "numbers"), self.encoding.words(upload), strict=True))

    def decode(self, wire: Arrays, *, client: int, round: int) -> Message:
        """Return the upload that words stand for which nobody has masked."""
        return self.encoding.mean((wire["words"], wire["numbers"]), count=1)


class UnmaskedMean:
    """The mean of a sum that is known: of the words of `count` clients; None if it cannot be had, and is void."""

    def __init__(self, encoding: Encoding, words: tuple[Words, ...] | None, *, count: int) -> None:
        self._encoding, self._words, self._count = encoding, words, count

    @property
    def is_void(self) -> bool:
        """Whether nothing may be done with the round, not even noise be added to nothing."""
        return self._words is None

    @property
    def weight(self) -> float:
        """The number of clients in the sum; 0: the round is void."""
        return 0.0 if self._words is None else float(self._count)

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Take nothing: the sum is known."""

    def mean(self) -> Message:
        """Return the mean."""
        assert self._words is not None
        return self._encoding.mean(self._words, count=self._count)


class MaskedMean:
    """The mean of a masked sum of rounded uploads, by the protocol in this process; void if that is."""

    def __init__(self, encoding: Encoding, settings: Secure, round: int, asked: Sequence[int], *, seed: int) -> None:
        self._encoding = encoding
        self._found: UnmaskedMean | None = None  # once all uploads are there
        terms = Terms(f"round {round}", settings.shares_needed(len(asked)))
        order = stream(seed, "secure neighbours", round)
        try:
            self._sum = MaskedSum(asked, terms, degree=settings.degree(len(asked)), generator=order)
        except VoidError:
            self._found = UnmaskedMean(encoding, None, count=0)

    @property
    def is_void(self) -> bool:
        """Whether nothing may be done with the round, not even noise be added to nothing."""
        return self._unmasked().is_void

    @property
    def weight(self) -> float:
        """The number of clients in the sum; 0: the round is void."""
        return self._unmasked().weight

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Take a client's upload."""
        (client,) = clients
        if self._found is None:
            self._sum.add(client, self._encoding.words(message))

    def mean(self) -> Message:
        """Return the mean."""
        return self._unmasked().mean()

    def _unmasked(self) -> UnmaskedMean:
        if self._found is None:
            try:
                total = self._sum.total()
            except VoidError:
                total = None
            self._found = UnmaskedMean(self._encoding, total, count=len(self._sum.senders))
        return self._found


@dataclass(frozen=True)
class MaskedSums:
    """What takes the uploads of each round in a simulation."""

    encoding: Encoding
    settings: Secure
    seed: int

    def __call__(self, round: int, asked: Sequence[int]) -> MaskedMean:
        """Return what takes those of one round."""
        return MaskedMean(self.encoding, self.settings, round, asked, seed=self.seed)
