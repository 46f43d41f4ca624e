"""Federated learning with FedADMM and its peers.

import fedadmm
data = fedadmm.federate(fedadmm.load("digits"), num_clients=100, partition="shards", seed=0)
result = fedadmm.simulate(fedadmm.FedDyn(), model="mlp", data=data, rounds=60)
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from fedadmm.core.errors import OLD_NAMES, MovedModules

# The module of each name, which is imported when the name is asked for: torch takes a second.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE_OF = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, flags=re.MULTILINE)}

__all__ = [*_MODULE_OF]

sys.meta_path.append(MovedModules())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # imports email and zipfile

        return version("fedadmm")
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value
    if name not in OLD_NAMES:
        raise AttributeError(f"module 'fedadmm' has no attribute {name!r}")
    sentence = f"fedadmm.{name} is called fedadmm.{OLD_NAMES[name]} now; change the name"
    # Python replaces the sentence of an AttributeError in `from fedadmm import ...` by its own.
    imported = sys._getframe(1).f_code.co_name == "_handle_fromlist"
    raise ImportError(sentence) if imported else AttributeError(sentence)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
