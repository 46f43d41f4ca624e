"""[secure] in an experiment: the same bytes on every engine, with losses and after a restart; and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedadmm
from fedadmm import Experiment, FedADMM, Scaffold, Simulation
from fedadmm.core.algorithm import NoState
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment
from fedadmm.core.transport import Sent
from fedadmm.runs.check import findings
from play import identical
from worlds import network, perceptron, some_data


def simulation(method: Any = None, **options: Any) -> Simulation:
    """Return a small federation of six clients with secure aggregation."""
    usual: dict[str, Any] = {
        "model": perceptron,
        "data": some_data([8, 6, 9, 7, 8, 10]),
        "local": fedadmm.LocalTraining(epochs=1, batch_size=4, learning_rate=0.1),
        "participation": 1.0,
        "seed": 0,
        "engine": "serial",
        "secure": {},
    }
    return Simulation(method or FedADMM(rho=0.1), **usual | options)


def played(num_rounds: int = 3, **options: Any) -> Simulation:
    found = simulation(**options)
    for _ in range(num_rounds):
        found.advance()
    found.close()
    return found


@pytest.mark.slow
def test_workers_add_to_the_same_bits_as_one_process() -> None:
    serial, workers = played(), played(engine="workers", workers=2)
    assert identical(serial.checkpoint, workers.checkpoint)


def test_clients_that_are_lost_on_the_way_leave_no_trace() -> None:
    lossy = played(4, faults={"lose_replies": 0.25})
    history = [record.clients for record in lossy.history]
    assert any(0 < len(clients) < 6 for clients in history)
    rule = lambda number, generator, devices: list(history[number - 1])  # noqa: E731
    assert identical(lossy.checkpoint, played(4, participation=rule).checkpoint)


@pytest.mark.slow
def test_with_too_many_losses_rounds_are_void_and_the_run_goes_on() -> None:
    # Of six, each has five neighbours and needs three: four have to be left.
    lossy = played(8, faults={"lose_replies": 0.5})
    sizes = [len(record.clients) for record in lossy.history]
    assert 0 in sizes
    assert all(size == 0 or size >= 4 for size in sizes)
    assert all(len(record.clients) + len(record.lost) == 6 for record in lossy.history)
    void = sizes.index(0)
    before, after = played(void, faults={"lose_replies": 0.5}), played(void + 1, faults={"lose_replies": 0.5})
    assert identical(before.theta, after.theta)


def test_nothing_of_one_client_is_in_the_records_and_the_words_are_counted() -> None:
    record = played(1, local=fedadmm.LocalTraining(epochs=1, batch_size=4, learning_rate=0.1, tolerance=0.1)).history[0]
    assert record.upload_norm is None
    assert not record.metrics
    assert record.bytes_up == 6 * 4 * (4 * 6 + 6 + 6 * 3 + 3)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_words_are_as_long_as_their_bits_on_a_simulated_clock_too_and_are_read_again(bits: int) -> None:
    found = simulation(secure={"bits": bits}).federation.transport
    upload = found.sums.encoding.like._replace(delta=torch.arange(51) / 64)  # 6 x 16 < 2^7: 8 digits at least
    words = found.codec.form(upload)
    assert words["words"].nbytes == 51 * bits // 8
    assert identical(found.codec.decode(words, client=0, round=1), upload)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"compression": {"name": "int8"}}, "adds uploads without looking at them"),
        ({"robust": {"name": "median"}}, "the server sees their sum alone"),
        ({"attack": {"name": "lie", "share": 0.2}}, "made of the uploads of others"),
        ({"max_norm": "10x"}, "nobody knows the norms"),
        ({"weighting": "examples"}, "adds uploads that weigh the same"),
        ({"clock": {"speed": 10, "asynchronous": {"buffer": 2}}}, "agreed on masks before"),
        ({"model": network}, "buffers"),
        ({"method": fedadmm.FedPD()}, "go on alone"),
        ({"engine": "stacked"}, 'use engine="workers"'),
        ({"secure": {"threshold": 0.3}}, "threshold=0.3 is out of range; use a number from 0.5 to below 1"),
        ({"secure": {"range": 1e9}}, "leave none of 32 bits for fractions; use a smaller range, or bits = 64"),
        ({"secure": {"range": 1e20, "bits": 64}}, "leave none of 64 bits for fractions; use a smaller range$"),
        ({"secure": {"bits": 8}}, "bits"),
    ],
)
def test_what_does_not_go_with_hidden_uploads_is_refused_with_the_reason(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason.replace("[", r"\[")):
        simulation(**options)


@pytest.mark.slow
def test_a_run_of_an_experiment_goes_on_and_its_books_are_exact(tmp_path: Path) -> None:
    base = Experiment(
        data={"name": "digits", "num_clients": 10},
        model={"name": "softmax_regression"},
        algorithm=Scaffold(),
        secure={"bits": 32},
        engine="serial",
        participation=0.5,
    )
    fedadmm.run(base.replace(rounds=2), out=tmp_path, progress=False)
    run = fedadmm.run(base.replace(rounds=4), out=tmp_path, progress=False)
    whole = fedadmm.run(base.replace(rounds=4), out=tmp_path / "whole", progress=False)
    assert run.rounds_before == 2
    assert identical(run.theta, whole.theta)
    found = list(findings(run.folder))
    assert not [finding for finding in found if finding.kind == "problem"], found


def test_with_privacy_no_upload_becomes_longer_by_rounding_and_nothing_is_added_later() -> None:
    private = {"clip": 0.05, "noise": 0.0, "delta": 1e-3}
    plain, masked = (played(privacy=private, secure=table) for table in (None, {"bits": 16}))
    # 6 x 16 < 2^7: 16 bits leave 8 digits, so every coordinate is short of its value by less than 2^-8.
    assert 0 < float((plain.theta - masked.theta).abs().max()) < 3 * 2.0**-8
    assert "held_back" not in masked._store.get(0)._fields
    step, vector = masked.federation.transport.steps[-1], torch.linspace(-1, 1, 57)
    sent = Sent(masked.federation.transport.sums.encoding.like._replace(delta=vector), NoState())
    rounded = step(sent, before=NoState(), assignment=Assignment(0, 1, 1)).upload.delta
    assert bool((rounded.abs() <= vector.abs()).all())
    assert bool(((vector - rounded).abs() < 2.0**-8).all())


@pytest.mark.slow
def test_with_privacy_a_void_round_releases_not_even_noise() -> None:
    private = {"clip": 0.05, "noise": 1.0, "delta": 1e-3}
    lossy = played(8, privacy=private, faults={"lose_replies": 0.5})
    void = [len(record.clients) for record in lossy.history].index(0)
    before, after = (played(n, privacy=private, faults={"lose_replies": 0.5}) for n in (void, void + 1))
    assert identical(before.checkpoint.server, after.checkpoint.server)
