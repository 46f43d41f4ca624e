"""What the server asks of a node and what a node answers, each packed on one side and read on the other, side by side.

The server looks at nothing that a node sent before it has been read here. A reply that cannot be used raises
BadReplyError with the reason. So whatever is to be demanded of replies is demanded here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import WARNING
from typing import Any, NamedTuple

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import Reply, Request
from fedadmm.core.round import Assignment, Buffers, ClientResult, ClientStats, is_finite, norm_of
from fedadmm.flower.wire import Payload, Wire, WrongFormatError, integer, number


class NodeRequest(NamedTuple):
    """A request to train a model, or to evaluate it."""

    assignment: Assignment
    delivery: Request  # the request's number, and the client's last update that was applied
    federation: str  # whose state it is about
    download: Any
    buffers: Buffers
    initial: Vector | None = None  # theta^0, which travels only to those who need it


def pack_request(request: NodeRequest, wire: Wire, *, config: ConfigRecord) -> RecordDict:
    """Return a request as records; `config` is what a user of Flower adds to them."""
    assignment, delivery, buffers = request.assignment, request.delivery, request.buffers
    facts: dict[str, Any] = {"server-round": assignment.round, "client-id": assignment.client}
    facts |= {"epochs": assignment.epochs, "number": delivery.number, "applied": delivery.applied}
    facts |= {"federation": request.federation, "integers": buffers.integers.tolist()}
    for key, value in (("gradients", assignment.gradients), ("last-round", assignment.last_round)):
        if value is not None:
            facts[key] = value
    content = RecordDict({"arrays": wire.pack_download(Payload(request.download, buffers.floats))})
    content["config"] = ConfigRecord({**config, **facts})
    if request.initial is not None:
        content["initial"] = wire.model_arrays(request.initial, buffers.floats)
    return content


def read_request(content: RecordDict, wire: Wire) -> NodeRequest:
    """Return the request in a message's records; arrays of another model raise WrongFormatError."""
    config = content.config_records["config"]
    client = integer(config, "client-id")
    gradients, last_round = (integer(config, key) if key in config else None for key in ("gradients", "last-round"))
    round, epochs = integer(config, "server-round"), integer(config, "epochs")
    download, floats = wire.unpack_download(content.array_records["arrays"])
    assignment = Assignment(client, round, epochs, gradients, last_round=last_round)
    delivery = Request(client, integer(config, "number"), integer(config, "applied"))
    buffers = Buffers(floats, torch.tensor(config["integers"], dtype=torch.int64))
    arrays = content.array_records.get("initial")
    initial = None if arrays is None else wire.read_model(arrays).message
    return NodeRequest(assignment, delivery, federation_of(content), download, buffers, initial)


def pack_question(federation: str) -> RecordDict:
    """Return the question to a node which client it is."""
    return RecordDict({"config": ConfigRecord({"federation": federation})})


def federation_of(content: RecordDict) -> str:
    """Return the federation that a question or a request comes from."""
    return str(content.config_records["config"]["federation"])


class BadReplyError(Exception):
    """A reply that cannot be used, with the reason."""


def pack_description(client: int, model: list[str]) -> RecordDict:
    """Return as records which client a node is, and the arrays of its model."""
    return RecordDict({"config": ConfigRecord({"client-id": client, "model": model})})


def read_description(message: Message) -> tuple[int, list[str]]:
    """Return which client a node is, and the arrays of its model."""
    with _reading(message) as content:
        config = content.config_records["config"]
        model = config["model"]
        if not isinstance(model, list):
            raise TypeError(f"model is {model!r}, not a list of arrays")
        return integer(config, "client-id"), [str(line) for line in model]


def pack_update(result: ClientResult, arrays: ArrayRecord, *, request: int, num_examples: int) -> RecordDict:
    """Return a client's update as records; `arrays` has its upload and float buffers, `request` is a number."""
    stats = result.stats
    work = {"steps": stats.steps, "gradient-evaluations": stats.gradient_evaluations, "finite": int(result.finite)}
    metrics = MetricRecord({"num-examples": num_examples, "train-loss": stats.loss, **work})
    if stats.epsilon is not None:
        metrics["epsilon"] = stats.epsilon
    integers: list[int] = stats.buffers.integers.tolist()
    config = ConfigRecord({"client-id": result.client, "number": request, "integers": integers})
    return RecordDict({"arrays": arrays, "metrics": metrics, "config": config})


def read_update(message: Message, wire: Wire, *, theta: Vector, buffers: Buffers) -> tuple[Reply, ClientResult]:
    """Return which request a reply answers, and its update of the theta and the buffers that clients were sent.

    Whether it is the client's first is known to the server. An upload of the wrong format is
    refused like one that is not finite.
    """
    with _reading(message) as content:
        config, metrics = content.config_records["config"], content.metric_records["metrics"]
        reply = Reply(integer(config, "client-id"), integer(config, "number"))
        integers = torch.tensor(config["integers"], dtype=torch.int64)
        finite = bool(integer(metrics, "finite"))
        try:
            payload = wire.unpack_upload(content.array_records["arrays"], theta=theta)
            if integers.shape != buffers.integers.shape:
                raise WrongFormatError(f"{len(integers)} integer buffers, and {len(buffers.integers)} were expected")
        except WrongFormatError as error:
            log(WARNING, "Client %d sent an upload of the wrong format: %s", reply.client, error)
            payload, finite = Payload((), torch.empty(0)), False
        steps, gradients = integer(metrics, "steps"), integer(metrics, "gradient-evaluations")
        loss, left_behind = number(metrics, "train-loss"), Buffers(payload.floats, integers)
        epsilon = number(metrics, "epsilon") if "epsilon" in metrics else None
        stats = ClientStats(steps, gradients, loss, left_behind, epsilon, norm_of(payload.message))
    # An infinity in the buffers may be their own, as an attention mask's is: the client has judged what changed.
    finite = finite and is_finite(payload.message)
    return reply, ClientResult(reply.client, payload.message, stats, first_visit=False, finite=finite)


def aggregated_by(
    aggregator: Strategy, counting: list[tuple[ClientResult, Message]], wire: Wire, *, server_round: int, theta: Vector
) -> list[ClientResult]:
    """Return the results, the first of which brings what a strategy such as Krum made of all the models."""
    sound = [(result, message) for result, message in counting if result.finite]
    if not sound:
        return [result for result, _ in counting]
    arrays, _ = aggregator.aggregate_train(server_round, [message for _, message in sound])
    assert arrays is not None
    upload, floats = wire.unpack_upload(arrays, theta=theta)
    first = sound[0][0]
    stats = first.stats._replace(buffers=first.stats.buffers._replace(floats=floats))
    brought = first._replace(upload=upload, stats=stats, mean_of=tuple(result.client for result, _ in sound))
    return [
        brought if result is first else result._replace(mean_of=() if result.finite else None) for result, _ in counting
    ]


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
