"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from fedadmm.core.files import made_whole, write_whole


def test_a_file_is_replaced_only_when_it_is_written_in_full(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def killed_half_way() -> None:
        with made_whole(path) as partial:
            partial.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed_half_way()
    assert path.read_text() == "old"
    write_whole(path, b"new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "new")]


def test_a_folder_starts_empty_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "state.partial").mkdir()
    (tmp_path / "state.partial" / "left").touch()
    with made_whole(tmp_path / "state") as partial:
        partial.mkdir()
        (partial / "data").touch()
        assert not (tmp_path / "state").exists()
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["data"]
