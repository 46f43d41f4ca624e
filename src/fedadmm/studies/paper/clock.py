"""No figure of the paper, but what it argues with: devices that differ by a factor of 20, on a simulated clock.

scikit-learn's digits, not IID, 100 clients of which ten are at work. Everybody is asked for five epochs, on a device of
2 to 40 examples a second; what becomes of the slow is the column. Every column lasts about 20 minutes of that time.
"""

from collections.abc import Iterator
from typing import Any

from fedadmm.algorithms import FedADMM, FedAvg, FedDyn, FedProx
from fedadmm.config.experiment import DataSettings, Experiment, ModelSettings
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.network.settings import Clock
from fedadmm.studies.paper.study import PaperRun, Size, Study
from fedadmm.training.local import LocalTraining

# The forms and the learning rate that do best on digits: see presets/digits.toml.
METHODS: dict[str, AnyAlgorithm] = {
    "fedadmm": FedADMM(rho=0.1, eta="seen", start="global"),
    "feddyn": FedDyn(rho=0.1, over="seen"),
    "fedavg": FedAvg(),
    "fedprox": FedProx(rho=0.1),
}
DEVICES: dict[str, Any] = {
    "speed": {"distribution": "log_uniform", "low": 2, "high": 40},
    "upload": 2e5,
    "download": 2e6,
    "latency": 0.05,
}
# Each with as many rounds as take about 1,200 seconds.
MODES: dict[str, tuple[int, dict[str, Any]]] = {
    "wait for all": (40, {}),
    "deadline: drop": (120, {"deadline": 10, "late": "drop"}),
    "deadline: less work": (120, {"deadline": 10, "late": "less"}),
    "asynchronous": (200, {"asynchronous": {"buffer": 5}}),
}


def runs(size: Size) -> Iterator[PaperRun]:
    """Return a run of each method for each way of treating the slow; the sizes are the same."""
    for column, (rounds, changes) in MODES.items():
        for label, algorithm in METHODS.items():
            experiment = Experiment(
                name=f"clock-{column.replace(': ', '-').replace(' ', '_')}",
                label=label,
                rounds=rounds,
                target=0.9,
                participation=0.1,
                engine="serial",
                algorithm=algorithm,
                model=ModelSettings(name="mlp"),
                data=DataSettings(name="digits", num_clients=100, partition="shards"),
                local=LocalTraining(epochs=5, batch_size=10, learning_rate=0.2),
                clock=Clock(**DEVICES, **changes),
            )
            yield PaperRun(column, experiment)


CLOCK = Study("clock", "A clock: what becomes of the slow, and accuracy against time", runs, small_seeds=3)
