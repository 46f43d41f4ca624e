"""The server's folder: its checkpoint, what was applied of each client, and the records; a round is one transaction."""

import time
import tomllib
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import tomli_w

from fedadmm.config.algorithm_table import algorithm_to_table
from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import NONE
from fedadmm.core.engine import state_types
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.core.optional import LetsGoOfClients
from fedadmm.core.round import ServerCheckpoint
from fedadmm.flower.json_log import lines_of_log
from fedadmm.flower.node_status import NodeStatus
from fedadmm.flower.settings import FederationSettings
from fedadmm.flower.unfinished import OpenSum, Release
from fedadmm.own_code.definitions import definitions
from fedadmm.runs.code import check_code, named_in, note_code
from fedadmm.runs.export import write_model
from fedadmm.runs.records import Record, RunFolder
from fedadmm.state.disk import DiskStore
from fedadmm.state.node import REMEDY
from fedadmm.training.flat import FlatModel

OF_A_SERVER = f"{REMEDY}, or go on with rounds of both by accept-code = true"
STOP = (
    "end that run first: `flwr list LINK` names it, `flwr stop RUN_ID LINK` ends it; LINK is its connection, on one "
    "machine lab with FLWR_HOME=$PWD/federation/flwr"
)


class Applied(NamedTuple):
    """What the server keeps of a client: the number of its last update that was applied."""

    number: int


ROLLBACK, SUM, RELEASE = "rollback", "open sum", "release"  # notes of the store, beside the keys of clients


def _number(round: int) -> str:
    return f"number of round {round}"


def _state(client: int) -> str:
    return f"state of client {client}"  # the number of its last applied update, and the state's digest


SETTINGS = "federation.toml"  # with which the server's folder was last used


def read_settings(path: Path) -> FederationSettings:
    """Return the settings that a server's folder was last used with."""
    try:
        return FederationSettings(**tomllib.loads((path / SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is not the folder of a server that has run ({SETTINGS}: {error}); it is "
            "STATE-DIR/NAME/server, where the ServerApp runs"
        ) from error


class ServerFolder:
    """What the server must not lose, in a folder that one run at a time may hold."""

    @classmethod
    def at(cls, path: Path) -> "ServerFolder":
        """Open the folder of a server that has run, with the settings that it last had."""
        return cls(read_settings(path), path=path)

    def __init__(
        self, settings: FederationSettings, *, initial: Vector | None = None, path: Path | None = None
    ) -> None:
        """Open the folder that the settings name, or another; to make it, `initial`, theta^0, is needed."""
        self.folder = RunFolder(settings.server_folder if path is None else path)
        self._algorithm = settings.algorithm
        with ExitStack() as held:
            held.enter_context(self.folder.lock(remedy=STOP))
            fresh = {} if self.folder.state.exists() else {"federation": uuid.uuid4().hex}
            self._server_type, identity = state_types(settings.algorithm).server, settings.identity | fresh
            types = (self._server_type, Applied)
            self.store = DiskStore(
                self.folder.state, types=types, identity=identity, initial=initial, durability="power", remedy=REMEDY
            )
            held.callback(self.store.close)
            if initial is not None:
                self._check_code(settings, size=len(initial))
            held.enter_context(lines_of_log(self.folder.path / "log.jsonl"))
            self._held = held.pop_all()
        self.federation = self.store.about["federation"]
        self._last_number, self._num_kept = NONE, settings.keep_checkpoints
        write_whole(self.folder.path / SETTINGS, tomli_w.dumps(settings.to_table()))
        self.folder.write_records(self.records())
        self.nodes = NodeStatus(self.folder.path)

    def _check_code(self, settings: FederationSettings, *, size: int) -> None:
        """Refuse, as a run folder does, another code of the user's algorithm than the rounds were made with."""
        code = definitions(named_in(algorithm_to_table(settings.algorithm)))
        note_code(
            self.store, code, check_code(self.store, code, size=size, accept=settings.accept_code, remedy=OF_A_SERVER)
        )

    def close(self) -> None:
        """Let go of the folder."""
        self._held.close()

    def records(self) -> list[Record]:
        """Return the records of the committed rounds."""
        return [Record.from_json(table) for table in self.store.records()]

    def check_applied(self, *, since: int) -> None:
        """Raise an error if all rounds since one were void: scripts are to know that nothing has come of a run."""
        played = [record for record in self.records() if record.round > since]
        if played and not any(record.clients for record in played):
            raise InputError(
                f"no update was applied in round {since + 1} to {played[-1].round}; fedadmm federation status --server "
                f"{self.folder.path} says why"
            )

    def applied(self, client: int) -> int:
        """Return the number of a client's last update that was applied."""
        state = self.store.get(client)
        return NONE if state is None else state[0]

    def last_round(self, client: int) -> int | None:
        """Return the round of a client's last update that was applied; None if it has none, or begins anew."""
        return None if self.applied(client) == NONE else self.store.round_of(client)

    def begin_anew(self, client: int) -> None:
        """Let a client whose state is lost begin as a newcomer; what was applied of it stays in the model.

        What the server keeps of clients beside the model loses a client's share, where the method knows how.
        """
        checkpoint = self.store.checkpoint()
        if checkpoint is not None and self.applied(client) != NONE:
            server, method = checkpoint.server, self._algorithm
            server = method.without_client(server) if isinstance(method, LetsGoOfClients) else server
            self.store.amend(server, client=client, state=Applied(NONE))

    def key_of(self, client: int) -> str | None:
        """Return the key that answers for a client, None if it never joined."""
        return self.store.noted(f"client {client}")

    def bind(self, client: int, key: str | None) -> None:
        """Let this key alone answer for a client; None: the next that joins as that client."""
        self.store.note(f"client {client}", key)

    def digest_of(self, client: int) -> str | None:
        """Return the digest of a client's state that came with its last applied update, None if none did."""
        number, _, digest = (self.store.noted(_state(client)) or "").partition(" ")
        return digest if number == str(self.applied(client)) else None

    @property
    def rollback(self) -> int:
        """The number that was drawn when the server was last rolled back."""
        return int(self.store.noted(ROLLBACK) or NONE)

    def applied_after(self, round: int) -> dict[int, tuple[int, Applied] | None]:
        """Return what was applied last of clients by the end of a round, of those with later updates."""
        if round not in self.store.kept_rounds:
            kept = ", ".join(map(str, self.store.kept_rounds)) or "none"
            raise InputError(
                f"the checkpoint of round {round} is not kept in {self.folder.path}; those of rounds {kept} are "
                "(keep-checkpoints says how many)"
            )
        last = {client: record.round for record in self.records()[:round] for client in record.clients}
        found: dict[int, tuple[int, Applied] | None] = {}
        for client in self.store:
            if (self.store.round_of(client) or 0) > round:
                found[client] = None if client not in last else (last[client], Applied(self._number_of(last[client])))
        return found

    def _number_of(self, round: int) -> int:
        noted = self.store.noted(_number(round))
        if noted is None:
            raise InputError(
                f"the number of round {round} is not known in {self.folder.path}: an older version committed it, "
                "and what was applied of its clients cannot be told; go back to a later round"
            )
        return int(noted)

    def roll_back(self, round: int) -> None:
        """Go back to a checkpoint that was kept; what came after it is gone."""
        states, last = self.applied_after(round), len(self.store.records())
        notes: dict[str, str | None] = {_number(later): None for later in range(round + 1, last + 1)}
        notes |= {_state(client): None for client in states} | {ROLLBACK: str(self.new_number())}
        self.store.rewind(round, states=states, notes=notes)
        self.folder.write_records(self.records())

    def new_number(self) -> int:
        """Return a number above every one that was ever used: the clock's, as a restored server has forgotten some."""
        self._last_number = max(self._last_number + 1, time.time_ns() // 1000)
        return self._last_number

    def keep(self, unfinished: OpenSum | Release) -> None:
        """Write down how far a round has come, before anybody is asked for more, or is told of it."""
        self.store.keep(SUM if isinstance(unfinished, OpenSum) else RELEASE, unfinished.fields())

    def open_sum(self) -> OpenSum | None:
        """Return the masked sum of the round that a killed server has not finished, None if there is none."""
        found = self.store.kept(SUM)
        return None if found is None else OpenSum.of(found)

    def release(self) -> Release | None:
        """Return the noised round that a killed server has not committed, None if there is none."""
        found = self.store.kept(RELEASE)
        return None if found is None else Release.of(found, self._server_type)

    def commit(
        self,
        checkpoint: ServerCheckpoint,
        *,
        number: int,
        record: Record,
        model: FlatModel,
        digests: Mapping[int, str] | None = None,
    ) -> None:
        """Make a round count, and write the files for reading; digests: of the states that clients have now."""
        for client in record.clients:
            self.store.stage(checkpoint.round, client, Applied(number))
        keep = range(checkpoint.round - self._num_kept, checkpoint.round)
        notes: dict[str, str | None] = {SUM: None, RELEASE: None, _number(checkpoint.round): str(number)}
        notes |= {_state(client): f"{number} {digest}" for client, digest in (digests or {}).items()}
        self.store.commit(checkpoint, clients=record.clients, record=record.to_json(), keep=keep, notes=notes)
        self.folder.append_record(record)
        self.nodes.write()
        self.write_model(checkpoint.round, model)

    def write_model(self, round: int, model: FlatModel) -> None:
        """Write the model after a round."""
        write_model(self.folder, model.module, round=round, without=model.personal_names)
