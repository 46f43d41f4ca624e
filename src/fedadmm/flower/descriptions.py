"""Which client a node is, what its model looks like and which states it has: what the server asks and a node says."""

from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict

from fedadmm.core.delivery import Journal
from fedadmm.flower.identity import Claim, Signed, signed
from fedadmm.flower.messages import federation_of, reading
from fedadmm.flower.wire import LARGEST, WrongFormatError, integer

MOST_KEPT = 10_000  # older states that a client may have


def pack_question(federation: str, question: str) -> RecordDict:
    """Return the question to a node which client it is; `question` is drawn, and asked once."""
    return RecordDict({"config": ConfigRecord({"federation": federation, "question": question})})


def pack_description(
    content: RecordDict,
    *,
    node: int,
    client: int,
    folder: Path,
    model: list[str],
    journal: Journal,
    digests: tuple[str, str],
) -> RecordDict:
    """Return as records which client a node is, signed with the key in its folder, its model's arrays, its updates."""
    question = str(content.config_records["config"]["question"])
    key, signature = signed(Claim(federation_of(content), question, node, client), folder=folder)
    facts: dict[str, Any] = {"client-id": client, "model": model, "key": key, "signature": signature}
    facts |= journal._asdict() | {"kept": list(journal.kept), "digests": list(digests)}
    return RecordDict({"config": ConfigRecord(facts)})


class Description(NamedTuple):
    """What a node says of itself."""

    client: int
    model: list[str]  # a line for each array
    key: str  # with which it has signed that it is this client
    journal: Journal  # which updates it has states of
    digests: tuple[str, ...] = ()  # of the acknowledged state and of the pending one; a node of 0.1.0 sends none


def read_description(message: Message, *, federation: str, question: str, node: int) -> Description:
    """Return what a node says of itself in answer to a question; one that has not signed it is a bad reply."""
    with reading(message, "config") as content:
        config = content.config_records["config"]
        model = config["model"]
        if not isinstance(model, list):
            raise WrongFormatError("model is not a list of arrays")
        client, by = integer(config, "client-id"), Signed(str(config["key"]), str(config["signature"]))
        if not by.is_of(Claim(federation, question, node, client)):
            raise WrongFormatError(f"it has not signed that it is client {client}")
        journal = Journal(integer(config, "acknowledged"), integer(config, "pending"), _kept(config))
        digests = config.get("digests", [])
        if not isinstance(digests, list) or len(digests) > 2:
            raise WrongFormatError("digests is not a list of two")
        return Description(client, [str(line) for line in model], by.key, journal, tuple(map(str, digests)))


def _kept(config: ConfigRecord) -> tuple[int, ...]:
    """Return the numbers of the older states that a node has; one of 0.1.0 has none."""
    numbers = config.get("kept", [])
    if not isinstance(numbers, list) or len(numbers) > MOST_KEPT:
        raise WrongFormatError(f"kept is not a list of at most {MOST_KEPT}")
    found = tuple(each for each in numbers if isinstance(each, int) and 0 < each <= LARGEST)
    if len(found) < len(numbers):
        raise WrongFormatError("kept has something that is not the number of an update")
    return found
