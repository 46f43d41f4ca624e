"""What a user wrote for 0.1.0 is refused with one sentence that says what to write now."""

from importlib import import_module
from importlib.util import find_spec

import pytest

import fedadmm
from fedadmm import Experiment, InputError
from fedadmm.core.errors import import_named, moved_module, moved_modules


@pytest.mark.parametrize(("old", "place"), moved_modules().items())
def test_a_module_of_0_1_0_has_a_place_now(old, place):
    assert find_spec(f"fedadmm.{place}") is not None
    with pytest.raises(ImportError, match=f"fedadmm.{old} has moved to fedadmm.{place}; change the import"):
        import_module(f"fedadmm.{old}")


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("from fedadmm.core.books import Books", "fedadmm.core.books has moved to fedadmm.core.optional"),
        ("import fedadmm.learning.models", "fedadmm.learning.models has moved to fedadmm.training.models"),
        (
            "from fedadmm.experiments.experiment import Experiment",
            "experiments.experiment has moved to fedadmm.config.experiment",
        ),
        ("from fedadmm.theory import walk", "fedadmm.theory has moved to fedadmm.studies.theory"),
        ("from fedadmm import Local", "fedadmm.Local is called fedadmm.LocalTraining now"),
    ],
)
def test_an_algorithm_file_of_0_1_0_is_told_what_to_import_now(tmp_path, monkeypatch, line, place):
    name = f"old_{abs(hash(line))}"
    (tmp_path / f"{name}.py").write_text(f"{line}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=f'algorithm "{name}:Mine": .*{place}'):
        import_named(f"{name}:Mine", what="algorithm")


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("import fedadmm.federation", "fedadmm.federation has moved to fedadmm.flower.local"),
        ("from fedadmm import federation", "fedadmm.federation has moved to fedadmm.flower.local"),
        ("from fedadmm.theory import walk", "fedadmm.theory has moved to fedadmm.studies.theory"),
        ("import fedadmm.theory.walk", "fedadmm.theory.walk has moved to fedadmm.studies.theory.walk"),
        (
            "from fedadmm.experiments.experiment import Experiment",
            "fedadmm.experiments.experiment has moved to fedadmm.config.experiment",
        ),
    ],
)
def test_a_script_of_0_1_0_is_told_what_to_import_now(line, moved):
    with pytest.raises(ImportError, match=f"^{moved}; change the import$"):
        exec(line)


def test_a_module_that_never_was_is_python_s_own_error():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'fedadmm\.foo'$"):
        import_module("fedadmm.foo")


def test_a_module_that_never_was_has_not_moved():
    assert moved_module("fedadmm.foo") is None
    assert moved_module("other.learning") is None
    assert moved_module("fedadmm.learning.models") == "fedadmm.training.models"
    assert moved_module("fedadmm.experiments.records") == "fedadmm.runs.records"


def test_an_algorithm_that_was_renamed_is_refused_with_its_new_name():
    with pytest.raises(InputError, match="sitting_out is now called randomised_server; change the name"):
        Experiment(algorithm={"name": "sitting_out"})


def test_the_old_name_of_a_simulations_checkpoint_is_refused_with_the_new_one() -> None:
    with pytest.raises(InputError, match=r"simulation\.progress is now called simulation\.checkpoint"):
        _ = fedadmm.Simulation.__new__(fedadmm.Simulation).progress
