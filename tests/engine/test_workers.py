"""The workers engine gives the serial engine's bytes, whatever becomes of a worker."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn import functional

from fedadmm import FedADMM, FedAvg, InputError, LocalTraining, Simulation
from fedadmm.algorithms.fedavg import Upload
from fedadmm.core.algorithm import Algorithm
from fedadmm.engine import workers as workers_engine
from fedadmm.engine.pool import Pool
from fedadmm.engine.workers import WorkersEngine
from methods import ON_NETWORKS, PLAIN
from play import identical
from small_runs import outcome, simulation_of


def _simulation(method: Algorithm, **options: Any) -> Simulation:
    return simulation_of(method, local=LocalTraining(epochs="1..3", batch_size=6), **options)


def _outcome(simulation: Simulation) -> Any:
    return outcome(simulation, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)  # all of them, on a network without buffers: laws/test_engines.py
def test_two_workers_give_the_bytes_of_one_process(name: str) -> None:
    serial = _outcome(_simulation(ON_NETWORKS[name], engine="serial"))
    assert identical(_outcome(_simulation(ON_NETWORKS[name], engine="workers", workers=2)), serial)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("on_disk", [False, True])
def test_neither_the_number_of_workers_nor_the_store_shows_in_the_result(workers, on_disk, tmp_path) -> None:
    method = ON_NETWORKS["fedadmm, rho rising"]
    serial = _outcome(_simulation(method, engine="serial"))
    folder = tmp_path / "state" if on_disk else None
    assert identical(_outcome(_simulation(method, engine="workers", workers=workers, folder=folder)), serial)


@pytest.mark.slow
def test_large_uploads_wait_for_none_but_their_turn_and_give_the_same_bytes(monkeypatch) -> None:
    method = ON_NETWORKS["fedadmm, rho rising"]
    usual = _outcome(_simulation(method, engine="workers", workers=2))
    monkeypatch.setattr(workers_engine, "WAITING_BYTES", 1)
    simulation = _simulation(method, engine="workers", workers=2)
    assert len(simulation._engine._setup.uploads) == 2  # one of each worker, where 8 would fit
    assert identical(_outcome(simulation), usual)


class Memories(NamedTuple):
    even: torch.Tensor
    odd: torch.Tensor
    last: torch.Tensor
    visits: int = 0


class Restless(FedAvg):
    """FedAvg whose clients remember, in a state that changes its type and whose parts change places."""

    def init_client(self, theta: torch.Tensor) -> Memories:
        return Memories(theta, 2 * theta, theta)

    def client_update(self, server: Any, client: Memories, problem: Any) -> Any:
        w = problem.solve(start=(server.theta + client.even) / 2).w
        last = (w.double(), w)[client.visits % 2]
        return Upload(w - server.theta), Memories(client.odd, client.even, last, client.visits + 1)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_state_may_change_its_type_and_its_parts_their_places(workers: int) -> None:
    serial = _outcome(_simulation(Restless(), engine="serial"))
    assert identical(_outcome(_simulation(Restless(), engine="workers", workers=workers)), serial)


@pytest.mark.slow
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_worker_that_is_killed_changes_nothing(on_disk: bool, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    serial = _outcome(_simulation(FedADMM(), engine="serial"))
    folder = tmp_path / "state" if on_disk else None
    simulation = _simulation(FedADMM(), engine="workers", workers=2, folder=folder)
    pool: Pool = simulation._engine.pool
    passed_on = pool.run
    killed = []

    def run_and_kill(*arguments: Any, **options: Any) -> Any:
        # One a call: three deaths over the same job would end the run, as they should.
        for number, answer in enumerate(passed_on(*arguments, **options)):
            if number == 0:
                victim = pool._workers[len(killed) % 2].process.pid
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)
            yield answer

    monkeypatch.setattr(pool, "run", run_and_kill)
    assert identical(_outcome(simulation), serial)
    assert len(killed) == 6  # in three rounds: once while clients train, once in the evaluation


def _sometimes_deadly(job: Any) -> Any:
    if job == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "ending":
        sys.exit(1)
    return job


def _deadly_setup() -> Any:
    return _sometimes_deadly


@pytest.mark.slow
def test_a_job_that_kills_every_worker_ends_the_run_with_a_sentence() -> None:
    pool = Pool(_deadly_setup, num_workers=2)
    answers = pool.run(["a", "deadly", "b"].__getitem__, costs=[1, 1, 1], window=3)
    with pytest.raises(InputError, match=r"deadly ended 3 worker processes \(exit code -9\).*use fewer workers"):
        list(answers)
    with pytest.raises(InputError, match=r"ending ended a worker process \(exit code 1\)"):
        list(pool.run(["ending"].__getitem__, costs=[1], window=1))
    assert list(pool.run(["c", "d"].__getitem__, costs=[1, 1], window=2)) == ["c", "d"]
    pool.close()


class OddError(Exception):
    """An exception that does not survive pickling."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def _raising(job: Any) -> Any:
    if job == "value":
        raise ValueError("no such value")
    if job == "odd":
        raise OddError(1, 2)
    return job


def _raising_setup() -> Any:
    return _raising


def test_what_a_worker_raises_arrives_whole_and_the_pool_goes_on() -> None:
    pool = Pool(_raising_setup, num_workers=2)
    with pytest.raises(ValueError, match="no such value") as caught:
        list(pool.run(["a", "value", "b", "c"].__getitem__, costs=[1] * 4, window=2))
    assert "in _raising" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="OddError: odd"):
        list(pool.run(["odd"].__getitem__, costs=[1], window=1))
    assert list(pool.run(["d", "e"].__getitem__, costs=[1, 1], window=2)) == ["d", "e"]
    pool.close()


def _slow(job: float) -> tuple[float, float]:
    began = time.monotonic()
    time.sleep(job)
    return began, job


def _slow_setup() -> Any:
    return _slow


def test_the_longest_of_the_window_starts_first_and_answers_come_in_order() -> None:
    pool = Pool(_slow_setup, num_workers=1)
    jobs = [0.01, 0.02, 0.05, 0.03]
    answers = list(pool.run(jobs.__getitem__, costs=jobs, window=3))
    pool.close()
    assert [job for _, job in answers] == jobs
    # Of the first three the third is the longest; the fourth is out of the window until the first has been passed on.
    started = sorted(range(4), key=lambda n: answers[n][0])
    assert started == [2, 1, 0, 3]


def _failing_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if outputs.requires_grad and len(targets) == 6:
        raise ZeroDivisionError("the user's own mistake")
    return functional.cross_entropy(outputs, targets)


def test_a_users_exception_leaves_the_run_as_it_was() -> None:
    simulation = _simulation(FedAvg(), engine="workers", workers=2, loss=_failing_loss)
    theta = simulation.theta.clone()
    for _ in range(2):  # and again: the pool is not left half-way
        with pytest.raises(InputError, match="the user's own mistake"):
            simulation.advance()
    simulation.close()
    assert torch.equal(simulation.theta, theta)
    assert simulation.history == []


SCRIPT = """
import sys
import torch
from fedadmm import FedADMM, LocalTraining, federate, load, simulate

GUARD
    torch.multiprocessing.set_start_method(sys.argv[1], force=True)
    data = federate(load("digits"), num_clients=20, partition="iid", seed=0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
    local = LocalTraining(epochs=1, batch_size="full")
    options = dict(model=model, data=data, rounds=2, participation=0.5, local=local)
    workers = 2 if sys.argv[1] == "fork" else 1  # each of which imports torch
    runs = [simulate(FedADMM(), engine=e, workers=workers, **options) for e in ("serial", "workers")]
    assert torch.equal(runs[0].theta, runs[1].theta)
    print("identical")
"""


def _script(tmp_path: Any, start_method: str, *, guarded: bool) -> subprocess.CompletedProcess[str]:
    guard = 'if __name__ == "__main__":' if guarded else "if True:"
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("GUARD", guard))
    (tmp_path / "tmp").mkdir()
    return subprocess.run(
        [sys.executable, script, start_method],
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("start_method", "guarded"), [("fork", False), ("spawn", True)])
def test_scripts_run_under_fork_and_spawn_and_leave_nothing_behind(tmp_path, start_method, guarded) -> None:
    done = _script(tmp_path, start_method, guarded=guarded)
    assert done.stdout.strip() == "identical", done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_spawning_script_without_a_main_guard_is_told_what_to_do(tmp_path) -> None:
    done = _script(tmp_path, "spawn", guarded=False)
    assert done.returncode != 0
    assert 'put its calls under if __name__ == "__main__"' in done.stderr


def test_workers_end_with_the_simulation() -> None:
    simulation = _simulation(FedAvg(), engine="workers", workers=2)
    simulation.advance()
    engine = simulation._engine
    assert isinstance(engine, WorkersEngine)
    pids = [worker.process.pid for worker in engine.pool._workers]
    del engine, simulation
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
