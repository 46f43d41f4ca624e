"""What an operator asks of each node: nodes.json in the server's folder, which is read without torch.

It is for reading: nothing is lost with it but these lines.
"""

import json
import math
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.runs.records import Record, RunFolder

NODES = "nodes.json"


@dataclass(frozen=True)
class NodeFacts:
    """What a server has seen of a node."""

    client: int | None = None  # None: it has not said so, or is left out
    seen: float | None = None  # when it last answered, in seconds since 1970
    refused: int = 0  # answers that were not what it was asked for
    problem: str = ""  # the last one, whatever came of it
    problem_at: float | None = None  # when that was
    norm: float | None = None  # of the last upload that could be read, applied or not


class NodeStatus:
    """The facts of all nodes, which are written with every round."""

    def __init__(self, folder: Path) -> None:
        self._path, self.nodes = folder / NODES, read_nodes(folder)

    def answered(self, node: int, *, client: int | None = None) -> None:
        """Note that a node has answered now, and as which client it takes part."""
        if client is not None:  # a node that is drawn anew takes the place of the client's old one
            self.nodes = {key: facts for key, facts in self.nodes.items() if facts.client != client or key == node}
        known = self._facts(node)
        self.nodes[node] = replace(known, seen=time.time(), client=known.client if client is None else client)

    def sent(self, node: int, *, norm: float) -> None:
        """Note how long the upload was that a node has sent now."""
        self.answered(node)
        if math.isfinite(norm):
            self.nodes[node] = replace(self.nodes[node], norm=norm)

    def failed(self, node: int, problem: str) -> None:
        """Note why there is no answer of a node's."""
        self.nodes[node] = replace(self._facts(node), problem=problem, problem_at=time.time())

    def refused(self, node: int, problem: str) -> None:
        """Note that an answer of a node's was refused."""
        self.answered(node)
        self.failed(node, problem)
        self.nodes[node] = replace(self.nodes[node], refused=self.nodes[node].refused + 1)

    def write(self) -> None:
        """Write the file."""
        write_whole(self._path, json.dumps({str(node): asdict(facts) for node, facts in self.nodes.items()}, indent=1))

    def _facts(self, node: int) -> NodeFacts:
        return self.nodes.get(node, NodeFacts())


def read_nodes(folder: Path) -> dict[int, NodeFacts]:
    """Return what was written of each node, nothing if there is no file."""
    try:
        table: dict[str, dict[str, Any]] = json.loads((folder / NODES).read_text(encoding="utf-8"))
        known = NodeFacts.__dataclass_fields__.keys()  # another version may have written more
        return {int(node): NodeFacts(**{k: facts[k] for k in known & facts.keys()}) for node, facts in table.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / NODES} cannot be read: {error}; remove it: the server makes it anew") from error


class ClientRow(NamedTuple):
    """A client and its node, or a node that is no client."""

    client: int | None
    node: int | None
    facts: NodeFacts
    applied: int | None  # the round in which an update of the client's was last applied
    lost: int  # rounds in which it was selected, and no answer came


def client_rows(folder: Path) -> list[ClientRow]:
    """Return what the files of a server's folder say of every client that it selected and every node that it saw."""
    records = [Record.from_json(table) for table in RunFolder(folder).read_records()]
    applied = {client: record.round for record in records for client in record.clients}
    lost: dict[int, int] = defaultdict(int)
    for record in records:
        for client in record.lost:
            lost[client] += 1
    nodes = read_nodes(folder)
    node_of = {facts.client: node for node, facts in nodes.items() if facts.client is not None}
    rows = []
    for client in sorted(applied.keys() | lost.keys() | node_of.keys()):
        node = node_of.get(client)
        facts = NodeFacts(client) if node is None else nodes[node]
        rows.append(ClientRow(client, node, facts, applied.get(client), lost[client]))
    return rows + [ClientRow(None, n, facts, None, 0) for n, facts in sorted(nodes.items()) if facts.client is None]
