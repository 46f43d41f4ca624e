"""A run that is disturbed for an hour ends with the bytes of one that is not, and nothing grows meanwhile.

`make soak` does so for an hour (`python tests/soak.py 3600`); tests/runs/test_soak.py does it for one lap.

A lap adds ROUNDS rounds to a run whose messages are lost, late and doubled. On the way its driver is killed, stopped or
interrupted, its workers are killed, its disk is full, it has too few file handles, and others read its folder. In
between it goes on under other engines of the same arithmetic. A twin plays the same rounds undisturbed, all of them in
this process, which must not grow either.

Where this process may mount (as root), the run has a disk and a /dev/shm of its own, which are filled for real;
elsewhere a limit on the size of files stands in for a full disk, and other programs should leave /dev/shm alone.
"""

import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import NamedTuple

from children import command
from fedadmm.api.running import load_experiment
from fedadmm.runs.runner import run
from killed_runs import PLAN, RunPlace, ended, result_of

ROUNDS = 12  # of a lap
FAULTS = """
[faults]
lose_requests = 0.1
lose_replies = 0.1
duplicate = 0.1
delay = 0.1
"""
READERS = (("show",), ("check",), ("report", "--out", "page"), ("export", "--out", "model.safetensors"))
ENDINGS = ("kill", "kill a worker", "interrupt", "terminate", "large file", "few handles", "nothing")
ENDINGS_IF_MOUNTED = ("full disk", "full shm")
REFUSABLE = ("large file", "few handles", "full disk", "full shm")
SIZE = 256 << 20  # of what is mounted
MOUNTED = "FEDADMM_SOAK_MOUNTED"
SHM = Path("/dev/shm")


class Grown(NamedTuple):
    """What must not grow: of this process, and of what it and its children leave on the machine."""

    handles: int
    memory: int  # resident, in MB
    shared: int  # files in /dev/shm
    temporary: int  # entries of the folder for temporary files
    state: int  # bytes of the run's states, records and checkpoint
    records: int  # bytes of its records alone, which may grow

    @classmethod
    def now(cls, run_folder: Path) -> "Grown":
        """Return what there is at the moment."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        places = (Path("/proc/self/fd"), SHM, Path(tempfile.gettempdir()))
        handles, shared, temporary = (len(list(place.iterdir())) for place in places)
        state, records = ((run_folder / name).stat().st_size for name in ("state/data.mdb", "rounds.jsonl"))
        return cls(handles, pages * resource.getpagesize() >> 20, shared, temporary, state, records)


class Soak:
    """A run in a folder, its undisturbed twin, and how often what was done to the run."""

    def __init__(self, folder: Path, *, seed: int, is_mounted: bool = False) -> None:
        (folder / "plan.toml").write_text(PLAN + FAULTS)
        (folder / "soak").mkdir()
        self.place, self._draw = RunPlace(folder), random.Random(seed)
        self._endings = (*ENDINGS, *ENDINGS_IF_MOUNTED) if is_mounted else ENDINGS
        if is_mounted:
            _mount(folder / "soak")
        self.done = Counter[str]()
        self.rounds = 0

    def lap(self) -> None:
        """Add the rounds of a lap to both; the run, whatever is done to it, is then what its twin is, to the byte."""
        self.rounds += ROUNDS
        while self.place.num_rounds("soak") < self.rounds:
            self._life()
        assert self.place.run("soak", "--rounds", self.rounds) == 0, self.place.said  # nothing is left to do
        self._read("check")
        twin = load_experiment(self.place.folder / "plan.toml", changes={"rounds": self.rounds})
        whole = run(twin, out=self.place.folder / "twin").folder.path
        assert self.place.result("soak") == result_of(whole), f"other bytes after {self.rounds} rounds: {self.done}"
        sizes = [path / "state" / "data.mdb" for path in (self.place.run_folder("soak"), whole)]
        ours, theirs = (path.stat().st_size for path in sizes)
        assert ours <= 2 * theirs, f"the state takes {ours:,} bytes, that of the twin {theirs:,}"

    def _life(self) -> None:
        """Let the run go on for a while, under one of its engines, and end it in one of the ways."""
        ending, workers = self._draw.choice(self._endings), self._draw.randrange(4)
        self.done[ending] += 1
        before: Callable[[], None] | None = None
        if ending == "large file":
            before = partial(_limit, resource.RLIMIT_FSIZE, self._draw.randrange(100_000, 4_000_000))
        elif ending == "few handles":
            before = partial(_limit, resource.RLIMIT_NOFILE, self._draw.randrange(12, 40))
        engine = ("engine=workers", "--set", f"workers={workers}") if workers else ("engine=serial",)
        filled = {"full disk": self.place.folder / "soak", "full shm": SHM}.get(ending)
        with nullcontext() if filled is None else _filled(filled, leaving=self._draw.randrange(3_000_000)):
            self._live("--rounds", self.rounds, "--set", *engine, ending=ending, before=before)

    def _live(self, *options: object, ending: str, before: Callable[[], None] | None) -> None:
        process = self.place.start("soak", *options, before=before)
        wanted = self.place.num_rounds("soak") + self._draw.randrange(ROUNDS)
        while process.is_alive() and self.place.num_rounds("soak") < wanted:
            time.sleep(0.005)
        if self._draw.random() < 0.3 and self.place.num_rounds("soak"):
            self._read(*self._draw.choice(READERS))
        process.join(self._draw.uniform(0, 0.2))
        _end(process, ending)
        code = ended(process)
        told = self.place.said
        allowed = {"kill": (0, -signal.SIGKILL), "interrupt": (0, 130), "terminate": (0, 143, 130, -signal.SIGTERM)}
        assert code in allowed.get(ending, (0, 2) if ending in REFUSABLE else (0,)), f"{ending}: exit {code}: {told}"
        assert "Traceback" not in told, f"{ending}: {told}"

    def _read(self, name: str, *options: str) -> None:
        """Let another process read the folder, whatever happens to it meanwhile."""
        self.done[name] += 1
        log = self.place.folder / "reader.txt"
        arguments = [self.place.folder / own if "." in own or own == "page" else own for own in options]
        code = ended(command(name, self.place.run_folder("soak"), *arguments, log=log))
        told = " ".join(log.read_text().split())
        assert code in (0, 2), f"{name}: exit {code}: {told}"
        assert "Traceback" not in told, f"{name}: {told}"
        assert "damaged" not in told, f"{name}: {told}"


def _end(process: BaseProcess, how: str) -> None:
    if not process.is_alive() or process.pid is None:
        return
    if how == "kill a worker":
        for worker in _children(process.pid)[:1]:
            os.kill(worker, signal.SIGKILL)
        return
    signals = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
    if how in signals:
        os.kill(process.pid, signals[how])


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []  # it has ended


@contextmanager
def _filled(folder: Path, *, leaving: int) -> Iterator[None]:
    """Fill a file system but for so many bytes."""
    about, filler = os.statvfs(folder), folder / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(about.f_bavail * about.f_bsize - leaving, 1))
    try:
        yield
    finally:
        filler.unlink()


def _mount(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "soak", folder], check=True)


def _limit(kind: int, amount: int) -> None:
    resource.setrlimit(kind, (amount, amount))


def main(seconds: float, seed: int = 0) -> None:
    """Play laps for a while, and compare what must not grow after the second and after the last."""
    end, is_mounted = time.monotonic() + seconds, MOUNTED in os.environ
    if is_mounted:
        _mount(SHM)
    get_temp_dir()  # that of multiprocessing outlives ours
    with tempfile.TemporaryDirectory() as folder:
        # Temporary files of this process and of its children are told apart from those of others.
        tempfile.tempdir = os.environ["TMPDIR"] = f"{folder}/temporary"
        Path(tempfile.tempdir).mkdir()
        soak = Soak(Path(folder), seed=seed, is_mounted=is_mounted)
        try:
            soak.lap()
            soak.lap()
            first = Grown.now(soak.place.run_folder("soak"))
            while time.monotonic() < end:
                soak.lap()
                print(f"{soak.rounds} rounds, {dict(soak.done)}", flush=True)
            last = Grown.now(soak.place.run_folder("soak"))
        finally:
            if is_mounted:
                subprocess.run(["umount", soak.place.folder / "soak"], check=True)
    print(f"{soak.rounds} rounds with the bytes of an undisturbed run. First {first}, last {last}")
    assert last.handles <= first.handles, "file handles are left open"
    assert last.memory <= first.memory + 50, "memory has grown"
    assert last.shared <= first.shared, "something is left in /dev/shm"
    assert last.temporary <= first.temporary, "temporary files are left"
    # A life that writes more ahead than any before raises the mark; what is lost in every lap would be far above it.
    allowed = 1.5 * first.state + 4 * (last.records - first.records)
    assert last.state <= allowed, "the file of the states has grown"


def may_mount() -> bool:
    """Return whether this user may mount something that others do not see."""
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "tried", SHM]
    found = shutil.which("unshare") is not None
    return found and subprocess.run(tried, check=False, capture_output=True).returncode == 0


def _with_own_mounts() -> None:
    """Start again where mounts are this program's own, if that is allowed."""
    if MOUNTED not in os.environ and may_mount():
        os.environ[MOUNTED] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])


if __name__ == "__main__":
    _with_own_mounts()
    main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
