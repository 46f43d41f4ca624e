"""How examples are dealt to clients: pure functions of the labels, which give every example to exactly one client."""

import heapq
import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from fedadmm.core.errors import InputError

Indices = list[np.ndarray]  # [client][example of the client]
Partitioner = Callable[[np.ndarray, int | None, np.random.Generator], Indices]


def by_quantile(numbers: np.ndarray, quantiles: int) -> np.ndarray:
    """Return in which of this many quantiles each number is, from 0 on."""
    return np.searchsorted(np.quantile(numbers, np.arange(1, quantiles) / quantiles), numbers, side="right")


def iid(labels: np.ndarray, *, num_clients: int, generator: np.random.Generator) -> Indices:
    """Deal the shuffled examples evenly."""
    _check_num_clients(num_clients, num_examples=len(labels))
    return np.array_split(generator.permutation(len(labels)), num_clients)


def shards(
    labels: np.ndarray, *, num_clients: int, shards_per_client: int = 2, generator: np.random.Generator
) -> Indices:
    """Sort by label, cut into shards that differ by at most one example, and deal the same number to each client."""
    _check_num_clients(num_clients, num_examples=len(labels))
    if shards_per_client < 1:
        raise InputError(f"shards_per_client={shards_per_client} leaves clients without data; use at least 1")
    num_shards = num_clients * shards_per_client
    if num_shards > len(labels):
        raise InputError(
            f"{num_clients} clients with {shards_per_client} shards each need {num_shards} shards, more than the "
            f"{len(labels)} examples; use at most {len(labels) // num_clients} shards_per_client or fewer clients"
        )
    return _deal_shards(labels, shards_of_client=np.full(num_clients, shards_per_client), generator=generator)


def imbalanced(labels: np.ndarray, *, num_clients: int, generator: np.random.Generator) -> Indices:
    """Give clients very different amounts: both members of group g hold g shards, and the last group what remains.

    With the paper's 200 clients that is 10,000 shards in 100 groups; in general there
    are num_clients / 2 groups, and as many shards as the square of that.
    """
    _check_num_clients(num_clients, num_examples=len(labels))
    num_groups = num_clients // 2
    if num_clients % 2 or num_groups < 2:
        raise InputError(f"num_clients={num_clients} cannot be put in groups of two; use an even number from 4 on")
    if num_groups**2 > len(labels):
        raise InputError(
            f"{num_clients} imbalanced clients need {num_groups**2} shards, more than the {len(labels)} examples; "
            f"use at most {2 * math.isqrt(len(labels))} clients"
        )
    # Twice 1 + ... + (G - 1) is G^2 - G, so G shards remain for the two of the last group.
    shards_of_client = np.repeat(np.arange(1, num_groups + 1), 2)
    shards_of_client[-2:] = num_groups // 2, num_groups - num_groups // 2
    return _deal_shards(labels, shards_of_client=shards_of_client, generator=generator)


def dirichlet(labels: np.ndarray, *, num_clients: int, alpha: float, generator: np.random.Generator) -> Indices:
    """Split each class over the clients in proportions drawn from a Dirichlet distribution; nobody is left empty."""
    _check_num_clients(num_clients, num_examples=len(labels))
    if not (alpha > 0 and math.isfinite(alpha)):
        raise InputError(f"alpha={alpha} is not a Dirichlet parameter; use a number above 0, such as 0.5")
    owners = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        shares = _dirichlet_shares(num_clients, alpha=alpha, generator=generator)
        # Rounding with one random offset gives each client its share in expectation, and all of them the whole class.
        edges = np.floor(np.concatenate([[0.0], np.cumsum(shares)[:-1], [1.0]]) * len(members) + generator.random())
        owners[members] = np.repeat(np.arange(num_clients), np.diff(edges).astype(np.int64))
    # Shuffled before grouping, so that what a client gives to an empty one is a random example of its own.
    order = generator.permutation(len(labels))
    return _nobody_empty(_grouped(owners[order], order=order, num_groups=num_clients))


def natural(groups: np.ndarray | None, *, num_clients: int | None = None) -> Indices:
    """Make one client of each group, such as the examples of one writer."""
    if groups is None:
        raise InputError(
            'partition "natural" needs to know who made each example; use mnist after `fedadmm data fetch qmnist`, '
            "text, data with groups of its own, or another partition"
        )
    names, members = np.unique(groups, return_inverse=True)
    if num_clients not in (None, len(names)):
        raise InputError(
            f"num_clients={num_clients}, but the data has {len(names)} groups; use {len(names)} or leave it out"
        )
    return _grouped(members, order=np.arange(len(groups)), num_groups=len(names))


def checked(returned: Any, *, num_examples: int, num_clients: int | None) -> Indices:
    """Return a user's partition if it leaves nobody empty and gives each example to exactly one client."""
    if not isinstance(returned, list | tuple):
        raise InputError(f"the partition is of type {type(returned).__name__}; return a list of index arrays")
    indices = [np.asarray(own) for own in returned]
    if not indices or num_clients not in (None, len(indices)):
        raise InputError(f"the partition has {len(indices)} clients, num_clients is {num_clients}; make them agree")
    empty = [client for client, own in enumerate(indices) if own.size == 0]
    if empty:
        raise InputError(f"the partition leaves client {empty[0]} without examples; give it at least one")
    flat = np.concatenate([np.atleast_1d(own) for own in indices])
    if flat.ndim != 1 or flat.dtype.kind not in "iu" or flat.min() < 0 or flat.max() >= num_examples:
        raise InputError(
            f"the partition holds {flat.dtype} indices from {flat.min()} to {flat.max()}; "
            f"use whole numbers from 0 to {num_examples - 1}"
        )
    times = np.bincount(flat, minlength=num_examples)
    wrong = np.flatnonzero(times != 1)
    if len(wrong):
        raise InputError(
            f"the partition gives example {wrong[0]} to {times[wrong[0]]} clients; give each example to one"
        )
    return indices


def _check_num_clients(num_clients: int, *, num_examples: int) -> None:
    if isinstance(num_clients, bool) or not isinstance(num_clients, Integral) or num_clients < 1:
        raise InputError(f"num_clients={num_clients!r} is not a number of clients; use a whole number from 1 on")
    if num_clients > num_examples:
        raise InputError(
            f"num_clients={num_clients} is more than the {num_examples} examples; use at most {num_examples}"
        )


def _deal_shards(labels: np.ndarray, *, shards_of_client: np.ndarray, generator: np.random.Generator) -> Indices:
    pieces = np.array_split(np.argsort(labels, kind="stable"), shards_of_client.sum())
    dealt = np.split(generator.permutation(len(pieces)), np.cumsum(shards_of_client)[:-1])
    return [np.concatenate([pieces[piece] for piece in own]) for own in dealt]


def _dirichlet_shares(num_clients: int, *, alpha: float, generator: np.random.Generator) -> np.ndarray:
    """Return Dirichlet proportions from the logarithms of gamma variates, which underflow for no alpha."""
    alpha = min(max(alpha, 1e-300), 1e300)  # beyond, floats overflow and the proportions no longer change
    # Gamma(alpha) is Gamma(alpha + 1) times U^(1 / alpha).
    logs = np.log(generator.standard_gamma(alpha + 1, num_clients))
    logs -= generator.standard_exponential(num_clients) / alpha
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _grouped(members: np.ndarray, *, order: np.ndarray, num_groups: int) -> Indices:
    sizes = np.bincount(members, minlength=num_groups)
    return np.split(order[np.argsort(members, kind="stable")], np.cumsum(sizes)[:-1])


def _nobody_empty(indices: Indices) -> Indices:
    """Let the largest client of the moment give one example to each empty one."""
    filled = list(indices)
    largest = [(-len(own), client) for client, own in enumerate(indices)]
    heapq.heapify(largest)
    for client, own in enumerate(indices):
        if len(own) == 0:
            size, donor = largest[0]
            filled[client], filled[donor] = filled[donor][:1], filled[donor][1:]
            heapq.heapreplace(largest, (size + 1, donor))
    return filled
