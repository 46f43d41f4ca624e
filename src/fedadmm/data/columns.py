"""How the columns of a Hugging Face dataset become tensors: numbers, classes, images and text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from fedadmm.core.columns import Columns
from fedadmm.core.errors import InputError, near_names
from fedadmm.data.examples import IGNORED, Tree, joined_rows, mapped

NUM_BYTES = 256  # classes of a text's next byte
CHUNK = 1000  # rows that are turned into tensors at once


@dataclass(frozen=True, eq=False)
class Ways:
    """How the columns of a dataset become tensors; what is wrong with them is said here."""

    name: str
    asked: Columns
    parts: Sequence[Any]  # the splits, that of training first

    def __post_init__(self) -> None:
        asked, features = self.asked, self.parts[0].features
        wanted = [*self.inputs, *self.targets, *([asked.groups] if asked.groups else [])]
        for column in wanted:
            for part in self.parts:
                if column not in part.features:
                    remedy = near_names(column, features, what="columns")
                    raise InputError(f'"{self.name}" has no column {column!r}; {remedy}')
                if empty := part.data.column(column).null_count:
                    raise InputError(
                        f'column {column!r} of "{self.name}" is empty in {empty} rows; fill them in or leave them out'
                    )
        for column in self.inputs:
            if self._kind(column) == "text" and asked.length is None:
                raise InputError(
                    f'column {column!r} of "{self.name}" is text; set length in data.options, such as 128: the bytes '
                    "that each text is cut to"
                )
        kinds = {self._kind(column) for column in self.targets}
        if not self.is_next_byte and ("image" in kinds or (len(self.targets) > 1 and "text" in kinds)):
            raise InputError(f"targets={asked.targets!r} are neither classes nor numbers; name a column of such")

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the inputs."""
        given, features = self.asked.inputs, self.parts[0].features
        if given is not None:
            return _names(given)
        others = [column for column in features if column not in (*self.targets, self.asked.groups)]
        if len(others) != 1:
            kinds = ", ".join(f"{column} ({kind})" for column, kind in features.items())
            raise InputError(
                f'"{self.name}" has the columns {kinds[:400]}; set inputs and targets in data.options to some of them'
            )
        return tuple(others)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The columns of the targets."""
        return _names(self.asked.targets)

    @property
    def is_next_byte(self) -> bool:
        """Whether a text is its own target."""
        return self.inputs == self.targets and self._kind(self.inputs[0]) == "text"

    @cached_property
    def words(self) -> tuple[str, ...] | None:
        """The classes of a column of words in their order, None where targets are something else."""
        if self.is_next_byte or self._kind(self.targets[0]) != "text":
            return None
        return tuple(sorted({word for part in self.parts for word in part.unique(self.targets[0])}))

    @property
    def num_classes(self) -> int | None:
        """How many classes there are, None where the dataset does not say so."""
        if self.is_next_byte or self.words is not None:
            return NUM_BYTES if self.words is None else len(self.words)
        feature = self.parts[0].features[self.targets[0]]
        return getattr(feature, "num_classes", None) if len(self.targets) == 1 else None

    def input_tensors(self, dataset: Any, rows: Any) -> Tree:
        """Return the inputs of some rows: numbers of several columns as one vector, others by the columns' names."""
        found = [self._tensor(dataset, column, rows) for column in self.inputs]
        if all(part.ndim == 1 for part in found):
            return torch.stack([part.float() for part in found], dim=1)
        return dict(zip(self.inputs, found, strict=True)) if len(found) > 1 else found[0]

    def target_tensor(self, dataset: Any, rows: Any) -> Tensor:
        """Return the targets of some rows."""
        if self.is_next_byte:
            texts = _values(dataset, self.targets[0], rows)
            following = self._bytes([text.encode()[1:] for text in texts])
            lengths = torch.tensor([[len(text.encode()) - 1] for text in texts])
            return torch.where(torch.arange(following.shape[1]) < lengths, following, IGNORED)
        if self.words is not None:
            places = {word: place for place, word in enumerate(self.words)}
            return torch.tensor([places[word] for word in _values(dataset, self.targets[0], rows)])
        found = [self._tensor(dataset, column, rows) for column in self.targets]
        return found[0] if len(found) == 1 else torch.stack([part.float() for part in found], dim=1)

    def _kind(self, column: str) -> str:
        """Return "image", "text" or "numbers"."""
        import datasets

        feature = self.parts[0].features[column]
        if isinstance(feature, datasets.Image):
            return "image"
        inner = feature
        while hasattr(inner, "feature"):
            inner = inner.feature
        kind = getattr(inner, "dtype", "")
        if isinstance(feature, datasets.Value) and kind in ("string", "large_string"):
            return "text"
        if isinstance(kind, str) and kind.startswith(("int", "uint", "float", "double", "bool")):
            return "numbers"
        raise InputError(
            f'column {column!r} of "{self.name}" is of type {feature}; use numbers, images or text, or make a dataset '
            'of it in a function of yours: data.name = "package.module:function"'
        )

    def _tensor(self, dataset: Any, column: str, rows: Any) -> Tensor:
        """Return a column of some rows, [row, ...]."""
        kind = self._kind(column)
        if kind == "image":
            return torch.stack([self._pixels(image) for image in _values(dataset, column, rows)])
        if kind == "text":
            return self._bytes([text.encode() for text in _values(dataset, column, rows)])
        values = _values(dataset.with_format("numpy"), column, rows)
        array = np.asarray(values) if not isinstance(values, list) or _same_shapes(values) else np.empty(0, dtype="O")
        if array.dtype.kind not in "biuf":
            raise InputError(
                f'column {column!r} of "{self.name}" has lists of different lengths; bring them to one length first'
            )
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))

    def _bytes(self, texts: Sequence[bytes]) -> Tensor:
        assert self.asked.length is not None
        cut = b"".join(text[: self.asked.length].ljust(self.asked.length, b"\0") for text in texts)
        return torch.from_numpy(np.frombuffer(cut, dtype=np.uint8).astype(np.int64)).reshape(len(texts), -1)

    @cached_property
    def _image(self) -> tuple[str, tuple[int, int]]:
        """The mode and the size of all images."""
        images = [column for column in self.inputs if self._kind(column) == "image"]
        first = self.parts[0][0][images[0]]
        asked = self.asked
        return asked.image_mode or _mode(first), (asked.image_size,) * 2 if asked.image_size else first.size

    def _pixels(self, image: Any) -> Tensor:
        """Return an image, [channel, height, width], with pixels in [0, 1]."""
        mode, size = self._image
        if self.asked.image_mode is None and _mode(image) != mode:
            raise InputError(f'"{self.name}" has images in grey and in colours; set image_mode = "RGB" in data.options')
        if self.asked.image_size is None and image.size != size:
            found = " and of ".join("x".join(map(str, one)) for one in (size, image.size))
            raise InputError(f'"{self.name}" has images of {found} pixels; set image_size in data.options, such as 32')
        if image.mode.startswith("I"):  # 16 bits a pixel
            image, white = image.convert("I"), 65535
        else:
            image, white = image.convert(mode), 255
        pixels = np.asarray(image.resize(size), dtype=np.float32) / white
        return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)


class Rows(TorchDataset[Any]):
    """The rows of one split, each (input, target), read when they are asked for."""

    def __init__(self, dataset: Any, ways: Ways) -> None:
        self._dataset, self._ways = dataset, ways
        self.name, self.asked = ways.name, ways.asked

    @cached_property
    def targets(self) -> Tensor | None:
        """One class or number for each row, None where there is more."""
        ways = self._ways
        kinds = 0 if ways.is_next_byte else self._read(ways.target_tensor, [slice(0, 1)]).ndim
        return self._read(ways.target_tensor) if kinds == 1 else None

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: int) -> tuple[Tree, Tree]:
        one = [slice(row, row + 1)]
        pair = (self._read(self._ways.input_tensors, one), self._read(self._ways.target_tensor, one))
        return mapped(lambda part: part[0], pair)

    def all(self) -> tuple[Tree, Tree]:
        """Return all rows in memory."""
        return self._read(self._ways.input_tensors), self._read(self._ways.target_tensor)

    def _read(self, way: Callable[[Any, Any], Tree], chunks: Sequence[slice] | None = None) -> Tree:
        chunks = chunks or [slice(start, start + CHUNK) for start in range(0, len(self), CHUNK)]
        return joined_rows([way(self._dataset, chunk) for chunk in chunks])


def _names(columns: str | tuple[str, ...]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else columns


def _values(dataset: Any, column: str, rows: Any) -> Any:
    return dataset.select_columns([column])[rows][column]


def _same_shapes(values: Sequence[Any]) -> bool:
    return len({np.shape(value) for value in values}) == 1


def _mode(image: Any) -> str:
    """Return "L" for an image in grey, else "RGB"."""
    return "L" if image.mode in ("1", "L", "LA", "F") or image.mode.startswith("I") else "RGB"
