"""What a server and some clients that help it can learn from a round: all that follows from what they have."""

from collections.abc import Mapping

import networkx as nx
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedadmm.secure.fixed_point import Words
from fedadmm.secure.protocol import NONCE_BYTES, Secrets, _add_stream, _agreed, _label, _point, _private, _sealing_key
from fedadmm.secure.shamir import SHARE_BYTES, combine
from secure_played import Transcript


def learned(seen: Transcript, colluders: Mapping[int, Secrets]) -> dict[frozenset[int], tuple[Words, ...]]:
    """Return the finest sums over other clients' words that can be had, by the clients that each is over.

    A mask is known to who has the seed of either side. A mask that nobody knows is left over from a sum, unless both
    of its sides are in it: so the sums that can be had are over groups which such masks hold together.
    """
    own_mask, masking = _seeds(seen, colluders)
    sent = [client for client in seen.words if client not in colluders]
    stripped = {client: tuple(word.copy() for word in seen.words[client]) for client in sent}
    unknown, hidden = nx.Graph(), set()  # masks that nobody knows; clients whose words keep one in every sum
    unknown.add_nodes_from(sent)
    for client in sent:
        if client in own_mask:
            _add_stream(stripped[client], own_mask[client], seen.terms, "own mask", sign=-1)
        else:
            hidden.add(client)
        for other in (other for other in seen.graph[client] if other in seen.keys):
            known = next((pair for pair in ((client, other), (other, client)) if pair[0] in masking), None)
            if known is not None:
                agreed = _agreed(_private(masking[known[0]]), seen.keys[known[1]].masking)
                _add_stream(stripped[client], agreed, seen.terms, "mask", sign=-1 if client < other else 1)
            elif other in sent:
                unknown.add_edge(client, other)
            else:
                hidden.add(client)
    groups = [sorted(group) for group in nx.connected_components(unknown) if not hidden & group]
    return {frozenset(group): _added([stripped[client] for client in group]) for group in groups}


def _added(words: list[tuple[Words, ...]]) -> tuple[Words, ...]:
    return tuple(np.sum(part, axis=0, dtype=part[0].dtype) for part in zip(*words, strict=True))


def _seeds(seen: Transcript, colluders: Mapping[int, Secrets]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return the seeds that are known: of own masks, and of masks with neighbours."""
    own_mask: dict[int, dict[int, bytes]] = {}  # client -> point of the holder -> share
    masking: dict[int, dict[int, bytes]] = {}
    for holder, revealed in seen.revealed.items():
        for kind, told in ((own_mask, revealed.own_mask), (masking, revealed.masking)):
            for client, share in told.items():
                kind.setdefault(client, {})[_point(holder)] = share
    for holder, own in colluders.items():
        for client in (other for other in seen.graph[holder] if other in seen.keys):
            sealed = seen.sealed[client][holder]
            cipher = AESGCM(_sealing_key(_private(own.sealing), seen.terms, seen.keys[client]))
            plain = cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _label(seen.terms, client, holder))
            masking.setdefault(client, {})[_point(holder)] = plain[:SHARE_BYTES]
            own_mask.setdefault(client, {})[_point(holder)] = plain[SHARE_BYTES:]

    def known(kind: dict[int, dict[int, bytes]]) -> dict[int, bytes]:
        enough = {client: list(shares.items()) for client, shares in kind.items()}
        number = seen.terms.threshold
        return {client: combine(dict(shares[:number])) for client, shares in enough.items() if len(shares) >= number}

    own_seeds = colluders.items()
    return (
        known(own_mask) | {client: own.own_mask for client, own in own_seeds},
        known(masking) | {client: own.masking for client, own in own_seeds},
    )
