"""Frozen, validated settings whose errors are sentences, and the kinds of numbers that they have."""

import inspect
import math
import re
from collections.abc import Callable
from functools import cache
from inspect import Parameter, Signature
from typing import Annotated, Any, Self, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError, ValidationInfo
from pydantic._internal._model_construction import ModelMetaclass

from fedadmm.core.errors import InputError, near_names, new_name

ENTRY = re.compile(r"^(\w+) = (.+?): (.*)$")  # of a docstring: `batch_size = 32: a number, or "full".`
# What pydantic calls a value that it wanted, by the first word of an error's type, and how it is asked for.
WANTED = {
    "tuple": "a list",
    "list": "a list",
    "dict": "a table",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
}


class _Readable(ModelMetaclass):
    """Leaves pydantic's machinery out of what help() shows of a class: its docstring has the keys."""

    def __dir__(self) -> list[str]:
        own = [name for kind in self.__mro__ if kind.__module__.startswith("fedadmm") for name in vars(kind)]
        return [name for name in own if not name.startswith(("_", "model_"))]


class Settings(BaseModel, metaclass=_Readable):
    """A table of an experiment: frozen, with no keys but its own."""

    model_config = {"frozen": True, "extra": "forbid", "arbitrary_types_allowed": True}

    def __init__(self, /, *nameless: Any, **values: Any) -> None:
        if nameless:
            keys = ", ".join(f"{key}=..." for key in list(type(self).model_fields)[:2])
            name = type(self).__name__
            raise InputError(f"{name} takes its keys by their names; write {name}({keys})")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(_sentence(error, kind=type(self))) from None
        for key, value in values.items():
            if isinstance(value, bool) and key in type(self).model_fields and not _takes_bool(type(self), key):
                raise InputError(f"{key}={value} is not valid; it is not true or false; `fedadmm keys` says what it is")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).model_fields:
            raise InputError(f"{name} cannot be changed; make other settings of these: replace({name}={value!r})")
        super().__setattr__(name, value)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Give help() a signature with the defaults alone; the types are in the docstring, in words."""
        super().__pydantic_init_subclass__(**options)
        defaults = {name: field.get_default(call_default_factory=True) for name, field in cls.model_fields.items()}
        keyword = Parameter.KEYWORD_ONLY
        parameters = [
            Parameter(name, keyword, default=Parameter.empty if cls.model_fields[name].is_required() else default)
            for name, default in defaults.items()
        ]
        cls.__signature__ = Signature(parameters)

    def replace(self, **changes: Any) -> Self:
        """Return these settings with some values changed, and all of them checked again."""
        return type(self)(**{key: getattr(self, key) for key in type(self).model_fields} | changes)


@cache
def _takes_bool(kind: type[Settings], key: str) -> bool:
    """Return whether a field may be true or false; to pydantic these are numbers too."""
    parts = [get_type_hints(kind)[key]]
    while any(get_args(part) for part in parts):
        parts = [inner for part in parts for inner in (get_args(part) or (part,))]
    return bool in parts or Any in parts


def within(numbers: str, holds: Callable[[Any], bool]) -> AfterValidator:
    """Return the constraint that a field is one of some numbers, which are given in words and as a test."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if not holds(value):
            raise InputError(f"{info.field_name}={value} is out of range; use {numbers}")
        return value

    check.words = numbers  # type: ignore[attr-defined]  # for the page of all keys
    return AfterValidator(check)


def count_or(word: str) -> BeforeValidator:
    """Return the constraint that a field is a whole number from 1 on, or a word."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if value != word and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f'{info.field_name}={value!r} is out of range; use a whole number from 1 on, or "{word}"')
        return value

    return BeforeValidator(check)


Count = Annotated[int, within("a whole number from 1 on", lambda n: n >= 1)]
Natural = Annotated[int, within("a whole number from 0 on", lambda n: n >= 0)]
Probability = Annotated[float, within("a number from 0 to 1", lambda p: 0 <= p <= 1)]
Fraction = Annotated[float, within("a number above 0 and up to 1", lambda p: 0 < p <= 1)]
BelowOne = Annotated[float, within("a number from 0 to below 1", lambda x: 0 <= x < 1)]
Positive = Annotated[float, within("a finite number greater than 0", lambda x: 0 < x < math.inf)]
NonNegative = Annotated[float, within("a finite number of at least 0", lambda x: 0 <= x < math.inf)]


def _is_norm(value: float | str) -> bool:
    if isinstance(value, str):
        try:
            return value.endswith("x") and 1 <= float(value[:-1]) < math.inf
        except ValueError:
            return False
    return 0 < value < math.inf


MaxNorm = Annotated[float | str, within('a number greater than 0, or a multiple from 1 on such as "100x"', _is_norm)]


def entries_of(kind: type) -> dict[str, tuple[str, str]]:
    """Return the example and the meaning of each field that a class, or a base of it, has a line for."""
    texts = [inspect.cleandoc(base.__doc__ or "") for base in reversed(kind.__mro__)]
    paragraphs = [" ".join(part.split()) for text in texts for part in re.split(r"\n(?!    )", text)]
    return {found[1]: (found[2], found[3]) for part in paragraphs if (found := ENTRY.match(part))}


def _sentence(error: ValidationError, *, kind: type[Settings]) -> str:
    """Return the first problem as one sentence with the value and the remedy."""
    first, known = error.errors()[0], list(kind.model_fields)
    field = ".".join(map(str, first["loc"][:1]))
    # A value of several types has a problem with each: a sentence of ours says more than pydantic's.
    of_field = (problem for problem in error.errors() if problem["loc"][:1] == first["loc"][:1])
    for problem in of_field:
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            return f"in [{field}]: {cause}" if field and not str(cause).startswith(field) else str(cause)
    if first["type"] == "extra_forbidden":
        return new_name(field, known) or f"unknown key {field!r}; {near_names(field, known, what='keys')}"
    if first["type"] == "missing":
        return f"{field} is missing; give it a value"
    where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in known) or field
    if first["type"] == "model_type":
        return f"{where}={first['input']!r} is not a table; set a key of it, such as those of `fedadmm keys {where}`"
    wanted, example = WANTED.get(first["type"].partition("_")[0]), entries_of(kind).get(field)
    if wanted is not None and first["type"].partition("_")[2] in ("type", "parsing", "from_float"):
        such = f", such as {field} = {example[0]}" if example else ""
        return f"{where}={first['input']!r} is not valid; give {wanted}{such}"
    if first["type"] == "literal_error":
        return f"{where}={first['input']!r} is not valid; use {first['ctx']['expected']}"
    return f"{where}={first['input']!r} is not valid: {first['msg'][0].lower()}{first['msg'][1:]}"


def check_seeds(seeds: Any) -> None:
    """Refuse a number of seeds that is none."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise InputError(f"seeds={seeds} is out of range; use a whole number from 1 on")
