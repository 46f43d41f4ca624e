import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedadmm import InputError
from fedadmm.cli import app, console
from fedadmm.cli.console import say
from run_folders import write_run


@pytest.fixture
def mixed(tmp_path):
    """Two runs of one setting, and one whose data is another."""
    for seed in (0, 1):
        write_run(tmp_path / f"runs/own-{seed}", [0.2, 0.6, 0.6], seed=seed)
    write_run(tmp_path / "runs/stranger", [0.2], data="mnist")
    return tmp_path


def report(folder, *options):
    return CliRunner().invoke(app, ["report", str(folder / "runs"), "-o", str(folder / "out"), *options])


def test_runs_that_do_not_belong_together_are_refused_by_name_and_nothing_is_written(mixed):
    result = report(mixed)
    assert isinstance(result.exception, InputError)
    assert "add --mixed leave-out" in str(result.exception)
    assert "stranger has data.name=mnist (not digits)" in str(result.exception)
    assert not (mixed / "out").exists()


@pytest.mark.slow
def test_the_report_goes_on_with_the_rest_on_request(mixed):
    (mixed / "runs/void").mkdir()
    result = report(mixed, "--mixed", "leave-out")
    assert result.exit_code == 0, result.output
    assert "Left out: " in result.stderr
    assert "stranger has data.name=mnist" in result.stderr
    assert "void is not a run folder" in result.stderr
    tables = (mixed / "out/tables.md").read_text()
    assert "mnist" not in tables
    assert "| fedavg | 2.0 ± 0.0 |" in tables
    assert str(mixed / "out/report.html") in result.stdout


@pytest.mark.slow
def test_each_setting_can_have_a_section_of_its_own(mixed):
    result = report(mixed, "--mixed", "sections", "--title", "All")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    headings = [line for line in (mixed / "out/tables.md").read_text().splitlines() if line.startswith("#")]
    assert headings == ["# All", "## digits, iid, 10 clients, target 0.5", "## mnist, iid, 10 clients, target 0.5"]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    write_run(tmp_path / "runs/a", [0.1])
    (tmp_path / "out").write_text("a file")
    result = report(tmp_path)
    assert isinstance(result.exception, InputError)
    assert "give another folder" in str(result.exception)


@pytest.mark.slow
def test_a_damaged_folder_is_named_and_does_not_keep_the_list_from_the_others(tmp_path):
    write_run(tmp_path / "good-run", [0.1])
    (write_run(tmp_path / "damaged", [0.1]) / "experiment.toml").write_text("name = ")
    result = CliRunner().invoke(app, ["list", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "good-run" in result.stdout
    assert f"Left out: {tmp_path / 'damaged'} cannot be read" in result.stderr
    (tmp_path / "good-run/rounds.jsonl").unlink()
    result = CliRunner().invoke(app, ["list", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "runs:       none in " in result.stdout
    assert "fedadmm, fast_fedadmm (the default), " in " ".join(result.stdout.split())


def test_a_sentence_is_printed_as_it_is(capsys):
    say("Left out: runs/[bold] :fire: has another seed", to=Console())
    assert capsys.readouterr().out == "Left out: runs/[bold] :fire: has another seed\n"


def test_a_run_is_shown_with_scores_as_in_tables_whole_numbers_and_bytes_in_their_unit(tmp_path):
    """1,000 bytes, a step and half a second a round, as write_run writes them."""
    said = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["show", str(write_run(tmp_path / "a", [0.25, 0.5, 0.75]))])
    (last,) = [line for line in said.stdout.splitlines() if line.startswith("│     3 │")]
    assert [cell.strip() for cell in last.strip("│").split("│")] == ["3", "0.750", "-", "-", "1", "1.0 kB", "0.5"]
    assert said.stdout.endswith("In all 3 rounds: 3.0 kB uploaded.\n")
    twice = write_run(tmp_path / "b", [0.25, 0.5], bytes_down=[2000, 2000])
    said = CliRunner().invoke(app, ["show", str(twice)])
    assert said.stdout.endswith("In all 2 rounds: 2.0 kB uploaded, 4.0 kB downloaded.\n")


def test_several_runs_are_shown_and_what_else_a_pattern_names_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(console.out, "width", 160)
    timed = {"lost": [[3, 4], [3, 4]], "simulated_seconds": [20.0, 20.0]}
    folders = [write_run(tmp_path / name, [0.25, 0.5], **own) for name, own in (("a", {}), ("b", timed))]
    (tmp_path / "report.html").touch()
    said = CliRunner().invoke(app, ["show", *map(str, sorted(tmp_path.iterdir()))])
    assert said.exit_code == 0, said.output
    assert [line for line in said.stdout.splitlines() if line in map(str, folders)] == [*map(str, folders)]
    assert [line for line in said.stdout.splitlines() if line.startswith("In all")] == [
        "In all 2 rounds: 2.0 kB uploaded.",
        "In all 2 rounds: 2.0 kB uploaded, 40 s of simulated time, 4 answers lost.",
    ]
    assert "lost" in next(line for line in said.stdout.splitlines() if "simulated_seconds" in line)
    given = ["export", *map(str, folders), "--out", str(tmp_path / "model")]
    assert "2 runs are named, and --out" in str(CliRunner().invoke(app, given).exception)
