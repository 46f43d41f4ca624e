"""What becomes of a run: the run itself and its report say the same."""

import json
from pathlib import Path

import pytest

from fedadmm.core.metrics import ACCURACY, DISTANCE, Metric
from fedadmm.report.runs import read_run
from fedadmm.runs.goal import EXIT_CODES, Goal, Status, has_diverged
from fedadmm.runs.records import Record
from run_folders import write_run


def record(round: int, **changes: object) -> Record:
    """Return a round in which client 0 was applied."""
    table = {"round": round, "accuracy": 0.5, "loss": 1.0, "client_loss": 1.0, "clients": [0], "refused": []}
    table |= {"steps": 1, "gradient_evaluations": 1, "bytes_up": 1, "bytes_down": 1, "seconds": 0.1}
    return Record.from_json({**table, **changes})


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ({}, "stopped"),
        ({"clients": [], "refused": [0, 1]}, "diverged"),
        ({"clients": [], "refused": []}, "stopped"),  # nobody came
        # FedPD: who is silent computed, and its update was not refused, so the run can go on.
        ({"clients": [], "refused": [0], "silent": [1, 2]}, "stopped"),
        ({"clients": [1], "refused": [0]}, "stopped"),
    ],
)
def test_a_run_and_its_report_have_the_same_status(tmp_path: Path, last: dict[str, object], status: Status) -> None:
    records = [record(1), record(2, **last)]
    folder = write_run(tmp_path / "run", [0.1], rounds=3)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(r.to_json()) + "\n" for r in records))
    assert read_run(folder).status == Goal(rounds=3).status(records) == status
    assert has_diverged(records) == (status == "diverged")


def test_a_run_with_no_round_left_is_finished_unless_it_collapsed() -> None:
    ten = [record(n, accuracy=0.9 - 0.01 * n) for n in range(1, 11)]
    assert Goal(rounds=9).status(ten[:9]) == "finished"  # too short to say
    assert Goal(rounds=10).status(ten) == "collapsed"
    assert Goal(rounds=11).status(ten) == "stopped"
    assert Goal(rounds=99, target=0.8, stop_at_target=True).status(ten[:2]) == "finished"
    assert Goal(rounds=99, target=0.8).status(ten[:2]) == "stopped"
    near = [record(n, distance=1 / n) for n in range(1, 11)]
    assert Goal(rounds=10, metric=DISTANCE).status(near) == "finished"


def test_a_run_ends_when_its_best_score_has_not_improved_for_as_long_as_its_patience() -> None:
    # The best, 0.6, is of round 2. Rounds 3 to 5 do not improve it, so a patience of 3 ends after round 5.
    rounds = [record(n, accuracy=score) for n, score in enumerate((0.5, 0.6, 0.4, 0.55, 0.6, 0.61), 1)]
    goal = Goal(rounds=99, patience=3)
    assert [goal.has_ended(rounds[:n]) for n in range(7)] == [False] * 5 + [True, False]
    assert goal.status(rounds[:5]) == "finished"
    assert not Goal(rounds=99).has_ended(rounds[:5])
    far = [record(n, distance=distance) for n, distance in enumerate((3.0, 4.0, 2.0, 5.0, 2.0), 1)]
    assert [Goal(rounds=99, metric=DISTANCE, patience=2).has_ended(far[:n]) for n in range(6)] == [False] * 5 + [True]


def test_every_status_has_an_exit_code() -> None:
    assert EXIT_CODES == {"finished": 0, "collapsed": 0, "stopped": 130, "diverged": 1}


def test_a_metric_is_any_number_of_a_record() -> None:
    loss = Metric("loss", "test loss", "0.1", lower_is_better=True)
    recall = Metric("recall", "recall", "0.9")
    records = [record(1, loss=2.0, recall=0.1), record(2, loss=None, recall=0.7), record(3, loss=0.5, recall=0.6)]
    assert (loss.arrival(records, 1.0), recall.arrival(records, 0.6)) == (3, 2)
    assert (loss.best(loss.scores(records)), recall.best(recall.scores(records))) == (0.5, 0.7)
    assert (ACCURACY.named_text(0.91234), DISTANCE.named_text(3.14e-5)) == ("accuracy 0.912", "distance 3.1e-05")
    assert DISTANCE.best([]) is None
