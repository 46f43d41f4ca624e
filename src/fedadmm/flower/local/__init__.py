"""A SuperLink and SuperNodes on this machine, with TLS and node keys: for trying Flower, and for tests."""

from fedadmm.flower.local.certificates import warnings_of
from fedadmm.flower.local.federation import LINK, LocalFederation, copy_app
from fedadmm.flower.local.processes import Shell
from fedadmm.flower.local.runs import EXIT_CODES, SENTENCES, follow_run

__all__ = ["EXIT_CODES", "LINK", "SENTENCES", "LocalFederation", "Shell", "copy_app", "follow_run", "warnings_of"]
