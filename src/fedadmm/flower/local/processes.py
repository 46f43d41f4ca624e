"""Commands, told before they are run, and the processes that some of them leave behind."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedadmm.core.errors import InputError

PATIENCE = 10.0  # seconds that a process is given to end by itself
Tell = Callable[[str], None]


class Started(NamedTuple):
    """A process, told from a later one of the same number by when it began."""

    pid: int
    began: str

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return _began(self.pid) == self.began != ""


class Shell:
    """Runs commands in a folder, and tells each of them first."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str], tell: Tell) -> None:
        self.folder, self.tell = folder, tell
        self.environment = {**os.environ, **environment, "PATH": search_path()}
        self._options: dict[str, Any] = {"env": self.environment, "stdin": subprocess.DEVNULL}

    def run(self, *command: str) -> str:
        """Run a command to its end, and return what it printed."""
        self.tell(shlex.join(command))
        done = subprocess.run(self._found(command), cwd=self.folder, capture_output=True, text=True, **self._options)
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
            raise InputError(f"{shlex.join(command)} ended with {done.returncode} and said: {said}; fix that first")
        return done.stdout

    def show(self, *command: str) -> None:
        """Run a command to its end, and let it print."""
        self.tell(shlex.join(command))
        subprocess.run(self._found(command), cwd=self.folder, check=False, **self._options)

    def start(self, *command: str, folder: Path, log: Path) -> Started:
        """Start a command that goes on, in a folder and a process group of its own."""
        self.tell(f"{shlex.join(command)} >>{log.name} 2>&1 &")
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("ab", buffering=0) as output:
            output.write(f"$ {shlex.join(command)}\n".encode())
            process = subprocess.Popen(
                self._found(command), cwd=folder, stdout=output, stderr=output, start_new_session=True, **self._options
            )
        process.returncode = 0  # it is to outlive us, and subprocess would warn that it was left behind
        return Started(process.pid, _began(process.pid))

    def _found(self, command: Sequence[str]) -> list[str]:
        name, *arguments = command
        found = shutil.which(name, path=self.environment["PATH"])
        if found is None:
            remedy = 'pip install "fedadmm[flower]"' if name.startswith(("flwr", "flower")) else f"install {name}"
            raise InputError(f"there is no command {name}; {remedy}")
        return [found, *arguments]


def search_path() -> str:
    """Return where commands are found: flwr is installed beside us, and starts its own commands by name."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def end(processes: Sequence[Started], *, signals: Sequence[signal.Signals]) -> None:
    """End processes and all that they started: with the first signal, and if that does not help, with the next."""
    members = [member for process in processes if process.alive for member in family(process)]
    for number in signals:
        for member in members:
            if member.alive:
                with suppress(ProcessLookupError):
                    os.kill(member.pid, number)
        deadline = time.monotonic() + PATIENCE
        while any(member.alive for member in members) and time.monotonic() < deadline:
            time.sleep(0.1)


def family(process: Started) -> list[Started]:
    """Return a process with its children and theirs: a SuperLink's are in groups of their own."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [process.pid]
    for parent in found:
        found += [pid for pid, above in pairs if above == parent]
    return [process, *(Started(pid, _began(pid)) for pid in found[1:])]


def _began(pid: int) -> str:
    """Return when a process began, nothing if it has ended: what is left of it waits for its parent as a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # if it is our own child, nobody else will
    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # the second where it ends while it is read
            return ""
        # After the name, which may hold anything: the state first, and as the twentieth the start in clock ticks.
        fields = text.rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split(maxsplit=1)
    return said[1].strip() if len(said) == 2 and not said[0].startswith("Z") else ""
