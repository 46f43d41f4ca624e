import gzip

import pytest

from fedadmm.core.errors import InputError
from fedadmm.data.datasets import read_idx_images
from fedadmm.data.files import data_folder


def test_idx_files_are_read_unpacked_and_gzipped(tiny, tmp_path):
    tiny.write(tmp_path / "plain" / "Tiny" / "raw")
    tiny.write_gzipped(tmp_path / "gzipped" / "Tiny" / "raw")
    for folder in (tmp_path / "plain", tmp_path / "gzipped"):
        train, test = read_idx_images(tiny.source(), folder=folder)
        assert train.inputs.shape == (2, 1, 2, 2)
        # Pixels 0..7 of 255: the second image begins with 4.
        assert train.inputs[1, 0, 0, 0].item() == pytest.approx(4 / 255)
        assert train.targets.tolist() == [3, 1]
        assert test.inputs.tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]


def test_a_missing_file_is_named_with_the_command_that_gets_it(tiny, tmp_path):
    tiny.write(tmp_path / "Tiny" / "raw")
    (tmp_path / "Tiny" / "raw" / "train-labels").unlink()
    with pytest.raises(InputError) as caught:
        read_idx_images(tiny.source(), folder=tmp_path)
    path = tmp_path / "Tiny" / "raw" / "train-labels"
    assert str(caught.value) == f"{path} is missing; run `fedadmm data fetch tiny --data-dir {tmp_path}`"


def test_the_command_in_an_error_needs_no_folder_when_it_is_the_default(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDADMM_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"run `fedadmm data fetch tiny`$"):
        read_idx_images(tiny.source(), folder=tmp_path)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[: len(content) // 2], "it is truncated"),
        (lambda content: b"", "its content has sha256"),
        (lambda content: b"not gzip", "it cannot be read"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1]), "its content has sha256"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1] + b"\1"), "its content has sha256"),
    ],
)
def test_a_damaged_file_is_named_with_the_command_that_replaces_it(tiny, tmp_path, damage, reason):
    tiny.write_gzipped(tmp_path / "Tiny" / "raw")
    path = tmp_path / "Tiny" / "raw" / "test-images.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError) as caught:
        read_idx_images(tiny.source(), folder=tmp_path)
    assert str(caught.value).startswith(f"{path} is not the published file ({reason}")
    assert "run `fedadmm data fetch tiny" in str(caught.value)


def test_the_data_folder_is_the_one_given_then_the_environments_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDADMM_DATA", str(tmp_path / "environment"))
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == tmp_path / "environment"
    monkeypatch.delenv("FEDADMM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in data_folder().parents
    assert data_folder().parts[-2:] == ("fedadmm", "data")
