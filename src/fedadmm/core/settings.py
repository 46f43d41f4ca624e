"""Frozen, validated settings whose errors are sentences."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo

from fedadmm.core.errors import InputError


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


def at_least_one(value: int | None, info: ValidationInfo) -> int | None:
    """Validate a count, which may be left open."""
    if value is not None and value < 1:
        raise InputError(f"{info.field_name}={value} is out of range; use a whole number from 1 on")
    return value


def _sentence(error: ValidationError, *, known: list[str]) -> str:
    """Return the first problem as one sentence with the value and the remedy."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in known)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        nested = where and not str(cause).startswith(where)
        return f"in [{where}]: {cause}" if nested else str(cause)
    if first["type"] == "extra_forbidden":
        return f"unknown key {first['loc'][-1]!r}; the keys are {', '.join(known)}"
    if first["type"] == "missing":
        return f"{first['loc'][-1]} is missing; give it a value"
    remedy = first["msg"][0].lower() + first["msg"][1:]
    return f"{where or first['loc'][0]}={first['input']!r} does not fit: {remedy}"
