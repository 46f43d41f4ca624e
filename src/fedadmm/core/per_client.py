"""Quantities that differ from client to client: drawn once for each, from a distribution that a file names."""

from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from fedadmm.core.errors import InputError
from fedadmm.core.settings import Settings

KEYS = {"uniform": ("low", "high"), "log_uniform": ("low", "high"), "lognormal": ("median", "sigma")}


class Distribution(Settings):
    """What a quantity above 0 is drawn from, such as {distribution = "log_uniform", low = 50, high = 1000}."""

    distribution: Literal["uniform", "log_uniform", "lognormal"]
    low: float | None = None
    high: float | None = None
    median: float | None = None
    sigma: float | None = None  # the standard deviation of the logarithm

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        table = {key: getattr(self, key) for key in ("low", "high", "median", "sigma")}
        given = {key: value for key, value in table.items() if value is not None}
        keys = KEYS[self.distribution]
        if sorted(given) != sorted(keys):
            raise InputError(
                f"a {self.distribution} distribution has {' and '.join(keys)}, not {', '.join(given) or 'nothing'}"
            )
        for key, value in given.items():
            if not 0 < value < np.inf:
                raise InputError(f"{key}={value:g} is out of range; use a finite number greater than 0")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InputError(f"low={self.low:g} is above high={self.high:g}; exchange them")
        return self

    def draw(self, generator: np.random.Generator) -> float:
        """Return one value."""
        if self.median is not None and self.sigma is not None:
            return float(self.median * np.exp(self.sigma * generator.standard_normal()))
        assert self.low is not None
        assert self.high is not None
        share = generator.random()
        if self.distribution == "uniform":
            return float(self.low + (self.high - self.low) * share)
        return float(self.low * (self.high / self.low) ** share)
