"""Shamir's secret sharing: any `threshold` shares give the secret, and fewer say nothing about it.

The secret is the value at 0 of a polynomial of degree threshold - 1, whose other coefficients are drawn; a share is its
value at the holder's own point, in whole numbers modulo a prime.
"""

import secrets
from collections.abc import Mapping, Sequence

PRIME = 2**130 - 5  # above every secret of 16 bytes
SECRET_BYTES, SHARE_BYTES = 16, 17


def split(secret: bytes, *, points: Sequence[int], threshold: int) -> dict[int, bytes]:
    """Return the share of each holder, who is known by a point from 1 on."""
    assert len(secret) == SECRET_BYTES
    assert min(points) >= 1 <= threshold <= len(set(points))
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {point: _value(coefficients, point).to_bytes(SHARE_BYTES) for point in points}


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of exactly as many shares as its threshold; those of no secret raise ValueError."""
    total = 0
    for point, share in shares.items():
        over = under = 1
        for other in shares:
            if other != point:
                over, under = over * other % PRIME, under * (other - point) % PRIME
        total += int.from_bytes(share) * over * pow(under, -1, PRIME)
    secret = total % PRIME
    if secret >= 2 ** (8 * SECRET_BYTES):
        raise ValueError("the shares are of no secret")
    return secret.to_bytes(SECRET_BYTES)


def _value(coefficients: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value
