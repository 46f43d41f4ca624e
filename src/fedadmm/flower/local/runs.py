"""A run of an app on a SuperLink, followed to its end: Flower's own command exits with 0 whatever became of it."""

import json
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tomli_w

from fedadmm.core.errors import InputError
from fedadmm.flower.local.processes import Shell

Ended = Literal["completed", "failed", "stopped"]
EXIT_CODES: dict[Ended, int] = {"completed": 0, "failed": 1, "stopped": 130}
SENTENCES: dict[Ended, str] = {
    "completed": "The run has finished.",
    "failed": "The run failed. Once its cause is gone, the same command goes on from the last committed round.",
    "stopped": "The run was stopped; the same command goes on from the last committed round.",
}
RAISED = "ServerApp failed with exception: "  # before what a ServerApp raised
POLL = 2.0  # seconds between two looks at a run whose log has ended


class End(NamedTuple):
    """How a run ended, and why, if it failed with a reason."""

    how: Ended
    reason: str = ""


def follow_run(shell: Shell, app: Path, *, link: str, changes: dict[str, Any]) -> End:
    """Submit an app, show its log until it ends, and return how it did; Ctrl-C stops the run."""
    options = ["--format", "json"]
    for key, value in changes.items():
        options += ["--run-config", f"{key}={tomli_w.dumps({'value': value}).partition('=')[2].strip()}"]
    answer = json.loads(shell.run("flwr", "run", str(app.absolute()), link, *options))
    if "run-id" not in answer:
        lines = str(answer.get("error-message", answer)).strip().splitlines()
        said = [line.strip() for line in lines if line.strip() and not line.startswith("Using SuperLink")] or lines
        remedy = "give the folder of a Flower app"
        if "run configuration" in " ".join(said).lower():
            keys = ", ".join(changes) or "the keys"
            remedy = f"let its pyproject.toml have {keys} below [tool.flwr.app.config], where more is commented out"
        raise InputError(f"flwr does not run {app}: {' '.join(said)}; {remedy}")
    run = str(answer["run-id"])
    try:
        shell.show("flwr", "log", run, link, "--stream")
        while (ended := _ended(shell, run, link=link)) is None:  # its end is booked after its last line
            time.sleep(POLL)
    except KeyboardInterrupt:
        shell.run("flwr", "stop", run, link, "--format", "json")
        return End("stopped")
    return ended


def _ended(shell: Shell, run: str, *, link: str) -> End | None:
    (entry,) = json.loads(shell.run("flwr", "list", link, "--run-id", run, "--format", "json"))["runs"]
    stage, _, how = entry["status"].partition(":")
    if stage != "finished":
        return None
    if how != "failed" and how in EXIT_CODES:
        return End(how)
    return End("failed", entry.get("status-details", "").removeprefix(RAISED))
