"""A metric on each client's own examples: the held-out ones where there are such (data.client_test), else all."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedadmm.core.metrics import CLIENT_KINDS, of_clients

QUANTILES = tuple(tenth / 10 for tenth in range(11))  # of the clients, in a record's client_quantiles


@dataclass(frozen=True)
class ClientScores:
    """A metric on every client's own examples; NaN for a client without an example to be scored on."""

    values: npt.NDArray[np.float64]  # [client]
    lower_is_better: bool = False

    @property
    def scored(self) -> npt.NDArray[np.float64]:
        """The values of the clients that have one, the worst first."""
        rising = np.sort(self.values[~np.isnan(self.values)])
        return rising[::-1] if self.lower_is_better else rising

    @property
    def mean(self) -> float:
        """The mean over clients, each counting the same."""
        return float(self.scored.mean())

    @property
    def std(self) -> float:
        """The standard deviation over clients."""
        return float(self.scored.std())

    @property
    def worst_decile(self) -> float:
        """The mean over the tenth of the clients that fare worst."""
        return float(self.scored[: max(1, len(self.scored) // 10)].mean())

    @property
    def quantiles(self) -> tuple[float, ...]:
        """The least value, the nine deciles and the largest."""
        return tuple(np.quantile(self.scored, QUANTILES).tolist())


def in_numbers(scores: Mapping[str, ClientScores]) -> dict[str, float]:
    """Return mean, spread and worst decile of each metric, such as accuracy_client_mean."""
    values = [getattr(own, kind) for own in scores.values() for kind in CLIENT_KINDS]
    return dict(zip(of_clients(scores), values, strict=True))
