"""The protocol as a simulation plays it: all clients and the server in one process, with real keys and masks."""

from collections.abc import Sequence

import numpy as np

from fedadmm.secure.fixed_point import Words
from fedadmm.secure.graph import harary
from fedadmm.secure.protocol import Keys, Terms, VoidError, draw_secrets, masked, reveal, seal_shares, unmask, usable


class MaskedSum:
    """A sum over some of the clients that were asked: whoever adds nothing is a client that was lost."""

    def __init__(self, clients: Sequence[int], terms: Terms, *, degree: int, generator: np.random.Generator) -> None:
        self.terms, self.senders = terms, set[int]()
        self._total: tuple[Words, ...] | None = None
        order = [clients[at] for at in generator.permutation(len(clients))]
        self.graph = harary(order, degree=degree)
        self._clients = usable(self.graph, clients, terms)
        self._secrets = {client: draw_secrets(client) for client in self._clients}
        self.keys = {client: own.keys for client, own in self._secrets.items()}
        sealed = {client: seal_shares(self._secrets[client], terms, self._near(client)) for client in self._clients}
        self._sealed = {holder: {by: sealed[by][holder] for by in self._near(holder)} for holder in self._clients}

    def add(self, client: int, words: tuple[Words, ...]) -> None:
        """Add a client's words, under its masks."""
        hidden = masked(self._secrets[client], self.terms, self._near(client), words)
        self.senders.add(client)
        if self._total is None:
            self._total = hidden
        else:
            for total, word in zip(self._total, hidden, strict=True):
                np.add(total, word, out=total)

    def total(self) -> tuple[Words, ...]:
        """Return the sum of the words; fewer clients than the threshold asks for raise VoidError."""
        if self._total is None:
            raise VoidError("nobody has sent")
        if self.senders != set(usable(self.graph, self.senders, self.terms)):
            raise VoidError(f"a client that sent has fewer than {self.terms.threshold} neighbours left")
        revealed = {
            client: reveal(
                self._secrets[client], self.terms, self._near(client), self._sealed[client], senders=self.senders
            )
            for client in self.senders
        }
        return unmask(self._total, self.terms, self.graph, self.keys, revealed, senders=self.senders)

    def _near(self, client: int) -> dict[int, Keys]:
        return {other: self.keys[other] for other in self.graph[client] if other in self.keys}
