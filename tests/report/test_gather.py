import pytest

from fedadmm import InputError
from fedadmm.report.runs import by_setting, differences, gather_runs, list_runs, read_run, sections_of, setting_title
from fedadmm.runs.goal import Goal
from run_folders import write_run


def test_run_folders_are_found_at_any_depth_once(tmp_path):
    one = write_run(tmp_path / "a/one", [0.1], seed=1)
    write_run(tmp_path / "a/deep/two", [0.1], seed=2)
    (tmp_path / "a/notes.md").write_text("")
    found = gather_runs([tmp_path / "a", one, tmp_path / "a/notes.md"])
    assert [run.path.name for run in found.runs] == ["two", "one"]
    assert found.left_out == []


def test_what_is_half_written_empty_or_repeated_is_named_and_left_out(tmp_path):
    write_run(tmp_path / "good", [0.1, 0.2])
    write_run(tmp_path / "again", [0.1])
    (write_run(tmp_path / "half", [0.1], seed=1) / "rounds.jsonl").unlink()
    write_run(tmp_path / "begun", [], seed=2)
    (tmp_path / "void").mkdir()
    (tmp_path / "held").mkdir()
    (tmp_path / "held/lock").touch()
    found = gather_runs([tmp_path])
    assert [run.path.name for run in found.runs] == ["good"]
    said = "\n".join(found.left_out)
    assert "begun has no finished round" in said
    assert "half is not a run folder: it has no rounds.jsonl" in said
    assert "void is not a run folder: it has no experiment.toml" in said
    assert "held is not a run folder: it has no experiment.toml" in said
    assert "again repeats a run of the same method and seed" in said


def test_a_list_has_runs_that_only_began_and_names_those_that_cannot_be_read(tmp_path):
    write_run(tmp_path / "again", [0.1])
    write_run(tmp_path / "begun", [])
    (write_run(tmp_path / "cut", [0.1]) / "experiment.toml").write_text('name = "x')
    (write_run(tmp_path / "bytes", [0.1]) / "experiment.toml").write_bytes(b"\xff\xfe")
    (write_run(tmp_path / "lines", [0.1]) / "rounds.jsonl").write_text('{"round"\n')
    (write_run(tmp_path / "new", []) / "rounds.jsonl").unlink()
    (tmp_path / "void").mkdir()
    write_run(tmp_path / "whole", [0.1])
    runs, left_out = list_runs(tmp_path)
    assert [run.path.name for run in runs] == ["again", "begun", "whole"]
    assert [sentence.split(" cannot be read: ")[0] for sentence in left_out] == [
        str(tmp_path / name) for name in ("bytes", "cut", "lines")
    ]
    assert list_runs(tmp_path / "nowhere") == ([], [])


def test_no_run_at_all_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder .*nowhere; give run folders"):
        gather_runs([tmp_path / "nowhere"])
    write_run(tmp_path / "begun", [])
    (tmp_path / "void").mkdir()
    with pytest.raises(InputError) as caught:
        gather_runs([tmp_path])
    assert str(caught.value) == (
        f"there is no run in {tmp_path}; {tmp_path}/begun has no finished round; {tmp_path}/void is not a run folder: "
        "it has no experiment.toml; make one with fedadmm run"
    )


def test_runs_belong_together_if_their_data_and_target_are_the_same(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"a{seed}", [0.1], seed=seed)
    write_run(tmp_path / "other_data", [0.1], data="mnist")
    write_run(tmp_path / "other_target", [0.1], target=0.9, label="fedprox")
    groups = by_setting(gather_runs([tmp_path]).runs)
    assert [len(group) for group in groups] == [2, 1, 1]
    assert differences(groups[1][0], groups[0][0]) == "data.name=mnist (not digits)"
    assert differences(groups[2][0], groups[0][0]) == "target=0.9 (not 0.5)"
    assert setting_title(groups[1][0]) == "mnist, iid, 10 clients"


def test_sections_that_would_be_called_alike_say_in_what_they_differ(tmp_path):
    runs = []
    for number, partition in enumerate(['"dirichlet"\nalpha = 0.1', '"dirichlet"\nalpha = 10.0', '"iid"']):
        file = write_run(tmp_path / f"{number}", [0.1]) / "experiment.toml"
        file.write_text(file.read_text().replace('partition = "iid"', f"partition = {partition}"))
        runs.append(read_run(file.parent))
    assert [section.title for section in sections_of([[run] for run in runs])] == [
        "digits, dirichlet, 10 clients, target 0.5, alpha 0.1",
        "digits, dirichlet, 10 clients, target 0.5, alpha 10.0",
        "digits, iid, 10 clients, target 0.5",
    ]


def test_a_run_is_shown_until_the_goal_that_was_asked_for(tmp_path):
    run = read_run(write_run(tmp_path / "long", [0.1, 0.5, 0.4, 0.3, 0.2], target=0.5))
    assert len(run.until(Goal(4)).rounds) == 4
    assert len(run.until(Goal(4, target=0.5, stop_at_target=True)).rounds) == 2
    assert len(run.until(Goal(5, patience=2)).rounds) == 4
    assert len(run.until(Goal(9, patience=9)).rounds) == 5
