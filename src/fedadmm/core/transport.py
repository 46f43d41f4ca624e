"""What becomes of an upload on its way: one chain at the client, one at the server, for every engine and for Flower.

    client   run_client: algorithm.client_update -> Sent -> step -> step -> ... -> what travels, and what is kept
    server   run_round:  what travelled -> collector -> algorithm.server_update

How a mechanism plugs in. Its settings are a frozen table in uploads/settings.py. uploads/chain.py makes a `Transport`
of all tables, in this order of steps: attack, clip, compression, encoding. Write one or both of:

- a step (`Step`), called at the client with what the steps before it made. It returns a new `Sent`. If it shortens the
  upload, it lets the state follow with `followed`: so what the server added up is what its clients keep. What it leaves
  out and wants to send later goes to `held_back`, which is a part of the client's state.
- a collector (`Wrap`), called once a round with the collector inside it (at first `MeanInOrder`), which it may use
  or replace. Its `weight` is what the algorithm is told as turnout.active. 0 after all messages: the round is void, and
  nobody's state moves. Above 0 without a message: mean() is applied all the same.

A step must give the same bits wherever it runs: its random numbers come from `stream(seed, purpose, round, client)`. It
is pickled to worker processes. It sees the algorithm's own fields alone, and `Sent.upload` keeps the algorithm's form,
as the server reads it; the form that travels is in `wire`, whose bytes are counted and which Flower sends.

Without any mechanism there is no Transport (None), and rounds are to the bit what they were without this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.mean import Collector, is_number, rebuilt

if TYPE_CHECKING:
    from fedadmm.core.round import Assignment, ClientResult, RoundSummary

Arrays = dict[str, Any]  # what travels, by name: vectors, and numbers


class Sent(NamedTuple):
    """What a client sends and keeps, as far as the steps have come."""

    upload: Message  # as the server will read it
    state: Message  # the algorithm's own
    held_back: Vector | None = None  # before the steps: of the uploads so far; None: none
    wire: Arrays | None = None  # what travels, where it is not the upload field by field
    within_clip: bool | None = None  # whether the update was no longer than `clip` allows, None if nothing is clipped
    fits: bool = True  # else the upload is too large for the form in which it would travel, and is not sent


class Step(Protocol):
    """A mechanism at the client."""

    def __call__(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        """Return what is sent and kept; `before` is the algorithm's state before the update."""


class Codec(Protocol):
    """How an upload travels, where that is not field by field."""

    def decode(self, wire: Arrays, *, client: int, round: int) -> Message:
        """Return the upload that a client sent in a round."""

    def form(self, upload: Message) -> Arrays:
        """Return arrays of the dtypes and shapes that an upload of this form travels in."""


class Private(Protocol):
    """Differential privacy at the server, in one round: no number leaves it but those that its noise covers."""

    @property
    def asked_clip(self) -> float | None:
        """The norm to which clients are asked to shorten their uploads in this round, None if they know it."""

    @property
    def cohort(self) -> float:
        """What the algorithm is told as turnout.num_uploads: the number of clients that is expected."""

    def collector(self, inside: Collector, round: int) -> Collector:
        """Return what releases the noised sum of a round."""

    def seen(self, round: int) -> float:
        """Return what the algorithm is told as turnout.seen: the true number would tell who took part."""

    def released(self, round: int, summary: RoundSummary, applied: Sequence[ClientResult]) -> RoundSummary:
        """Return what may be told of a round, and what it has cost."""

    def after(self, released: Mapping[str, float | None]) -> Private:
        """Return the mechanism of the next round, given the numbers that the last one released."""


Wrap = Callable[[Collector, int], Collector]  # of the collector inside, and the round
Sums = Callable[[int, Sequence[int]], Collector]  # of the round, and the clients that were asked in it


@dataclass(frozen=True)
class Transport:
    """All mechanisms of a run."""

    steps: tuple[Step, ...] = ()
    wraps: tuple[Wrap, ...] = ()  # the innermost first
    buffer_wraps: tuple[Wrap, ...] = ()  # of what averages float buffers
    keeps_held_back: bool = False  # whether `held_back` is a part of clients' states
    codec: Codec | None = None  # of the step that sets `wire`
    private: Private | None = None  # at the server alone; its collector is around all others
    sums: Sums | None = None  # what takes uploads in the place of the plain mean

    def send(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        """Return what a client sends and keeps of its update."""
        for step in self.steps:
            sent = step(sent, before=before, assignment=assignment)
        return sent

    def collector(self, plain: Collector, round: int, *, asked: Sequence[int] = ()) -> Collector:
        """Return what takes the uploads of a round, around the plain mean, or what takes its place."""
        collector = _wrapped(plain if self.sums is None else self.sums(round, asked), self.wraps, round)
        return collector if self.private is None else self.private.collector(collector, round)

    def after(self, numbers: Mapping[str, float | None]) -> Transport:
        """Return the mechanisms of the next round, given the numbers in the record of the last one."""
        return self if self.private is None else replace(self, private=self.private.after(numbers))

    def buffer_collector(self, plain: Collector, round: int) -> Collector:
        """Return what takes the float buffers that come with the uploads of a round."""
        return _wrapped(plain, self.buffer_wraps, round)


def _wrapped(collector: Collector, wraps: tuple[Wrap, ...], round: int) -> Collector:
    for wrap in wraps:
        collector = wrap(collector, round)
    return collector


def scaled(upload: Message, factor: float) -> Message:
    """Return an upload whose vectors are shortened by a factor; numbers stay."""
    return rebuilt(upload, (field if is_number(field) else field * factor for field in upload))


def followed(before: Message, after: Message, factor: float) -> Message:
    """Return the state of a client of whose update only this share was sent: its vectors have moved as far.

    The uploads of our methods are linear in the change of the state, so what the server keeps of its clients stays
    exact.
    """
    fields = zip(before, after, strict=True)
    return rebuilt(after, (new if is_number(new) else old + factor * (new - old) for old, new in fields))
