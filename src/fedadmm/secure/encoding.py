"""An upload as words that can be added: its vectors in one array, its numbers in another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedadmm.core.algorithm import Message
from fedadmm.core.mean import is_number, rebuilt
from fedadmm.core.state_parts import vectors_of
from fedadmm.secure.fixed_point import FixedPoint, OutOfRangeError, Rule, Words

LARGEST_NUMBER = 2.0**20  # of the numbers beside the vectors, each of which has 64 bits
LARGEST_STATISTIC = 2.0**32  # of what is only for the record: a larger one counts as this


@dataclass(frozen=True)
class Encoding:
    """How the uploads of a method are encoded; `like` is one, for its form alone."""

    coordinates: FixedPoint
    like: Message

    @property
    def numbers(self) -> FixedPoint:
        """How the numbers beside the vectors are encoded."""
        return FixedPoint(64, LARGEST_NUMBER, self.coordinates.num_terms)

    @property
    def statistics(self) -> FixedPoint:
        """How a client's statistics of a round are encoded, which are added up too."""
        return FixedPoint(64, LARGEST_STATISTIC, self.coordinates.num_terms)

    def statistic_words(self, statistics: Iterable[float]) -> Words:
        """Return the words of statistics; none of them is a reason to send nothing."""
        known = np.nan_to_num(np.array([*statistics], np.float64), nan=LARGEST_STATISTIC)
        return self.statistics.words(self.statistics.rounded(known.clip(-LARGEST_STATISTIC, LARGEST_STATISTIC)))

    def rounded(self, upload: Message, rule: Rule) -> Message:
        """Return the upload that its words will stand for; one that has no words raises OutOfRangeError.

        rule: by which coordinates are rounded; numbers beside them go to the nearest.
        """

        def fields() -> Iterator[Any]:
            for name, field in zip(getattr(self.like, "_fields", self.like), upload, strict=True):
                try:
                    if is_number(field):
                        yield float(self.numbers.rounded(field))
                    else:
                        # A float32 holds every whole step, as what has more digits than it is rounded to itself.
                        yield torch.from_numpy(self.coordinates.rounded(field.numpy(), rule)).to(field.dtype)
                except OutOfRangeError as error:
                    raise OutOfRangeError(f"{name}: {error}") from None

        return rebuilt(upload, fields())

    def words(self, rounded: Message) -> tuple[Words, Words]:
        """Return the words of the vectors, one after the other, and of the numbers."""
        numbers = [field for field in rounded if is_number(field)]
        return self.coordinates.words(vectors_of(rounded).numpy()), self.numbers.words(np.array(numbers))

    def mean(self, words: tuple[Words, ...], *, count: int) -> Message:
        """Return the mean of as many uploads as were added to the words."""
        vectors, numbers = self.coordinates.numbers(words[0]) / count, iter(self.numbers.numbers(words[1]) / count)
        sizes = [len(field) for field in self.like if not is_number(field)]
        parts = iter(torch.from_numpy(vectors).split(sizes))
        fields = (float(next(numbers)) if is_number(field) else next(parts).to(field.dtype) for field in self.like)
        return rebuilt(self.like, fields)
