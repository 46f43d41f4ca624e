"""FedAvg rounds on Flower's simulation: python flower_rounds.py WORKLOAD ROUNDS; prints the seconds of each."""

import json
import sys
import time
from typing import ClassVar

import torch
from bare import MODELS
from examples import examples_of
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional
from torch.utils.data import DataLoader
from workloads import WORKLOADS

workload = WORKLOADS[sys.argv[1]]
rounds = int(sys.argv[2])
client_app, server_app = ClientApp(), ServerApp()


class TimedFedAvg(FedAvg):
    """Flower's FedAvg that notes when each round is aggregated."""

    ends: ClassVar[list[float]] = []

    def aggregate_train(self, server_round, replies):
        """Aggregate, and note the time."""
        result = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return result


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Do an epoch of SGD from the server's model."""
    torch.set_num_threads(1)
    model = MODELS[workload.model]()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = examples_of(workload, int(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, targets in DataLoader(data, batch_size=workload.batch_size, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(data)})}
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg and print the seconds of each round but the first."""
    share = workload.clients_per_round / workload.num_clients
    strategy = TimedFedAvg(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=workload.num_clients)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(MODELS[workload.model]().state_dict()), num_rounds=rounds + 1)
    times = [after - before for before, after in zip(strategy.ends, strategy.ends[1:], strict=False)]
    print("SECONDS " + json.dumps(times))


if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=workload.num_clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
