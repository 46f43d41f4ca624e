"""Play an experiment to its end in its run folder, from the first round that is not there yet."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from fedadmm.config.experiment import Experiment
from fedadmm.config.tables import CertificateSettings
from fedadmm.core.engine import Store
from fedadmm.core.errors import InputError
from fedadmm.data.text import corpus_digest
from fedadmm.engine.choice import settings_for
from fedadmm.network.devices import digests_of
from fedadmm.runs.assembly import Federation, federation_of
from fedadmm.runs.certificate import warn_of_old_rounds
from fedadmm.runs.code import Changes, accepted_changes, check_code, code_of, note_code
from fedadmm.runs.export import write_model
from fedadmm.runs.goal import Goal, Status
from fedadmm.runs.listeners import Callback, Listener, play
from fedadmm.runs.records import CODE_FILE, NOISE_FILE, Record, RunFolder
from fedadmm.runs.simulation import Simulation
from fedadmm.state.disk import DiskStore
from fedadmm.state.memory import MemoryStore
from fedadmm.uploads.privacy import PrivateSums

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run that has ended, for now."""

    folder: RunFolder
    experiment: Experiment
    history: list[Record]
    status: Status
    rounds_before: int  # that were there when it began
    store: Store  # closed, unless it is in memory


def run(experiment: Experiment, *, out: Path, data_dir: Path | None = None, listeners: Sequence[Listener] = ()) -> Run:
    """Run an experiment in its folder inside `out`, from the first round that is not there yet."""
    federation = federation_of(experiment, data_dir=data_dir)
    return run_in(RunFolder(out / experiment.folder_name), experiment, federation, listeners=listeners)


def run_in(
    folder: RunFolder,
    experiment: Experiment,
    federation: Federation,
    *,
    listeners: Sequence[Listener] = (),
    accept_code: bool = False,
) -> Run:
    """Run an experiment whose federation has been assembled, in this folder.

    accept_code: go on although the user's code has changed since.
    """
    goal = Goal.of(experiment)
    simulation: Simulation | None = None
    with folder.lock(), ExitStack() as held:
        is_new, in_memory = not folder.has_rounds(), experiment.state.store == "memory"
        if in_memory and folder.state.exists():
            raise InputError(
                f'{folder.path} has a run whose state is on disk, and a run with state.store="memory" would write over '
                "it; leave state.store out, or give another --out"
            )
        try:
            store = _opened(experiment, folder, federation, held)
            code: dict[str, str] = {}
            changed = Changes([], [], [])
            if isinstance(store, DiskStore):
                code = code_of(experiment, federation)
                changed = check_code(store, code, size=len(federation.initial), accept=accept_code)
            simulation = Simulation.of(federation, store)
            held.callback(simulation.close)
            if isinstance(store, DiskStore):
                if not goal.has_ended(simulation.history):
                    note_code(store, code, changed)
                if lines := accepted_changes(store):
                    folder.write(CODE_FILE, "".join(f"{line}\n" for line in lines).encode())
            rounds_before = len(simulation.history)
            _begin_files(folder, experiment, simulation)
            write = Callback(lambda record, simulation: folder.append_record(record))
            play(simulation, goal, listeners=[write, *listeners])
        except Exception:
            # A mistake that came out before a round counts.
            if is_new and (simulation is None or not simulation.history):
                held.close()
                folder.remove()
            raise
        kept = simulation.task.model.personal_names
        number = len(simulation.history)
        write_model(folder, simulation.model(), round=number, without=kept, data=experiment.data)
        status = goal.status(simulation.history)
        return Run(folder, experiment, simulation.history, status, rounds_before, store)


def _begin_files(folder: RunFolder, experiment: Experiment, simulation: Simulation) -> None:
    """Write what the rounds are of, and bring what lags behind the store into step."""
    history = simulation.history
    if experiment.certificate is not None:
        warn_of_old_rounds(experiment.certificate, before=_certificate_before(folder), history=history)
    folder.write_experiment(experiment.replace(rounds=max(experiment.rounds, len(history))))
    if simulation.engine.reason is not None:
        folder.write("engine.txt", f"{simulation.engine}\n".encode())  # what engine = "auto" picked, and why
    if (sentence := _found_noise(experiment, simulation)) is not None:
        logger.info("%s", sentence)
        folder.write(NOISE_FILE, f"{sentence}\n".encode())
    folder.write_records(history)


def _found_noise(experiment: Experiment, simulation: Simulation) -> str | None:
    """Return how much noise there is where it was found from epsilon, None where it was given or there is none."""
    privacy, transport = experiment.privacy, simulation.federation.transport
    if privacy is None or privacy.noise is not None or transport is None:
        return None
    assert isinstance(transport.private, PrivateSums)
    noise = transport.private.accountant.noise
    return f"privacy.noise is {noise:.4g}: so {privacy.rounds} rounds cost privacy.epsilon={privacy.epsilon:g}"


def _opened(experiment: Experiment, folder: RunFolder, federation: Federation, held: ExitStack) -> Store:
    """Return the store of a run, which is closed with what is held."""
    float_type = torch.bfloat16 if experiment.state.float_type == "bfloat16" else None
    if experiment.state.store == "memory":
        return MemoryStore(float_type=float_type)
    store = DiskStore(
        folder.state,
        types=federation.state_types,
        identity=identity_of(experiment, arithmetic=federation.engine.arithmetic),
        initial=federation.initial,
        float_type=float_type,
        durability=experiment.state.durability,
        advice=_advice,
    )
    held.callback(store.close)
    for problem in store.damaged_states():
        logger.warning("%s", problem)
    return store


def identity_of(experiment: Experiment, *, arithmetic: str) -> dict[str, str]:
    """Return what the bytes of a run depend on; the arithmetic is that of its engine."""
    versions = {"fedadmm": version("fedadmm"), "torch": torch.__version__}
    files = digests_of(experiment.clock)
    if experiment.data.name == "text":
        files |= {"text": corpus_digest()}
    return {"experiment": experiment.hash, **versions, **files, "arithmetic": arithmetic}


def _advice(key: str, written: str | None) -> str | None:
    """Return which engine goes on with a run of another arithmetic."""
    return f"use {settings_for(written)}" if key == "arithmetic" and written is not None else None


def _certificate_before(folder: RunFolder) -> CertificateSettings | None:
    """Return the certificate's settings in experiment.toml as it is, None also where it cannot be read."""
    try:
        return folder.read_experiment().certificate
    except InputError:
        return None
