"""Long-lived worker processes: jobs go out the longest first, answers come back in order, the dead are replaced."""

import ctypes
import gc
import os
import pickle
import signal
import sys
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import multiprocessing

from fedadmm.core.errors import InputError
from fedadmm.engine.process import keep_freed_memory

DEATHS_ALLOWED = 3  # of workers over the same job

Handler = Callable[[Any], Any]  # answers a job; lives in a worker
MakeHandler = Callable[[], Handler]  # called once in each worker; under "spawn" it is pickled


class WorkerDiedError(Exception):
    """A worker process that is gone, and its exit code: minus a signal, or what it ended itself with."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"exit code {exit_code}")
        self.ended_itself = (exit_code or 0) > 0


class Pool:
    """Worker processes with one thread each, which answer jobs until they are closed."""

    def __init__(self, make_handler: MakeHandler, *, num_workers: int) -> None:
        self._workers = [_Worker(make_handler) for _ in range(num_workers)]
        weakref.finalize(self, _close, self._workers, owner=os.getpid())

    def run(self, job: Callable[[int], Any], *, costs: Sequence[float], window: int) -> Iterator[Any]:
        """Yield the answers to the jobs, in their order; job(n), of cost costs[n], is made when it is handed out.

        Job n starts only when answer n - window has been passed on, so no more than `window` answers wait.
        """
        self._settle()
        waiting = list(range(len(costs)))
        answers: dict[int, Any] = {}
        deaths = dict.fromkeys(waiting, 0)
        done = 0

        def hand_out() -> None:
            for worker in self._workers:
                allowed = [number for number in waiting if number < done + window]
                if worker.number is None and allowed:
                    number = max(allowed, key=lambda n: (costs[n], -n))
                    waiting.remove(number)
                    worker.start(number, job(number))

        while done < len(costs):
            hand_out()
            for worker in self._ready():
                number = worker.number
                try:
                    answers[number] = worker.answer()
                except WorkerDiedError as death:
                    deaths[number] += 1
                    worker.restart_after(death, times=deaths[number])
                    waiting.insert(0, number)
            hand_out()  # at once: no worker waits while an answer is made use of
            while done in answers:
                yield answers.pop(done)
                done += 1

    def run_as_needed(self, next_job: Callable[[], Any | None]) -> Iterator[tuple[Any, Any]]:
        """Yield jobs with their answers as they come, until no worker is busy and there is no next job.

        next_job: is asked whenever a worker is free, once the last answer has been made use of; None: not now.
        """
        self._settle()
        numbers, deaths = count(), Counter[int]()
        again: list[tuple[int, Any]] = []  # jobs whose worker died
        while True:
            for worker in self._workers:
                if worker.number is None:
                    number, job = again.pop() if again else (next(numbers), next_job())
                    if job is not None:
                        worker.start(number, job)
            if all(worker.number is None for worker in self._workers):
                return
            for worker in self._ready():
                number = worker.number
                try:
                    answer = worker.answer()
                except WorkerDiedError as death:
                    deaths[number] += 1
                    worker.restart_after(death, times=deaths[number])
                    again.append((number, worker.job))
                else:
                    yield worker.job, answer

    def close(self) -> None:
        """End the processes."""
        _close(self._workers, owner=os.getpid())

    def _ready(self) -> list["_Worker"]:
        busy: dict[Any, _Worker] = {worker.connection: worker for worker in self._workers if worker.number is not None}
        return [busy[connection] for connection in wait(list(busy))]

    def _settle(self) -> None:
        """Wait for the answers of a run that was given up half-way, and drop them."""
        for worker in self._workers:
            if worker.number is not None:
                with suppress(Exception):
                    worker.answer()
            if not worker.process.is_alive():
                worker.restart()


class _Worker:
    """One process, and the job that it is at."""

    def __init__(self, make_handler: MakeHandler) -> None:
        self._make_handler = make_handler
        self.restart()

    def restart(self) -> None:
        """Start the process, in the place of one that died."""
        self.number: Any = None
        self.connection, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_work, args=(theirs, self._make_handler), daemon=True)
        self.process.start()
        theirs.close()

    def restart_after(self, death: WorkerDiedError, *, times: int) -> None:
        """Start the process again, unless its job ends every one."""
        # One that ended itself would do so again: a script that spawns, and has no main guard.
        if times == DEATHS_ALLOWED or death.ended_itself:
            raise _hopeless(self.job, death, times=times) from death
        self.restart()

    def start(self, number: int, job: Any) -> None:
        """Hand out a job; that the process has died comes out when it is asked for the answer."""
        self.number, self.job = number, job
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(job)

    def answer(self) -> Any:
        """Wait for the answer; what the worker raised is raised here, whole."""
        try:
            error, answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            raise WorkerDiedError(self.process.exitcode) from None
        finally:
            self.number = None
        if error is not None:
            error.add_note(f"raised in a worker process:\n{answer}")
            raise error
        return answer

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.kill()
        self.process.join()


def _close(workers: list[_Worker], *, owner: int) -> None:
    if os.getpid() == owner:  # a forked process inherits the finalizer, and the workers are not its own
        for worker in workers:
            worker.close()


def _work(connection: Connection, make_handler: MakeHandler) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # and what it means there must not be inherited
    _end_with_parent()
    keep_freed_memory()
    gc.freeze()  # what was inherited is not collected here: to look at it would copy all of its pages
    torch.set_num_threads(1)
    handler = None
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            handler = handler or make_handler()
            outcome: tuple[Exception | None, Any] = (None, handler(job))
        except Exception as error:
            outcome = (_sendable(error), traceback.format_exc())
        connection.send_bytes(pickle.dumps(outcome))  # whole: torch would leave a socket for a tensor


def _end_with_parent() -> None:
    """Ask the kernel to end this process with its parent, so that a killed run leaves nobody behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(1)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _hopeless(job: Any, death: WorkerDiedError, *, times: int) -> InputError:
    ended = "a worker process" if times == 1 else f"{times} worker processes"
    return InputError(
        f"{job} ended {ended} ({death}), perhaps for want of memory; use "
        'fewer workers, a smaller batch_size, or engine = "serial"; in a script that starts processes with "spawn", '
        'put its calls under if __name__ == "__main__"'
    )
