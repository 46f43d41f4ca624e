"""The same algorithms over real machines: a strategy and apps for Flower's SuperLink and SuperNodes.

# server_app.py                                     # client_app.py
app = fedadmm.flower.server_app(model=model)        app = fedadmm.flower.client_app(model=model, data=data)
"""

from fedadmm.flower.client import client_app
from fedadmm.flower.server import make_strategy, server_app
from fedadmm.flower.settings import FederationSettings, client_of
from fedadmm.flower.strategy import AlgorithmStrategy

__all__ = [
    "AlgorithmStrategy",
    "FederationSettings",
    "client_app",
    "client_of",
    "make_strategy",
    "server_app",
]
