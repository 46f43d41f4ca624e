"""The protocol played with clients that are lost in any stage, and everything that the server receives on the way."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from fedadmm.secure.fixed_point import Words
from fedadmm.secure.graph import Graph, harary
from fedadmm.secure.protocol import (
    Keys,
    Revealed,
    Secrets,
    Terms,
    draw_secrets,
    masked,
    reveal,
    seal_shares,
    unmask,
    usable,
)

STAGES = ("keys", "shares", "words", "unmask")


class Transcript(NamedTuple):
    """What the server has at the end of a round."""

    terms: Terms
    graph: Graph
    keys: dict[int, Keys]  # of those whose shares were passed on
    sealed: dict[int, dict[int, bytes]]  # by client, for holder
    words: dict[int, tuple[Words, ...]]  # masked
    revealed: dict[int, Revealed]


def words_of(num: int, *, seed: int = 0) -> dict[int, tuple[Words, ...]]:
    """Return words for each of so many clients: 32 bits wide, and 64."""
    generator = np.random.default_rng(seed)
    return {
        client: (generator.integers(2**32, size=5, dtype=np.uint32), generator.integers(2**64, size=2, dtype=np.uint64))
        for client in range(num)
    }


def added(words: Mapping[int, tuple[Words, ...]], clients: Collection[int]) -> tuple[Words, ...]:
    """Return the plain sum over some clients, modulo the width of each word."""
    return tuple(sum(words[client][part] for client in sorted(clients)) for part in range(2))


def play(
    words: Mapping[int, tuple[Words, ...]],
    *,
    threshold: int,
    degree: int = 1000,
    lost: Mapping[str, Collection[int]] | None = None,
) -> tuple[tuple[Words, ...], Transcript, dict[int, Secrets]]:
    """Return the unmasked sum, what the server saw, and what each client kept; lost: who answers no more, by stage."""
    gone: set[int] = set()

    def left(stage: str, clients: Collection[int]) -> list[int]:
        gone.update((lost or {}).get(stage, ()))
        return sorted(set(clients) - gone)

    terms, kept = Terms("test 1", threshold), {client: draw_secrets(client) for client in words}
    keys = {client: kept[client].keys for client in left("keys", words)}
    graph = harary(list(keys), degree=degree)

    def near(client: int) -> dict[int, Keys]:
        return {other: keys[other] for other in graph[client] if other in keys}

    sealed = {client: seal_shares(kept[client], terms, near(client)) for client in left("shares", keys)}
    keys = {client: keys[client] for client in usable(graph, sealed, terms)}
    inbox = {holder: {by: sealed[by][holder] for by in near(holder)} for holder in keys}
    sent = {client: masked(kept[client], terms, near(client), words[client]) for client in left("words", keys)}
    revealed = {
        client: reveal(kept[client], terms, near(client), inbox[client], senders=sent)
        for client in left("unmask", sent)
    }
    transcript = Transcript(terms, graph, keys, sealed, sent, revealed)
    return unmask(added(sent, sent), terms, graph, keys, revealed, senders=sent), transcript, kept
