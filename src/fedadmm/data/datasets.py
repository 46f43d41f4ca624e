"""Datasets by name: their training and test examples, normalised."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedadmm.core.calls import checked_call
from fedadmm.core.errors import InputError, calling, import_named
from fedadmm.core.seeds import stream
from fedadmm.data import hugging_face
from fedadmm.data.examples import IGNORED, Examples
from fedadmm.data.files import data_folder, parse_cifar_batch, parse_idx, present, read
from fedadmm.data.reading import Collate, Reader, kept, rows_of
from fedadmm.data.sources import CIFAR10, FASHION_MNIST, MNIST, PUBLISHED, QMNIST, QMNIST_TEXT, Source
from fedadmm.data.text import read_text

DATASETS = ("digits", "mnist", "fmnist", "cifar10", "text")
_NUM_DIGITS_TRAIN = 1437
_WRITER_COLUMN = 2


class Dataset(NamedTuple):
    """Training and test examples, and who made each training example where that is known."""

    train: Examples
    test: Examples | None
    num_classes: int  # 0 where targets are numbers, not classes
    groups: np.ndarray | None = None  # [training example], such as its writer
    reader: Reader | None = None  # where examples are rows that are read batch by batch

    def __repr__(self) -> str:
        train, test = (0 if part is None else len(part.targets) for part in (self.train, self.test))
        kind = f"{self.num_classes:,} classes" if self.num_classes else "numbers as targets"
        return f"<Dataset: {train:,} training examples, {kind}, {test:,} test examples>"


# By the name of a normalisation, and then of a dataset: mean and std of pixels in [0, 1], one for each channel.
MOMENTS: dict[str, dict[str, dict[str, list[float]]]] = PUBLISHED["moments"]


def moments_of(name: str, normalisation: str | None) -> dict[str, list[float]] | None:
    """Return the mean and the std that pixels in [0, 1] are normalised by, None where inputs are taken as they are."""
    return MOMENTS.get(normalisation or "dataset", {}).get(name)


@checked_call
def load(
    name: str,
    *,
    data_dir: str | Path | None = None,
    normalisation: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Return the dataset `name`, which may also be a user's "package.module:function" returning (train, test).

    "hf:NAME" is one in the format of Hugging Face's `datasets`: a file, a folder or a name in its cache. `options` are
    its columns and splits, such as {"inputs": "image", "targets": "label"}; `fedadmm keys hugging_face` has all.
    Normalisation is "dataset" (its own mean and std, the default), "released" (as in the paper's released code) or
    "none" (pixels in [0, 1]). What a user's function returns is taken as it is, and so is "hf:NAME" by default.
    """
    if not isinstance(name, str):
        raise InputError(
            f"data of type {type(name).__name__} is not a name; give one, such as 'digits', or make a dataset of "
            "your own examples with fedadmm.make_dataset"
        )
    if name.startswith(hugging_face.PREFIX):
        return _hugging_face(name, options or {}, normalisation=normalisation)
    if options:
        raise InputError(f'data "{name}" takes no options; they are for "hf:NAME" and quadratic')
    if ":" in name:
        return _load_named(name, normalisation=normalisation)
    if name not in DATASETS:
        choices = ", ".join(DATASETS)
        raise InputError(f'there is no dataset {name!r}; use {choices} or "package.module:function"')
    if name == "text":
        if normalisation not in (None, "none"):
            raise InputError(f'normalisation "{normalisation}" for text, which is bytes; leave it out')
        train, test, files = read_text()
        return make_dataset(train, test, groups=files)._replace(num_classes=256)
    normalisation = normalisation or "dataset"
    _check_normalisation(name, normalisation)
    folder, groups = data_folder(data_dir), None
    if name == "digits":
        train, test = _digits()
    elif name == "cifar10":
        train, test = read_cifar(CIFAR10, folder=folder)
    else:
        train, test = read_idx_images(MNIST if name == "mnist" else FASHION_MNIST, folder=folder)
        groups = _mnist_writers(folder) if name == "mnist" else None
    if (moments := moments_of(name, normalisation)) is not None:
        mean, std = (torch.tensor(moments[key]).view(-1, 1, 1) for key in ("mean", "std"))
        for part in (train, test):
            part.inputs.sub_(mean).div_(std)
    return Dataset(train, test, _num_classes([train.targets, test.targets]), groups)


@checked_call
def make_dataset(
    train: Any,
    test: Any = None,
    *,
    groups: Sequence[Any] | np.ndarray | None = None,
    lazy: bool | None = None,
    collate: Collate | None = None,
    targets: Any = None,
) -> Dataset:
    """Return a user's own examples as a Dataset; each part is a pair (inputs, targets) or a torch Dataset.

    Inputs and targets are tensors or arrays, [example, ...], or tuples and dicts of such. A torch Dataset of (input,
    target) is read once and kept in memory. It is instead read batch by batch if `lazy` is True, if there is a
    `collate`, a function of a list of items that returns (inputs, targets), or if it draws random numbers, as
    augmentations do: these are then others in every round and epoch, and the same again in the same run.

    groups: who made each training example, for partition "natural".
    targets: one class for each training example of a lazy dataset, for partitions by class. If they are not given and
        the dataset has no attribute of this name, each example is read once for its own.
    """
    if train is None:
        raise InputError("there are no training examples; give a pair (inputs, targets) or a torch Dataset")
    if isinstance(train, Dataset):
        raise InputError("this is a Dataset already; deal it out as it is, by fedadmm.federate(dataset, ...)")
    lazy = True if collate is not None else lazy
    parts = [kept(part, lazy=lazy) for part in (train, test) if part is not None]
    reader, examples = None, [part for part in parts if isinstance(part, Examples)]
    if len(examples) < len(parts):
        reader, examples = rows_of(parts, collate=collate, targets=targets)
    if groups is not None and len(groups) != len(examples[0].targets):
        raise InputError(f"{len(groups)} groups for {len(examples[0].targets)} training examples; give one for each")
    num_classes = _num_classes([part.targets for part in examples])
    groups = None if groups is None else np.asarray(groups)
    return Dataset(examples[0], None if test is None else examples[1], num_classes, groups, reader)


def as_dataset(source: Any) -> Dataset:
    """Return a user's examples as a Dataset, if they are not one."""
    return source if isinstance(source, Dataset) else make_dataset(source)


def _num_classes(targets: Sequence[Tensor]) -> int:
    """Return the number of classes, 0 where targets are numbers."""
    known = [values for values in targets if values.numel()]
    if not known or any(values.is_floating_point() for values in known):
        return 0
    counting = torch.cat([values[values != IGNORED] for values in known])
    if len(counting) and int(counting.min()) < 0:
        raise InputError(
            f"a target is {int(counting.min())}; number the classes from 0, and give {IGNORED} to one that is to be "
            "ignored, or give numbers that are not classes as floats"
        )
    return int(counting.max()) + 1 if len(counting) else 0


def read_idx_images(source: Source, *, folder: Path) -> tuple[Examples, Examples]:
    """Return the training and test images of a source of four idx files, with pixels in [0, 1]."""
    arrays = [parse_idx(read(file, folder=folder, source_name=source.name)) for file in source.files]
    train_images, train_labels, test_images, test_labels = arrays
    return _examples(train_images[:, None], train_labels), _examples(test_images[:, None], test_labels)


def read_cifar(source: Source, *, folder: Path) -> tuple[Examples, Examples]:
    """Return the training and test images of a source of binary batches, the last of them for testing."""
    contents = [read(file, folder=folder, source_name=source.name) for file in source.files]
    *train_batches, test_batch = [parse_cifar_batch(content) for content in contents]
    images, labels = zip(*train_batches, strict=True)
    return _examples(np.concatenate(images), np.concatenate(labels)), _examples(*test_batch)


def _load_named(name: str, *, normalisation: str | None) -> Dataset:
    if normalisation not in (None, "none"):
        raise InputError(f'normalisation "{normalisation}" for "{name}"; normalise inside the function instead')
    function = import_named(name, what="data")
    if not callable(function):
        raise InputError(
            f'data "{name}" is of type {type(function).__name__}; name a function that returns (train, test)'
        )
    with calling(f'data "{name}"'):
        returned = function()
    if isinstance(returned, Dataset):
        return returned
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise InputError(
            f'data "{name}" returned {type(returned).__name__}; return (train, test), where test may be None'
        )
    train, test = returned
    return make_dataset(train, test=test)


def _hugging_face(name: str, options: Mapping[str, Any], *, normalisation: str | None) -> Dataset:
    if normalisation not in (None, "none", "dataset"):
        raise InputError(f'there is no normalisation {normalisation!r} for "{name}"; use "dataset" or "none"')
    train, test, groups, num_classes = hugging_face.read(name, options)
    dataset = make_dataset(train, test, groups=groups, lazy=True if options.get("lazy") else None)
    inputs = dataset.train.inputs
    if normalisation == "dataset":
        if dataset.reader is not None or not inputs.is_floating_point():
            raise InputError(f'normalisation "dataset" for "{name}", whose inputs are not one tensor; leave it out')
        over = [axis for axis in range(inputs.ndim) if axis != 1]  # all but channels, or columns
        std, mean = torch.std_mean(inputs, dim=over, keepdim=True)
        for part in (dataset.train, dataset.test):
            if part is not None:
                part.inputs.sub_(mean).div_(torch.where(std > 0, std, 1))
    return dataset if num_classes is None else dataset._replace(num_classes=num_classes)


@cache  # a megabyte; a comparison asks for it once for each run
def _digits_table() -> np.ndarray:
    """Return a row for each image: 64 pixels, and the label."""
    # The file that scikit-learn brings; importing scikit-learn takes a second, which a node has in every round.
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")


def _digits() -> tuple[Examples, Examples]:
    table = _digits_table()
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)
    # One split for everyone: it does not depend on a run's seed.
    order = stream(0, "digits split").permutation(len(labels))
    train, test = order[:_NUM_DIGITS_TRAIN], order[_NUM_DIGITS_TRAIN:]
    return (_examples(images[train], labels[train], white=16), _examples(images[test], labels[test], white=16))


def _mnist_writers(folder: Path) -> np.ndarray | None:
    binary = QMNIST.files[0]
    if present(binary, folder=folder) is not None:
        rows = parse_idx(read(binary, folder=folder, source_name="qmnist"))
    elif present(QMNIST_TEXT, folder=folder) is not None:
        text = read(QMNIST_TEXT, folder=folder, source_name="qmnist")
        rows = np.array(text.split(), dtype=np.int32).reshape(len(text.splitlines()), -1)
    else:
        return None
    return rows[:, _WRITER_COLUMN]


def _examples(images: np.ndarray, labels: np.ndarray, *, white: int = 255) -> Examples:
    inputs = torch.from_numpy(images.astype(np.float32)).div_(white)
    return Examples(inputs, torch.from_numpy(labels.astype(np.int64)))


def _check_normalisation(name: str, normalisation: str) -> None:
    if normalisation not in (*MOMENTS, "none"):
        raise InputError(f'there is no normalisation {normalisation!r}; use "dataset", "released" or "none"')
    if normalisation != "none" and name not in MOMENTS[normalisation]:
        raise InputError(f'the released code has no normalisation for {name}; use "dataset" or "none"')
