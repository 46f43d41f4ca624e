"""The folders of a deployed server and of a node's client, while they are used: copied, checked, and read for export.

What is read is a copy that LMDB makes of a store in use, as of its last committed round. `check_folders` reads in a
process of its own, as runs/check.py does.
"""

import shutil
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.delivery import NONE
from fedadmm.core.errors import InputError
from fedadmm.core.files import made_whole
from fedadmm.runs.check import CheckResult, Finding, file_findings, index_findings, problem, read_findings
from fedadmm.runs.code import accepted_changes
from fedadmm.runs.export import read_model, state_tensors
from fedadmm.runs.records import MIXED_CODE, RunFolder
from fedadmm.state.disk import DiskStore
from fedadmm.state.file import about_of, copy_store
from fedadmm.state.node import NodeStore

MODELS = ("model.safetensors", "own-model.safetensors")


def stores_below(path: Path) -> list[Path]:
    """Return the folders of servers and clients in a folder, which may be one itself; a run folder is none."""
    found = [store.parents[1] for store in sorted(path.rglob("state/data.mdb"))]
    return [folder for folder in found if not (folder / "experiment.toml").exists()]


def back_up(folder: Path, to: Path) -> list[Path]:
    """Copy the folders of servers and clients in a folder, whole or not at all, while they are used; return them."""
    found = stores_below(folder)
    if not found:
        raise InputError(f"there is no server's or client's folder in {folder}; it is STATE-DIR, or a folder in it")
    if to.exists():
        raise InputError(f"{to} is there already; give another folder, or move it aside to restore a copy to it")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with made_whole(to) as beside:
            for each in found:
                _copy(each, beside / each.relative_to(folder))
    except OSError as error:
        raise InputError(f"cannot copy {folder} to {to}: {error}; fix that, or give another folder") from error
    return [to / each.relative_to(folder) for each in found]


def _copy(folder: Path, to: Path) -> None:
    """Copy the files first: they may lag behind the store, and are never ahead of it."""
    to.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.is_file() and file.suffix != ".partial":
            shutil.copyfile(file, to / file.name)  # with the rights of new files
    copy_store(folder / "state", to / "state")


@contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as beside:
        copy = Path(beside) / folder.name
        try:
            _copy(folder, copy)
            yield copy
        except InputError as error:
            raise InputError(str(error).replace(str(copy), str(folder))) from error


def check_folders(path: Path) -> CheckResult:
    """Verify the folders of servers and clients in a folder."""
    return read_findings(findings, path)


def findings(path: Path) -> Iterator[Finding]:
    """Yield what there is to say about the folders of servers and clients in a folder."""
    for folder in stores_below(path):
        label = "" if folder == path else f"{folder.relative_to(path)}: "
        try:
            with _copied(folder) as copy:
                about = about_of(copy / "state")
                kind = _client if "client" in about else _server
                for each in kind(copy, about):
                    yield each._replace(name=f"{label}{each.name}", text=each.text.replace(str(copy), str(folder)))
        except InputError as error:
            yield problem(str(error))
    yield Finding("end", "")


def _server(path: Path, about: dict[str, str]) -> Iterator[Finding]:
    folder, algorithm = RunFolder(path), _algorithm_of(path)
    with closing(_open(path, about)) as store:
        records = store.records()
        yield Finding("fact", "server of federation", f"{about['federation']}, format {about['format']}")
        yield Finding("fact", "rounds", f"{len(records)}")
        yield Finding("fact", "clients whose updates were applied", f"{len(store):,}")
        yield Finding("fact", "rounds to roll back to", ", ".join(map(str, store.older_checkpoints())) or "none")
        if lines := accepted_changes(store):
            yield Finding("fact", MIXED_CODE, "; ".join(lines))
        yield from index_findings(store, records)
        for client in store:
            store.get(client)  # every checksum
        yield from file_findings(folder, records, store.checkpoint(), algorithm)


def _client(path: Path, about: dict[str, str]) -> Iterator[Finding]:
    with _node_store(path, about) as store:
        journal = store.journal()
        for number in (journal.acknowledged, journal.pending, *journal.kept):
            store.get(number)
    yield Finding("fact", f"client {about['client']} of federation", f"{about['federation']}, format {about['format']}")
    pending = "none" if journal.pending == NONE else f"{journal.pending}, of which the server has not spoken yet"
    yield Finding("fact", "last update that the server confirmed", f"{journal.acknowledged or 'none'}")
    yield Finding("fact", "pending update", pending)
    yield Finding("fact", "older updates, for a rollback", ", ".join(map(str, journal.kept)) or "none")
    for name in MODELS:
        model = read_model(RunFolder(path), name=name)
        yield Finding("fact", name, "not there" if model is None else f"after round {model.round}")


def export_folder(path: Path, *, client: int | None, personal: bool) -> tuple[dict[str, torch.Tensor], str]:
    """Return tensors by their names, and when they were so.

    They are a server's model, or a client's state, or its personal model as it was last evaluated.
    """
    with _copied(path) as copy:
        about = about_of(copy / "state")
        owner = about.get("client")
        if client is not None and str(client) != owner:
            whose = "a server" if owner is None else f"client {owner}"
            raise InputError(f"{path} is the folder of {whose}; client {client}'s is STATE-DIR/NAME/client-{client}")
        model = read_model(RunFolder(copy), name=MODELS[1] if personal and owner is not None else MODELS[0])
        if owner is None or personal:
            if model is None or (personal and owner is None):
                raise InputError(f"{path} has no such model; it is written when a round is committed or evaluated")
            return model.tensors, f"after round {model.round}"
        with _node_store(copy, about) as store:
            journal = store.journal()
            saved = store.get(journal.pending if journal.acknowledged == NONE else journal.acknowledged)
        if saved is None:
            raise InputError(f"client {owner} has no state in {path}; it never took part: export another")
        number, known = (journal.pending, "not yet ") if journal.acknowledged == NONE else (journal.acknowledged, "")
        return state_tensors(saved.state, model), f"after update {number}, {known}confirmed by the server"


def _algorithm_of(path: Path) -> AnyAlgorithm | None:
    from fedadmm.flower.server_folder import SETTINGS, read_settings  # imports flwr

    return read_settings(path).algorithm if (path / SETTINGS).exists() else None  # 0.2.0 wrote none


def _types(about: dict[str, str]) -> list[type[Any]]:
    """Return the types of what a store holds, as it describes them: "Server theta, u; Applied number"."""
    names = [text.partition(" ") for text in about["fields"].split("; ")]
    return [namedtuple(name, [field for field in fields.split(", ") if field]) for name, _, fields in names]


def _open(path: Path, about: dict[str, str]) -> DiskStore:
    server, client = _types(about)
    return DiskStore(path / "state", types=(server, client), identity=None, readonly=True)


def _node_store(path: Path, about: dict[str, str]) -> NodeStore:
    (kind,) = _types(about)
    identity = {"federation": about["federation"]}
    return NodeStore(path / "state", client=int(about["client"]), client_type=kind, identity=identity)
