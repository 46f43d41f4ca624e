"""A slice of `make fuzz`: mutated experiment files give a sentence or a run, and never a traceback."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import fuzz
from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.errors import InputError
from fedadmm.core.schedules import Step
from fedadmm.engine.probe import probe


@pytest.mark.slow
def test_a_mutated_file_gives_a_sentence_or_an_experiment(tmp_path: Path) -> None:
    tables, kinds = fuzz.bases(), Counter[type]()
    for number in range(300):
        draw = random.Random(number)
        kinds[type(fuzz.sentence_or_experiment(fuzz.mutant(draw.choice(tables), draw), tmp_path))] += 1
    assert min(kinds.values()) >= 30  # both happen


@pytest.mark.slow
def test_a_mutated_file_that_is_an_experiment_plays_a_round_or_says_why_not(tmp_path: Path) -> None:
    tables = fuzz.bases()
    for number in range(1000, 1150):
        draw = random.Random(number)
        found = fuzz.sentence_or_experiment(fuzz.mutant(draw.choice(tables), draw), tmp_path)
        if not isinstance(found, str):
            fuzz.played(found)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_refuses_a_value_or_works_with_it(name: str) -> None:
    kind = ALGORITHMS[name]
    for field in fields(kind):
        for value in [*fuzz.NUMBERS, *fuzz.WORDS, *fuzz.LISTS, {}, True, None, Step(1.0, 0.5, at_round=2)]:
            with suppress(InputError):
                probe(kind(**{field.name: value}), torch.ones(3))
