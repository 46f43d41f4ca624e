"""A user's call of a function of ours: an argument that is unknown, missing or of another type is a sentence."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from fedadmm.core.errors import InputError, near_names

P = ParamSpec("P")
Returned = TypeVar("Returned")

# A type and how it is asked for; whatever is not here, such as a protocol, is left to the function itself.
WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    NoneType: "None",
    Mapping: "a dict",
    dict: "a dict",
    Sequence: "a list",
    Callable: "a function",
}
ABSTRACT: dict[Any, Any] = {int: Integral, float: Real, bool: bool, dict: Mapping}


def checked_call(function: Callable[P, Returned], *, name: str | None = None) -> Callable[P, Returned]:
    """Return a function that refuses such arguments; by `name` it is known that it looks at the types itself."""
    signature, called_as = inspect.signature(function), name or function.__name__

    @functools.wraps(function)
    def called(*positional: P.args, **named: P.kwargs) -> Returned:
        for given in named:
            if given not in signature.parameters:
                remedy = near_names(given, [p for p in signature.parameters if p != "self"], what="arguments")
                raise InputError(f"{called_as} has no argument {given!r}; {remedy}")
        try:
            bound = signature.bind(*positional, **named)
        except TypeError as error:
            reason = _too_many(signature, positional) or str(error)
            raise InputError(f"{called_as}: {reason}; see help(fedadmm.{called_as})") from None
        if name is None:
            _check_types(function, bound.arguments)
        return function(*positional, **named)

    return called


def _too_many(signature: inspect.Signature, positional: Sequence[Any]) -> str | None:
    """Return what is wrong where more values are given without a name than may be, None if that is not it."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [name for name, parameter in signature.parameters.items() if parameter.kind in by_place]
    if len(positional) <= len(places):
        return None
    unnamed = len(positional) - ("self" in places)
    known = ", ".join(place for place in places if place != "self") or "no value"
    return f"{unnamed} values are given without a name, and it takes {known} so"


def _check_types(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse an argument that is none of the types that the function names for it, where these are plain."""
    hints = get_type_hints(function)
    for name, value in arguments.items():
        kinds = _kinds(hints.get(name, Any))
        plain = all(kind in WORDS or (dict in kinds and hasattr(kind, "model_fields")) for kind in kinds)
        if plain and not any(_is(value, kind) for kind in kinds):
            words = list(dict.fromkeys(WORDS[kind] for kind in kinds if kind in WORDS and kind is not NoneType))
            shown = repr(value) if len(repr(value)) < 80 else f"of type {type(value).__name__}"
            raise InputError(f"{name}={shown} is not valid; give {' or '.join(words)}")


def _kinds(hint: Any) -> list[Any]:
    """Return the plain types that a hint is made of."""
    if get_origin(hint) in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in _kinds(part)]
    return [get_origin(hint) or hint]


def _is(value: Any, kind: Any) -> bool:
    if kind is Callable:
        return callable(value)
    if kind is Sequence:  # also arrays and tensors; text is a list of letters to Python alone
        return hasattr(value, "__len__") and not isinstance(value, str | Mapping)
    if isinstance(value, bool) and kind in (int, float):
        return False
    return isinstance(value, ABSTRACT.get(kind, kind))
