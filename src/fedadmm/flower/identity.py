"""Which node may answer for a client: the one that has the key with which the client first joined.

A node makes its key in its client's folder, and signs what it says of itself together with the server's question:
nobody can use what another node has signed.
"""

from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole


class Claim(NamedTuple):
    """What a node says of itself, in answer to a question."""

    federation: str
    question: str  # drawn by the server, and asked once
    node: int
    client: int

    @property
    def text(self) -> bytes:
        """What is signed."""
        return "\n".join(["fedadmm", *map(str, self)]).encode()


class Signed(NamedTuple):
    """A public key and a signature, in hexadecimal digits."""

    key: str
    signature: str

    def is_of(self, claim: Claim) -> bool:
        """Return whether the owner of the key has signed the claim."""
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.key)).verify(
                bytes.fromhex(self.signature), claim.text
            )
        except (InvalidSignature, ValueError):
            return False
        return True


def signed(claim: Claim, *, folder: Path) -> Signed:
    """Return a claim signed with the key in a client's folder, which is made if there is none."""
    path = folder / "key"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, Ed25519PrivateKey.generate().private_bytes_raw().hex())
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text(encoding="utf-8").strip()))
    except (OSError, ValueError) as error:
        raise InputError(
            f"the key of client {claim.client} in {path} cannot be used: {error}; restore it from a copy, or remove it "
            "and have the server's operator run: fedadmm federation rebind"
        ) from error
    return Signed(key.public_key().public_bytes_raw().hex(), key.sign(claim.text).hex())
