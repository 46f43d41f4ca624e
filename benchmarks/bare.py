"""The yardstick: what plain PyTorch takes for a round's local training, one process per core, no federation.

Written once and left alone. A plain nn.Module with F.max_pool2d, torch.optim.SGD, `x[ids]` batches, one thread per
process, the clients dealt evenly to the processes, no evaluation, nothing averaged and nothing sent but "go".
"""

import os
import time
from multiprocessing.connection import Connection

import torch
from torch import multiprocessing, nn
from torch.nn import functional
from workloads import Workload


class CNN1(nn.Module):
    """The paper's CNN 1, as one writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.dense1 = nn.Linear(3136, 512)
        self.dense2 = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.dense1(x.flatten(1)))
        return self.dense2(x)


class SoftmaxRegression(nn.Module):
    """One dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(784, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x.flatten(1))


class MLP(nn.Module):
    """Dense layers of 200 and 200."""

    def __init__(self) -> None:
        super().__init__()
        self.dense1 = nn.Linear(784, 200)
        self.dense2 = nn.Linear(200, 200)
        self.dense3 = nn.Linear(200, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.dense1(x.flatten(1)))
        return self.dense3(functional.relu(self.dense2(x)))


class LeNet(nn.Module):
    """LeNet-5 with ReLU and the largest of each four."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.dense1 = nn.Linear(400, 120)
        self.dense2 = nn.Linear(120, 84)
        self.dense3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.dense1(x.flatten(1)))
        return self.dense3(functional.relu(self.dense2(x)))


MODELS = {"cnn1": CNN1, "softmax_regression": SoftmaxRegression, "mlp": MLP, "lenet": LeNet}


class BareLoop:
    """Processes that train on `clients_per_round` clients when told to."""

    def __init__(self, model: str, *, clients_per_round: int, examples_per_client: int, batch_size: int) -> None:
        num_processes = len(os.sched_getaffinity(0))
        self._pipes = []
        self._processes = []
        for share in range(num_processes):
            ours, theirs = multiprocessing.Pipe()
            num_clients = len(range(share, clients_per_round, num_processes))
            arguments = (theirs, model, num_clients, examples_per_client, batch_size)
            self._processes.append(multiprocessing.Process(target=_serve, args=arguments, daemon=True))
            self._processes[-1].start()
            self._pipes.append(ours)
        self.seconds(epochs=1)  # warm up

    @classmethod
    def of(cls, workload: Workload) -> "BareLoop":
        """Return the loop of a workload."""
        return cls(
            workload.model,
            clients_per_round=workload.clients_per_round,
            examples_per_client=workload.examples_per_client,
            batch_size=workload.batch_size,
        )

    def seconds(self, *, epochs: int) -> float:
        """Return the seconds of one round."""
        began = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(epochs)
        for pipe in self._pipes:
            pipe.recv()
        return time.perf_counter() - began

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.join()


def _serve(pipe: Connection, name: str, num_clients: int, num_examples: int, batch_size: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MODELS[name]()
    x = torch.randn(num_clients * num_examples, 1, 28, 28)
    y = torch.randint(0, 10, (num_clients * num_examples,))
    while True:
        epochs = pipe.recv()
        for client in range(num_clients):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for _ in range(epochs):
                order = client * num_examples + torch.randperm(num_examples)
                for ids in order.split(batch_size):
                    optimizer.zero_grad()
                    functional.cross_entropy(model(x[ids]), y[ids]).backward()
                    optimizer.step()
        pipe.send("done")
