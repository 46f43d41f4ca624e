"""Experiment files mutated from valid ones: each gives a sentence or a run, and never a traceback.

`make fuzz` does so for an hour (`python tests/fuzz.py 3600`); tests/config/test_fuzz.py does it for seconds.
"""

import copy
import random
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config import keys
from fedadmm.config.algorithm_table import algorithm_to_table
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import load_plan, preset_names
from fedadmm.core.errors import InputError
from fedadmm.runs.simulation import simulation_of

NUMBERS = [0, -1, 1, 2, 3, 7, 0.5, 1e-9, 1e300, -0.0, 10**30, 10**400, float("nan"), float("inf"), -float("inf"), 2**63]
WORDS = ["", "x", "auto", "fedavg", "none", "1..3", "3..1", "0", "os:getcwd", "a.b:c", ":", "é\u0000", "../x", "full"]
TABLES: list[Any] = [
    {},
    {"self": 1},
    {"name": "fedavg"},
    {"schedule": "step", "before": 1, "after": 0.5, "at_round": 2},
    {"schedule": "cosine", "start": "x", "end": 1, "length": 1},
    {"distribution": "uniform", "low": 2, "high": 1},
    {"distribution": "lognormal", "median": 1, "sigma": 1e300},
    {"share": 0.4, "epochs": "1..2", "others": 3},
    {"sgd": 0.5, "gd": 0.5},
]
LISTS: list[Any] = [[], [1], [[1]], [1, "x"], [0.1] * 5, ["sgd", "gd"], [{}], [True], [[[[1]]]]]
KNOWN = [  # (table, key, example)
    (table.name, key.name, tomllib.loads(f"value = {key.example}")["value"])
    for table in keys.tables()
    for key in table.keys
    if not table.name.startswith(("algorithm ", "distribution", "stragglers"))
]
KEYS = ["self", "name", "cls", "model_config", "", "a b", "__class__", "options", "rho", "epochs", "seed", "label"]


def bases() -> list[dict[str, Any]]:
    """Return the tables of the presets, and one of digits for each algorithm."""
    tables = [copy.deepcopy(load_plan(name).table) for name in preset_names()]
    small = {"data": {"name": "digits", "num_clients": 20}, "model": {"name": "softmax_regression"}, "local": {}}
    return tables + [{**small, "algorithm": _plain(algorithm_to_table(kind()))} for kind in ALGORITHMS.values()]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return value


def mutant(table: dict[str, Any], draw: random.Random) -> str:
    """Return a file with up to three changes to a table, and then perhaps some to its letters."""
    table = copy.deepcopy(table)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        tables = list(_tables(table))
        place = draw.choice(tables)
        own = [*place] or ["x"]
        change = draw.random()
        if change < 0.3:
            place[draw.choice(own)] = _value(draw)
        elif change < 0.7:
            _set_known(table, draw)
        elif change < 0.8:
            place[draw.choice([*KEYS, *(key for each in tables for key in each)])] = _value(draw)
        else:
            place.pop(draw.choice(own), None)
    text = tomli_w.dumps(table)
    return _scrambled(text, draw) if draw.random() < 0.2 else text


def _set_known(table: dict[str, Any], draw: random.Random) -> None:
    """Set a key that there is to its example, to that of another key, or to anything."""
    place, key, _ = draw.choice(KNOWN)
    for part in filter(None, place.split(".")):
        if not isinstance(table.get(part), dict):
            table[part] = {}
        table = table[part]
    table[key] = draw.choice([_value(draw), draw.choice(KNOWN)[2], next(each[2] for each in KNOWN if each[1] == key)])


def _tables(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield table
    for value in table.values():
        if isinstance(value, dict):
            yield from _tables(value)


def _value(draw: random.Random) -> Any:
    return copy.deepcopy(draw.choice(draw.choice([NUMBERS, WORDS, TABLES, LISTS, [True, False]])))


def _scrambled(text: str, draw: random.Random) -> str:
    place = draw.randrange(len(text) + 1)
    kind = draw.randrange(5)
    if kind == 0:
        return text[:place]
    if kind == 1:
        return text[:place] + "".join(chr(draw.randrange(256)) for _ in range(draw.randint(1, 20))) + text[place:]
    if kind == 2:
        return (
            text[:place]
            + draw.choice(["[" * 3000, "9" * 5000, "=", "\n", '"""', "[[x]]\n", "\ud800", "1e400"])
            + text[place:]
        )
    lines = text.splitlines(keepends=True)
    draw.shuffle(lines)
    return "".join(lines if kind == 3 else lines[: draw.randint(0, len(lines))] * 2)


def sentence_or_experiment(text: str, folder: Path) -> str | Experiment:
    """Return what a file is refused with, or its experiment, which is then the same once it is written and read."""
    file = folder / "mutant.toml"
    file.write_bytes(text.encode(errors="surrogatepass"))
    try:
        experiment = load_plan(str(file)).experiment()
    except InputError as error:
        return str(error)
    assert Experiment.from_toml(experiment.to_toml()).hash == experiment.hash
    return experiment


def played(experiment: Experiment) -> str:
    """Play a round of an experiment, unless it asks for more than a few seconds; return what it is refused with."""
    small = experiment.data.name == "digits" and (experiment.data.num_clients or 1) <= 1000
    epochs = experiment.local.mean_epochs
    if not small or epochs > 20 or (experiment.workers or 1) > 2:
        return "too large"
    try:
        simulation = simulation_of(experiment.replace(engine="serial", workers=None))
        simulation.advance()
        simulation.close()
    except InputError as error:
        return str(error)
    return "played"


def main(seconds: float, first: int = 0) -> None:
    """Try mutants for a while, from a number on, and stop at the first that gets a traceback."""
    end, tables, tried, fine, rounds = time.monotonic() + seconds, bases(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            draw = random.Random(first + tried)
            text = mutant(draw.choice(tables), draw)
            try:
                found = sentence_or_experiment(text, Path(folder))
                if isinstance(found, Experiment):
                    fine += 1
                    rounds += played(found) == "played"
            except Exception:
                print(f"mutant {first + tried}:\n{text[:3000]}")
                raise
            tried += 1
    print(f"{tried} mutants: {fine} experiments, of which {rounds} played a round, and {tried - fine} sentences")


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(int, sys.argv[2:]))
