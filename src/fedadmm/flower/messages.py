"""What the server asks of a node and what a node answers, each packed on one side and read on the other, side by side.

Neither side trusts the other. Nothing that a node sent is looked at before it has been read here: every part has to be
there, of its type, dtype, shape, length and range, before it is decoded. A reply that is anything else raises
BadReplyError with the reason. So whatever is to be demanded of replies is demanded here.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import Strategy

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import NONE, Request
from fedadmm.core.errors import InputError
from fedadmm.core.mean import is_finite, norm_of
from fedadmm.core.round import Assignment, Buffers, ClientResult, ClientStats, changed, norm_limit
from fedadmm.flower.incoming import MALFORMED
from fedadmm.flower.wire import ModelWire, Payload, Wire, WrongFormatError, integer, integers, number

MOST_SCORES = 100  # that an evaluation may have
MOST_WORDS = 500  # characters of what a node said that are logged


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
    facts["rollback"] = delivery.rollback
    facts |= {"federation": request.federation, "integers": buffers.integers.tolist()}
    optional = {"gradients": assignment.max_gradients, "last-round": assignment.last_round, "clip": assignment.clip}
    for key, value in optional.items():
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
    round, epochs = integer(config, "server-round", least=1), integer(config, "epochs")
    download, floats = wire.unpack_download(content.array_records["arrays"])
    clip = number(config, "clip") if "clip" in config else None
    assignment = Assignment(client, round, epochs, gradients, last_round=last_round, clip=clip)
    asked = integer(config, "number", least=1)
    rollback = (
        integer(config, "rollback", largest=asked) if "rollback" in config else NONE
    )  # a server of 0.1.0 has none
    delivery = Request(client, asked, integer(config, "applied"), rollback)
    buffers = Buffers(floats, integers(config, "integers", length=wire.num_integers))
    arrays = content.array_records.get("initial")
    initial = None if arrays is None else wire.read_model(arrays).message
    return NodeRequest(assignment, delivery, federation_of(content), download, buffers, initial)


def federation_of(content: RecordDict) -> str:
    """Return the federation that a question or a request comes from."""
    return str(content.config_records["config"]["federation"])


class NoReplyError(Exception):
    """A node that did not answer, or answered with an error of its own, with the reason."""


class BadReplyError(Exception):
    """A reply that is not what was asked for, with the reason."""


def pack_update(
    result: ClientResult, arrays: ArrayRecord, *, request: int, num_examples: int, digest: str = ""
) -> RecordDict:
    """Return a client's update as records.

    `arrays` has its upload and float buffers, `request` is a number, `digest` is that of the state it has then.
    """
    stats = result.stats
    work = {"steps": stats.steps, "gradient-evaluations": stats.gradient_evaluations, "finite": int(result.finite)}
    metrics = MetricRecord({"num-examples": num_examples, "train-loss": stats.loss, **work})
    if stats.epsilon is not None:
        metrics["epsilon"] = stats.epsilon
    if stats.within_clip is not None:
        metrics["within-clip"] = int(stats.within_clip)
    integers: list[int] = stats.buffers.integers.tolist()
    config = ConfigRecord({"client-id": result.client, "number": request, "integers": integers, "digest": digest})
    return RecordDict({"arrays": arrays, "metrics": metrics, "config": config})


def read_update(
    message: Message,
    wire: Wire,
    *,
    request: Request,
    round: int,
    theta: Vector,
    buffers: Buffers,
    largest: float = math.inf,
) -> ClientResult:
    """Return the update in the reply to a request of a round, of the theta and the buffers that were sent with it.

    Whose it is is known from the request: a reply that claims something else is refused. Whether it is the client's
    first is known to the server. One whose norm is above `largest` is refused too.
    """
    with reading(message, "arrays", "metrics", "config") as content:
        config, metrics = content.config_records["config"], content.metric_records["metrics"]
        for key, asked in (("client-id", request.client), ("number", request.number)):
            if (claimed := integer(config, key)) != asked:
                raise WrongFormatError(f"its {key} is {claimed}, and {asked} was asked")
        finite = integer(metrics, "finite", largest=1) == 1
        arrays = content.array_records["arrays"]
        payload = wire.unpack_upload(arrays, theta=theta, client=request.client, round=round)
        left_behind = Buffers(payload.floats, integers(config, "integers", length=len(buffers.integers)))
        steps, gradients = integer(metrics, "steps"), integer(metrics, "gradient-evaluations")
        epsilon = number(metrics, "epsilon") if "epsilon" in metrics else None
        loss, norm = number(metrics, "train-loss"), norm_of(payload.message)
        within = integer(metrics, "within-clip", largest=1) == 1 if "within-clip" in metrics else None
        stats = ClientStats(steps, gradients, loss, left_behind, epsilon, norm, within)
    finite = finite and is_finite(payload.message) and _plausible(payload.floats, before=buffers.floats)
    oversized = norm > largest
    return ClientResult(
        request.client,
        payload.message,
        stats,
        first_visit=False,
        finite=finite and not oversized,
        oversized=oversized,
        bytes_up=payload.num_bytes,
    )


def _plausible(floats: Vector, *, before: Vector) -> bool:
    """Return whether float buffers may follow those that were sent: what changed is finite, and not absurdly large.

    An infinity may be a buffer's own, as an attention mask's is; it is then one that was sent.
    """
    new = changed(floats, before)
    limit = norm_limit(None, theta=before[before.isfinite()], medians=())
    return not new.numel() or (is_finite((new,)) and norm_of((new,)) <= limit)


def read_digest(message: Message) -> str | None:
    """Return the digest of a client's state after an update that has been read, None if there is none."""
    digest = message.content.config_records["config"].get("digest")
    return digest if isinstance(digest, str) and re.fullmatch("[0-9a-f]{32}", digest) else None


def refused(client: int) -> ClientResult:
    """Return the result of a client whose reply is not an update: it leaves no trace but its name."""
    nothing = Buffers(torch.empty(0), torch.empty(0, dtype=torch.int64))
    return ClientResult(client, (), ClientStats(0, 0, 0.0, nothing), first_visit=False, finite=False)


def aggregated_by(
    aggregator: Strategy,
    counting: list[tuple[ClientResult, Message]],
    wire: ModelWire,
    *,
    server_round: int,
    theta: Vector,
) -> list[ClientResult]:
    """Return the results, the first of which brings what a strategy such as Krum made of all the models."""
    sound = [(result, message) for result, message in counting if result.finite]
    if not sound:
        return [result for result, _ in counting]
    arrays, _ = aggregator.aggregate_train(server_round, [_as_read(result, message) for result, message in sound])
    assert arrays is not None
    upload, floats = wire.upload_of(wire.read_own_model(arrays), theta=theta)
    first = sound[0][0]
    stats = first.stats._replace(buffers=first.stats.buffers._replace(floats=floats))
    brought = first._replace(upload=upload, stats=stats, mean_of=tuple(result.client for result, _ in sound))
    return [
        brought if result is first else result._replace(mean_of=() if result.finite else None) for result, _ in counting
    ]


def _as_read(result: ClientResult, message: Message) -> Message:
    """Return a reply for an aggregator of Flower's: what has been read of it and nothing else; all weigh the same."""
    metrics = MetricRecord({"num-examples": 1, "train-loss": result.stats.loss, "steps": result.stats.steps})
    content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
    return make_message(metadata=message.metadata, content=content)


def pack_scores(scores: dict[str, float], *, num_examples: int) -> RecordDict:
    """Return the scores of an evaluation as records."""
    return RecordDict({"metrics": MetricRecord({"num-examples": num_examples, **scores})})


class Scores(NamedTuple):
    """A client's scores, and how many examples they are over."""

    num_examples: int
    values: dict[str, float]


def read_scores(message: Message) -> Scores:
    """Return the scores of an evaluation."""
    with reading(message, "metrics") as content:
        metrics = content.metric_records["metrics"]
        if len(metrics) > MOST_SCORES:
            raise WrongFormatError(f"it has {len(metrics)} scores; {MOST_SCORES} are the most")
        values = {str(key): number(metrics, key) for key in metrics if key != "num-examples"}
        return Scores(integer(metrics, "num-examples", least=1), values)


def mean_scores(scores: list[Scores]) -> dict[str, float]:
    """Return the mean of each score over the examples of the clients that sent a finite one."""
    names = dict.fromkeys(name for own in scores for name in own.values)
    means = {}
    for name in names:
        found = [
            (own.num_examples, own.values[name]) for own in scores if math.isfinite(own.values.get(name, math.nan))
        ]
        if found:
            means[name] = sum(count * value for count, value in found) / sum(count for count, _ in found)
    return means


@contextmanager
def reading(message: Message, *records: str) -> Iterator[RecordDict]:
    """Give the records of a reply, which has to have exactly these; whatever is wrong with them makes it a bad one."""
    if message.has_error():
        raise (BadReplyError if message.error.code == MALFORMED else NoReplyError)(_reason(message))
    try:
        if set(message.content) != set(records):
            told = ", ".join(map(str, message.content)) or "none"
            raise WrongFormatError(f"it has the records {told}, and {', '.join(records)} were expected")
        yield message.content
    except Exception as error:  # no message may end a run
        told = str(error) if isinstance(error, WrongFormatError) else f"it cannot be read: {error!r}"
        raise BadReplyError(printable(told)) from error


def printable(text: str) -> str:
    """Return what a node said as it may be shown: short, and without what would move an operator's cursor."""
    return "".join(each if each.isprintable() else "?" for each in text[:MOST_WORDS])


def _reason(message: Message) -> str:
    """Return why a reply is an error: the last line of what a client raised is the sentence."""
    if message.error.code == ErrorCode.MESSAGE_UNAVAILABLE:
        return "it did not answer within round-timeout"
    reason = (message.error.reason or "no reason was given").strip()
    kind, raised, text = reason.removesuffix("'>").partition("'>:<'")  # <class 'ValueError'>:<'its words'>
    if raised:
        name = kind.rpartition(".")[2].removeprefix("<class '")
        reason = text if name == InputError.__name__ else f"{name}: {text}"
    return printable((reason.strip().splitlines() or [""])[-1])
