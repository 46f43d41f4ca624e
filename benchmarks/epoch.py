"""What the ADMM terms cost: an epoch of FedADMM's local problem over one of FedAvg's, in one process, in turns.

python benchmarks/epoch.py
"""

import statistics
import time
from typing import Annotated

import torch
import typer
from engines import make_data
from recording import Record, show
from workloads import WORKLOADS

from fedadmm import LocalTraining
from fedadmm.core.round import Assignment
from fedadmm.engine.process import keep_freed_memory
from fedadmm.training.evaluation import accuracy
from fedadmm.training.models import initial_model
from fedadmm.training.task import LearningTask


def main(pairs: Annotated[int, typer.Option(help="Epochs of each.")] = 30, record: Record = None) -> None:
    """Print the median ratio and its quartiles, by the time of this thread alone."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as a worker does
    rows = []
    for name in ("silo", "crowd"):
        workload = WORKLOADS[name]
        module = initial_model(workload.model, inputs=torch.empty(1, 1, 28, 28), num_classes=10, seed=0)
        task = LearningTask(
            module,
            make_data(workload),
            local=LocalTraining(epochs=1, batch_size=workload.batch_size, learning_rate=0.01),
            loss=torch.nn.functional.cross_entropy,
            metrics={"accuracy": accuracy},
            seed=0,
            device="cpu",
        )
        theta = task.model.weights.clone()
        terms = {"dual": torch.randn_like(theta) * 1e-3, "rho": 0.1, "centre": theta.clone()}
        times: dict[str, list[float]] = {"plain": [], "admm": []}
        for number in range(pairs + 1):
            for kind, given in (("plain", {}), ("admm", terms)):
                # Enough clients for 600 examples: an epoch of a small one is over in a moment.
                problems = [
                    task.problem(Assignment(client, number + 1, 1), buffers=task.buffers())
                    for client in range(600 // workload.examples_per_client)
                ]
                began = time.thread_time()
                for problem in problems:
                    problem.solve(start=theta, **given)
                times[kind].append(time.thread_time() - began)
        ratios = [b / a for a, b in zip(times["plain"][1:], times["admm"][1:], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(
            {
                "workload": name,
                "batch size": str(workload.batch_size),
                "FedAvg [s]": f"{statistics.median(times['plain'][1:]):.3f}",
                "FedADMM / FedAvg": f"{middle:.3f}",
                "quartiles": f"{low:.3f} to {high:.3f}",
            }
        )
    show(rows, title="An epoch of FedADMM's local problem over one of FedAvg's", record=record)


if __name__ == "__main__":
    typer.run(main)
