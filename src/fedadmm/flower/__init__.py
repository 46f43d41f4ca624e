"""The same algorithms over real machines: a strategy and apps for Flower's SuperLink and SuperNodes.

# server_app.py                                     # client_app.py
app = fedadmm.flower.server_app(model=model)        app = fedadmm.flower.client_app(model=model, data=data)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedadmm.flower.client import client_app
    from fedadmm.flower.server import make_strategy, server_app
    from fedadmm.flower.settings import FederationSettings, client_of
    from fedadmm.flower.strategy import AlgorithmStrategy

__all__ = ["AlgorithmStrategy", "FederationSettings", "client_app", "client_of", "make_strategy", "server_app"]

_MODULES = {"client": ["client_app"], "server": ["make_strategy", "server_app"], "strategy": ["AlgorithmStrategy"]}
_MODULES["settings"] = ["FederationSettings", "client_of"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: flwr is an extra, and the local federation does without it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
