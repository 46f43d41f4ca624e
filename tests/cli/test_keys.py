"""The reference of keys is made from the classes: complete, true and readable."""

import pydoc
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedadmm
from fedadmm.algorithms import ALGORITHMS
from fedadmm.cli import app
from fedadmm.config import keys
from fedadmm.config.experiment import Experiment
from fedadmm.core.columns import Columns
from fedadmm.core.files import parse_toml
from fedadmm.core.per_client import Distribution, Stragglers

PAGE = Path(__file__).parents[2] / "docs/KEYS.md"
TABLES = {table.name: table for table in keys.tables()}
# What an example needs beside it.
BESIDE = {
    "stop_at_target": {"target": 0.5},
    "direction": {"metric": "f1", "model.metrics": {"f1": "own:f1"}},
    "local.optimizer_options": {"local.optimizer": "adam"},
    "local.speed": {"local.seconds": 10},
    "clock.availability.share": {"clock.availability.period": 86400},
    "clock.availability.trace": {"clock.availability.period": 86400},
    "clock.availability.period": {"clock.availability.share": 0.5},
    "clock.asynchronous.max_staleness": {"clock.asynchronous.buffer": 5},
    "compression.error_feedback": {"compression.name": "int8"},
    "compression.block": {"compression.name": "int8"},
    "compression.keep": {"compression.name": "top_k"},
    "robust.name": {"robust.trim": 0.2},
    "robust.trim": {"robust.name": "trimmed_mean"},
    "robust.liars": {"robust.name": "krum"},
    "robust.select": {"robust.name": "krum", "robust.liars": 3},
    "robust.norm": {"robust.name": "norm_clip"},
    "attack.name": {"attack.share": 0.2},
    "attack.share": {"attack.name": "sign_flip"},
    "attack.factor": {"attack.name": "scaling", "attack.share": 0.2},
}


def _entries() -> list[tuple[str, keys.Key]]:
    return [(name, key) for name, table in TABLES.items() for key in table.keys]


def test_the_page_is_what_the_code_says() -> None:
    filled = f"<!-- keys -->\n\n{keys.markdown()}\n<!-- end -->"
    assert filled in PAGE.read_text(), "run `python docs/build.py KEYS.md`"


@pytest.mark.parametrize(("table", "key"), _entries(), ids=lambda value: getattr(value, "name", value))
def test_a_key_has_a_meaning_and_an_example_that_is_accepted(table: str, key: keys.Key) -> None:
    assert key.meaning, f"write `{key.name} = EXAMPLE: MEANING` into the docstring of [{table}]"
    value = tomllib.loads(f"value = {key.example}")["value"]
    if table == "distribution":
        numbers = {"median": 1, "sigma": 1} if key.name in ("median", "sigma") else {"low": 1, "high": 60}
        kind = "lognormal" if "median" in numbers else "uniform"
        Distribution(**{"distribution": kind, **numbers, key.name: value})
    elif table == "hugging_face":
        Columns(**{key.name: value})
    elif table == "stragglers":
        Stragglers(**{"share": 0.1, "epochs": 1, "others": 2, key.name: value})
    elif table.startswith("algorithm "):
        Experiment(algorithm={"name": table.removeprefix("algorithm "), key.name: value})
    else:
        name = f"{table}.{key.name}".lstrip(".")
        lines = {name: key.example} | {beside: keys._toml(v) for beside, v in BESIDE.get(name, {}).items()}
        required = {"clock.speed": "100"} if table.startswith("clock") else {}
        if table.startswith("privacy"):
            required = {"privacy.clip": "1.0", "privacy.delta": "1e-5"}
            required["privacy.epsilon" if key.name == "rounds" else "privacy.noise"] = "1.0"
        text = "\n".join(f"{name} = {example}" for name, example in (required | lines).items())
        Experiment(**parse_toml(text, where=text))


def test_the_defaults_are_those_of_an_experiment_that_says_nothing() -> None:
    defaults = {f"{name}.{key.name}".lstrip("."): key.default for name, key in _entries()}
    assert (defaults["local.epochs"], defaults["data.num_clients"], defaults["rounds"]) == ('"1..5"', "100", "60")


@pytest.mark.slow
def test_the_command_explains_a_table_and_an_algorithm_and_all() -> None:
    def said(*arguments: str) -> str:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["keys", *arguments]).output

    assert "batch_size = 32" in said("local")
    assert "look_ahead = 0.85" in said("fast_fedadmm")
    everything = said()
    assert [name for name in (*TABLES, *ALGORITHMS) if name not in everything] == []


def test_a_key_is_shown_with_its_table_and_one_of_algorithm_with_each_that_has_it() -> None:
    def shown(name: str) -> dict[str, list[str]]:
        return {table.name: [key.name for key in table.keys] for table in keys.tables_named(name)}

    assert shown("local.epochs") == {"local": ["epochs"]}
    assert shown("clock.availability.share") == {"clock.availability": ["share"]}
    assert shown("rounds") == {"": ["rounds"]}
    assert shown("algorithm") == shown("algorithm.name") == {"": ["algorithm"]}
    assert shown("fedprox.rho") == {"algorithm fedprox": ["rho"]}
    assert shown("algorithm.look_ahead") == {
        "algorithm fast_fedadmm": ["look_ahead"],
        "algorithm look_ahead": ["look_ahead"],
    }


@pytest.mark.parametrize(
    ("name", "near"),
    [("loacl", "local"), ("local.epoch", "local.epochs"), ("round", "rounds"), ("decay", "averaged.decay")],
)
def test_a_table_or_key_that_there_is_not_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(fedadmm.InputError, match=rf"there is no table or key '{name}'; did you mean .*\b{near}\b"):
        keys.tables_named(name)


@pytest.mark.parametrize("kind", [fedadmm.LocalTraining, fedadmm.Experiment])
def test_help_shows_the_keys_and_none_of_the_machinery(kind: type) -> None:
    text = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    assert all(f"|  {name} = " in text for name in kind.model_fields)
    assert "model_validate" not in text
    assert "Annotated" not in text
