"""What clients weigh, and how they fare."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedadmm.config.experiment import Weighting
from fedadmm.core.errors import InputError
from fedadmm.data.federated import FederatedData


@dataclass(frozen=True)
class ClientScores:
    """A metric on every client's own examples."""

    values: npt.NDArray[np.float64]  # [client]

    @property
    def mean(self) -> float:
        """The mean over clients, each counting the same."""
        return float(self.values.mean())

    @property
    def worst_decile(self) -> float:
        """The mean over the tenth of the clients that fare worst."""
        return float(np.sort(self.values)[: max(1, len(self.values) // 10)].mean())


class ClientWeights:
    """The weight of each client in a mean: 1, or its number of examples."""

    def __init__(self, weighting: Weighting, data: FederatedData) -> None:
        if weighting not in ("equal", "examples"):
            raise InputError(f'weighting={weighting!r} is unknown; use "equal" or "examples"')
        self.values = None if weighting == "equal" else data.num_examples.astype(np.float64)  # [client]; None: all 1
        self.total = float(data.num_clients if self.values is None else self.values.sum())

    def __call__(self, client: int) -> float:
        """Return the weight of a client."""
        return 1.0 if self.values is None else float(self.values[client])
