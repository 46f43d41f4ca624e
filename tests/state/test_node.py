"""A node's store: two states at most, named by the journal, and of one client of one federation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_stores import Client, a_state

from fedadmm.core.delivery import Journal
from fedadmm.core.errors import InputError
from fedadmm.state.node import NodeStore, SavedState
from play import identical

IDENTITY = {"federation": "f0"}


def node_store(folder: Path, **changes: Any) -> NodeStore:
    arguments: dict[str, Any] = {"client": 3, "client_type": Client, "identity": IDENTITY}
    return NodeStore(folder, **{**arguments, **changes})


def test_a_new_store_has_no_state(tmp_path: Path) -> None:
    with node_store(tmp_path / "state") as store:
        assert store.journal() == Journal()
        assert store.get(0) is None


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    kept = SavedState(a_state(3, 1), torch.tensor([0.5]))
    with node_store(tmp_path / "state") as store:
        store.write(Journal(0, 7), pending=kept)
    with node_store(tmp_path / "state") as store:
        assert store.journal() == Journal(0, 7)
        assert identical(store.get(7), kept)


def test_only_the_states_that_the_journal_names_are_kept(tmp_path: Path) -> None:
    with node_store(tmp_path / "state") as store:
        for journal in (Journal(0, 7), Journal(7, 8), Journal(7, 9)):  # 8 was not applied
            store.write(journal, pending=SavedState(a_state(3, journal.pending)))
        assert identical(store.get(7), SavedState(a_state(3, 7)))
        assert identical(store.get(9), SavedState(a_state(3, 9)))
        with pytest.raises(InputError, match="damaged"):
            store.get(8)


def test_a_digest_is_of_the_state_and_says_nothing_to_others(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "other"):
        with node_store(tmp_path / name) as store:
            assert store.digest(0) == ""
            store.write(Journal(0, 7), pending=SavedState(a_state(3, 1)))
            first = store.digest(7)
            store.write(Journal(7, 8), pending=SavedState(a_state(3, 1)))
            assert first == store.digest(7) == store.digest(8)  # the same state
            store.write(Journal(7, 9), pending=SavedState(a_state(3, 2)))
            assert store.digest(9) != first
            digests.append(first)
    assert digests[0] != digests[1]  # keyed by each store


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"identity": {"federation": "f1"}}, "written with federation f0, here it is f1"),
        ({"client": 4}, "written with client 3, here it is 4"),
    ],
)
def test_a_store_of_somebody_else_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    node_store(tmp_path / "state").__exit__()
    with pytest.raises(InputError, match=f"{sentence}.*give this federation a name or a state-dir of its own"):
        node_store(tmp_path / "state", **changes)


def test_a_damaged_state_is_an_error_and_not_a_newcomer(tmp_path: Path) -> None:
    with node_store(tmp_path / "state") as store:
        store.write(Journal(0, 7), pending=SavedState(a_state(3, 1)))
    file = tmp_path / "state" / "data.mdb"
    content = bytearray(file.read_bytes())
    where = content.find(b"journal")
    content[where + 10 : where + 20] = bytes(10)
    file.write_bytes(content)
    with node_store(tmp_path / "state") as store, pytest.raises(InputError, match=r"the journal .* is damaged"):
        store.journal()
