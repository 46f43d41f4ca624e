"""A run folder that was written with the current format, once, still opens, is well, and goes on.

Its experiment hash, torch and fedadmm are those of the day it was written, so here they are taken from the file;
that it is refused under another identity is tested in test_resume.py. If this fails, the format has changed:
raise FORMAT, keep this folder with a test that it is refused, and write a new one with make_format.py.
"""

import json
import shutil
from pathlib import Path

import pytest
from make_format import EXPERIMENT

from fedadmm.config.experiment import Experiment
from fedadmm.core.engine import state_types
from fedadmm.runs import runner
from fedadmm.runs.check import findings
from fedadmm.state.disk import DiskStore
from fedadmm.state.file import FORMAT

WRITTEN = Path(__file__).parent / f"format_{FORMAT}"
IDENTITY = {"experiment": "732c76160f", "fedadmm": "0.1.0", "torch": "2.13.0+cpu"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the stored folder, under the name that its experiment gives it on this day."""
    monkeypatch.setattr(Experiment, "hash", property(lambda self: IDENTITY["experiment"]))
    return Path(shutil.copytree(WRITTEN, tmp_path / EXPERIMENT.folder_name))


def test_it_opens_and_holds_what_was_written(folder: Path) -> None:
    store = DiskStore(folder / "state", types=state_types(EXPERIMENT.algorithm), identity=IDENTITY)
    assert store.about == {"format": "1", "fields": "Server theta; Client w, y, rho", **IDENTITY}
    assert {client: store.round_of(client) for client in store} == {0: 3, 2: 1, 3: 3}
    # Read off the day it was written.
    norms = {client: float(store.get(client).y.double().norm()) for client in store}
    assert norms == pytest.approx({0: 0.1865578034905534, 2: 0.08816267007288496, 3: 0.06546471346189586})
    assert float(store.checkpoint().server.theta.double().sum()) == pytest.approx(1.3739433474838734, rel=1e-12)
    assert [record["clients"] for record in store.records()] == [[0, 2], [0, 3], [0, 3]]
    store.close()


def test_it_is_well(folder: Path) -> None:
    found = list(findings(folder))
    assert [finding.text for finding in found if finding.kind == "problem"] == []
    assert {finding.name: finding.text for finding in found}["rounds"] == "3 of 3"


def test_it_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "identity_of", lambda experiment, *, arithmetic: IDENTITY)
    longer = EXPERIMENT.model_copy(update={"rounds": 5})
    ended = runner.run(longer, out=folder.parent)
    assert ended.folder.path == folder
    assert (ended.rounds_before, len(ended.history)) == (3, 5)
    fresh = runner.run(longer, out=tmp_path / "fresh").history
    stored = [json.loads(line) for line in (WRITTEN / "rounds.jsonl").read_text().splitlines()]
    for found, expected in zip(ended.history, fresh, strict=True):
        assert found.clients == expected.clients
        # Another torch may round otherwise.
        assert (found.loss, found.client_loss) == pytest.approx((expected.loss, expected.client_loss), rel=1e-4)
    assert [record.seconds for record in ended.history[:3]] == [record["seconds"] for record in stored]
