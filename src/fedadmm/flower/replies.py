"""What a node answers: packed by the node and read by the server, side by side.

The server looks at nothing that a node sent before it has been read here. A reply that cannot be used raises
BadReplyError with the reason. So whatever is to be demanded of replies is demanded here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import WARNING
from typing import NamedTuple

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from fedadmm.core.delivery import Reply
from fedadmm.core.messages import is_finite
from fedadmm.core.round import Buffers, ClientResult, ClientStats, ServerCheckpoint
from fedadmm.flower.wire import Payload, Wire, WrongFormatError, integer, number


class BadReplyError(Exception):
    """A reply that cannot be used, with the reason."""


class Description(NamedTuple):
    """Which client a node is, and the arrays of its model."""

    client: int
    model: list[str]


class Update(NamedTuple):
    """A client's update, and which request it answers."""

    reply: Reply
    result: ClientResult


def pack_description(description: Description) -> RecordDict:
    """Return a description as records."""
    return RecordDict({"config": ConfigRecord({"client-id": description.client, "model": description.model})})


def read_description(message: Message) -> Description:
    """Return the answer to the question which client a node is."""
    with _reading(message) as content:
        config = content.config_records["config"]
        model = config["model"]
        if not isinstance(model, list):
            raise TypeError(f"model is {model!r}, not a list of arrays")
        return Description(integer(config, "client-id"), [str(line) for line in model])


def pack_update(result: ClientResult, arrays: ArrayRecord, *, request: int, num_examples: int) -> RecordDict:
    """Return a client's update as records; `arrays` has its upload and float buffers, `request` is a number."""
    stats = result.stats
    metrics = MetricRecord(
        {
            "num-examples": num_examples,
            "train-loss": stats.loss,
            "steps": stats.steps,
            "gradient-evaluations": stats.gradient_evaluations,
            "finite": int(result.finite),
        }
    )
    if stats.epsilon is not None:
        metrics["epsilon"] = stats.epsilon
    integers: list[int] = stats.buffers.integers.tolist()
    config = ConfigRecord({"client-id": result.client, "number": request, "integers": integers})
    return RecordDict({"arrays": arrays, "metrics": metrics, "config": config})


def read_update(message: Message, wire: Wire, *, checkpoint: ServerCheckpoint) -> Update:
    """Return the update in a reply to a server at this checkpoint; whether it is the client's first is the server's.

    An upload of the wrong format is refused like one that is not finite.
    """
    with _reading(message) as content:
        config, metrics = content.config_records["config"], content.metric_records["metrics"]
        reply = Reply(integer(config, "client-id"), integer(config, "number"))
        integers = torch.tensor(config["integers"], dtype=torch.int64)
        finite = bool(integer(metrics, "finite"))
        try:
            payload = wire.unpack_upload(content.array_records["arrays"], theta=checkpoint.server.theta)
            expected = checkpoint.buffers.integers
            if integers.shape != expected.shape:
                raise WrongFormatError(f"{len(integers)} integer buffers, and {len(expected)} were expected")
        except WrongFormatError as error:
            log(WARNING, "Client %d sent an upload of the wrong format: %s", reply.client, error)
            payload, finite = Payload((), torch.empty(0)), False
        stats = ClientStats(
            integer(metrics, "steps"),
            integer(metrics, "gradient-evaluations"),
            number(metrics, "train-loss"),
            Buffers(payload.floats, integers),
            number(metrics, "epsilon") if "epsilon" in metrics else None,
        )
    # An infinity in the buffers may be their own, as an attention mask's is: the client has judged what changed.
    finite = finite and is_finite(payload.message)
    return Update(reply, ClientResult(reply.client, payload.message, stats, first_visit=False, finite=finite))


def pack_scores(scores: dict[str, float], *, num_examples: int) -> RecordDict:
    """Return the scores of an evaluation as records."""
    return RecordDict({"metrics": MetricRecord({"num-examples": num_examples, **scores})})


def read_scores(message: Message) -> RecordDict:
    """Return the scores of an evaluation, still as Flower's records, which Flower averages."""
    with _reading(message) as content:
        integer(content.metric_records["metrics"], "num-examples")
        return content


@contextmanager
def _reading(message: Message) -> Iterator[RecordDict]:
    """Give the records of a reply; an error of Flower's, or records that are not as they should be, are bad replies."""
    if message.has_error():
        raise BadReplyError(_reason(message))
    try:
        yield message.content
    except (KeyError, TypeError, ValueError) as error:
        raise BadReplyError(f"its reply cannot be read: {error!r}") from error


def _reason(message: Message) -> str:
    """Return why a reply is an error: the last line of what a client raised is the sentence."""
    if message.error.code == ErrorCode.MESSAGE_UNAVAILABLE:
        return "it did not answer within round-timeout"
    lines = (message.error.reason or "no reason was given").strip().splitlines()
    return f"{lines[-1]} (code {message.error.code})"
