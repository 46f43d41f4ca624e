"""How often a run records a certificate."""

from typing import Any, Literal

from pydantic import field_validator

from fedadmm.core.errors import InputError
from fedadmm.core.settings import Settings, at_least_one


class CertificateSettings(Settings):
    """How often V^t is recorded, and over which clients; it costs one full gradient a client.

    every: 1 records every round, 10 rounds 1, 11, 21 and so on.
    clients: "all", or a number that is drawn anew each time: sums are then estimates.
    """

    every: int = 1
    clients: int | Literal["all"] = "all"

    _check_every = field_validator("every")(at_least_one)

    @field_validator("clients", mode="before")
    @classmethod
    def _check_clients(cls, value: Any) -> Any:
        if value != "all" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f'clients={value!r} is out of range; use a whole number from 1 on, or "all"')
        return value
