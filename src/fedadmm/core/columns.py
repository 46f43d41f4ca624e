"""Which columns and splits of a Hugging Face dataset become examples, and how."""

from typing import Any, Literal

from pydantic import field_validator

from fedadmm.core.errors import InputError
from fedadmm.core.settings import Count, Settings


class Columns(Settings):
    """The keys of data.options where data.name is "hf:NAME": columns, splits, and how they become tensors.

    inputs = "image": a column, or a list of columns. Those of numbers become one vector; others, a dict of tensors by
        their names. Left out: the only column beside targets and groups.
    targets = "label": a column, or a list of columns of numbers, such as several labels of 0 and 1. The column of
        inputs itself if it is text: then each byte's target is the next one.
    groups = "writer": a column that says whose example it is, for partition = "natural".
    train = "train": the split that is trained on.
    test = "validation": the split that is tested on. Left out: "test", if there is one.
    config = "en": which of several configurations a dataset on the hub has.
    length = 128: the bytes that each text is cut to, or filled up to with 0.
    image_size = 32: the height and width that images are brought to; left out, they are as they are.
    image_mode = "RGB": colours, or "L" for grey; left out, that of the first image.
    lazy = true: reads from the files batch by batch, for data that does not fit memory.
    """

    inputs: str | tuple[str, ...] | None = None
    targets: str | tuple[str, ...] = "label"
    groups: str | None = None
    train: str = "train"
    test: str | None = None
    config: str | None = None
    length: Count | None = None
    image_size: Count | None = None
    image_mode: Literal["RGB", "L"] | None = None
    lazy: bool = False

    @field_validator("inputs", "targets")
    @classmethod
    def _check_columns(cls, value: Any, info: Any) -> Any:
        names = (value,) if isinstance(value, str) else value or ()
        if value is not None and (not names or len(set(names)) < len(names)):
            raise InputError(f"{info.field_name}={list(names)} is empty, or names a column twice; name each once")
        return value
