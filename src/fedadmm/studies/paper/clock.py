"""No figure of the paper, but what it argues with: devices that differ by a factor of 20, on a simulated clock.

Everybody is asked for five epochs, on a device of 2 to 40 examples a second; what becomes of the slow is the column.
Every column lasts about 20 minutes of that time.
"""

from collections.abc import Iterator

from fedadmm.algorithms import FedADMM, FedAvg, FedDyn, FedProx
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.studies.paper.study import PaperRun, Size, Study, experiments_in

# The forms and the learning rate that do best on digits: see presets/digits.toml.
METHODS: dict[str, AnyAlgorithm] = {
    "fedadmm": FedADMM(rho=0.1, eta="seen", start="global"),
    "feddyn_seen": FedDyn(rho=0.1, over="seen"),
    "fedavg": FedAvg(),
    "fedprox": FedProx(rho=0.1),
}
MODES = experiments_in("clock.toml")  # by column: what becomes of the slow


def runs(size: Size) -> Iterator[PaperRun]:
    """Return a run of each method for each way of treating the slow; the sizes are the same."""
    for column, mode in MODES.items():
        name = f"clock-{column.replace(': ', '-').replace(' ', '_')}"
        for label, algorithm in METHODS.items():
            yield PaperRun(column, mode.replace(name=name, label=label, algorithm=algorithm))


CLOCK = Study("clock", "A clock: what becomes of the slow, and accuracy against time", runs, small_seeds=3)
