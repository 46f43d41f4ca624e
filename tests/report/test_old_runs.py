"""Run folders of 0.1.0 open: FedPD with silent clients, and a server that sits out (keys that have other names now)."""

from pathlib import Path

import pytest

from commands import fedadmm
from fedadmm.report.runs import read_run

OLD = Path(__file__).parent / "runs_of_0_1_0"
FOLDERS = sorted(OLD.iterdir())


def test_a_run_of_an_older_version_is_read_with_its_silent_clients() -> None:
    fedpd, randomised = (read_run(folder) for folder in FOLDERS)
    assert (fedpd.label, fedpd.status, len(fedpd.rounds)) == ("fedpd", "finished", 6)
    assert fedpd.experiment["local"]["accuracy"] == 0.5  # called tolerance now
    assert fedpd.rounds[4].silent == (0, 1, 2, 3, 4)  # nobody communicated
    assert (randomised.label, randomised.status, len(randomised.rounds)) == ("randomised", "finished", 3)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_run_of_an_older_version_is_shown(folder: Path, tmp_path: Path) -> None:
    shown = fedadmm("show", folder, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert (folder / "experiment.toml").read_text().splitlines()[0] in shown.stdout


@pytest.mark.slow
def test_runs_of_an_older_version_are_reported_and_listed(tmp_path: Path) -> None:
    made = fedadmm("report", OLD, "--out", "report", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    table = (tmp_path / "report" / "tables.md").read_text()
    assert "| fedpd | 6+ |" in table
    assert "| randomised | 3+ |" in table
    listed = fedadmm("list", "--out", OLD, cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert "Left out" not in listed.stderr
