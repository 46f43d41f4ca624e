"""Frozen, validated settings whose errors are sentences, and the kinds of numbers that they have."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo

from fedadmm.core.errors import InputError
from fedadmm.core.renamed import new_name


class Settings(BaseModel):
    """A table of an experiment: frozen, with no keys but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(_sentence(error, known=list(type(self).model_fields))) from None

    def replace(self, **changes: Any) -> Self:
        """Return these settings with some values changed, and all of them checked again."""
        return type(self)(**{key: getattr(self, key) for key in type(self).model_fields} | changes)


def within(numbers: str, holds: Callable[[Any], bool]) -> AfterValidator:
    """Return the constraint that a field is one of some numbers, which are given in words and as a test."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if not holds(value):
            raise InputError(f"{info.field_name}={value} is out of range; use {numbers}")
        return value

    return AfterValidator(check)


def count_or(word: str) -> BeforeValidator:
    """Return the constraint that a field is a whole number from 1 on, or a word."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if value != word and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f'{info.field_name}={value!r} is out of range; use a whole number from 1 on, or "{word}"')
        return value

    return BeforeValidator(check)


Count = Annotated[int, within("a whole number from 1 on", lambda n: n >= 1)]
Probability = Annotated[float, within("a number from 0 to 1", lambda p: 0 <= p <= 1)]
Fraction = Annotated[float, within("a number above 0 and up to 1", lambda p: 0 < p <= 1)]
BelowOne = Annotated[float, within("a number from 0 to below 1", lambda x: 0 <= x < 1)]
Positive = Annotated[float, within("a finite number greater than 0", lambda x: 0 < x < math.inf)]
NonNegative = Annotated[float, within("a finite number of at least 0", lambda x: 0 <= x < math.inf)]


def _sentence(error: ValidationError, *, known: list[str]) -> str:
    """Return the first problem as one sentence with the value and the remedy."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"][:1]))
    # A value of several types has a problem with each: a sentence of ours says more than pydantic's.
    of_field = (problem for problem in error.errors() if problem["loc"][:1] == first["loc"][:1])
    for problem in of_field:
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            return f"in [{field}]: {cause}" if field and not str(cause).startswith(field) else str(cause)
    if first["type"] == "extra_forbidden":
        return new_name(field, known) or f"unknown key {field!r}; the keys are {', '.join(known)}"
    if first["type"] == "missing":
        return f"{field} is missing; give it a value"
    where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in known) or field
    return f"{where}={first['input']!r} does not fit: {first['msg'][0].lower()}{first['msg'][1:]}"
