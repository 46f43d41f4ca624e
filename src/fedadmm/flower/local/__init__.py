"""A SuperLink and SuperNodes on this machine, with TLS and node keys: for trying Flower, and for tests."""

from fedadmm.flower.local.federation import LocalFederation, copy_app

__all__ = ["LocalFederation", "copy_app"]
