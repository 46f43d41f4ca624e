import numpy as np
import pytest

from fedadmm import InputError
from fedadmm.report.runs import read_run
from fedadmm.report.table import comparison_rows, format_bytes
from run_folders import write_run


def test_a_run_arrives_in_the_first_round_at_or_above_its_target(tmp_path):
    run = read_run(write_run(tmp_path / "a", [0.4, 0.5, 0.3]))
    assert run.arrival == 2
    (row,) = comparison_rows([run])
    # Two rounds of 1,000 bytes; best in round 2, final in round 3.
    assert row["upload"] == "2.0 kB"
    assert (row["best"], row["final"]) == ("0.500", "0.300")
    assert "status" not in row  # all finished


def test_a_run_that_diverged_is_shown_as_one_that_never_arrived(tmp_path):
    (row,) = comparison_rows([read_run(write_run(tmp_path / "a", [0.1, None], refused=True))])
    assert (row["rounds"], row["status"], row["final"]) == ("2+", "diverged", "0.100")


def test_a_run_that_was_cut_short_is_stopped(tmp_path):
    assert read_run(write_run(tmp_path / "a", [0.1])).status == "stopped"


def test_totals_add_up_over_rounds(tmp_path):
    run = read_run(write_run(tmp_path / "a", [0.1, 0.2, 0.3]))
    np.testing.assert_array_equal(run.total("bytes_up"), [1000, 2000, 3000])


def test_folders_that_are_no_runs_are_named(tmp_path):
    write_run(tmp_path / "a", [0.1])
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match=r"b is not a run folder: it has no experiment.toml"):
        read_run(tmp_path / "b")
    (tmp_path / "a" / "rounds.jsonl").write_text("{half a line\n")
    with pytest.raises(InputError, match="a cannot be read"):
        read_run(tmp_path / "a")
    (tmp_path / "a" / "rounds.jsonl").write_text('{"round": 1, "accuracy": 0.1}\n')
    with pytest.raises(InputError, match=r"line 1 of rounds.jsonl lacks one of round, steps"):
        read_run(tmp_path / "a")


def test_a_file_whose_local_is_no_table_is_named(tmp_path):
    folder = write_run(tmp_path / "a", [0.1])
    text = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(f"local = 3\n{text}")
    with pytest.raises(InputError, match=r"local is not a table in experiment.toml"):
        read_run(folder)


def test_a_line_that_a_kill_cut_in_half_is_passed_over(tmp_path):
    folder = write_run(tmp_path / "a", [0.1, 0.2])
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "accu')
    assert len(read_run(folder).rounds) == 2


def test_bytes_are_written_with_a_unit():
    assert [format_bytes(n) for n in (0, 999, 1000, 2_500_000, 3e13)] == ["0 B", "999 B", "1.0 kB", "2.5 MB", "30.0 TB"]


def test_what_is_recorded_of_a_run_makes_no_other_method(tmp_path):
    plain, certified = write_run(tmp_path / "one", [0.1]), write_run(tmp_path / "two", [0.1], seed=1)
    with (certified / "experiment.toml").open("a") as file:
        file.write("\n[certificate]\nevery = 10\n")
    assert read_run(plain).identity == read_run(certified).identity
