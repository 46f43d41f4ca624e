"""The federation command, as a person uses it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import fedadmm
from fedadmm.cli import federation as cli
from fedadmm.cli.federation import app
from fedadmm.flower.local import EXIT_CODES, Shell, follow_run, runs
from fedadmm.flower.local.processes import Started

DEPLOY = Path(__file__).parents[2] / "docs" / "DEPLOY.md"
TUTORIAL = (DEPLOY.parent / "tutorials" / "real-nodes.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["status"], "there is no federation in federation; start one with: fedadmm federation up, or give"),
        (["kill", "node-0"], "there is no federation in federation"),
        (["down"], "there is no federation in federation"),
        (["up", "--nodes", "0"], "nodes=0 is out of range; use a whole number from 1 on"),
        (["app", "here"], "here is there already; give another folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    said = fedadmm("federation", *arguments, cwd=tmp_path)
    assert said.returncode == 2
    assert said.stderr.startswith(f"fedadmm: {sentence}")


@pytest.mark.slow
def test_the_app_is_copied_whole(tmp_path: Path) -> None:
    assert fedadmm("federation", "app", "my-app", cwd=tmp_path).returncode == 0
    copied = {str(path.relative_to(tmp_path / "my-app")) for path in (tmp_path / "my-app").rglob("*.*")}
    package = {f"flower_fedadmm/{name}.py" for name in ("__init__", "client_app", "server_app", "task")}
    assert copied >= {"pyproject.toml", *package}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from ps here")
def test_a_process_that_ends_while_it_is_looked_at_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(path: Path, *arguments: object) -> str:
        raise ProcessLookupError

    monkeypatch.setattr(Path, "read_text", ended)
    assert not Started(os.getpid(), "1").alive
    assert not Started(os.getpid(), "").alive  # and one that had ended when it was first looked at


def test_a_certificate_that_ends_within_a_month_is_warned_of(tmp_path: Path) -> None:
    for days in (29, 31):
        make = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days {days} -subj /CN=CA"
        subprocess.run([*make.split(), "-keyout", tmp_path / "key", "-out", tmp_path / f"{days}.crt"], check=True)
    (tmp_path / "server").mkdir()
    options = [word for days in (29, 31) for word in ("--certificate", tmp_path / f"{days}.crt")]
    said = CliRunner().invoke(app, ["status", "--server", *map(str, [tmp_path / "server", *options])]).stdout
    assert f"WARNING: the certificate {tmp_path / '29.crt'} ends in 29 days" in said
    assert "31.crt" not in said


# A flwr that knows one run: it ends as the file `status` says, or goes on until it is stopped.
FLWR = """#!/bin/bash
cd {folder}
echo "$@" >>asked
REASON="ServerApp failed with exception: it has a reason"
case $1 in
    run) echo '{{"run-id": "17"}}' ;;
    log) echo "INFO: a line of its log" ;;
    list) echo "{{\\"runs\\": [{{\\"status\\": \\"$(cat status)\\", \\"status-details\\": \\"$REASON\\"}}]}}" ;;
    stop) echo '{{}}' ;;
esac
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell in which `flwr` is a script."""
    script = tmp_path / "flwr"
    script.write_text(FLWR.format(folder=tmp_path))
    script.chmod(0o755)
    found = Shell(tmp_path, environment={}, tell=lambda line: None)
    found.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    return found


@pytest.mark.parametrize(
    ("status", "code"), [("finished:completed", 0), ("finished:failed", 1), ("finished:stopped", 130)]
)
def test_a_run_ends_with_the_truth(
    status: str, code: int, shell: Shell, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "status").write_text(status)
    changes = {"num-server-rounds": 2, "name": "second", "local.learning-rate": 0.1}
    how, reason = follow_run(shell, tmp_path / "app", link="lab", changes=changes)
    assert (EXIT_CODES[how], reason) == (code, "it has a reason" if code == 1 else "")
    assert "a line of its log" in capfd.readouterr().out
    asked = (tmp_path / "asked").read_text()
    assert '--run-config num-server-rounds=2 --run-config name="second" --run-config local.learning-rate=0.1' in asked
    assert "log 17 lab --stream" in asked


def test_an_interrupted_run_is_stopped(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "status").write_text("running")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.time, "sleep", interrupted)
    assert EXIT_CODES[follow_run(shell, tmp_path / "app", link="lab", changes={}).how] == 130
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "stop 17 lab --format json"


def test_a_federation_remembers_what_it_was_run_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ports.json").write_text("{}")
    asked: list[dict[str, object]] = []
    how = ["failed"]

    def follow(shell: Shell, app: Path, *, link: str, changes: dict[str, object]) -> runs.End:
        asked.append(changes)
        return runs.End(how[0])  # type: ignore[arg-type]

    monkeypatch.setattr(cli, "follow_run", follow)

    def said(command: str, *options: str) -> str:
        return CliRunner().invoke(app, [command, "my-app", "--folder", str(tmp_path), *options]).output

    said("run", "--set", "num-clients=7")  # it failed, so that is not kept
    how[0] = "completed"
    said("run", "--set", "num-clients=3", "--set", "num-server-rounds=9")
    assert "As before: --set num-clients=3" in said("verify")
    said("run", "--set", "num-clients=4")
    said("run", "--set", "name=second")
    said("rollback", "--to", "2")
    assert [changes.get("num-clients") for changes in asked] == [7, 3, 3, 4, None, 4]
    assert ["num-server-rounds" in changes for changes in asked] == [False, True, False, False, False, False]
    assert [changes.get("verify") for changes in asked] == [None, None, True, None, None, None]


def in_bash(commands: str, *, folder: Path) -> str:
    """Return what commands print, with flwr beside this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    quiet = {"PATH": path, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    run = subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env=os.environ | quiet,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return run.stdout + run.stderr


@pytest.mark.deployment
@pytest.mark.slow
def test_flowers_own_simulation_runs_the_app(tmp_path: Path) -> None:
    """The commands of docs/DEPLOY.md for Flower's simulation runtime."""
    text = DEPLOY.read_text()
    commands = text.partition("simulation runtime")[2].split("```")[1]
    assert fedadmm("federation", "app", "my-app", cwd=tmp_path).returncode == 0
    try:
        said = in_bash(f"{commands.rstrip()} --run-config num-server-rounds=2", folder=tmp_path)
        assert "Round 2 applies 4 of 4" in said, said
        assert len(list(tmp_path.glob("fedadmm-state/digits/client-*/state"))) == 4
    finally:
        listed = subprocess.run(["ps", "-wweo", "pid=,args="], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            if "flower-superlink" in line and str(tmp_path) in line:
                os.kill(int(line.split()[0]), signal.SIGKILL)  # asked kindly, it waits for a child for ever


@pytest.mark.deployment
@pytest.mark.slow
def test_the_page_for_newcomers_leads_to_a_finished_run(tmp_path: Path) -> None:
    """The commands of docs/DEPLOY.md after the installation, in their order."""
    try:
        up = fedadmm("federation", "up", "--nodes", "4", cwd=tmp_path)
        assert up.returncode == 0, up.stdout + up.stderr
        assert "$ flwr supernode register keys/node-3.pub lab" in up.stdout
        assert fedadmm("federation", "app", "my-app", cwd=tmp_path).returncode == 0
        told = up.stdout.strip().splitlines()[-1]
        assert told.startswith("fedadmm federation run my-app")
        ran = fedadmm("federation", "run", "my-app", "--set", "num-server-rounds=2", cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        said = ran.stdout
        assert "own-accuracy" in said, said
        assert "Round 2 applies 4 of 4" in said, said
        # The tutorial's file: the simulator gives the same bytes.
        (tmp_path / "same_bytes.py").write_text(re.search(r"{file} same_bytes.py\n(.*?)```", TUTORIAL, re.DOTALL)[1])
        server = "federation/server/fedadmm-state/digits/server"
        assert "the same, bit for bit" in in_bash(f"{sys.executable} same_bytes.py 2 {server}", folder=tmp_path)
        status = fedadmm("federation", "status", cwd=tmp_path).stdout
        assert "4 nodes are connected" in status
        assert status.count("round 2") == 4
        open_to_others = [path for path in (tmp_path / "federation").rglob("*") if path.stat().st_mode & 0o077]
        assert [path for path in open_to_others if path.suffix not in (".pub", ".crt")] == []
        assert fedadmm("federation", "kill", "node-1", cwd=tmp_path).returncode == 0
        lines = fedadmm("federation", "status", cwd=tmp_path).stdout.splitlines()
        (line,) = [line for line in lines if line.strip().startswith("node-1")]
        assert " no " in line
        # Its key is taken from it, and with another one it is the same client again.
        assert fedadmm("federation", "rotate", "node-1", cwd=tmp_path).returncode == 0
        assert fedadmm("federation", "renew", cwd=tmp_path).returncode == 0
        assert fedadmm("federation", "up", cwd=tmp_path).returncode == 0
        ran = fedadmm("federation", "run", "my-app", "--set", "num-server-rounds=3", cwd=tmp_path)
        assert "Round 3 applies 4 of 4" in ran.stdout, ran.stdout
        assert "SuperLink" in fedadmm("federation", "logs", "superlink", "--lines", "500", cwd=tmp_path).stdout
    finally:
        down = fedadmm("federation", "down", cwd=tmp_path)
    assert down.returncode == 0
    assert " yes " not in fedadmm("federation", "status", cwd=tmp_path).stdout
