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


def client_weights(weighting: Weighting, data: FederatedData) -> npt.NDArray[np.float64] | None:
    """Return the weight of each client, None if all weigh 1."""
    if weighting not in ("equal", "examples"):
        raise InputError(f'weighting={weighting!r} is unknown; use "equal" or "examples"')
    return None if weighting == "equal" else data.num_examples.astype(np.float64)


def weight_in(weights: npt.NDArray[np.float64] | None, client: int) -> float:
    """Return the weight of a client."""
    return 1.0 if weights is None else float(weights[client])
