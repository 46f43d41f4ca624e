"""What a user's function is made of: its own source, and what it uses of the user's files, and no more."""

import importlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from fedadmm import InputError
from fedadmm.own_code.definitions import definitions
from fedadmm.own_code.values import made_of, values_of

COUNTER = itertools.count()

OWN = '''
"""A module."""
import os
import PACKAGE.parts as parts
from PACKAGE.helpers import scale as scaled
from . import other
from .starred import *

WIDTH: int = 16
LAYERS = [1, 2]


def model():
    """Return a model."""
    return parts.head(WIDTH), [make(n) for n in LAYERS]


def make(n):
    return n if n else model()


def metric(outputs, targets):
    from PACKAGE.late import rounding
    return scaled(rounding(outputs))


def loss(outputs, targets):
    return other.weigh(outputs) + from_star(targets)


def unused():
    return 0


class Rule(parts.Base):
    size = 3

    def pick(self):
        return os.cpu_count()
'''
FILES = {
    "__init__": "",
    "own": OWN,
    "parts": "def head(n): return tail(n)\ndef tail(n): return n\ndef body(): pass\nclass Base: pass\n",
    "helpers": "def scale(x): return x * FACTOR\nFACTOR = 1.0\n",
    "late": "def rounding(x): return round(x, 2)\n",
    "other": "LOADED = []\nLOADED.append(1)\ndef weigh(x): return x\n",
    "starred": "def from_star(x): return x\n",
}
Read = Callable[..., dict[str, str]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a function that writes the package with changes, and returns the definitions of some of its names."""

    def reading(*names: str, **changes: tuple[str, str]) -> dict[str, str]:
        package = f"users_own_{next(COUNTER)}"
        folder = tmp_path / package
        folder.mkdir()
        for name, text in FILES.items():
            content = text.replace(*changes[name]) if name in changes else text
            assert name not in changes or content != text
            (folder / f"{name}.py").write_text(textwrap.dedent(content.replace("PACKAGE", package)))
        found = definitions([f"{package}.own:{name}" for name in names])
        return {place.replace(package, "P"): digest for place, digest in found.items()}

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return reading


def changed(one: Mapping[str, str], two: Mapping[str, str]) -> set[str]:
    # The package has another name each time, which is in what its imports bind.
    return {place for place in one.keys() | two.keys() if one.get(place) != two.get(place)} - IMPORTS


IMPORTS = {"P.own:parts", "P.own:scaled", "P.own:other", "P.own:metric.rounding", "P.own:metric"}


def test_what_a_function_uses_counts_and_what_it_does_not_use_does_not(read: Read) -> None:
    assert {*read("model")} == {
        "P.own:model", "P.own:parts", "P.own:WIDTH", "P.own:LAYERS", "P.own:make", "P.parts:head", "P.parts:tail",
    }  # fmt: skip
    used = {"P.own:metric", "P.own:scaled", "P.helpers:scale", "P.helpers:FACTOR", "P.late:rounding"}
    assert {*read("metric")} >= used
    # What a module does when it is imported counts: it may change what is used of it.
    assert {*read("loss")} >= {"P.other:weigh", "P.other:<module>", "P.other:LOADED", "P.starred:from_star"}
    assert {*read("Rule.pick")} >= {"P.own:Rule", "P.parts:Base", "P.own:os"}
    assert read("nothing") == {}


@pytest.mark.parametrize(
    ("name", "changes", "what"),
    [
        ("model", {"own": ("WIDTH: int = 16", "WIDTH: int = 8")}, {"P.own:WIDTH"}),
        ("model", {"own": ("LAYERS = [1, 2]", "LAYERS = [1, 3]")}, {"P.own:LAYERS"}),
        ("model", {"own": ("n if n else", "n if not n else")}, {"P.own:make"}),
        ("model", {"parts": ("def tail(n): return n", "def tail(n): return -n")}, {"P.parts:tail"}),
        ("metric", {"helpers": ("FACTOR = 1.0", "FACTOR = 2.0")}, {"P.helpers:FACTOR"}),
        ("metric", {"late": ("2", "3")}, {"P.late:rounding"}),
        ("loss", {"other": ("append(1)", "append(2)")}, {"P.other:<module>"}),
        ("loss", {"starred": ("return x", "return 2 * x")}, {"P.starred:from_star"}),
        ("Rule", {"parts": ("class Base: pass", "class Base: size = 1")}, {"P.parts:Base"}),
        # Comments, docstrings, the layout of lines and what is not used do not count.
        ("model", {"own": ("Return a model.", "Return another text.")}, set()),
        ("model", {"own": ("LAYERS = [1, 2]", "# A comment.\nLAYERS = [  # two\n    1,\n    2\n]")}, set()),
        ("model", {"own": ("return 0", "return 1")}, set()),
        ("model", {"own": ("import os\n", "import os, sys\n")}, set()),
        ("model", {"parts": ("def body(): pass", "def body(): return 7\ndef another(): pass")}, set()),
    ],
)
def test_the_definition_that_changed_is_named(
    read: Read, name: str, changes: dict[str, tuple[str, str]], what: set[str]
) -> None:
    assert changed(read(name), read(name, **changes)) == what


def test_an_installed_package_counts_by_its_version_and_the_standard_library_torch_and_ours_do_not() -> None:
    import numpy

    assert definitions(["numpy.linalg:norm"]) == {"numpy": numpy.__version__}
    assert definitions(["json:dumps", "torch.nn:Linear", "fedadmm.algorithms:FedAvg", "nowhere:at_all"]) == {}


def test_a_user_s_own_library_beside_the_installed_ones_is_followed(read: Read) -> None:
    found = read("unused", own=("return 0", "import numpy\n    return numpy.zeros(1)"))
    assert found.keys() == {"P.own:unused", "P.own:unused.numpy", "numpy"}


def test_a_module_that_was_edited_after_its_import_is_refused_until_it_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"users_own_{next(COUNTER)}"
    file = tmp_path / f"{name}.py"
    file.write_text('class Net:\n    def forward(self): return 1\ndef rule():\n    """Return one."""\n    return 1\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module(name)
    first = definitions([f"{name}:rule"])
    file.write_text(file.read_text().replace("Return one.", "Return 1.") + "\n# A comment.\n")
    assert definitions([f"{name}:rule"]) == first
    for old in ("self): return 1", "    return 1"):
        file.write_text(file.read_text().replace(old, old.replace("1", "2")))
        with pytest.raises(InputError, match=rf"{name}.py was edited after it was imported.*; start Python again, or"):
            definitions([f"{name}:rule"])
        importlib.reload(module)
        definitions([f"{name}:rule"])
    assert definitions([f"{name}:rule"]) != first


FACTOR = 2


def outer(power: int) -> tuple[Any, Any]:
    def inner(x: float) -> float:
        return helper(x) ** power

    return inner, lambda x: helper(x) * power


def helper(x: float) -> float:
    return x * FACTOR


def test_lambdas_and_local_functions_are_followed_and_told_apart_by_what_they_close_over() -> None:
    place = __name__
    for function in outer(2):
        found = definitions(made_of(function))
        assert {*found} == {f"{place}:{function.__qualname__}", f"{place}:helper", f"{place}:FACTOR"}
        assert found == definitions(made_of(function))
    assert [values_of(one) == values_of(two) for one, two in zip(outer(2), outer(2), strict=True)] == [True, True]
    assert [values_of(one) == values_of(two) for one, two in zip(outer(2), outer(3), strict=True)] == [False, False]
    lambdas = [definitions(made_of(function))[f"{place}:<lambda>"] for function in (ONE, TWO)]
    assert lambdas[0] != lambdas[1]
    assert definitions([ONE, TWO]) == definitions([TWO, ONE])


ONE, TWO = (lambda x: x + 1), (lambda x: x + 2)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (partial(helper, weight=0.1), partial(helper, weight=0.2)),
        (partial(helper, weight=torch.ones(2)), partial(helper, weight=torch.zeros(2))),
        (nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss(label_smoothing=0.2)),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2])), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3]))),
        (nn.Sequential(nn.Dropout(0.1)), nn.Sequential(nn.Dropout(0.5))),
    ],
    ids=["partial", "tensor", "smoothing", "weight", "dropout"],
)
def test_the_settings_of_an_object_tell_it_from_another(one: Any, two: Any) -> None:
    assert values_of(one) == values_of(one) != values_of(two)


NOTEBOOK = """
import math
from fedadmm.own_code.definitions import definitions
WIDTH = 3
def used(x): return math.sqrt(x) + WIDTH
def model(): return used(2)
def unused(): return 3
class Net:
    size = 2
    def forward(self): return used(self.size)
"""


@pytest.mark.parametrize("with_source", [True, False])
def test_a_notebook_has_no_file_and_its_functions_are_followed(
    with_source: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import linecache

    def found(text: str) -> dict[str, str]:
        notebook, name = ModuleType("__main__"), f"<cell {next(COUNTER)}>"
        if not with_source:
            notebook.__file__ = "<stdin>"
        monkeypatch.setitem(sys.modules, "__main__", notebook)
        if with_source:
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(notebook))
        return {**definitions(["__main__:model", "__main__:Net"])}

    first = found(NOTEBOOK)
    assert {*first} == {f"__main__:{name}" for name in ("model", "used", "math", "WIDTH", "Net")}
    for old, new, what in [
        ("WIDTH = 3", "WIDTH = 4", {"WIDTH"}),
        ("sqrt(x)", "sqrt(2 * x)", {"used"}),
        ("size = 2", "size = 5", {"Net"}),
        ("return 3", "return 4", set()),
        ("def model", "\n# A comment.\ndef model", set()),
    ]:
        assert changed(first, found(NOTEBOOK.replace(old, new))) == {f"__main__:{name}" for name in what}
