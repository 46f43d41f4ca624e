"""What tells an object of the user's from another of the same code: its settings, and what it closes over."""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

PLAIN = str | bytes | int | float | complex | PurePath | None
HIDDEN = ("_", "training")  # how names begin that are no settings


def made_of(value: Any, seen: tuple[int, ...] = ()) -> Iterator[FunctionType | type]:
    """Yield the functions and classes that an object is made of."""
    if isinstance(value, partial):
        yield from made_of(value.func, seen)
    elif isinstance(value, MethodType):
        yield type(value.__self__) if not isinstance(value.__self__, type) else value.__self__
    elif isinstance(value, FunctionType):
        yield value
        for inner in map(_content, value.__closure__ or ()):
            if isinstance(inner, FunctionType | MethodType | type | partial) and id(inner) not in seen:
                yield from made_of(inner, (*seen, id(value)))
    elif isinstance(value, type):
        yield value
    else:
        yield from {type(part) for part in (value.modules() if isinstance(value, nn.Module) else [value])}


def values_of(value: Any, *, weights: bool = True) -> str:
    """Return a digest over the settings of an object; what a run may change, as arrays in attributes, is left out.

    weights: whether those of a module count; the ones of a model that is trained do not.
    """
    found = hashlib.blake2b(digest_size=8)
    parts = value.modules() if isinstance(value, nn.Module) and not weights else None
    for piece in _pieces(value if parts is None else [_settings(part) for part in parts], ()):
        found.update(piece)
    return found.hexdigest()


def _pieces(value: Any, seen: tuple[int, ...]) -> Iterator[bytes]:
    inner: Any = ()
    if isinstance(value, PLAIN):
        yield repr(value).encode()
    elif isinstance(value, torch.Tensor):
        yield value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray):
        yield value.tobytes()
    elif id(value) in seen or isinstance(value, type):
        pass
    elif isinstance(value, dict):
        inner = [part for item in value.items() for part in item]
    elif isinstance(value, list | tuple):
        inner = value
    elif isinstance(value, partial):
        inner = (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        cells = map(_content, value.__closure__ or ())
        inner = (value.__defaults__, value.__kwdefaults__, *cells)
    elif isinstance(value, MethodType):
        inner = (value.__self__,)
    else:
        parts = value.modules() if isinstance(value, nn.Module) else [value]
        inner = [_settings(part) for part in parts]
        if isinstance(value, nn.Module):
            inner.append(value.state_dict())
    for part in inner:
        yield b"("
        yield from _pieces(part, (*seen, id(value)))
        yield b")"


def _settings(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that are numbers, names, or lists of such."""
    found = vars(value) if hasattr(value, "__dict__") else {}
    return {
        key: own
        for key, own in found.items()
        if not key.startswith(HIDDEN)
        and (isinstance(own, PLAIN) or (isinstance(own, list | tuple) and all(isinstance(one, PLAIN) for one in own)))
    }


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None
