"""What is timed, for us and for peers alike: federations of MNIST's form, 6,000 examples a round."""

from typing import NamedTuple

NUM_EXAMPLES = 60_000  # their values do not matter to the time


class Workload(NamedTuple):
    """A network, a federation and a batch size."""

    model: str
    num_clients: int
    clients_per_round: int
    batch_size: int

    @property
    def examples_per_client(self) -> int:
        """Examples of each client."""
        return NUM_EXAMPLES // self.num_clients


WORKLOADS = {
    "silo": Workload("cnn1", 100, 10, 50),
    "crowd": Workload("cnn1", 1000, 100, 10),
    "tiny": Workload("softmax_regression", 1000, 100, 10),
    "middle": Workload("mlp", 100, 10, 200),  # 199,210 parameters
    "middle_crowd": Workload("mlp", 1000, 100, 10),
    "lenet": Workload("lenet", 1000, 100, 10),  # 61,706 parameters
}
