"""The same algorithms over real machines: a strategy and apps for Flower's SuperLink and SuperNodes.

# server_app.py                                     # client_app.py
app = fedadmm.flower.server_app(model=model)        app = fedadmm.flower.client_app(model=model, data=data)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedadmm.flower.apps import client_app, make_strategy, server_app
    from fedadmm.flower.settings import FederationSettings, client_of
    from fedadmm.flower.strategy import AlgorithmStrategy

__all__ = ["AlgorithmStrategy", "FederationSettings", "client_app", "client_of", "make_strategy", "server_app"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: flwr is an extra, and the local federation does without it."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.apps"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
