"""What the server asks of a node: packed by the server and read by the node, side by side."""

from typing import Any, NamedTuple

import torch
from flwr.app import ConfigRecord, RecordDict

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import Request
from fedadmm.core.round import Assignment, Buffers
from fedadmm.flower.wire import Payload, Wire, integer


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
    facts: dict[str, Any] = {
        "server-round": assignment.round,
        "client-id": assignment.client,
        "epochs": assignment.epochs,
        "number": delivery.number,
        "applied": delivery.applied,
        "federation": request.federation,
        "integers": buffers.integers.tolist(),
    }
    for key, value in (("gradients", assignment.gradients), ("last-round", assignment.last_round)):
        if value is not None:
            facts[key] = value
    content = RecordDict({"arrays": wire.pack_download(Payload(request.download, buffers.floats))})
    content["config"] = ConfigRecord({**config, **facts})
    if request.initial is not None:
        content["initial"] = wire.format.model_arrays(request.initial, buffers.floats)
    return content


def read_request(content: RecordDict, wire: Wire) -> NodeRequest:
    """Return the request in a message's records; arrays of another model raise WrongFormatError."""
    config = content.config_records["config"]
    client = integer(config, "client-id")
    gradients, last_round = (integer(config, key) if key in config else None for key in ("gradients", "last-round"))
    round, epochs = integer(config, "server-round"), integer(config, "epochs")
    download, floats = wire.unpack_download(content.array_records["arrays"])
    initial = content.array_records.get("initial")
    return NodeRequest(
        Assignment(client, round, epochs, gradients, last_round=last_round),
        Request(client, integer(config, "number"), integer(config, "applied")),
        federation_of(content),
        download,
        Buffers(floats, torch.tensor(config["integers"], dtype=torch.int64)),
        None if initial is None else wire.format.read_model(initial).message,
    )


def pack_question(federation: str) -> RecordDict:
    """Return the question to a node which client it is."""
    return RecordDict({"config": ConfigRecord({"federation": federation})})


def federation_of(content: RecordDict) -> str:
    """Return the federation that a question or a request comes from."""
    return str(content.config_records["config"]["federation"])
