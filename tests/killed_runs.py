"""A small stateful run, ways to kill it, and what must be left in the end."""

import functools
import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from children import command

Result = tuple[bytes, list[dict[str, Any]]]  # the model, and the records but for their time

ROUNDS = 30
PLAN = f"""
name = "kills"
seed = 3
rounds = {ROUNDS}
participation = 0.25
engine = "serial"
[algorithm]
name = "fedadmm"
eta = "seen"
[model]
name = "mlp"
[data]
name = "digits"
num_clients = 20
[local]
epochs = "1..2"
batch_size = 40
"""


@dataclass(frozen=True)
class RunPlace:
    """A folder with a plan and the runs of it."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "RunPlace":
        """Return a folder with the plan in it."""
        (folder / "plan.toml").write_text(PLAN)
        return cls(folder)

    def start(self, out: str, *options: object, before: Callable[[], None] | None = None) -> BaseProcess:
        """Start the run, or go on with it."""
        arguments = ("run", self.folder / "plan.toml", "--out", self.folder / out, *options)
        return command(*arguments, log=self.log, before=before)

    def run(self, out: str, *options: object, before: Callable[[], None] | None = None) -> int:
        """Start the run, or go on with it, and return its exit code."""
        return ended(self.start(out, *options, before=before))

    @property
    def log(self) -> Path:
        """What the last command printed."""
        return self.folder / "log.txt"

    @property
    def said(self) -> str:
        """The last command's output as one line."""
        return " ".join(self.log.read_text().split())

    def run_folder(self, out: str) -> Path:
        """Return the one run folder in `out`."""
        (found,) = (self.folder / out).glob("kills-*")
        return found

    def num_rounds(self, out: str) -> int:
        """Return how many whole lines rounds.jsonl has; 0 before there is one."""
        files = list((self.folder / out).glob("kills-*/rounds.jsonl"))
        return files[0].read_text().count("\n") if files else 0

    def result(self, out: str) -> Result:
        """Return the bytes of the model and the records, but for their time."""
        return result_of(self.run_folder(out))

    def killed_again_and_again(self, out: str, *changes: str, rng: random.Random) -> int:
        """Kill the run at random instants until it has ended all the same, and return how often."""
        options = [part for change in changes for part in ("--set", change)]
        kills = 0
        while True:
            process = self.start(out, *options)
            # In the first moments of a start or a resume, or somewhere in the rounds after it.
            rounds = self.num_rounds(out) + rng.randrange(4)
            while process.is_alive() and self.num_rounds(out) < rounds:
                time.sleep(0.002)
            process.join(rng.uniform(0, 0.1))
            process.kill()
            if ended(process) != -signal.SIGKILL:
                assert process.exitcode == 0, self.said
                return kills
            kills += 1


def result_of(folder: Path) -> Result:
    """Return the bytes of a run's model and its records, but for their time."""
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for record in records:
        del record["seconds"]
    return (folder / "model.safetensors").read_bytes(), records


def ended(process: BaseProcess) -> int:
    """Return the exit code of a process once it has one."""
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def wait_for(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def die_in(owner: str, name: str, *, call: int = 1, when: str = "before") -> Callable[[], None]:
    """Return what makes a process kill itself at a call of a function, before or after its work."""
    return functools.partial(_die_in, owner, name, call, when)


def _die_in(owner: str, name: str, call: int, when: str) -> None:
    from fedadmm.core.errors import import_named

    target = import_named(owner, what="owner")
    original = getattr(target, name)
    calls = 0

    @functools.wraps(original)
    def deadly(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        returned = original(*arguments, **options)
        if calls == call and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return returned

    setattr(target, name, deadly)
