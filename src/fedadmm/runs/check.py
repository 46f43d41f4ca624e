"""Verify a run folder: every checksum, rounds without gaps, and what the algorithm promises of its states.

`check_run` reads in a process of its own: LMDB trusts its file, and a damaged one may take its reader down.
"""

import math
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from fedadmm.config.experiment import Experiment
from fedadmm.core.algorithm import AnyAlgorithm, Message
from fedadmm.core.errors import InputError
from fedadmm.core.optional import imbalance, invariant_of
from fedadmm.core.round import ServerCheckpoint
from fedadmm.engine.probe import probe
from fedadmm.runs.assembly import ClientWeights, data_of, keeps_rest, stored_types
from fedadmm.runs.code import accepted_changes, told_of
from fedadmm.runs.export import MAKE_AGAIN, is_of, read_model
from fedadmm.runs.records import MIXED_CODE, Record, RunFolder
from fedadmm.state.disk import DiskStore


class Finding(NamedTuple):
    """Something that a check found out."""

    kind: Literal["fact", "problem", "end", "error"]
    name: str
    text: str = ""


class CheckResult(NamedTuple):
    """What a run folder holds, and what is wrong with it."""

    facts: dict[str, str]
    problems: list[str]


def check_run(path: Path, *, data_dir: Path | None = None) -> CheckResult:
    """Verify a run folder in a process of its own."""
    return read_findings(findings, path, data_dir=data_dir)


def read_findings(look: Callable[..., Iterator[Finding]], path: Path, **options: Any) -> CheckResult:
    """Return what a function finds in a folder, in a process that it may take down."""
    # Forked where that is safe, so that nothing is imported again.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    here, there = context.Pipe(duplex=False)
    reader = context.Process(target=_send, args=(there, look, path), kwargs=options, daemon=True)
    reader.start()
    there.close()
    found: list[Finding] = []
    with here, suppress(EOFError):
        while True:
            found.append(here.recv())
    reader.join()
    problems = [finding.text for finding in found if finding.kind == "problem"]
    if not found or found[-1].kind != "end":
        why = found[-1].text if found and found[-1].kind == "error" else f"exit code {reader.exitcode}"
        problems.append(
            f"the store is damaged: its reader died ({why}); restore the run folder from a copy, or remove it "
            "and run again"
        )
    return CheckResult({f.name: f.text for f in found if f.kind == "fact"}, problems)


def _send(there: Connection, look: Callable[..., Iterator[Finding]], path: Path, **options: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the one that waits, and this one with it
    torch.set_num_threads(1)  # a forked process must not use the threads of another
    try:
        for finding in look(path, **options):
            there.send(finding)
    except Exception as error:
        there.send(Finding("error", "", f"{type(error).__name__}: {error}"))


def findings(path: Path, *, data_dir: Path | None = None) -> Iterator[Finding]:
    """Yield what there is to say about a run folder, in this process."""
    try:
        folder = RunFolder(path)
        with folder.at_rest():
            experiment = folder.read_experiment()
            yield Finding("fact", "experiment", f"{experiment.name}, {experiment.algorithm}")
            if experiment.state.store == "memory":
                yield Finding("fact", "state", "kept in memory, so there is none to check")
                yield from file_findings(folder, folder.read_records(), None, experiment.algorithm)
            else:
                yield from _store(folder, experiment, data_dir)
    except InputError as error:
        yield Finding("problem", "", str(error))
    yield Finding("end", "")


def _store(folder: RunFolder, experiment: Experiment, data_dir: Path | None) -> Iterator[Finding]:
    with closing(DiskStore(folder.state, types=stored_types(experiment), identity=None, readonly=True)) as store:
        checkpoint, records = store.checkpoint(), store.records()
        size = (folder.state / "data.mdb").stat().st_size
        yield Finding("fact", "format", store.about["format"])
        yield Finding("fact", "written by", f"fedadmm {store.about['fedadmm']}, torch {store.about['torch']}")
        yield Finding("fact", "rounds", f"{len(records)} of {experiment.rounds}")
        yield Finding("fact", "clients with state", f"{len(store):,}")
        yield Finding("fact", "state", f"{size:,} bytes, {experiment.state.float_type}")
        if (text := told_of(store, experiment)) is not None:
            yield Finding("fact", "your code", text)
        if lines := accepted_changes(store):
            yield Finding("fact", MIXED_CODE, "; ".join(lines))
        if store.about["experiment"] != experiment.hash:
            yield problem("the state is not that of experiment.toml; restore the one that was there")
        yield from index_findings(store, records)
        yield from _states(store, experiment, checkpoint, data_dir)
        yield from file_findings(folder, records, checkpoint, experiment.algorithm)


def index_findings(store: DiskStore, records: list[dict[str, Any]]) -> Iterator[Finding]:
    """Compare the clients of the records with the rounds of the states."""
    last = {client: record["round"] for record in records for client in (*record["clients"], *record.get("silent", ()))}
    for client in sorted(last.keys() | set(store)):
        if last.get(client) != store.round_of(client):
            yield problem(
                f"client {client} was last applied in round {last.get(client)}, and its state is of round "
                f"{store.round_of(client)}; restore the run folder from a copy, or remove it and run again"
            )


def file_findings(
    folder: RunFolder,
    records: list[dict[str, Any]],
    checkpoint: ServerCheckpoint | None,
    algorithm: AnyAlgorithm | None,
) -> Iterator[Finding]:
    """Compare rounds.jsonl and model.safetensors with the store; a kill may leave them behind it, never ahead."""
    lines = folder.read_records()
    if lines != records[: len(lines)]:
        yield problem(f"rounds.jsonl is not that of the store; {MAKE_AGAIN}")
    yield Finding("fact", "rounds.jsonl", _step(len(lines), len(records)))
    for number, record in enumerate(records, start=1):
        if Record.from_json(record).round != number:
            yield problem(f"round {number} is missing; restore the run folder from a copy")
            break
    model = read_model(folder)
    yield Finding("fact", "model.safetensors", _step(None if model is None else model.round, len(records)))
    if (
        model is not None
        and checkpoint is not None
        and algorithm is not None
        and model.round >= checkpoint.round
        and not is_of(model, checkpoint, algorithm)
    ):
        yield problem(f"model.safetensors is not that of the store; {MAKE_AGAIN}")


def _step(found: int | None, expected: int) -> str:
    if found == expected:
        return f"in step, round {expected}"
    there = "not there" if found is None else f"at round {found}"
    return f"{there}, the next run brings it to round {expected}"


def _states(
    store: DiskStore, experiment: Experiment, checkpoint: ServerCheckpoint | None, data_dir: Path | None
) -> Iterator[Finding]:
    """Read every state, once, and hold their mean against what the server has."""
    problems: list[Finding] = []
    initial = store.initial()
    weights = None
    try:
        weights = ClientWeights(experiment.weighting, data_of(experiment, data_dir=data_dir))
    except InputError as error:
        yield Finding("fact", "invariant", f"not checked: {error}")
    invariant = None
    if checkpoint is not None and weights is not None:
        invariant = invariant_of(experiment.algorithm, checkpoint.server, initial=initial, registered=weights.total)
    if invariant is not None and (reason := no_invariant(experiment)):
        yield Finding("fact", "invariant", f"none of {invariant.name}: {reason}")
        invariant = None
    upload: Message = ()
    if invariant is not None and keeps_rest(experiment):
        upload = probe(experiment.algorithm, initial).upload
        if invariant.adds is None:
            yield Finding("fact", "invariant", "not checked: what is held back counts differently from round to round")
            invariant = None

    def states() -> Iterator[tuple[float, Any]]:
        for client in store:
            try:
                yield 1.0 if weights is None else weights(client), store.get(client)
            except InputError as error:
                problems.append(problem(str(error)))

    if invariant is None or checkpoint is None or weights is None:
        for _ in states():
            pass
        yield from problems
        return
    gap = imbalance(invariant, states(), registered=weights.total, upload=upload)
    yield from problems
    private = experiment.privacy
    # A method that divides by the number of clients seen is told how many are expected.
    if private is not None and (private.noise != 0 or invariant.unseen is None):
        text = f"{invariant.name} is the mean of the clients' up to {gap:.1e}, with the noise of privacy in it"
        yield Finding("fact", "invariant", f"{text}: not held against rounding")
        return
    allowed = rounding_of(invariant.held.dtype, rounds=checkpoint.round)
    text = f"{invariant.name} is the mean of the clients' up to {gap:.1e} (rounding allows {allowed:.1e})"
    exact = experiment.state.float_type == "float32"
    yield Finding("fact", "invariant", text if exact else f"{text}, as far as {experiment.state.float_type} goes")
    if exact and gap > allowed and not problems:
        yield problem(f"{text}; restore the run folder from a copy, or remove it and run again")


def no_invariant(experiment: Experiment) -> str | None:
    """Return why what the server holds is not what its clients keep, None if it should be."""
    robust, compression, attack = experiment.robust, experiment.compression, experiment.attack
    if robust is not None and not isinstance(robust.norm, float | int):
        return f'robust.name="{robust.name}" applies something else than what the clients keep'
    if compression is not None and (robust is not None or not compression.error_feedback):
        return "compression leaves something out of uploads that is never sent"
    return None if attack is None or attack.name == "label_flip" else "attackers send something else than they keep"


def rounding_of(float_type: torch.dtype, *, rounds: int) -> float:
    """Return how far a mean that is kept by adding changes may drift from the mean that is computed anew.

    Each round rounds the sum to either side, so the drift grows like the square root of the rounds: over 1,500 rounds
    of a small network and 1,200 of digits it was at most 0.41 eps sqrt(rounds) for fedadmm_auto, and 0.12 for others.
    """
    return torch.finfo(float_type).eps * (4 + math.sqrt(rounds))


def problem(text: str) -> Finding:
    """Return the finding that something is wrong."""
    return Finding("problem", "", text)
