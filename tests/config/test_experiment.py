import ast
from pathlib import Path

import pytest

import fedadmm
from fedadmm import Cosine, Experiment, FedADMM, FedAvg, InputError, LocalTraining, Step
from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.errors import OLD_NAMES


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_experiment_survives_toml(name):
    experiment = Experiment(algorithm=ALGORITHMS[name](), participation=[0.5] * 100)
    assert Experiment.from_toml(experiment.to_toml()) == experiment


def test_empty_tables_in_the_options_of_ones_own_function_survive_toml():
    own = {"name": "own:data", "options": {"bits": {}, "more": {"deep": {}}}}
    experiment = Experiment(data=own, model={"name": "own:model", "options": {}})
    again = Experiment.from_toml(experiment.to_toml())
    assert (again, again.hash) == (experiment, experiment.hash)


def test_schedules_survive_toml():
    experiment = Experiment(
        algorithm=FedADMM(rho=Step(0.01, 0.1, at_round=5), eta=Cosine(1.0, 0.5, length=9)),
        local=LocalTraining(learning_rate=Cosine(0.1, 0.01, length=30)),
    )
    assert Experiment.from_toml(experiment.to_toml()) == experiment


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"label": "other"},
        {"rounds": 7},
        {"target": 0.5},
        {"target": 0.5, "stop_at_target": True},
        {"state": {"store": "memory"}},
        {"state": {"durability": "power"}},
        {"data": {"num_clients": 100, "alpha": 9.0}},  # the partition is by shards
    ],
)
def test_the_hash_does_not_cover_what_leaves_round_t_alone(change):
    assert Experiment().replace(**change).hash == Experiment().hash


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"participation": 0.2},
        {"weighting": "examples"},
        {"algorithm": FedADMM(rho=0.02)},
        {"algorithm": FedAvg()},
        {"model": {"name": "softmax_regression"}},
        {"data": {"num_clients": 100, "partition": "iid"}},
        {"data": {"num_clients": 100, "validation": 0.2}},
        {"local": {"learning_rate": 0.2}},
        {"local": {"epochs": "1..5", "clip": 10.0}},
        {"state": {"float_type": "bfloat16"}},
    ],
)
def test_the_hash_covers_what_determines_round_t(change):
    assert Experiment().replace(**change).hash != Experiment().hash


def test_the_hash_does_not_depend_on_how_a_number_is_written():
    assert Experiment(algorithm=FedADMM(rho=1)).hash == Experiment(algorithm=FedADMM(rho=1.0)).hash


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rouns": 3}, "unknown key 'rouns'; did you mean rounds"),
        ({"rounds": "many"}, "rounds='many' is not valid"),
        ({"rounds": 0}, "rounds=0 is out of range; use a whole number from 1 on"),
        ({"target": 90}, "target=90.0 is out of range for the accuracy; use a number above 0 and up to 1"),
        ({"name": "a/b"}, "name='a/b' cannot name a folder"),
        ({"local": {"batch_size": 0}}, r'in \[local\]: batch_size=0 is out of range; use .* or "full"'),
        ({"local": {"epochs": "5..1"}}, r"in \[local\]: epochs='5..1' is not a range"),
        ({"local": {"learning_rate": -1}}, r"in \[local\]: learning_rate=-1 is out of range"),
        ({"local": {"momentum": 1.0}}, r"in \[local\]: momentum=1.0 is out of range"),
        ({"local": {"pace": 1}}, r"in \[local\]: unknown key 'pace'; the keys are epochs, batch_size"),
        ({"algorithm": {"name": "fedprix"}}, r"in \[algorithm\]: name='fedprix' is unknown; did you mean fedprox"),
        ({"algorithm": {"name": "fedavg", "rho": 1}}, r"in \[algorithm\]: unknown key 'rho'; fedavg has eta"),
        ({"algorithm": {"name": "fedadmm", "rho": 0}}, r"in \[algorithm\]: rho=0 is out of range"),
        ({"algorithm": {"name": "fedadmm", "eta": "seen", "newcomer": "initial"}}, 'use newcomer="current"'),
        ({"algorithm": {"name": "fedadmm", "eta": "participation"}}, 'use newcomer="initial"'),
        ({"algorithm": {"name": "fedadmm", "rho": {"schedule": "ramp"}}}, "use one of constant, step, cosine"),
        ({"weighting": "heavy"}, "weighting='heavy' is not valid; use 'equal' or 'examples'"),
    ],
)
def test_a_mistake_gets_a_sentence_with_the_value_and_the_remedy(change, sentence):
    with pytest.raises(InputError, match=sentence):
        Experiment(**change)


def test_an_algorithm_of_the_users_is_named_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "half_step.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedadmm.algorithms import FedAvg\n"
        "@dataclass(frozen=True)\n"
        "class HalfStep(FedAvg):\n"
        "    eta: float = 0.5\n"
    )
    monkeypatch.chdir(tmp_path)
    experiment = Experiment(algorithm={"name": "half_step:HalfStep"})
    assert experiment.algorithm.eta == 0.5
    assert Experiment.from_toml(experiment.to_toml()) == experiment


def test_what_the_package_exports_is_there():
    assert all(hasattr(fedadmm, name) for name in fedadmm.__all__)


def test_the_package_exports_what_its_editors_see():
    source = ast.parse(Path(fedadmm.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in source.body if isinstance(node, ast.ImportFrom)]
    seen = [(alias.name, alias.asname, node.module) for node in imports for alias in node.names]
    assert all(name == exported for name, exported, _ in seen)
    assert sorted(name for name, _, _ in seen) == sorted(fedadmm.__all__)
    assert {name: module for name, _, module in seen} == fedadmm._MODULE_OF
    assert {"FedADMM", "Simulation", "simulate", "federate", "load"} <= set(fedadmm.__all__) <= set(dir(fedadmm))


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_a_name_of_0_1_0_is_refused_with_the_new_one(old, new):
    sentence = f"fedadmm.{old} is called fedadmm.{new} now"
    with pytest.raises(AttributeError, match=sentence):
        getattr(fedadmm, old)
    with pytest.raises(ImportError, match=sentence):
        exec(f"from fedadmm import {old}")
    assert new in fedadmm.__all__
    assert not hasattr(fedadmm, old)


def test_a_name_that_never_was_is_an_ordinary_mistake():
    with pytest.raises(AttributeError, match="module 'fedadmm' has no attribute 'FedFoo'"):
        fedadmm.FedFoo  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'FedFoo'"):
        from fedadmm import FedFoo  # noqa: F401


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"name": "fedpd", "silence": 0.9}, "silence is now called skip_probability; change the name"),
        ({"name": "sitting_out"}, "sitting_out is now called randomised_server; change the name"),
    ],
)
def test_a_word_of_0_1_0_is_refused_with_the_new_one(table: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment(algorithm=table)


def test_hashes_are_those_of_0_1_0() -> None:
    # As 0.1.0 printed them, with `silence` and `sitting_out`.
    tables = [{"name": "fedpd", "skip_probability": 0.9}, {"name": "randomised_server"}]
    assert [Experiment(algorithm=table).hash for table in tables] == ["a7ec987bac", "41c51f6867"]


@pytest.mark.parametrize("text", ["rounds =", "x" * 100, "[" * 3000, "rounds = " + "9" * 5000, "\x00"])
def test_what_is_not_toml_is_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="not TOML"):
        Experiment.from_toml(text)


def test_keys_of_an_algorithm_without_a_name_are_those_of_the_default() -> None:
    assert Experiment.from_toml("name = 'x'\n[algorithm]\nrho = 0.1\n").algorithm == fedadmm.FastFedADMM(rho=0.1)
