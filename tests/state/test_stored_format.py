"""A run folder of each format, written once, still opens, is well, and goes on.

Its experiment hash, torch and fedadmm are those of the day it was written, so here they are taken from the file;
that it is refused under another identity is tested in test_resume.py. If this fails, the format has changed:
raise FORMAT, keep this folder and what reads it, and write a new one with make_format.py.
"""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from make_format import EXPERIMENT

from fedadmm.config.experiment import Experiment
from fedadmm.core.engine import state_types
from fedadmm.runs import runner
from fedadmm.runs.check import findings
from fedadmm.state.disk import DiskStore
from fedadmm.state.tables import FORMAT

IDENTITIES = {
    "1": {"experiment": "732c76160f", "fedadmm": "0.1.0", "torch": "2.13.0+cpu"},
    "2": {"experiment": "c5c5e68d2a", "fedadmm": "0.2.0", "torch": "2.13.0+cpu", "arithmetic": "exact"},
}


class Written(NamedTuple):
    """A stored folder, and a copy of it under the name that its experiment gives it on this day."""

    format: str
    original: Path
    folder: Path

    @property
    def identity(self) -> dict[str, str]:
        return IDENTITIES[self.format]


@pytest.fixture(params=list(IDENTITIES))
def written(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    format = request.param
    monkeypatch.setattr(Experiment, "hash", property(lambda self: IDENTITIES[format]["experiment"]))
    original = Path(__file__).parent / f"format_{format}"
    return Written(format, original, Path(shutil.copytree(original, tmp_path / EXPERIMENT.folder_name)))


def test_the_present_format_is_among_them() -> None:
    assert str(FORMAT) == max(IDENTITIES)


def test_it_opens_and_holds_what_was_written(written: Written) -> None:
    store = DiskStore(written.folder / "state", types=state_types(EXPERIMENT.algorithm), identity=written.identity)
    assert store.about == {"format": written.format, "fields": "Server theta; Client w, y, rho", **written.identity}
    assert {client: store.round_of(client) for client in store} == {0: 3, 2: 1, 3: 3}
    # Read off the day it was written.
    norms = {client: float(store.get(client).y.double().norm()) for client in store}
    assert norms == pytest.approx({0: 0.1865578034905534, 2: 0.08816267007288496, 3: 0.06546471346189586})
    assert float(store.checkpoint().server.theta.double().sum()) == pytest.approx(1.3739433474838734, rel=1e-12)
    assert [record["clients"] for record in store.records()] == [[0, 2], [0, 3], [0, 3]]
    store.close()


def test_it_is_well(written: Written) -> None:
    found = list(findings(written.folder))
    assert [finding.text for finding in found if finding.kind == "problem"] == []
    assert {finding.name: finding.text for finding in found}["rounds"] == "3 of 3"


def test_it_goes_on(written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "identity_of", lambda experiment, *, arithmetic: written.identity)
    longer = EXPERIMENT.model_copy(update={"rounds": 5})
    ended = runner.run(longer, out=written.folder.parent)
    assert ended.folder.path == written.folder
    assert (ended.rounds_before, len(ended.history)) == (3, 5)
    fresh = runner.run(longer, out=tmp_path / "fresh").history
    stored = [json.loads(line) for line in (written.original / "rounds.jsonl").read_text().splitlines()]
    for found, expected in zip(ended.history, fresh, strict=True):
        assert found.clients == expected.clients
        # Another torch may round otherwise.
        assert (found.loss, found.client_loss) == pytest.approx((expected.loss, expected.client_loss), rel=1e-4)
    assert [record.seconds for record in ended.history[:3]] == [record["seconds"] for record in stored]
