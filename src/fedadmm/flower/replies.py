"""From Flower's replies to the visits of a round."""

from logging import WARNING

import torch
from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import Reply
from fedadmm.core.messages import is_finite
from fedadmm.core.round import Buffers, ClientResult, ClientStats
from fedadmm.flower.wire import Wire, WrongFormatError


def reply_of(message: Message) -> Reply:
    """Return what a message says of itself: whose answer it is, to which request."""
    config = message.content.config_records["config"]
    return Reply(int(config["client-id"]), int(config["number"]))  # type: ignore[arg-type]


def visit_of(message: Message, wire: Wire, *, theta: Vector, buffers: Buffers, newcomer: bool) -> ClientResult:
    """Return a reply as the round needs it; what has the wrong form is no more use than what is not finite."""
    client, content = reply_of(message).client, message.content
    metrics = content.metric_records["metrics"]
    integers = torch.tensor(content.config_records["config"]["integers"], dtype=torch.int64)
    finite = bool(metrics["finite"])
    try:
        upload, floats = wire.unpack_upload(content.array_records["arrays"], theta=theta)
        if integers.shape != buffers.integers.shape:
            raise WrongFormatError(f"{len(integers)} integer buffers, and {len(buffers.integers)} were expected")
    except WrongFormatError as error:
        log(WARNING, "Client %d sent an upload of the wrong form: %s", client, error)
        upload, floats, finite = (), torch.empty(0), False
    effort = ClientStats(
        int(metrics["steps"]),  # type: ignore[arg-type]
        int(metrics["gradient-evaluations"]),  # type: ignore[arg-type]
        float(metrics["train-loss"]),  # type: ignore[arg-type]
        Buffers(floats, integers),
        float(metrics["epsilon"]) if "epsilon" in metrics else None,  # type: ignore[arg-type]
    )
    # An infinity in the buffers may be their own, as an attention mask's is: the client has judged what changed.
    return ClientResult(client, upload, effort, newcomer, finite and is_finite(upload))


def aggregated_by(
    aggregator: Strategy, counting: list[tuple[ClientResult, Message]], wire: Wire, *, server_round: int, theta: Vector
) -> list[ClientResult]:
    """Return the visits, the first of which brings what a strategy of Flower's made of all the models."""
    sound = [(visit, message) for visit, message in counting if visit.finite]
    if not sound:
        return [visit for visit, _ in counting]
    arrays, _ = aggregator.aggregate_train(server_round, [message for _, message in sound])
    assert arrays is not None
    upload, floats = wire.unpack_upload(arrays, theta=theta)
    first = sound[0][0]
    effort = first.effort._replace(buffers=first.effort.buffers._replace(floats=floats))
    brought = first._replace(upload=upload, effort=effort, mean_of=tuple(visit.client for visit, _ in sound))
    return [
        brought if visit is first else visit._replace(mean_of=() if visit.finite else None) for visit, _ in counting
    ]
