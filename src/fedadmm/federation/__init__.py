"""A SuperLink and SuperNodes on this machine, with TLS and node keys: for trying Flower, and for tests."""

from fedadmm.federation.example import copy_app
from fedadmm.federation.local import LocalFederation

__all__ = ["LocalFederation", "copy_app"]
