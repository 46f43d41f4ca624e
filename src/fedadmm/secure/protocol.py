"""Secure aggregation of one round (Bonawitz et al. 2017, on the sparse graph of Bell et al. 2020), as pure functions.

    1  keys     each client draws secrets, and sends its public keys
    2  shares   each client splits its two seeds among its neighbours, each share encrypted for its holder
    3  words    each client sends its words plus masks: one of its own, and one with each neighbour, which that
                neighbour subtracts
    4  unmask   the clients that are left reveal one share of each neighbour: if it sent its words, that of the seed of
                its own mask; if it did not, that of the seed of its masks with its neighbours

Masks between two clients that both sent cancel in the sum. `threshold` shares give the server a seed, and it takes the
masks off that are left. A client's own mask is there because a client may be late: taken for lost, its masks with
neighbours are revealed, and its own one still hides what it sent.

To learn more than the sum, one needs both seeds of a client. A neighbour reveals one of them, once. A threshold is more
than half of the neighbours, so a server that tells some that a client sent and others that it did not gets one at most.

X25519, HKDF-SHA256, AES-256-GCM for the shares and AES-256-CTR for the masks are those of `cryptography`.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedadmm.secure.fixed_point import Words
from fedadmm.secure.graph import Graph
from fedadmm.secure.shamir import SECRET_BYTES, SHARE_BYTES, combine, split

NONCE_BYTES = 12


class VoidError(Exception):
    """A round whose sum cannot be had, or may not, with the reason."""


class Terms(NamedTuple):
    """What all who take part in one sum know of it."""

    name: str  # of the federation and the round's number: no key and no share is of use in another
    threshold: int  # shares that give a seed; this many neighbours of each client have to be left


class Keys(NamedTuple):
    """What a client publishes in stage 1."""

    sealing: bytes  # X25519: for the shares that are sent to it
    masking: bytes  # X25519: for the masks with its neighbours
    own_mask: bytes  # a digest of the seed of its own mask, which tells wrong shares from right ones


class Secrets(NamedTuple):
    """What a client draws for one sum, and tells nobody whole."""

    client: int
    sealing: bytes
    masking: bytes  # split among its neighbours, as is the next
    own_mask: bytes

    @property
    def keys(self) -> Keys:
        """The public side."""
        return Keys(_public(self.sealing), _public(self.masking), _derived(self.own_mask, "digest"))


class Revealed(NamedTuple):
    """The shares that a client reveals in stage 4: for each of its neighbours, one of the two."""

    own_mask: dict[int, bytes]  # of those who sent
    masking: dict[int, bytes]  # of those who did not


def check_keys(keys: Keys) -> None:
    """Refuse keys with which nobody could agree on a mask: ValueError."""
    for public in (keys.sealing, keys.masking):
        _agreed(X25519PrivateKey.generate(), public)


def draw_secrets(client: int) -> Secrets:
    """Return new secrets, from the operating system's generator."""
    return Secrets(client, *(secrets.token_bytes(SECRET_BYTES) for _ in range(3)))


def seal_shares(own: Secrets, terms: Terms, neighbours: Mapping[int, Keys]) -> dict[int, bytes]:
    """Return for each neighbour its shares of the two seeds, encrypted for it alone."""
    _check_neighbours(own, terms, neighbours)
    if 2 * terms.threshold <= len(neighbours):
        raise VoidError(f"a threshold of {terms.threshold} is not more than half of {len(neighbours)} neighbours")
    points = [_point(holder) for holder in neighbours]
    parts = [split(seed, points=points, threshold=terms.threshold) for seed in (own.masking, own.own_mask)]
    sealed, private = {}, _private(own.sealing)
    for holder, keys in neighbours.items():
        nonce, plain = secrets.token_bytes(NONCE_BYTES), b"".join(part[_point(holder)] for part in parts)
        cipher = AESGCM(_sealing_key(private, terms, keys))
        sealed[holder] = nonce + cipher.encrypt(nonce, plain, _label(terms, own.client, holder))
    return sealed


def masked(own: Secrets, terms: Terms, neighbours: Mapping[int, Keys], words: Iterable[Words]) -> tuple[Words, ...]:
    """Return the words under the client's masks; neighbours: those whose shares it has got."""
    _check_neighbours(own, terms, neighbours)
    hidden, private = tuple(word.copy() for word in words), _private(own.masking)
    _add_stream(hidden, own.own_mask, terms, "own mask", sign=1)
    for other, keys in neighbours.items():
        _add_stream(hidden, _agreed(private, keys.masking), terms, "mask", sign=1 if own.client < other else -1)
    return hidden


def reveal(
    own: Secrets, terms: Terms, neighbours: Mapping[int, Keys], sealed: Mapping[int, bytes], *, senders: Collection[int]
) -> Revealed:
    """Return the shares that take the masks off the sum of what these clients sent.

    neighbours: as in stage 3. sealed: what each of them had encrypted for this client.
    """
    _check_neighbours(own, terms, {other: keys for other, keys in neighbours.items() if other in senders})
    own_mask, masking, private = {}, {}, _private(own.sealing)
    for other, keys in neighbours.items():
        nonce, rest = sealed[other][:NONCE_BYTES], sealed[other][NONCE_BYTES:]
        try:
            plain = AESGCM(_sealing_key(private, terms, keys)).decrypt(nonce, rest, _label(terms, other, own.client))
        except InvalidTag:
            continue  # it has not been written by that neighbour for this client: others have shares, too
        if other in senders:
            own_mask[other] = plain[SHARE_BYTES:]
        else:
            masking[other] = plain[:SHARE_BYTES]
    return Revealed(own_mask, masking)


def usable(graph: Graph, there: Collection[int], terms: Terms) -> tuple[int, ...]:
    """Return those who have a threshold of neighbours among themselves, rising; nobody: the round is void."""
    kept = set(there)
    while few := {client for client in kept if len(kept.intersection(graph[client])) < terms.threshold}:
        kept -= few
    if not kept:
        raise VoidError(f"{len(there)} clients are left, and each needs {terms.threshold} neighbours among them")
    return tuple(sorted(kept))


def unmask(
    total: Iterable[Words],
    terms: Terms,
    graph: Graph,
    keys: Mapping[int, Keys],
    revealed: Mapping[int, Revealed],
    *,
    senders: Collection[int],
) -> tuple[Words, ...]:
    """Return the sum of the words, given the sum of what `senders` sent.

    keys: of all whose shares the clients had got when they masked.
    """
    plain = tuple(word.copy() for word in total)
    for client in keys:
        if client in senders:
            seed = _rebuilt(client, {by: told.own_mask for by, told in revealed.items()}, terms)
            if _derived(seed, "digest") != keys[client].own_mask:
                raise VoidError(f"the shares of client {client}'s own mask are not those of its seed")
            _add_stream(plain, seed, terms, "own mask", sign=-1)
        elif neighbours := [other for other in graph[client] if other in senders]:
            seed = _rebuilt(client, {by: told.masking for by, told in revealed.items()}, terms)
            private = _private(seed)
            if private.public_key().public_bytes_raw() != keys[client].masking:
                raise VoidError(f"the shares of client {client}'s masks are not those of its key")
            for other in neighbours:
                # As the lost client would have added it: then it cancels.
                sign = 1 if client < other else -1
                _add_stream(plain, _agreed(private, keys[other].masking), terms, "mask", sign=sign)
    return plain


def _check_neighbours(own: Secrets, terms: Terms, neighbours: Collection[int]) -> None:
    """Refuse a sum that would protect less than is said."""
    if len(neighbours) < terms.threshold:
        raise VoidError(
            f"client {own.client} has {len(neighbours)} neighbours left, and a threshold of {terms.threshold}"
        )


def _rebuilt(client: int, told: Mapping[int, Mapping[int, bytes]], terms: Terms) -> bytes:
    shares = {_point(by): shares[client] for by, shares in sorted(told.items()) if client in shares}
    if len(shares) < terms.threshold:
        raise VoidError(f"{len(shares)} shares of client {client}'s seed are there, and {terms.threshold} are needed")
    try:
        return combine(dict(list(shares.items())[: terms.threshold]))
    except ValueError as error:
        raise VoidError(f"client {client}'s seed: {error}") from error


def _add_stream(words: tuple[Words, ...], seed: bytes, terms: Terms, purpose: str, *, sign: int) -> None:
    """Add the stream of a seed to some words, or subtract it, in place."""
    zeros = bytes(max((word.nbytes for word in words), default=0))
    key = _derived(seed, purpose, terms.name)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()  # a key is used for one stream
    for word in words:
        mask = np.frombuffer(stream.update(zeros[: word.nbytes]), word.dtype.newbyteorder("<"))
        (np.add if sign > 0 else np.subtract)(word, mask, out=word)


def _private(seed: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(_derived(seed, "private key"))


def _public(seed: bytes) -> bytes:
    return _private(seed).public_key().public_bytes_raw()


def _agreed(private: X25519PrivateKey, public: bytes) -> bytes:
    return private.exchange(X25519PublicKey.from_public_bytes(public))


def _sealing_key(private: X25519PrivateKey, terms: Terms, keys: Keys) -> bytes:
    return _derived(_agreed(private, keys.sealing), "sealing", terms.name)


def _derived(secret: bytes, *purpose: str) -> bytes:
    info = "\n".join(["fedadmm secure aggregation", *purpose]).encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)


def _label(terms: Terms, sender: int, holder: int) -> bytes:
    return f"{terms.name}\n{terms.threshold}\n{sender}\n{holder}".encode()


def _point(client: int) -> int:
    return client + 1  # the value at 0 is the secret
