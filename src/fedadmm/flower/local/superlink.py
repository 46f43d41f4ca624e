"""Flower's SuperLink, which takes a renewed certificate without a stop.

Flower reads the certificate when it starts. Here the files are looked at every few seconds, and connections that are
made after they have changed get the new certificate; those that are open go on.
"""

import os
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from logging import INFO, WARNING
from os import PathLike
from pathlib import Path
from typing import Any

import uvicorn.config
from flwr.common.logger import log
from flwr.superlink.cli import flower_superlink

from fedadmm.flower.local.processes import search_path

EVERY = 5.0  # seconds between two looks at the files


class RenewedCertificate:
    """The certificate of a server in its files, and the context that connections get it from."""

    def __init__(self, context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
        self._context, self._files = context, (certificate, key)
        self._taken, self._told = self._seen(), ""

    def look(self) -> bool:
        """Take the files if they have changed, and return whether they were taken; a pair that does not fit is not."""
        try:
            seen = self._seen()
            if seen == self._taken:
                return False
            # The running server must not be left with one of the two: see whether they fit first.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self._context.load_cert_chain(*self._files)
        except OSError as error:  # of which ssl's errors are some; the other file may still be on its way
            if str(error) != self._told:
                self._told = str(error)
                log(WARNING, "The new certificate in %s is not taken: %s", self._files[0], error)
            return False
        self._taken, self._told = seen, ""
        log(INFO, "The certificate in %s was renewed: new connections get it", self._files[0])
        return True

    def _seen(self) -> list[tuple[int, int, int]]:
        stats = [file.stat() for file in self._files if file is not None]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]

    def keep_looking(self) -> None:
        """Look again and again, until this process ends."""
        while True:
            time.sleep(EVERY)
            self.look()


def follow_certificates() -> None:
    """Let servers that uvicorn starts in this process from now on take renewed certificates."""
    create = uvicorn.config.create_ssl_context

    def created(certfile: str | PathLike[str], keyfile: str | PathLike[str] | None, **rest: Any) -> ssl.SSLContext:
        context = create(certfile, keyfile, **rest)
        renewed = RenewedCertificate(context, Path(certfile), None if keyfile is None else Path(keyfile))
        threading.Thread(target=renewed.keep_looking, daemon=True).start()
        return context

    vars(uvicorn.config)["create_ssl_context"] = created


def run_superlink(arguments: Sequence[str]) -> None:
    """Run Flower's SuperLink in this process."""
    os.environ["PATH"] = search_path()
    sys.argv = ["flower-superlink", *arguments]
    follow_certificates()
    flower_superlink()
