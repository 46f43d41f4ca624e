"""Data that is made when a client needs it, so that a federation costs nothing for the clients that it does not ask."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.core.errors import InputError
from fedadmm.core.seeds import stream
from fedadmm.core.settings import Count, NonNegative, Settings, within
from fedadmm.data.examples import Examples, as_examples
from fedadmm.data.federated import PartitionedData
from fedadmm.data.shown import Shown


class GeneratedData(Shown):
    """A federation whose clients' examples are a function of their id; nothing is kept between two calls.

    function: of a client's id, returns its (inputs, targets); the same ones whenever it is asked.
    num_examples: one number per client, needed if the clients do not all hold as many as client 0.
    test: (inputs, targets) that belong to nobody.
    """

    def __init__(
        self,
        function: Callable[[int], Any],
        *,
        num_clients: int,
        num_classes: int,
        num_examples: Sequence[int] | npt.NDArray[np.int64] | None = None,
        test: Any = None,
    ) -> None:
        if num_clients < 1:
            raise InputError(f"num_clients={num_clients} is not a number of clients; use a whole number from 1 on")
        self._function, self.num_clients, self.num_classes = function, num_clients, num_classes
        self.test = None if test is None else as_examples(test)
        if num_examples is None:
            own = len(as_examples(function(0)).targets)
            self.num_examples = np.broadcast_to(np.int64(own), num_clients)  # one number in memory
        else:
            self.num_examples = np.asarray(num_examples, dtype=np.int64)
            if self.num_examples.shape != (num_clients,):
                raise InputError(
                    f"num_examples lists {len(self.num_examples)} numbers for {num_clients} clients; give one for each"
                )

    def client(self, client: int) -> Examples:
        """Return a client's own examples, made or loaded now."""
        assert 0 <= client < self.num_clients, f"client {client} of {self.num_clients}"
        examples = as_examples(self._function(client))
        found, expected = len(examples.targets), int(self.num_examples[client])
        if found != expected:
            raise InputError(
                f"client {client} has {found} examples, and {expected} were expected; "
                "give num_examples, one number for each client"
            )
        return examples


Array = npt.NDArray[np.floating[Any]]

NUM_FEATURES, NUM_CLASSES, NUM_EXAMPLES, NUM_TEST = 60, 10, 20, 2000
OWN_SHARE = 0.5  # how far a client's labelling and features are from those that all share


def synthetic(*, num_clients: int, seed: int) -> GeneratedData:
    """Return clients with a linear labelling and features of their own, both around shared ones.

    As in Li et al., MLSys 2020, section 5.1: feature j has variance j^-1.2, so a few features carry most.
    """
    generator, centre = stream(seed, "synthetic test"), np.zeros(NUM_FEATURES)
    test = _labelled(generator, weights=_shared_weights(seed), centre=centre, count=NUM_TEST)
    function = partial(_synthetic_client, seed)
    return GeneratedData(function, num_clients=num_clients, num_classes=NUM_CLASSES, test=test)


def _synthetic_client(seed: int, client: int) -> Examples:
    generator = stream(seed, "synthetic", client)
    shared = _shared_weights(seed)
    weights = shared + OWN_SHARE * generator.standard_normal(shared.shape)
    centre = OWN_SHARE * generator.standard_normal(NUM_FEATURES)
    return _labelled(generator, weights=weights, centre=centre, count=NUM_EXAMPLES)


def _shared_weights(seed: int) -> Array:
    return stream(seed, "synthetic weights").standard_normal((NUM_FEATURES, NUM_CLASSES))


def _labelled(generator: np.random.Generator, *, weights: Array, centre: Array, count: int) -> Examples:
    scale = np.arange(1, NUM_FEATURES + 1) ** -0.6
    features = (centre + generator.standard_normal((count, NUM_FEATURES))) * scale
    labels = (features @ weights).argmax(axis=1)
    return Examples(torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels))


class QuadraticOptions(Settings):
    """What the quadratics of a federation look like."""

    dimension: Count = 10
    # Of every client's Hessian: its eigenvalues run from 1 / condition to 1.
    condition: Annotated[float, within("a number from 1 on", lambda x: 1 <= x < float("inf"))] = 10.0
    # How far a client's axes and minimiser are from those that all share; 0: all alike.
    heterogeneity: NonNegative = 1.0


def quadratic(*, num_clients: int, seed: int, **options: Any) -> PartitionedData:
    """Return the examples behind random quadratics, in float64; `options` are those of `QuadraticOptions`.

    Client i has as many examples as there are dimensions, n = d. The rows of A_i are its axes Q_i, scaled so that its
    Hessian A_i^T A_i / n is Q_i diag(1 / condition .. 1) Q_i^T, and b_i = A_i a_i for its own minimiser a_i.
    """
    chosen = QuadraticOptions(**options)
    d, spread = chosen.dimension, chosen.heterogeneity
    curvatures = np.geomspace(1 / chosen.condition, 1, d) if d > 1 else np.ones(1)
    shared = stream(seed, "quadratic")
    axes, minimiser = shared.standard_normal((d, d)), shared.standard_normal(d)
    inputs, targets = np.empty((num_clients, d, d)), np.empty((num_clients, d))
    for client in range(num_clients):
        own = stream(seed, "quadratic", client)
        rotation, _ = np.linalg.qr(axes + spread * own.standard_normal((d, d)))
        inputs[client] = np.sqrt(d * curvatures)[:, None] * rotation.T
        targets[client] = inputs[client] @ (minimiser + spread * own.standard_normal(d))
    examples = Examples(torch.from_numpy(inputs.reshape(-1, d)), torch.from_numpy(targets.reshape(-1)))
    return PartitionedData(*examples, offsets=np.arange(num_clients + 1) * d, test=None, num_classes=0)
