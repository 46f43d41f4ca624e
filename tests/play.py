"""Rounds played with any clients in any order, as the laws of the package play them, and a look inside an algorithm."""

from collections.abc import Callable
from typing import Any

from fedadmm.core.algorithm import Algorithm, AnyAlgorithm, Turnout, Vector
from fedadmm.studies.laws.play import Play, copied, identical

__all__ = ["Play", "Watched", "copied", "identical"]


class Watched(Algorithm[Any, Any, Any]):
    """An algorithm that behaves as another, and lets a test watch what goes in and comes out."""

    inner: AnyAlgorithm
    on_client: Callable[..., None] = lambda **_: None
    on_server: Callable[[Turnout], None] = lambda _: None

    @property
    def newcomer(self) -> Any:
        """The other's."""
        return self.inner.newcomer

    def init_server(self, theta: Vector) -> Any:
        """Return the other's server."""
        return self.inner.init_server(theta)

    def init_client(self, theta: Vector) -> Any:
        """Return the other's client."""
        return self.inner.init_client(theta)

    def download(self, server: Any) -> Any:
        """Return the other's download."""
        return self.inner.download(server)

    def client_update(self, server: Any, client: Any, problem: Any) -> tuple[Any, Any]:
        """Update as the other does, and tell the watcher."""
        upload, after = self.inner.client_update(server, client, problem)
        self.on_client(server=server, before=client, after=after, upload=upload, problem=problem)
        return upload, after

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        """Update as the other does, and tell the watcher."""
        self.on_server(turnout)
        return self.inner.server_update(server, mean, turnout)
