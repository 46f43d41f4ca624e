"""How long a run takes on this machine: measured on runs that were made on it, or else on a few batches."""

import json
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import platformdirs

from fedadmm.algorithms import FedAvg, FedSGD
from fedadmm.config.experiment import Experiment
from fedadmm.core.engine import num_cores
from fedadmm.core.files import write_whole
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.runs.records import Record
from fedadmm.training.local import LocalTraining

NUM_EXAMPLES = {"mnist": 60_000, "fmnist": 60_000, "cifar10": 50_000, "digits": 1437}
SHAPES = {"mnist": (1, 28, 28), "fmnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}
PROBE_EXAMPLES = 200
START_SECONDS = 5.0  # for the data and the workers of a run
ROUNDS_THAT_TELL = 3  # fewer may have had a bad moment


class CostEstimate:
    """Seconds per gradient of one example, for each network and batch size."""

    def __init__(self, cache: Path | None = None, *, on_probe: Callable[[str], None] = lambda steps: None) -> None:
        """Begin with what was timed before; on_probe is told what is about to be timed."""
        self._on_probe = on_probe
        self._file = cache or platformdirs.user_cache_path("fedadmm") / "costs.json"
        try:
            self._known: dict[str, float] = dict(json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            self._known = {}  # measured again

    def learn(self, experiment: Experiment, records: Iterable[Record], *, at_once: int = 1) -> None:
        """Remember how fast a run was that was made on this machine, at once with others: it had their share less."""
        if _is_made_on_the_spot(experiment):
            seconds = [r.seconds for r in records]
        else:
            seconds = [r.seconds / r.gradient_evaluations for r in records if r.gradient_evaluations]
        if len(seconds) >= ROUNDS_THAT_TELL:
            self._remember(_key(experiment), statistics.median(seconds) / at_once)

    def seconds(self, experiment: Experiment, *, rounds: int) -> float:
        """Return the estimated seconds of this many rounds.

        Rounds on data that is made on the spot are small, and count nothing until such a run was made.
        """
        key = _key(experiment)
        if _is_made_on_the_spot(experiment):
            return rounds * self._known.get(key, 0.0)
        if key not in self._known:
            self._on_probe(_steps(experiment))
            self._remember(key, _probe(experiment))
        return rounds * gradient_evaluations(experiment) * self._known[key]

    def is_known(self, experiment: Experiment) -> bool:
        """Return whether an estimate needs no timing on this machine first."""
        return _is_made_on_the_spot(experiment) or _key(experiment) in self._known

    def seconds_from_start(self, experiment: Experiment, *, rounds: int) -> float:
        """Return the estimated seconds of a start and this many rounds."""
        return START_SECONDS + self.seconds(experiment, rounds=rounds)

    def _remember(self, key: str, seconds: float) -> None:
        self._known[key] = seconds
        with suppress(OSError):  # it is measured again
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(self._known, indent=1))


def gradient_evaluations(experiment: Experiment) -> float:
    """Return how many gradients of one example a round of one of the paper's experiments takes."""
    assert isinstance(experiment.participation, float)
    epochs = 1.0 if isinstance(experiment.algorithm, FedSGD) else experiment.local.mean_epochs
    share = 1.0 if trait(experiment.algorithm, SkipsCommunication) else experiment.participation  # then all compute
    return share * NUM_EXAMPLES[experiment.data.name] * epochs


def _batch(experiment: Experiment) -> int:
    """Return how many examples a step takes: FedSGD and a full batch take all of a client's."""
    batch = experiment.local.batch_size
    if batch != "full" and not isinstance(experiment.algorithm, FedSGD):
        return batch
    return min(NUM_EXAMPLES[experiment.data.name] // (experiment.data.num_clients or 1), 1000)


def _is_made_on_the_spot(experiment: Experiment) -> bool:
    return experiment.data.name not in NUM_EXAMPLES


def _steps(experiment: Experiment) -> str:
    if _is_made_on_the_spot(experiment):
        return f"a round on {experiment.data.name}"
    return f"{experiment.model.name} on {experiment.data.name}, batches of {_batch(experiment)}"


_version = cache(version)  # slow, and asked for once a run


def _key(experiment: Experiment) -> str:
    return f"{_steps(experiment)}, {num_cores()} cores, torch {_version('torch')}"


def _probe(experiment: Experiment) -> float:
    """Return the seconds per gradient of a round on random images, spread over the cores."""
    import torch

    from fedadmm.data import federate, make_dataset
    from fedadmm.runs.simulation import Simulation

    batch = _batch(experiment)
    num_clients = max(1, PROBE_EXAMPLES // batch)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(num_clients * batch, *SHAPES[experiment.data.name], generator=generator)
    targets = torch.randint(0, 10, (num_clients * batch,), generator=generator)
    data = federate(make_dataset((inputs, targets)), num_clients=num_clients, partition="iid", seed=0)
    model, local = experiment.model.name, LocalTraining(epochs=1, batch_size=batch, learning_rate=1e-3)
    simulation = Simulation(FedAvg(), model=model, data=data, local=local, participation=1.0, seed=0, engine="serial")
    simulation.advance()  # warms up
    began = time.thread_time()
    simulation.advance()
    return (time.thread_time() - began) / (num_clients * batch) / num_cores()
