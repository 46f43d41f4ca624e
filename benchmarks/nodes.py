"""What passes the driver of a Ray cluster in a round, against the clients of a node: two nodes on this machine."""

import pickle
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import ray
from ray.cluster_utils import Cluster

import fedadmm.engine.ray as engine
from fedadmm import FedADMM, FedAvg, LocalTraining, Simulation
from fedadmm.data.generated import synthetic
from state import seconds

NODES = 2
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
METHODS: dict[str, Any] = {"fedavg": FedAvg(), "fedadmm": FedADMM(rho=0.1)}


class Traffic(NamedTuple):
    """A round over Ray: the active clients of a node, its seconds, and what the driver sends and gets for a node."""

    method: str
    size: int
    seconds: float
    sent: float  # in MB
    received: float


class _Counting:
    """Ray, with the bytes of what is put into its object store and of what is got from actors."""

    def __init__(self) -> None:
        self.sent = self.received = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def put(self, value: Any) -> Any:
        """Put a value: every node gets it once."""
        self.sent += NODES * len(pickle.dumps(value))
        return ray.put(value)

    def get(self, reference: Any) -> Any:
        """Get an answer."""
        answer = ray.get(reference)
        self.received += len(pickle.dumps(answer))
        return answer


def traffic(rounds: int) -> Iterator[Traffic]:
    """Yield the rounds of two methods: clients of one keep no state, those of the other send theirs to the store."""
    with _cluster():
        for name, method in METHODS.items():
            for size in (5, 20, 80):
                counting = _Counting()
                with mock.patch.object(engine, "ray", counting):
                    run = Simulation(
                        method,
                        model="mlp",
                        data=synthetic(num_clients=10_000, seed=0),
                        local=LocalTraining(epochs=1),
                        participation=NODES * size / 10_000,
                        engine="ray",
                        workers=NODES,
                        seed=0,
                    )
                    run.advance()
                    counting.sent = counting.received = 0
                    times = [seconds(run.advance) for _ in range(rounds)]
                    run.close()
                each = 1e6 * NODES * rounds
                yield Traffic(name, size, statistics.median(times), counting.sent / each, counting.received / each)


@contextmanager
def _cluster() -> Iterator[None]:
    """Start nodes of one CPU each, and a head without any."""
    made_here = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
    try:
        for _ in range(NODES):
            made_here.add_node(**NODE)
        ray.init(address=made_here.address, log_to_driver=False, logging_level="error")
        yield
    finally:
        ray.shutdown()
        made_here.shutdown()
