"""FedAvg rounds on pfl: torchrun --nproc-per-node=2 pfl_rounds.py WORKLOAD ROUNDS; prints the seconds of each."""

import json
import os
import sys
import time
from functools import cache

import torch
from bare import MODELS
from examples import examples_of
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional
from workloads import WORKLOADS


class Stopwatch(TrainingProcessCallback):
    """Notes when each round ends."""

    def __init__(self) -> None:
        self.ends = [time.perf_counter()]

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Note the time."""
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main(name: str, rounds: int) -> None:
    """Run FedAvg and print the seconds of each round but the first."""
    torch.set_num_threads(1)
    workload = WORKLOADS[name]

    class Network(MODELS[workload.model]):
        def loss(self, inputs, targets, eval=False):
            self.train(not eval)
            return functional.cross_entropy(self(inputs), targets)

        @torch.no_grad()
        def metrics(self, inputs, targets, eval=True):
            return {}

    @cache
    def dataset(client: int) -> Dataset:
        return Dataset(raw_data=list(examples_of(workload, client).tensors), user_id=str(client))

    network = Network()
    model = PyTorchModel(
        network, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0)
    )
    users = list(range(workload.num_clients))
    data = FederatedDataset(dataset, get_user_sampler("random", users))
    stopwatch = Stopwatch()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=10**6,
            train_cohort_size=workload.clients_per_round,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=None, postprocessors=[]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=0.01, local_batch_size=workload.batch_size
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=1000),
        callbacks=[stopwatch],
    )
    if int(os.environ.get("RANK", 0)) == 0:
        times = [after - before for before, after in zip(stopwatch.ends, stopwatch.ends[1:], strict=False)]
        print("SECONDS " + json.dumps(times[1:]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
