"""Rows made without a clip stand as a whole, or are made again as a whole."""

import pytest

from fedadmm.config.experiment import Experiment
from fedadmm.runs.records import Record
from fedadmm.studies.unclipped import as_made
from fedadmm.training.local import LocalTraining

ROUNDS = 10
SEEDS = [
    Experiment(seed=seed, rounds=ROUNDS, local=LocalTraining(epochs=1, batch_size=10, learning_rate=0.1, clip=10.0))
    for seed in range(3)
]
UNCLIPPED = [one.replace(local=one.local.replace(clip=None)) for one in SEEDS]


def rounds(last: float = 0.9, *, number: int = ROUNDS, refused: tuple[int, ...] = ()) -> list[Record]:
    """Return the rounds of a run, the last with this accuracy and with these updates refused."""
    table = {"loss": 1.0, "client_loss": 1.0, "clients": [0], "steps": 1, "gradient_evaluations": 1}
    table |= {"bytes_up": 1, "bytes_down": 1, "seconds": 0.1}
    rows = [{"round": n, "accuracy": 0.5, "refused": []} for n in range(1, number)]
    rows.append({"round": number, "accuracy": last, "refused": list(refused)})
    return [Record.from_json(table | row) for row in rows]


def test_a_row_without_runs_is_clipped():
    assert as_made(SEEDS, lambda one: []) == SEEDS


def test_clipped_runs_do_not_count_as_unclipped_ones():
    made = {SEEDS[0].folder_name: rounds()}
    assert as_made(SEEDS, lambda one: made.get(one.folder_name, [])) == SEEDS


def test_a_row_of_which_every_made_seed_held_stands_without_a_clip():
    made = {UNCLIPPED[0].folder_name: rounds(), UNCLIPPED[2].folder_name: rounds()}
    assert as_made(SEEDS, lambda one: made.get(one.folder_name, [])) == UNCLIPPED


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(rounds(last=0.1), id="collapsed"),
        pytest.param(rounds(refused=(3,)), id="refused"),
        pytest.param(rounds(number=4), id="stopped"),
    ],
)
def test_one_seed_that_did_not_hold_has_the_whole_row_made_again(bad):
    made = {UNCLIPPED[0].folder_name: rounds(), UNCLIPPED[1].folder_name: bad}
    assert as_made(SEEDS, lambda one: made.get(one.folder_name, [])) == SEEDS
