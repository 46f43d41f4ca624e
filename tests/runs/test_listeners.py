"""One way to listen: a run in a folder and a call from Python play the same rounds to the same listeners."""

import gc
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel, field_serializer

from fedadmm import FedAvg, InputError, LocalTraining, simulate
from fedadmm.config.plans import load_plan
from fedadmm.runs.listeners import Callback, Interruption, Listener, OutOfTimeError, StoppedAtOnce, TimeBudget
from fedadmm.runs.records import Record
from fedadmm.runs.runner import run
from fedadmm.runs.simulation import Simulation
from worlds import some_data

QUICK = {"model.name": "softmax_regression", "local.epochs": 1, "engine": "serial"}


class Diary(Listener):
    """Remembers what it was told, and asks to stop after a round."""

    def __init__(self, *, stop_after: int | None = None) -> None:
        self.told: list[object] = []
        self.stop_after = stop_after

    def started(self, history: Sequence[Record]) -> None:
        self.told.append(f"{len(history)} rounds before")

    def after_round(self, record: Record, simulation: Simulation) -> bool:
        assert simulation.history[-1] is record
        self.told.append(record.round)
        return record.round == self.stop_after

    def ended(self) -> None:
        self.told.append("ended")


@pytest.mark.slow
def test_a_run_and_a_simulation_tell_the_same_and_stop_when_asked(tmp_path: Path) -> None:
    experiment = load_plan("digits").experiment("fedavg", changes=QUICK | {"rounds": 3})
    first, last = Diary(stop_after=2), Diary()
    assert run(experiment, out=tmp_path, listeners=[first, last]).status == "stopped"
    assert first.told == last.told == ["0 rounds before", 1, 2, "ended"]
    again = Diary(stop_after=3)
    assert run(experiment, out=tmp_path, listeners=[again]).status == "finished"  # no round is left
    assert again.told == ["2 rounds before", 3, "ended"]
    called = Diary(stop_after=2)
    result = simulate(
        FedAvg(), model="softmax_regression", data=some_data([8, 9]), rounds=3, participation=1.0, callbacks=[called]
    )
    assert (called.told, result.status) == (first.told, "stopped")


def test_listeners_hear_of_the_end_if_another_fails() -> None:
    def fail(record: Record, simulation: Simulation) -> None:
        raise RuntimeError("listener")

    diary, unheard = Diary(), Diary()
    options = {"model": "softmax_regression", "data": some_data([8, 9]), "rounds": 3, "participation": 1.0}
    with pytest.raises(InputError, match=r"callback .* fails; correct it\n  RuntimeError: listener"):
        simulate(FedAvg(), local=LocalTraining(), callbacks=[diary, fail], **options)
    assert diary.told == ["0 rounds before", 1, "ended"]

    class Broken(Listener):
        def started(self, history: Sequence[Record]) -> None:
            raise RuntimeError("no start")

    with pytest.raises(RuntimeError, match="no start"):
        simulate(FedAvg(), callbacks=[diary, Broken(), unheard], **options)
    assert (diary.told[-2:], unheard.told) == (["0 rounds before", "ended"], [])


def test_signals_have_their_old_handlers_back_after_an_interruption_and_a_budget() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    interruption = Interruption()
    with interruption.watched(), TimeBudget(60).enforced():
        assert all(signal.getsignal(number) is not old for number, old in zip(numbers, before, strict=True))
        signal.raise_signal(signal.SIGINT)
        assert interruption.asked
        with pytest.raises(StoppedAtOnce):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.slow
def test_a_budget_and_an_interruption_ask_to_stop() -> None:
    heard: list[int] = []
    listeners = [Callback(lambda record, simulation: heard.append(record.round)), TimeBudget(0.0)]
    options = {"model": "softmax_regression", "data": some_data([8, 9]), "rounds": 3, "participation": 1.0}
    assert simulate(FedAvg(), callbacks=listeners, **options).status == "stopped"
    assert heard == [1]
    interruption = Interruption()
    interruption.asked = True
    assert len(simulate(FedAvg(), callbacks=[interruption], **options).history) == 1
    with pytest.raises(OutOfTimeError), TimeBudget(0.0).enforced():
        signal.pause()


class Slow(BaseModel):
    """A model whose writing a signal interrupts."""

    value: int = 0

    @field_serializer("value")
    def _write(self, value: int) -> int:
        signal.pause()
        return value


def test_a_signal_inside_a_librarys_callback_is_still_the_one_that_was_raised() -> None:
    """Pydantic raises its own error in the place of what a serializer raises."""
    with pytest.raises(OutOfTimeError), TimeBudget(0.01).enforced():
        Slow().model_dump()


def _spend_time(*args: object) -> None:
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass


class Lingering:
    """Takes time to go."""

    def __del__(self) -> None:
        _spend_time()


@pytest.mark.slow
@pytest.mark.parametrize("clean_up", [Lingering, gc.collect])
def test_a_signal_where_python_ignores_errors_is_raised_after_it(clean_up: Callable[[], object]) -> None:
    def clean_up_and_wait() -> None:
        clean_up()
        time.sleep(60)

    begin = time.monotonic()
    gc.callbacks.append(_spend_time)
    try:
        with pytest.raises(OutOfTimeError), TimeBudget(0.05).enforced():
            clean_up_and_wait()
    finally:
        gc.callbacks.remove(_spend_time)
    assert time.monotonic() - begin < 30
