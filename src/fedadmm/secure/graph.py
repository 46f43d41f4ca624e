"""Who shares masks with whom: a Harary graph, which stays connected whichever `degree - 1` clients are taken away."""

from collections.abc import Sequence

Graph = dict[int, tuple[int, ...]]  # client -> its neighbours, rising


def harary(order: Sequence[int], *, degree: int) -> Graph:
    """Return the graph in which each client has this many neighbours: the nearest in a circle of all.

    order: the clients around the circle. One neighbour fewer where an odd degree does not fit an odd number of clients;
    all others where there are not so many.
    """
    num = len(order)
    degree = min(degree, num - 1)
    degree -= degree % 2 and num % 2
    steps = [*range(1, degree // 2 + 1), *([num // 2] if degree % 2 else [])]
    return {
        client: tuple(sorted({order[(at + step) % num] for near in steps for step in (near, -near)}))
        for at, client in enumerate(order)
    }
