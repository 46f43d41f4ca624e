"""When certificates end: who operates a federation is told a month before."""

import ssl
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from fedadmm.core.errors import InputError

WARNED = 30.0  # days before


def days_left(certificate: Path) -> float:
    """Return for how many days a certificate is valid."""
    command = ["openssl", "x509", "-enddate", "-noout", "-in", str(certificate)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(f"{certificate} is not a certificate that openssl reads: {error}; correct the path") from error
    ends = ssl.cert_time_to_seconds(said.strip().removeprefix("notAfter="))
    return (ends - datetime.now(UTC).timestamp()) / 86400


def warnings_of(certificates: Iterable[Path]) -> list[str]:
    """Return a sentence for each certificate that ends within a month."""
    found = []
    for path in certificates:
        left = days_left(path)
        if left < WARNED:
            ends = "has ended" if left < 0 else f"ends in {left:.0f} days"
            found.append(f"WARNING: the certificate {path} {ends}; make it anew: docs/DEPLOY.md, Certificates")
    return found
