"""A SuperLink and SuperNodes on this machine, with TLS and node keys: for trying Flower, and for tests."""

from fedadmm.flower.local.example import copy_app
from fedadmm.flower.local.federation import LocalFederation

__all__ = ["LocalFederation", "copy_app"]
